# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of views around maps and reductions: the text of a program, and what it gives.

Every step writes linalg and tensor ops and computes the same with NumPy at once. Extents are
small, often 1, and known ('?' not) in some programs, in others not; what is read beside a chain
is often another view of an argument, so that views meet views in one loop nest.
"""

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


class Views:
    """One program, made of random steps. `text`, `arguments` and `results` are the outcome."""

    def __init__(self, seed: int, dtype: str = "f64", largest: int = LARGEST):
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.dtype, self.largest = dtype, largest
        self.unknown = self.rng.choice([0.0, 0.0, 0.3, 0.8])
        self.lines: list[str] = []
        self.inputs: list[Tensor] = []
        self.made: list[Tensor] = []
        self.names = itertools.count()
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

    # ---- writing -------------------------------------------------------------------------------

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

    def some_shape(self) -> tuple[int, ...]:
        while True:
            shape = tuple(self.rng.choice(EXTENTS) for _ in range(self.rng.randint(1, 4)))
            if prod(shape) <= self.largest // 4:
                return shape

    # ---- steps ---------------------------------------------------------------------------------

    def step(self) -> None:
        if self.rng.random() < 0.12:
            self.current = self.rng.choice(self.made)
        views = [self.expand, self.expand, self.collapse, self.collapse, self.transpose,
                 self.transpose, self.slice, self.pad, self.concat, self.insert, self.broadcast,
                 self.spread, self.gather, self.cast, self.reshape]  # fmt: skip
        computes = [self.map, self.map, self.positions, self.pair, self.pair, self.reduce,
                    self.reduce, self.softmax, self.product, self.centre]  # fmt: skip
        for _ in range(20):
            if self.rng.choice(views if self.rng.random() < 0.6 else computes)() is not False:
                return

    def shuffled(self, n: int) -> list[int]:
        order = list(range(n))
        self.rng.shuffle(order)
        return order

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

    def partner(self, t: Tensor) -> Tensor:
        """A tensor of the shape of t: one there is, or a view of an argument."""
        same = [m for m in self.made if m.shape == t.shape and m is not t]
        if same and self.rng.random() < 0.5:
            return self.rng.choice(same)
        kind = self.rng.choice(["plain", "transposed", "collapsed", "expanded"])
        if kind == "transposed" and t.rank:
            order = self.shuffled(t.rank)
            inverse = [order.index(k) for k in range(t.rank)]
            held = self.argument([t.shape[k] for k in order], [t.known[k] for k in order])
            return self.transposed(held, inverse)
        pairs = [k for k in range(t.rank - 1) if t.known[k] and t.known[k + 1]]
        if kind == "expanded" and pairs:
            k = self.rng.choice(pairs)
            shape = (*t.shape[:k], t.shape[k] * t.shape[k + 1], *t.shape[k + 2 :])
            held = self.argument(shape, (*t.known[:k], True, *t.known[k + 2 :]))
            groups = (
                [[d] for d in range(k)] + [[k, k + 1]] + [[d + 1] for d in range(k + 1, t.rank - 1)]
            )
            return self.expanded(held, groups, t.shape, self.known_extents(held, groups, t.shape))
        cuts = [k for k in range(t.rank) if t.known[k] and t.shape[k] > 1]
        if kind == "collapsed" and cuts:
            k = self.rng.choice(cuts)
            a = self.rng.choice([f for f in range(1, t.shape[k] + 1) if t.shape[k] % f == 0])
            shape = (*t.shape[:k], a, t.shape[k] // a, *t.shape[k + 1 :])
            held = self.argument(shape, (*t.known[:k], True, *t.known[k:]))
            return self.collapsed(held, [[d] if d < k else [k, k + 1] if d == k else [d + 1]
                                         for d in range(t.rank)])  # fmt: skip
        return self.argument(t.shape)

    def known_extents(self, held: Tensor, groups: Any, shape: Any) -> list[str | None]:
        found: list[str | None] = []
        for k, group in enumerate(groups):
            found += [None] * len(group) if held.known[k] else [self.dim(held, k)]
        assert len(found) == len(shape)
        return found

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
        made = self.generic([same, theirs, same], ["parallel"] * t.rank,
                            [(t.name, t.type), (row.name, row.type)], out, body, t.rank)  # fmt: skip
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

    # ---- views ---------------------------------------------------------------------------------

    def expand(self) -> Any:
        t = self.current
        if t.rank >= RANK:
            return False
        if not t.rank:
            self.expanded(t, [], (1,), [None])
            return True
        k = self.rng.randrange(t.rank)
        n = t.shape[k]
        parts = [a for a in range(1, n + 1) if n % a == 0]
        a = self.rng.choice(parts)
        factors = [a, n // a]
        if self.rng.random() < 0.3 and t.rank + 2 <= RANK:
            factors.insert(self.rng.randrange(3), 1)
        sizes: list[str | None] = [None] * len(factors)
        if not t.known[k]:  # one of the factors is not known either
            unknown = self.rng.randrange(len(factors))
            rest = n // factors[unknown]
            extent = self.dim(t, k)
            if rest > 1:
                extent = self.emit(f"arith.divsi {extent}, {self.index(rest)} : index")
            sizes[unknown] = extent
        before, after = list(range(k)), list(range(k + 1, t.rank))
        more = len(factors) - 1
        groups = (
            [[d] for d in before] + [list(range(k, k + more + 1))] + [[d + more] for d in after]
        )
        others = self.extents(t)
        shape = (*t.shape[:k], *factors, *t.shape[k + 1 :])
        self.expanded(t, groups, shape, [*others[:k], *sizes, *others[k + 1 :]])

    def expanded(self, t: Tensor, groups: Any, shape: Any, sizes: list[str | None]) -> Tensor:
        kind = tensor_type(shape, [s is None for s in sizes], self.dtype)
        output = ", ".join(str(n) if s is None else s for n, s in zip(shape, sizes, strict=True))
        name = self.emit(
            f"tensor.expand_shape {t.name} {groups} output_shape [{output}] : {t.type} into {kind}"
        )
        return self.add(name, t.value.reshape(shape), sizes)

    def collapse(self) -> Any:
        t = self.current
        if t.rank < 2:
            return False
        first = self.rng.randrange(t.rank - 1)
        last = min(t.rank - 1, first + self.rng.choice([1, 1, 2]))
        groups = [[d] for d in range(first)] + [list(range(first, last + 1))]
        self.collapsed(t, groups + [[d] for d in range(last + 1, t.rank)])

    def collapsed(self, t: Tensor, groups: list[list[int]]) -> Tensor:
        shape = [prod(t.shape[d] for d in group) for group in groups]
        known = [all(t.known[d] for d in group) for group in groups]
        kind = tensor_type(shape, known, self.dtype)
        name = self.emit(f"tensor.collapse_shape {t.name} {groups} : {t.type} into {kind}")
        made = self.add(name, t.value.reshape(shape), [True] * len(shape))
        return self.replace(made, known)

    def replace(self, made: Tensor, known: Any) -> Tensor:
        """The tensor just added, with what its type says put right."""
        self.made.pop()
        tensor = Tensor(made.name, made.value, tuple(known), made.dtype)
        self.made.append(tensor)
        self.current = tensor
        return tensor

    def transpose(self) -> Any:
        if self.current.rank < 2:
            return False
        self.transposed(self.current, self.shuffled(self.current.rank))

    def transposed(self, t: Tensor, order: list[int]) -> Tensor:
        extents = self.extents(t)
        shape, sizes = [t.shape[k] for k in order], [extents[k] for k in order]
        empty, kind = self.empty(shape, sizes)
        name = self.emit(
            f"linalg.transpose ins({t.name} : {t.type}) outs({empty} : {kind}) permutation = {order}"
        )
        return self.add(name, t.value.transpose(order), sizes)

    def slice(self) -> Any:
        t = self.current
        if not t.rank:
            return False
        parts, picks, known = [], [], []
        for k, n in enumerate(t.shape):
            kind = self.rng.choice(["whole", "whole", "part", "packed", "step", "one"])
            low, count, step = 0, n, 1
            if kind == "one":
                low, count = self.rng.randrange(n), 1
            elif kind == "part":
                low = self.rng.randrange(n)
                count = self.rng.randint(1, n - low)
            elif kind == "packed":
                count = self.rng.choice([a for a in range(1, n + 1) if n % a == 0])
                low = count * self.rng.randrange(n // count)
            elif kind == "step":
                step = self.rng.randint(1, 3)
                low = self.rng.randrange(min(n, step))
                count = (n - low + step - 1) // step
                step = step if count > 1 else 1  # upstream's subviews mix up dimensions else
            size = str(count)
            known.append(True)
            if not t.known[k] and (kind == "whole" or kind == "part" and low + count == n):
                size = self.dim(t, k)
                if low:
                    size = self.emit(f"arith.subi {size}, {self.index(low)} : index")
                known[-1] = False
            parts.append((str(low), size, str(step)))
            picks.append(slice(low, low + (count - 1) * step + 1, step))
        value = t.value[tuple(picks)]
        dropped = [k for k, n in enumerate(value.shape)
                   if n == 1 and known[k] and self.rng.random() < 0.4]  # fmt: skip
        shape = [n for k, n in enumerate(value.shape) if k not in dropped]
        known = [e for k, e in enumerate(known) if k not in dropped]
        kind = tensor_type(shape, known, self.dtype)
        lists = " ".join(f"[{', '.join(p)}]" for p in zip(*parts, strict=True))
        name = self.emit(f"tensor.extract_slice {t.name}{lists} : {t.type} to {kind}")
        self.add(name, value.reshape(shape), known)
        self.replace(self.current, known)

    def pad(self) -> Any:
        t = self.current
        if not t.rank:
            return False
        low = [self.rng.choice([0, 0, 1, 2]) for _ in t.shape]
        high = [self.rng.choice([0, 0, 1, 3]) for _ in t.shape]
        fill = self.rng.choice([0.0, 0.5])
        value = np.pad(t.value, list(zip(low, high, strict=True)), constant_values=fill)
        if value.size > self.largest:
            return False
        constant = self.constant(fill)
        kind = tensor_type(value.shape, t.known, self.dtype)
        places = ", ".join(f"%p{k}: index" for k in range(t.rank))
        name = self.emit(
            f"tensor.pad {t.name} low{low} high{high} {{\n  ^bb0({places}):\n"
            f"    tensor.yield {constant} : {self.dtype}\n  }} : {t.type} to {kind}"
        )
        self.add(name, value, [True] * t.rank)
        self.replace(self.current, t.known)

    def concat(self) -> Any:
        t = self.current
        if not t.rank or t.value.size * 3 > self.largest:
            return False
        k = self.rng.randrange(t.rank)
        others = [t]
        for _ in range(self.rng.choice([1, 1, 2])):
            kind = self.rng.choice(["same", "partner", "longer"])
            if kind == "same":
                others.append(t)
            elif kind == "partner":
                others.append(self.partner(t))
            else:
                shape = [n if d != k else self.rng.randint(1, 3) for d, n in enumerate(t.shape)]
                others.append(self.argument(shape))
        self.rng.shuffle(others)
        known = [all(o.known[d] for o in others) if d == k else any(o.known[d] for o in others)
                 for d in range(t.rank)]  # fmt: skip
        value = np.concatenate([o.value for o in others], k)
        if value.size > self.largest:
            return False
        kind = tensor_type(value.shape, known, self.dtype)
        names, types = ", ".join(o.name for o in others), ", ".join(o.type for o in others)
        name = self.emit(f"tensor.concat dim({k}) {names} : ({types}) -> {kind}")
        self.add(name, value, [True] * t.rank)
        self.replace(self.current, known)

    def insert(self) -> Any:
        """This tensor put into a larger one, at every position or at every other."""
        t = self.current
        if not t.rank:
            return False
        low = [self.rng.choice([0, 0, 1, 2]) for _ in t.shape]
        steps = [self.rng.choice([1, 1, 2]) for _ in t.shape]
        more = [self.rng.choice([0, 0, 1]) for _ in t.shape]
        shape = [a + (n - 1) * s + 1 + b
                 for n, a, s, b in zip(t.shape, low, steps, more, strict=True)]  # fmt: skip
        if prod(shape) > self.largest:
            return False
        known = [True] * t.rank
        if self.rng.random() < 0.5:
            name, _ = self.filled(shape, [None] * t.rank, 0.5)
            held = Tensor(name, np.full(shape, 0.5, TYPES[self.dtype]), tuple(known), self.dtype)
        else:
            held = self.argument(shape)
        extents = self.extents(t)
        sizes = ", ".join(str(n) if e is None else e
                          for n, e in zip(t.shape, extents, strict=True))  # fmt: skip
        name = self.emit(
            f"tensor.insert_slice {t.name} into {held.name}{low} [{sizes}] {steps} : "
            f"{t.type} into {held.type}"
        )
        value = held.value.copy()
        picks = tuple(slice(a, a + (n - 1) * s + 1, s)
                      for n, a, s in zip(t.shape, low, steps, strict=True))  # fmt: skip
        value[picks] = t.value
        self.add(name, value, [True] * t.rank)
        self.replace(self.current, held.known)

    def broadcast(self) -> Any:
        """A dimension more, along which nothing changes."""
        t = self.current
        n = self.rng.choice([1, 2, 3, 4])
        if t.rank >= RANK or t.value.size * n > self.largest:
            return False
        k = self.rng.randint(0, t.rank)
        size = None
        like = [(m, d) for m in self.made for d in range(m.rank) if not m.known[d]]
        if like and self.rng.random() < 0.5:
            other, d = self.rng.choice(like)
            if t.value.size * other.shape[d] <= self.largest:
                n, size = other.shape[d], self.dim(other, d)
        extents = self.extents(t)
        extents.insert(k, size)
        shape = [*t.shape[:k], n, *t.shape[k:]]
        empty, kind = self.empty(shape, extents)
        name = self.emit(
            f"linalg.broadcast ins({t.name} : {t.type}) outs({empty} : {kind}) dimensions = [{k}]"
        )
        value = np.broadcast_to(np.expand_dims(t.value, k), shape)
        self.add(name, value, extents)

    def gather(self) -> Any:
        """Rows picked by a tensor of positions."""
        t = self.current
        if not t.rank:
            return False
        m = self.rng.choice([1, 2, 4, t.shape[0], t.shape[0]])
        if t.value.size // t.shape[0] * m > self.largest:
            return False
        k = self.rng.randrange(t.rank) if self.rng.random() < 0.3 else 0
        if t.value.size // t.shape[k] * m > self.largest:
            return False
        at = self.data.integers(0, t.shape[k], m)
        rows = Tensor(self.name(), at, (self.rng.random() >= self.unknown,), "i64")
        self.inputs.append(rows)
        extents = self.extents(t)
        extents[k] = None if rows.known[0] else self.dim(rows, 0)
        shape = [*t.shape[:k], m, *t.shape[k + 1 :]]
        out = self.empty(shape, extents)
        body = ["%r = arith.index_cast %a : i64 to index"]
        body += [f"%j{d} = linalg.index {d} : index" for d in range(t.rank) if d != k]
        where = ", ".join("%r" if d == k else f"%j{d}" for d in range(t.rank))
        body += [f"%m = tensor.extract {t.name}[{where}] : {t.type}", "%m"]
        same = ", ".join(f"d{d}" for d in range(t.rank))
        made = self.generic(
            [f"d{k}", same], ["parallel"] * t.rank, [(rows.name, rows.type)], out, body, t.rank
        )
        self.add(made, np.take(t.value, at, k), extents)

    def cast(self) -> Any:
        """The type says more, or less, of the extents."""
        t = self.current
        if not t.rank or not self.unknown:
            return False
        known = [self.rng.random() < 0.5 for _ in t.shape]
        if known == list(t.known):
            return False
        kind = tensor_type(t.shape, known, self.dtype)
        name = self.emit(f"tensor.cast {t.name} : {t.type} to {kind}")
        self.add(name, t.value, [True] * t.rank)
        self.replace(self.current, known)

    def reshape(self) -> Any:
        """Any other shape of as many elements."""
        t = self.current
        if not all(t.known):
            return False
        left, shape = t.value.size, []
        while left > 1 and len(shape) < RANK - 1:
            shape.append(self.rng.choice([a for a in range(1, left + 1) if left % a == 0]))
            left //= shape[-1]
        shape.append(left)
        values = [self.index(n) for n in shape]
        made = f"tensor.from_elements {', '.join(values)} : tensor<{len(shape)}xindex>"
        kind = tensor_type(shape, [True] * len(shape), self.dtype)
        name = self.emit(
            f"tensor.reshape {t.name}({self.emit(made)}) : "
            f"({t.type}, tensor<{len(shape)}xindex>) -> {kind}"
        )
        self.add(name, t.value.reshape(shape), [True] * len(shape))


if __name__ == "__main__":
    import sys

    narrow = "f32" in sys.argv
    print(Views(int(sys.argv[1]), *(["f32", 400] if narrow else [])).text)
