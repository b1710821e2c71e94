# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over rows of a matrix, at a number of rows: what `problem.Problem` is for attention.

rms_norm_matmul        rms_norm(x) @ w: x [rows, cols], weight [cols], w [cols, out]
layer_norm_matmul      layer_norm(x) @ w: x [rows, cols], weight and bias [cols], w [cols, out]
linear_cross_entropy   cross-entropy of x wᵀ: x [rows, width], w [classes, width], target [rows]
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

EPS = {"rms_norm_matmul": 1e-6, "layer_norm_matmul": 1e-5}  # of the norms
SAMPLED = 64  # rows to check


@dataclass(frozen=True)
class Rows:
    """`program`: one of those above; `settings`: the extents but the number of rows, which is
    `keys`. `operator` is a name for both."""

    operator: str
    program: str
    dtype: str
    keys: int
    settings: dict[str, Any] = field(default_factory=dict)
    batch: int = 1

    @classmethod
    def of(cls, spec: dict[str, Any], length: int) -> Rows:
        return cls(spec["operator"], spec["program"], spec["dtype"], length, spec["settings"])

    def as_json(self) -> dict[str, Any]:
        return {"kind": "rows", **asdict(self)}

    @property
    def _extents(self) -> tuple[int, int]:
        """Of the reduced axis of the product, and of its other one."""
        s = self.settings
        return (s["cols"], s["out"]) if self.program in EPS else (s["width"], s["classes"])

    @property
    def _vectors(self) -> int:
        """How many scales or shifts the reduced axis has."""
        return {"rms_norm_matmul": 1, "layer_norm_matmul": 2}.get(self.program, 0)

    @property
    def flops(self) -> int:
        """Of the matrix product."""
        inner, outer = self._extents
        return 2 * self.keys * inner * outer

    @property
    def bytes(self) -> int:
        """Inputs and the result, each once."""
        inner, outer = self._extents
        both = 2 * (self.keys * inner + inner * outer)
        if self.program in EPS:
            return both + 2 * (self._vectors * inner + self.keys * outer)
        return both + (8 + 4) * self.keys

    def inputs(self, device: str, seed: int = 0) -> list[Any]:
        """The same for every candidate."""
        import torch

        generator = torch.Generator(device).manual_seed(seed + self.keys)
        kind = torch.float16 if self.dtype == "f16" else torch.bfloat16
        inner, outer = self._extents

        def array(*shape: int, scale: float = 1.0) -> Any:
            made = torch.randn(*shape, device=device, generator=generator)
            return (made * scale).to(kind)

        x = array(self.keys, inner)
        if self.program in EPS:
            vectors = [array(inner) for _ in range(self._vectors)]
            return [x, *vectors, array(inner, outer, scale=inner**-0.5)]
        target = torch.randint(outer, (self.keys,), device=device, generator=generator)
        return [x, array(outer, inner, scale=inner**-0.5), target]

    def result(self, arrays: Any) -> Any:
        """An array for the result, not initialised."""
        import torch

        if self.program in EPS:
            return torch.empty(self.keys, self._extents[1], device=arrays[0].device,
                               dtype=arrays[0].dtype)  # fmt: skip
        return torch.empty(self.keys, device=arrays[0].device, dtype=torch.float32)

    def plain(self, arrays: Any) -> Any:
        """As torch's users write it."""
        import torch.nn.functional as F

        x, *vectors, last = arrays
        if self.program in EPS:
            norm: Any = F.rms_norm if self.program == "rms_norm_matmul" else F.layer_norm
            return norm(x, (x.shape[-1],), *vectors, eps=EPS[self.program]) @ last
        return F.cross_entropy((x @ vectors[0].T).float(), last, reduction="none")

    def _sample(self) -> list[int]:
        random = np.random.default_rng(self.keys)
        count = min(self.keys, SAMPLED)
        return sorted(int(x) for x in random.choice(self.keys, count, replace=False))

    def expected(self, arrays: Any, whole: bool = False) -> Any:
        """Some rows of the result (or all) in float64."""
        rows = slice(None) if whole else self._sample()
        x, *others = (a.double() if a.is_floating_point() else a for a in arrays)
        if self.program in EPS:
            return self.plain([x[rows], *others])
        import torch.nn.functional as F

        w, target = others
        return F.cross_entropy(x[rows] @ w.T, target[rows], reduction="none")

    def picked(self, out: Any, whole: bool = False) -> Any:
        """The same rows of a result."""
        return out if whole else out[self._sample()]
