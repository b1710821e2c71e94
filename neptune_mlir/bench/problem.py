# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An operator at a length: its inputs, what it costs, and its rows in float64.

Operators are attention with the settings of `neptune_mlir.ops.OPERATORS` (heads, kv_heads,
causal, window, softcap, alibi), positions aligned at the end. Draws have more (`draws.py`): v_dim,
sink, documents (their mean length), bias (added to the scores, [heads, queries, keys]), and lse
(the log-sum-exp of each row is a second result). `rows.Rows` is the same for programs over rows of
a matrix.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from neptune_mlir.bench.rows import SIZES, Rows, dtype_of

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
    def v_dim(self) -> int:
        return int(self.settings.get("v_dim", self.head_dim))

    @property
    def title(self) -> str:
        """What it is, in a line."""
        s = self.settings
        dims = f"d{self.head_dim}" + (f"/{self.v_dim}" if self.v_dim != self.head_dim else "")
        more = [
            name if value is True else f"{name} {value:g}" for name, value in s.items()
            if value and name not in ("heads", "kv_heads", "v_dim", "q_len")
        ]  # fmt: skip
        shape = f"b{self.batch} {self.heads}/{self.kv_heads} {self.queries}x{self.keys}"
        return " ".join(["attention", dims, shape, self.dtype, *more])

    @cached_property
    def documents(self) -> np.ndarray:
        """The document of each key, in ascending order. Lengths are exponential."""
        mean = self.settings["documents"]
        ends = np.random.default_rng(self.keys).random(self.keys) < 1 / mean
        return np.cumsum(ends, dtype=np.int32)

    @property
    def pairs(self) -> int:
        """Keys that queries see, over all queries of a head."""
        position = np.arange(self.queries) + (self.keys - self.queries)
        last = np.minimum(position, self.keys - 1) if self.settings.get("causal") else (
            np.full(self.queries, self.keys - 1)
        )  # fmt: skip
        window = self.settings.get("window")
        first = np.maximum(position - window + 1, 0) if window else np.zeros_like(position)
        if self.settings.get("documents"):
            own = self.documents[position]
            first = np.maximum(first, np.searchsorted(self.documents, own, "left"))
            last = np.minimum(last, np.searchsorted(self.documents, own, "right") - 1)
        return int(np.maximum(last - first + 1, 0).sum())

    @property
    def flops(self) -> int:
        """Of the two matrix products, over pairs that see each other."""
        return 2 * self.batch * self.heads * self.pairs * (self.head_dim + self.v_dim)

    @property
    def bytes(self) -> int:
        """Queries, the keys and values that some query sees, a bias and the results, each once."""
        size, dims = SIZES[self.dtype], self.head_dim + self.v_dim
        rows, seen = self.heads * self.queries, self.keys
        if window := self.settings.get("window"):
            seen = min(seen, self.queries + window - 1)
        moved = size * self.batch * (rows + self.kv_heads * seen) * dims
        moved += size * rows * self.keys * bool(self.settings.get("bias"))
        return moved + 4 * self.batch * rows * bool(self.settings.get("lse"))

    def inputs(self, device: str, seed: int = 0) -> list[Any]:
        """q, k, v, and what the settings add in the order of `ops.attention`: the same for every
        candidate."""
        import torch

        generator = torch.Generator(device).manual_seed(seed + self.keys)

        def random(*shape: int, dtype: str = self.dtype) -> Any:
            kind = dtype_of(dtype)
            return torch.randn(*shape, device=device, dtype=kind, generator=generator)

        def array(heads: int, n: int, dim: int) -> Any:
            first, second = (n, heads) if self.strided else (heads, n)
            made = random(self.batch, first, second, dim)
            return made.transpose(1, 2) if self.strided else made

        made = [
            array(self.heads, self.queries, self.head_dim),
            array(self.kv_heads, self.keys, self.head_dim),
            array(self.kv_heads, self.keys, self.v_dim),
        ]
        if self.settings.get("alibi"):
            number = torch.arange(1, self.heads + 1, device=device, dtype=torch.float32)
            made.append(torch.exp2(-8 * number / self.heads))
        if self.settings.get("sink"):
            made.append(random(self.heads, dtype="f32"))
        if self.settings.get("documents"):
            of_keys = torch.from_numpy(self.documents).to(device)
            every = of_keys.repeat(self.batch, 1)
            made += [every[:, self.keys - self.queries :].contiguous(), every]
        if self.settings.get("bias"):
            made.append(random(self.heads, self.queries, self.keys))
        return made

    def extra(self, arrays: Any) -> dict[str, Any]:
        """The inputs beside q, k and v by name; `documents` are those of the keys."""
        names = []
        for name in ("alibi", "sink", "documents", "bias"):
            if self.settings.get(name):
                names += ["of_queries", name] if name == "documents" else [name]
        return dict(zip(names, arrays[3:], strict=True))

    def result(self, arrays: Any) -> Any:
        """An array for the result, not initialised; with `lse` two."""
        import torch

        q = arrays[0]
        shape = (self.batch, self.heads, self.queries)
        out = torch.empty(*shape, self.v_dim, device=q.device, dtype=q.dtype)
        if not self.settings.get("lse"):
            return out
        return out, torch.empty(*shape, device=q.device, dtype=torch.float32)

    def expected(self, arrays: Any, whole: bool = False) -> Any:
        """Sampled rows of the last batch entry (or all, where that is affordable) in float64: of
        the result, or of each."""
        out, sums = self.both(arrays, *self.sample(whole))
        return (out, sums) if self.settings.get("lse") else out

    def picked(self, out: Any, whole: bool = False) -> Any:
        """The same rows of a result, or of each."""
        heads, rows = self.sample(whole)
        if isinstance(out, tuple):
            return tuple(one[-1][heads][:, rows] for one in out)
        return out[-1][heads][:, rows]

    def sample(self, whole: bool = False) -> tuple[list[int], list[int]]:
        """Heads and rows to check: the ends and some between, or all where that is affordable."""
        if whole and self.heads * self.queries * self.keys <= WHOLE:
            return list(range(self.heads)), list(range(self.queries))
        random = np.random.default_rng(self.keys)
        return _some(random, self.heads, SAMPLED_HEADS), _some(random, self.queries, SAMPLED_ROWS)

    def reference(self, arrays: Any, heads: list[int], rows: list[int]) -> Any:
        """Those rows of the last batch entry in float64, [heads, rows, v_dim]."""
        return self.both(arrays, heads, rows)[0]

    def both(self, arrays: Any, heads: list[int], rows: list[int]) -> tuple[Any, Any]:
        """`reference`, and the log-sum-exp of the scores of those rows, [heads, rows]."""
        import torch

        q, k, v = (a[-1] for a in arrays[:3])
        extra = self.extra(arrays)
        position = torch.tensor(rows, device=q.device)[:, None] + (self.keys - self.queries)
        hidden = self.hidden(position, extra)
        distance = torch.arange(self.keys, device=q.device)[None, :] - position
        found, sums = [], []
        for h in heads:
            shared = h // (self.heads // self.kv_heads)
            s = q[h, rows].double() @ k[shared].double().T / math.sqrt(self.head_dim)
            if cap := self.settings.get("softcap"):
                s = cap * torch.tanh(s / cap)
            if "alibi" in extra:
                s = s + extra["alibi"][h].double() * distance
            if "bias" in extra:
                s = s + extra["bias"][h, rows].double()
            s = s.masked_fill(hidden, -math.inf)
            largest = s.amax(-1, keepdim=True)
            if "sink" in extra:
                largest = torch.maximum(largest, extra["sink"][h].double())
            # a query that sees nothing gives 0
            largest = largest.clamp_min(-1e300)
            weights = torch.exp(s - largest)
            total = weights.sum(-1, keepdim=True)
            if "sink" in extra:
                total = total + torch.exp(extra["sink"][h].double() - largest)
            found.append(weights @ v[shared].double() / total.clamp_min(1e-300))
            sums.append((largest + torch.log(total))[:, 0])
        return torch.stack(found), torch.stack(sums)

    def hidden(self, position: Any, extra: dict[str, Any]) -> Any:
        """Which keys the rows at these positions do not see."""
        import torch

        key = torch.arange(self.keys, device=position.device)[None, :]
        hidden = torch.zeros(len(position), self.keys, dtype=torch.bool, device=position.device)
        if self.settings.get("causal"):
            hidden |= key > position
        if self.settings.get("window"):
            hidden |= position - key >= self.settings["window"]
        if "documents" in extra:
            of = extra["documents"][-1]
            hidden |= of[position[:, 0]][:, None] != of[None, :]
        return hidden


def problem_of(spec: dict[str, Any], length: int, batch: int = 1) -> Problem | Rows:
    """What a bundle's `facts["bench"]` says, at a length; a draw has its own."""
    if "problem" in spec:
        return from_json(spec["problem"])
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
