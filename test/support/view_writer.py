# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of a random program, op by op; every tensor carries its value in NumPy."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

EXTENTS = (1, 1, 2, 3, 4, 4, 5, 6, 8, 12)
LARGEST = 1500  # elements of a tensor
RANK = 5
TYPES = {"f64": np.float64, "f32": np.float32}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the program; `known[k]`: its type says the extent of dimension k."""

    name: str
    value: Any
    known: tuple[bool, ...]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def rank(self) -> int:
        return len(self.known)

    @property
    def type(self) -> str:
        return tensor_type(self.shape, self.known, self.dtype)


def tensor_type(shape: Any, known: Any, dtype: str) -> str:
    dims = [f"{n}x" if k else "?x" for n, k in zip(shape, known, strict=True)]
    return f"tensor<{''.join(dims)}{dtype}>"


class Writer:
    """Lines of a function. `current` is the tensor that the next step starts from."""

    def __init__(self, seed: int, dtype: str, largest: int):
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.dtype, self.largest = dtype, largest
        self.unknown = self.rng.choice([0.0, 0.0, 0.3, 0.8])
        self.lines: list[str] = []
        self.inputs: list[Tensor] = []
        self.made: list[Tensor] = []
        self.names = itertools.count()

    def name(self) -> str:
        return f"%{next(self.names)}"

    def emit(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def index(self, value: int) -> str:
        return self.emit(f"arith.constant {value} : index")

    def dim(self, tensor: Tensor, k: int) -> str:
        return self.emit(f"tensor.dim {tensor.name}, {self.index(k)} : {tensor.type}")

    def extents(self, tensor: Tensor) -> list[str | None]:
        """SSA values of the extents that the type does not say."""
        return [None if known else self.dim(tensor, k) for k, known in enumerate(tensor.known)]

    def empty(self, shape: Any, extents: list[str | None], dtype: str = "") -> tuple[str, str]:
        dtype = dtype or self.dtype
        kind = tensor_type(shape, [e is None for e in extents], dtype)
        given = ", ".join(e for e in extents if e is not None)
        return self.emit(f"tensor.empty({given}) : {kind}"), kind

    def add(self, name: str, value: Any, extents: Any) -> Tensor:
        known = tuple(e is None or e is True for e in extents)
        tensor = Tensor(name, np.asarray(value), known, self.dtype)
        assert tensor.rank == tensor.value.ndim
        self.made.append(tensor)
        self.current = tensor
        return tensor

    def constant(self, value: float) -> str:
        return self.emit(f"arith.constant {value:e} : {self.dtype}")

    def filled(self, shape: Any, extents: list[str | None], value: float) -> tuple[str, str]:
        constant = self.constant(value)
        empty, kind = self.empty(shape, extents)
        text = f"linalg.fill ins({constant} : {self.dtype}) outs({empty} : {kind}) -> {kind}"
        return self.emit(text), kind

    def generic(
        self, maps: list[str], kinds: list[str], operands: list[tuple[str, str]],
        out: tuple[str, str], body: list[str], rank: int, loops: list[str] | None = None,
    ) -> str:  # fmt: skip
        """A linalg.generic; `body` names its arguments %a, %b, ... and %o, and ends in a value."""
        space = ", ".join(f"d{k}" for k in range(rank))
        shown = ", ".join(f"affine_map<({space}) -> ({m})>" for m in maps)
        iterators = ", ".join(f'"{k}"' for k in kinds)
        ins = ""
        if operands:
            names, types = zip(*operands, strict=True)
            ins = f" ins({', '.join(names)} : {', '.join(types)})"
        element = [kind.rstrip(">").split("x")[-1].removeprefix("tensor<") for _, kind in operands]
        heads = [f"%{chr(97 + k)}: {e}" for k, e in enumerate(element)] + [f"%o: {self.dtype}"]
        lines = "\n    ".join(body[:-1])
        return self.emit(
            f"linalg.generic {{indexing_maps = [{shown}], iterator_types = [{iterators}]}}{ins} "
            f"outs({out[0]} : {out[1]}) {{\n  ^bb0({', '.join(heads)}):\n    {lines}\n"
            f"    linalg.yield {body[-1]} : {self.dtype}\n  }} -> {out[1]}"
        )

    def argument(self, shape: Any, known: Any = None) -> Tensor:
        value = self.data.standard_normal(shape).astype(TYPES[self.dtype])
        known = known or tuple(self.rng.random() >= self.unknown for _ in shape)
        tensor = Tensor(self.name(), value, tuple(known), self.dtype)
        self.inputs.append(tensor)
        self.made.append(tensor)
        return tensor

    def replace(self, made: Tensor, known: Any) -> Tensor:
        """The tensor just added, with what its type says put right."""
        self.made.pop()
        tensor = Tensor(made.name, made.value, tuple(known), made.dtype)
        self.made.append(tensor)
        self.current = tensor
        return tensor

    def shuffled(self, n: int) -> list[int]:
        order = list(range(n))
        self.rng.shuffle(order)
        return order

    def expanded(self, t: Tensor, groups: Any, shape: Any, sizes: list[str | None]) -> Tensor:
        kind = tensor_type(shape, [s is None for s in sizes], self.dtype)
        output = ", ".join(str(n) if s is None else s for n, s in zip(shape, sizes, strict=True))
        name = self.emit(
            f"tensor.expand_shape {t.name} {groups} output_shape [{output}] : {t.type} into {kind}"
        )
        return self.add(name, t.value.reshape(shape), sizes)

    def collapsed(self, t: Tensor, groups: list[list[int]]) -> Tensor:
        shape = [prod(t.shape[d] for d in group) for group in groups]
        known = [all(t.known[d] for d in group) for group in groups]
        kind = tensor_type(shape, known, self.dtype)
        name = self.emit(f"tensor.collapse_shape {t.name} {groups} : {t.type} into {kind}")
        made = self.add(name, t.value.reshape(shape), [True] * len(shape))
        return self.replace(made, known)

    def transposed(self, t: Tensor, order: list[int]) -> Tensor:
        extents = self.extents(t)
        shape, sizes = [t.shape[k] for k in order], [extents[k] for k in order]
        empty, kind = self.empty(shape, sizes)
        name = self.emit(
            f"linalg.transpose ins({t.name} : {t.type}) outs({empty} : {kind}) "
            f"permutation = {order}"
        )
        return self.add(name, t.value.transpose(order), sizes)
