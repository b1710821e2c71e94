# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An operator at a length: its inputs, what it costs, and its rows in float64.

Operators are attention with the settings of `neptune_mlir.ops.OPERATORS` (heads, kv_heads,
causal, window, softcap, alibi), positions aligned at the end; `rows.Rows` is the same for programs
over rows of a matrix.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from neptune_mlir.bench.rows import Rows

SAMPLED_HEADS, SAMPLED_ROWS = 4, 64
WHOLE = 1 << 27  # scores up to which every row is checked, when asked to


@dataclass(frozen=True)
class Problem:
    """`strided`: heads lie beside positions in memory, [batch, length, heads, head_dim]."""

    operator: str
    dtype: str
    queries: int
    keys: int
    settings: dict[str, Any] = field(default_factory=dict)
    head_dim: int = 128
    batch: int = 1
    strided: bool = False

    @classmethod
    def of(cls, spec: dict[str, Any], length: int, batch: int = 1) -> Problem:
        """The operator of a bundle (`facts["bench"]`) at a length."""
        tokens = spec.get("tokens")  # a batch that keeps their number
        return cls(
            spec["operator"], spec["dtype"], 1 if spec["settings"].get("q_len") == 1 else length,
            length, spec["settings"], spec["head_dim"],
            max(1, tokens // length) if tokens else batch,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        return {"kind": "attention", **asdict(self)}

    @property
    def heads(self) -> int:
        return int(self.settings["heads"])

    @property
    def kv_heads(self) -> int:
        return int(self.settings["kv_heads"])

    @property
    def is_decode(self) -> bool:
        return self.queries == 1

    @property
    def pairs(self) -> int:
        """Keys that queries see, over all queries of a head."""
        position = np.arange(self.queries) + (self.keys - self.queries)
        last = np.minimum(position, self.keys - 1) if self.settings.get("causal") else (
            np.full(self.queries, self.keys - 1)
        )  # fmt: skip
        window = self.settings.get("window")
        first = np.maximum(position - window + 1, 0) if window else np.zeros_like(position)
        return int(np.maximum(last - first + 1, 0).sum())

    @property
    def flops(self) -> int:
        """Of the two matrix products, over pairs that see each other."""
        return 4 * self.batch * self.heads * self.pairs * self.head_dim

    @property
    def bytes(self) -> int:
        """Queries, keys, values and the result, each once (16-bit)."""
        rows = 2 * self.heads * self.queries + 2 * self.kv_heads * self.keys
        return 2 * self.batch * rows * self.head_dim

    def inputs(self, device: str, seed: int = 0) -> list[Any]:
        """q, k, v and, for ALiBi, the slopes: the same for every candidate."""
        import torch

        generator = torch.Generator(device).manual_seed(seed + self.keys)
        kind = torch.float16 if self.dtype == "f16" else torch.bfloat16

        def array(heads: int, n: int) -> Any:
            first, second = (n, heads) if self.strided else (heads, n)
            made = torch.randn(
                self.batch, first, second, self.head_dim,
                device=device, dtype=kind, generator=generator,
            )  # fmt: skip
            return made.transpose(1, 2) if self.strided else made

        made = [array(self.heads, self.queries), array(self.kv_heads, self.keys),
                array(self.kv_heads, self.keys)]  # fmt: skip
        if self.settings.get("alibi"):
            number = torch.arange(1, self.heads + 1, device=device, dtype=torch.float32)
            made.append(torch.exp2(-8 * number / self.heads))
        return made

    def result(self, arrays: Any) -> Any:
        """An array for the result, not initialised."""
        import torch

        return torch.empty_like(arrays[0], memory_format=torch.contiguous_format)

    def expected(self, arrays: Any, whole: bool = False) -> Any:
        """Sampled rows of the last batch entry (or all, where that is affordable) in float64."""
        return self.reference(arrays, *self.sample(whole))

    def picked(self, out: Any, whole: bool = False) -> Any:
        """The same rows of a result."""
        heads, rows = self.sample(whole)
        return out[-1][heads][:, rows]

    def sample(self, whole: bool = False) -> tuple[list[int], list[int]]:
        """Heads and rows to check: the ends and some between, or all where that is affordable."""
        if whole and self.heads * self.queries * self.keys <= WHOLE:
            return list(range(self.heads)), list(range(self.queries))
        random = np.random.default_rng(self.keys)
        return _some(random, self.heads, SAMPLED_HEADS), _some(random, self.queries, SAMPLED_ROWS)

    def reference(self, arrays: Any, heads: list[int], rows: list[int]) -> Any:
        """Those rows of the last batch entry in float64, [heads, rows, head_dim]."""
        import torch

        q, k, v = (a[-1] for a in arrays[:3])
        position = torch.tensor(rows, device=q.device)[:, None] + (self.keys - self.queries)
        key = torch.arange(self.keys, device=q.device)[None, :]
        hidden = torch.zeros(len(rows), self.keys, dtype=torch.bool, device=q.device)
        if self.settings.get("causal"):
            hidden |= key > position
        if self.settings.get("window"):
            hidden |= position - key >= self.settings["window"]
        found = []
        for h in heads:
            shared = h // (self.heads // self.kv_heads)
            s = q[h, rows].double() @ k[shared].double().T / math.sqrt(self.head_dim)
            if cap := self.settings.get("softcap"):
                s = cap * torch.tanh(s / cap)
            if self.settings.get("alibi"):
                s = s + arrays[3][h].double() * (key - position)
            s = s.masked_fill(hidden, -math.inf)
            # a query that sees nothing gives 0
            weights = torch.exp(s - s.amax(-1, keepdim=True).clamp_min(-1e300))
            total = weights.sum(-1, keepdim=True).clamp_min(1e-300)
            found.append(weights @ v[shared].double() / total)
        return torch.stack(found)


def problem_of(spec: dict[str, Any], length: int, batch: int = 1) -> Problem | Rows:
    """What a bundle's `facts["bench"]` says, at a length."""
    if spec["kind"] == "rows":
        return Rows.of(spec, length)
    return Problem.of(spec, length, batch)


def from_json(data: dict[str, Any]) -> Problem | Rows:
    """What `as_json` gave."""
    rest = {k: v for k, v in data.items() if k != "kind"}
    return Rows(**rest) if data["kind"] == "rows" else Problem(**rest)


def _some(random: Any, extent: int, most: int) -> list[int]:
    if extent <= most:
        return list(range(extent))
    ends = max(1, most // 8)
    between = random.choice(np.arange(ends, extent - ends), most - 2 * ends, replace=False)
    return [*range(ends), *(int(x) for x in sorted(between)), *range(extent - ends, extent)]
