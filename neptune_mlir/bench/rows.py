# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs over rows of a matrix, at a number of rows: what `problem.Problem` is for attention.

softmax, logsumexp     of x [rows, cols]
rms_norm, layer_norm   of x [rows, cols], with weight [cols], and bias [cols]
cross_entropy          of logits [rows, cols] and target [rows]
rms_norm_matmul        rms_norm(x) @ w: x [rows, cols], weight [cols], w [cols, out]
layer_norm_matmul      layer_norm(x) @ w: x [rows, cols], weight and bias [cols], w [cols, out]
linear_cross_entropy   cross-entropy of x wᵀ: x [rows, width], w [classes, width], target [rows]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

SAMPLED = 64  # rows to check
SIZES = {"f16": 2, "bf16": 2, "f32": 4}  # bytes of an element


def _torch() -> Any:
    import torch

    return torch


def _norm(name: str, eps: float) -> Callable[..., Any]:
    def norm(x: Any, *vectors: Any) -> Any:
        made: Any = getattr(_torch().nn.functional, name)
        return made(x, (x.shape[-1],), *vectors, eps=eps)

    return norm


def _loss(logits: Any, target: Any) -> Any:
    wide = logits.float() if logits.element_size() == 2 else logits
    return _torch().nn.functional.cross_entropy(wide, target, reduction="none")


def _with_product(norm: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *others: norm(x, *others[:-1]) @ others[-1]


_rms, _layer = _norm("rms_norm", 1e-6), _norm("layer_norm", 1e-5)


@dataclass(frozen=True)
class RowProgram:
    """One of the programs above.

    Attributes:
        plain: as torch's users write it.
        vectors: how many scales and shifts a row has.
        inner, outer: settings that are the extents of the reduced axis and of the product's other
            one ("": there is no product).
        result: "rows" (a number for each), "matrix" (like x) or "product".
        target: whether an argument has the class of each row.
    """

    plain: Callable[..., Any]
    result: str
    vectors: int = 0
    inner: str = "cols"
    outer: str = ""
    target: bool = False


PROGRAMS = {
    "softmax": RowProgram(lambda x: x.softmax(-1), "matrix"),
    "logsumexp": RowProgram(lambda x: x.logsumexp(-1), "rows"),
    "rms_norm": RowProgram(_rms, "matrix", vectors=1),
    "layer_norm": RowProgram(_layer, "matrix", vectors=2),
    "cross_entropy": RowProgram(_loss, "rows", target=True),
    "rms_norm_matmul": RowProgram(_with_product(_rms), "product", vectors=1, outer="out"),
    "layer_norm_matmul": RowProgram(_with_product(_layer), "product", vectors=2, outer="out"),
    "linear_cross_entropy": RowProgram(
        lambda x, w, target: _loss(x @ w.T, target), "rows", inner="width", outer="classes",
        target=True,
    ),
}  # fmt: skip


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
    def title(self) -> str:
        """What it is, in a line."""
        extents = "x".join(str(n) for n in (self.keys, *self._extents) if n)
        return f"{self.program} {extents} {self.dtype}"

    @property
    def of_program(self) -> RowProgram:
        return PROGRAMS[self.program]

    @property
    def _extents(self) -> tuple[int, int]:
        """Of the reduced axis, and of the product's other one (0: there is no product)."""
        made = self.of_program
        return self.settings[made.inner], self.settings[made.outer] if made.outer else 0

    @property
    def flops(self) -> int:
        """Of the matrix product."""
        inner, outer = self._extents
        return 2 * self.keys * inner * outer

    @property
    def bytes(self) -> int:
        """Inputs and the result, each once."""
        made, (inner, outer) = self.of_program, self._extents
        size = SIZES[self.dtype]
        read = size * (self.keys * inner + inner * outer + made.vectors * inner)
        wide = 4 if made.target else size
        written = {"rows": wide, "matrix": size * inner, "product": size * outer}[made.result]
        return read + self.keys * (written + 8 * made.target)

    def inputs(self, device: str, seed: int = 0) -> list[Any]:
        """The same for every candidate."""
        torch = _torch()
        generator = torch.Generator(device).manual_seed(seed + self.keys)
        made, (inner, outer) = self.of_program, self._extents

        def array(*shape: int, scale: float = 1.0) -> Any:
            numbers = torch.randn(*shape, device=device, generator=generator)
            return (numbers * scale).to(dtype_of(self.dtype))

        found = [array(self.keys, inner), *(array(inner) for _ in range(made.vectors))]
        if outer:  # losses take the classes first
            shape = (outer, inner) if made.target else (inner, outer)
            found.append(array(*shape, scale=inner**-0.5))
        if made.target:
            classes = (self.keys,)
            found.append(torch.randint(outer or inner, classes, device=device, generator=generator))
        return found

    def result(self, arrays: Any) -> Any:
        """An array for the result, not initialised."""
        torch, (inner, outer) = _torch(), self._extents
        kind = self.of_program.result
        shape = [self.keys] if kind == "rows" else [self.keys, inner if kind == "matrix" else outer]
        x = arrays[0]
        dtype = torch.float32 if self.of_program.target else x.dtype
        return torch.empty(*shape, device=x.device, dtype=dtype)

    def plain(self, arrays: Any) -> Any:
        """As torch's users write it."""
        return self.of_program.plain(*arrays)

    def _sample(self) -> list[int]:
        random = np.random.default_rng(self.keys)
        count = min(self.keys, SAMPLED)
        return sorted(int(x) for x in random.choice(self.keys, count, replace=False))

    def expected(self, arrays: Any, whole: bool = False) -> Any:
        """Some rows of the result (or all) in float64."""
        rows = slice(None) if whole else self._sample()
        x, *others = arrays
        if self.of_program.target:
            others[-1] = others[-1][rows]
        wide = [a.double() if a.is_floating_point() else a for a in (x[rows], *others)]
        return self.plain(wide)

    def picked(self, out: Any, whole: bool = False) -> Any:
        """The same rows of a result."""
        return out if whole else out[self._sample()]


def dtype_of(name: str) -> Any:
    """torch's type."""
    torch = _torch()
    return {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[name]
