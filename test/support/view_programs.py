# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of views around maps and reductions: the text of a program, and what it gives.

Every step writes linalg and tensor ops and computes the same with NumPy at once. Extents are
small, often 1, and known ('?' not) in some programs, in others not; what is read beside a chain
is often another view of an argument, so that views meet views in one loop nest.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from support.view_moves import Moves
from support.view_writer import EXTENTS, LARGEST, RANK, TYPES, Tensor


class Views(Moves):
    """One program, made of random steps. `text`, `arguments` and `results` are the outcome."""

    def __init__(self, seed: int, dtype: str = "f64", largest: int = LARGEST):
        super().__init__(seed, dtype, largest)
        self.current = self.argument(self.some_shape())
        for _ in range(self.rng.randint(2, 8)):
            self.step()
        if self.current is self.inputs[0]:
            self.map()
        outputs = [self.current]
        if self.rng.random() < 0.3:
            outputs.append(self.rng.choice(self.made))
        self.results = [t.value for t in outputs]
        self.arguments = [t.value for t in self.inputs]
        takes = ", ".join(f"{t.name}: {t.type}" for t in self.inputs)
        names, types = ", ".join(t.name for t in outputs), ", ".join(t.type for t in outputs)
        body = "\n".join(f"  {line}" for line in self.lines)
        self.text = (
            f"func.func @main({takes}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}\n"
        )

    def some_shape(self) -> tuple[int, ...]:
        while True:
            shape = tuple(self.rng.choice(EXTENTS) for _ in range(self.rng.randint(1, 4)))
            if prod(shape) <= self.largest // 4:
                return shape

    def step(self) -> None:
        if self.rng.random() < 0.12:
            self.current = self.rng.choice(self.made)
        views = [self.expand, self.expand, self.collapse, self.collapse, self.transpose,
                 self.transpose, self.slice, self.pad, self.concat, self.insert, self.broadcast,
                 self.spread, self.gather, self.cast, self.reshape, self.shuffle,
                 self.shuffle]  # fmt: skip
        computes = [self.map, self.map, self.positions, self.pair, self.pair, self.reduce,
                    self.reduce, self.softmax, self.product, self.centre]  # fmt: skip
        for _ in range(20):
            if self.rng.choice(views if self.rng.random() < 0.6 else computes)() is not False:
                return

    def map(self) -> None:
        """An elementwise map, sometimes with its result transposed."""
        t = self.current
        order = self.shuffled(t.rank) if self.rng.random() < 0.3 else list(range(t.rank))
        extents = self.extents(t)
        out = self.empty([t.shape[k] for k in order], [extents[k] for k in order])
        scale = self.constant(self.rng.choice([2.0, -0.5, 1.25]))
        name, value = self.rng.choice([("tanh", np.tanh), ("absf", np.abs), ("scale", None)])
        if name == "scale":
            body = [f"%m = arith.mulf %a, {scale} : {self.dtype}", "%m"]
            result = t.value * TYPES[self.dtype](float(self.lines[-1].split()[3]))
        else:
            body = [f"%m = math.{name} %a : {self.dtype}", "%m"]
            result = value(t.value)
        maps = [", ".join(f"d{k}" for k in range(t.rank)), ", ".join(f"d{k}" for k in order)]
        made = self.generic(maps, ["parallel"] * t.rank, [(t.name, t.type)], out, body, t.rank)
        self.add(made, result.transpose(order), [extents[k] for k in order])

    def positions(self) -> Any:
        """A map that reads the positions of its loops."""
        t = self.current
        if not t.rank:
            return False
        extents = self.extents(t)
        out = self.empty(t.shape, extents)
        k = self.rng.randrange(t.rank)
        float_type = self.dtype
        body = [
            f"%i = linalg.index {k} : index",
            "%n = arith.index_cast %i : index to i64",
            f"%f = arith.sitofp %n : i64 to {float_type}",
            f"%m = arith.addf %a, %f : {float_type}",
            "%m",
        ]
        at = np.arange(t.shape[k]).reshape([-1 if d == k else 1 for d in range(t.rank)])
        value = t.value + at.astype(TYPES[self.dtype])
        if self.rng.random() < 0.5:  # a mask of two positions
            j = self.rng.randrange(t.rank)
            zero = self.constant(0.0)
            body = [
                f"%i = linalg.index {k} : index",
                f"%j = linalg.index {j} : index",
                "%c = arith.cmpi sle, %i, %j : index",
                f"%m = arith.select %c, %a, {zero} : {float_type}",
                "%m",
            ]
            other = np.arange(t.shape[j]).reshape([-1 if d == j else 1 for d in range(t.rank)])
            value = np.where(at <= other, t.value, TYPES[self.dtype](0))
        same = ", ".join(f"d{d}" for d in range(t.rank))
        made = self.generic(
            [same, same], ["parallel"] * t.rank, [(t.name, t.type)], out, body, t.rank
        )
        self.add(made, value, extents)

    def pair(self) -> None:
        """An elementwise map of two tensors, some of their dimensions maybe broadcast."""
        t = self.current
        other = self.partner(t)
        self.combine(t, other, list(range(t.rank)))

    def combine(self, t: Tensor, other: Tensor, at: list[Any]) -> None:
        """t with the tensor whose dimensions are at these of t ('0' where of extent 1)."""
        extents = self.extents(t)
        out = self.empty(t.shape, extents)
        name, value = self.rng.choice(
            [("addf", np.add), ("subf", np.subtract), ("mulf", np.multiply)]
        )
        same = ", ".join(f"d{k}" for k in range(t.rank))
        theirs = ", ".join("0" if k == "0" else f"d{k}" for k in at)
        body = [f"%m = arith.{name} %a, %b : {self.dtype}", "%m"]
        operands = [(t.name, t.type), (other.name, other.type)]
        made = self.generic(
            [same, theirs, same], ["parallel"] * t.rank, operands, out, body, t.rank
        )
        shape = [1] * t.rank
        value_of = other.value
        kept = [k for k in at if k != "0"]
        value_of = value_of.reshape([n for n, k in zip(other.shape, at, strict=True) if k != "0"])
        order = sorted(range(len(kept)), key=lambda i: kept[i])
        value_of = value_of.transpose(order)
        for k in kept:
            shape[k] = t.shape[k]
        self.add(made, value(t.value, value_of.reshape(shape)), extents)

    def spread(self) -> Any:
        """A smaller tensor, broadcast along some dimensions, beside this one."""
        t = self.current
        dims = [k for k in range(t.rank) if self.rng.random() < 0.6]
        if self.rng.random() < 0.5:  # keeps dimensions of extent 1, as front ends write it
            at: list[Any] = [k if k in dims else "0" for k in range(t.rank)]
        else:
            at = list(dims)
            self.rng.shuffle(at)
        shape = [1 if k == "0" else t.shape[k] for k in at]
        known = [k == "0" or t.known[k] for k in at]
        self.combine(t, self.argument(shape, known), at)

    def reduce(self) -> Any:
        t = self.current
        if not t.rank:
            return False
        over = sorted(self.rng.sample(range(t.rank), self.rng.randint(1, min(2, t.rank))))
        self.reduced(t, over, self.rng.choice(["add", "add", "max"]), self.rng.random() < 0.4)

    def reduced(self, t: Tensor, over: list[int], kind: str, keep: bool) -> Tensor:
        extents = self.extents(t)
        init = -3.0 if kind == "max" else self.rng.choice([0.0, 0.0, 1.5])
        kept = [k for k in range(t.rank) if k not in over]
        order = list(kept)
        if not keep and self.rng.random() < 0.3:
            self.rng.shuffle(order)
        places = [k if k in kept else None for k in range(t.rank)] if keep else list(order)
        shape = [1 if k is None else t.shape[k] for k in places]
        sizes = [None if k is None else extents[k] for k in places]
        out = self.filled(shape, sizes, init)
        op = "maximumf" if kind == "max" else "addf"
        body = [f"%m = arith.{op} %a, %o : {self.dtype}", "%m"]
        maps = [
            ", ".join(f"d{k}" for k in range(t.rank)),
            ", ".join("0" if k is None else f"d{k}" for k in places),
        ]
        iterators = ["reduction" if k in over else "parallel" for k in range(t.rank)]
        made = self.generic(maps, iterators, [(t.name, t.type)], out, body, t.rank)
        if kind == "max":
            value = np.maximum(t.value.max(tuple(over)), TYPES[self.dtype](init))
        else:
            value = t.value.sum(tuple(over)) + TYPES[self.dtype](init)
        value = np.asarray(value).transpose([kept.index(k) for k in order])
        return self.add(made, value.reshape(shape), sizes)

    def along(self, t: Tensor, row: Tensor, k: int, name: str, value: Any) -> Tensor:
        """t combined with a tensor that lacks dimension k, or has it with extent 1."""
        extents = self.extents(t)
        out = self.empty(t.shape, extents)
        at = [d for d in range(t.rank) if d != k]
        keeps = row.rank == t.rank
        theirs = ", ".join(
            "0" if d == k else f"d{d}" for d in range(t.rank) if keeps or d != k
        )  # fmt: skip
        same = ", ".join(f"d{d}" for d in range(t.rank))
        body = [f"%m = arith.{name} %a, %b : {self.dtype}", "%m"]
        operands = [(t.name, t.type), (row.name, row.type)]
        made = self.generic(
            [same, theirs, same], ["parallel"] * t.rank, operands, out, body, t.rank
        )
        shape = [t.shape[d] if d in at else 1 for d in range(t.rank)]
        return self.add(made, value(t.value, row.value.reshape(shape)), extents)

    def centre(self) -> Any:
        """A sum that reads another sum over the same dimension: two of one pass."""
        t = self.current
        if not t.rank:
            return False
        k, keep = self.rng.randrange(t.rank), self.rng.random() < 0.5
        order = self.rng.getstate()
        mean = self.plain_reduced(t, k, "add", keep)
        self.rng.setstate(order)
        moved = self.along(t, mean, k, "subf", np.subtract)
        squares = self.along_itself(moved)
        self.plain_reduced(squares, k, "add", self.rng.random() < 0.5)

    def along_itself(self, t: Tensor) -> Tensor:
        extents = self.extents(t)
        out = self.empty(t.shape, extents)
        same = ", ".join(f"d{d}" for d in range(t.rank))
        body = [f"%m = arith.mulf %a, %a : {self.dtype}", "%m"]
        made = self.generic(
            [same, same], ["parallel"] * t.rank, [(t.name, t.type)], out, body, t.rank
        )
        return self.add(made, t.value * t.value, extents)

    def plain_reduced(self, t: Tensor, k: int, kind: str, keep: bool) -> Tensor:
        """Over one dimension, from the identity, dimensions in order."""
        extents = self.extents(t)
        places = [d if d != k else None for d in range(t.rank) if keep or d != k]
        shape = [1 if d is None else t.shape[d] for d in places]
        sizes = [None if d is None else extents[d] for d in places]
        out = self.filled(shape, sizes, -3e30 if kind == "max" else 0.0)
        op = "maximumf" if kind == "max" else "addf"
        body = [f"%m = arith.{op} %a, %o : {self.dtype}", "%m"]
        maps = [", ".join(f"d{d}" for d in range(t.rank)),
                ", ".join("0" if d is None else f"d{d}" for d in places)]  # fmt: skip
        iterators = ["reduction" if d == k else "parallel" for d in range(t.rank)]
        made = self.generic(maps, iterators, [(t.name, t.type)], out, body, t.rank)
        value = t.value.max(k) if kind == "max" else t.value.sum(k)
        return self.add(made, value.reshape(shape), sizes)

    def softmax(self) -> Any:
        t = self.current
        if not t.rank:
            return False
        k, keep = self.rng.randrange(t.rank), self.rng.random() < 0.5
        largest = self.plain_reduced(t, k, "max", keep)
        moved = self.along(t, largest, k, "subf", np.subtract)
        extents = self.extents(moved)
        out = self.empty(t.shape, extents)
        same = ", ".join(f"d{d}" for d in range(t.rank))
        body = [f"%m = math.exp %a : {self.dtype}", "%m"]
        made = self.generic(
            [same, same], ["parallel"] * t.rank, [(moved.name, moved.type)], out, body, t.rank
        )
        weights = self.add(made, np.exp(moved.value), extents)
        total = self.plain_reduced(weights, k, "add", keep)
        self.along(weights, total, k, "divf", np.divide)

    def product(self) -> Any:
        """A contraction of one dimension with a matrix."""
        t = self.current
        n = self.rng.choice((1, 2, 3, 4, 5))
        if not t.rank or prod(t.shape) * n > self.largest * 4:
            return False
        k = self.rng.randrange(t.rank)
        if prod(t.shape) // t.shape[k] * n > self.largest or t.rank + 1 > RANK:
            return False
        matrix = self.argument((t.shape[k], n), (t.known[k], self.rng.random() >= self.unknown))
        last = None if matrix.known[1] else self.dim(matrix, 1)
        extents = self.extents(t)
        kept = [d for d in range(t.rank) if d != k]
        shape = [*(t.shape[d] for d in kept), n]
        sizes = [*(extents[d] for d in kept), last]
        out = self.filled(shape, sizes, 0.0)
        body = [f"%p = arith.mulf %a, %b : {self.dtype}",
                f"%m = arith.addf %p, %o : {self.dtype}", "%m"]  # fmt: skip
        maps = [", ".join(f"d{d}" for d in range(t.rank)), f"d{k}, d{t.rank}",
                ", ".join(f"d{d}" for d in [*kept, t.rank])]  # fmt: skip
        iterators = ["reduction" if d == k else "parallel" for d in range(t.rank + 1)]
        operands = [(t.name, t.type), (matrix.name, matrix.type)]
        made = self.generic(maps, iterators, operands, out, body, t.rank + 1)
        self.add(made, np.tensordot(t.value, matrix.value, (k, 0)), sizes)


if __name__ == "__main__":
    import sys

    narrow = "f32" in sys.argv
    print(Views(int(sys.argv[1]), *(["f32", 400] if narrow else [])).text)
