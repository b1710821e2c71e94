# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`linalg.generic` on tiles as TTIR: elementwise code, reductions, contractions.

Operands are brought to the order of the loops, with extent 1 along the loops that they do not
vary over; each scalar op then runs at the smallest shape that its operands need. A sum of
products becomes `tt.dot`, whatever the order and number of its axes, unless it is too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra.combiners import identity_of
from neptune_mlir.analysis.tiles import Generic, element_of, reduction_of, rounding_of, unrounded
from neptune_mlir.codegen.triton.ttir_scalars import TritonScalars, element_type
from neptune_mlir.codegen.triton.ttir_text import Text, Value, power_of_two
from neptune_mlir.dialects.attributes import COMBINE, IDENTITY
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.ir.values import defining_op
from neptune_mlir.transforms.registry import remark

# the least extents (rows, columns, summed) of a product that is worth a matrix instruction
_LEAST = (1, 16, 16)
_LARGEST = 1 << 20  # elements of a tile that Triton takes
_DOT_TYPES = ("f16", "bf16", "f32", "f64")


def identity(combiner: str, dtype: str) -> Any:
    """The number that leaves every other as it is."""
    return identity_of(combiner, int(dtype[1:]) if dtype[0] == "i" else 0)


class Generics:
    """Emits generics. `outer(value)` is the value here of a scalar from outside a body."""

    def __init__(
        self, text: Text, scalars: TritonScalars, outer: Callable[[Any], Value], options: Any
    ):
        self.text, self.scalars, self.outer, self.options = text, scalars, outer, options
        self._fills: dict[str, Any] = {}  # tile -> the number that it is filled with
        self._zero_padded: set[str] = set()

    def note_fill(self, tile: Value, number: Any) -> None:
        """`tile` holds one number everywhere (None: nobody minds which)."""
        self._fills[tile.name] = number

    def note_zero_padded(self, tile: Value) -> None:
        """`tile` is 0 beyond its extents."""
        self._zero_padded.add(tile.name)

    def emit(self, g: Generic, inputs: Sequence[Value | None], init: Value | None) -> Value:
        """The result of a generic; inputs that the body does not read may be None."""
        if not g.reduced:
            return self._elementwise(g, inputs, init)
        found = reduction_of(g)
        assert init is not None
        if found is None:
            return self._custom(g, inputs, init)
        combiner, element = found
        product = _Product.read(g, combiner, element)
        if product is not None and product.fits:
            return self._contract(g, product, inputs, init)
        value = self._evaluate(g, [*inputs, None], element)
        narrow = value.dtype == "i1"
        if narrow:  # Triton moves no single bits between threads
            value = self.text.cast("arith.extui", value, "i32")
        neutral = 1 if narrow and combiner == "arith.andi" else identity(combiner, value.dtype)
        value = self._reduce(g, value, neutral, combiner)
        if narrow:
            value = self.text.cast("arith.trunci", value, "i1")
        value = self._result(g, value, g.maps[-1])
        if self._is_neutral(init, identity(combiner, value.dtype), value.dtype):
            return value
        return self.text.same(combiner, init, value)

    # ---- elementwise code

    def _elementwise(
        self, g: Generic, inputs: Sequence[Value | None], init: Value | None
    ) -> Value:
        loops = g.maps[-1]
        end = g.block.operations[len(g.block.operations) - 1].operation
        value = self._evaluate(g, [*inputs, init], end.operands[0])
        return self._result(g, value, loops)

    def _evaluate(self, g: Generic, tiles: Sequence[Value | None], wanted: Any) -> Value:
        """A value of the body at every point of the loops."""
        rank = len(g.extents)
        table: dict[Any, Value] = {}
        for argument, tile, loops in zip(g.block.arguments, tiles, g.maps, strict=True):
            if tile is not None:
                table[argument] = self._oriented(tile, loops, rank, g)

        pending = [wanted]
        while pending:
            v = pending[-1]
            op = defining_op(v)
            if v in table:
                pending.pop()
            elif op is None or op.block != g.block:
                table[v] = self.outer(v)
            elif op.name == "linalg.index":
                table[v] = self._index(g, ir.IntegerAttr(op.attributes["dim"]).value)
            elif missing := [o for o in op.operands if o not in table]:
                pending += reversed(missing)
            else:
                table[v] = self.scalars.op(op, [table[o] for o in op.operands])
        return table[wanted]

    def _index(self, g: Generic, loop: int) -> Value:
        places = self.text.range(power_of_two(g.extents[loop]))
        return self.text.along(places, loop, len(g.extents))

    def _oriented(self, tile: Value, loops: Sequence[int], rank: int, g: Generic) -> Value:
        """A tile with one dimension per loop, in their order."""
        if len(set(loops)) != len(loops):
            raise LoweringError("a diagonal of a tile", loc=location_text(g.op.location))
        if not tile.shape:
            return tile
        order = sorted(range(len(loops)), key=lambda k: loops[k])
        tile = self.text.transpose(tile, order)
        for loop in range(rank):
            if loop not in loops:
                tile = self.text.expand(tile, loop)
        return tile

    def _result(self, g: Generic, value: Value, loops: Sequence[int]) -> Value:
        """A value over the kept loops (in their order) as a tile of the result."""
        kept = sorted(loops)
        shape = tuple(power_of_two(g.extents[loop]) for loop in kept)
        if not shape:
            return value
        value = self.text.broadcast(value, shape)
        return self.text.transpose(value, [kept.index(loop) for loop in loops])

    # ---- reductions

    def _reduce(
        self, g: Generic, value: Value, neutral: Any,
        combine: str | Callable[[Value, Value], Value],
    ) -> Value:  # fmt: skip
        """The elements over all loops, combined along those that are reduced."""
        t, rank = self.text, len(g.extents)
        shape = list(value.shape or (1,) * rank)
        for loop in g.reduced:
            shape[loop] = power_of_two(g.extents[loop])
        if math.prod(shape) > _LARGEST:
            raise LoweringError(
                f"a reduction over a tile of {'x'.join(map(str, shape))} elements",
                loc=location_text(g.op.location), hint="use smaller tiles",
            )  # fmt: skip
        value = self._masked(g, t.broadcast(value, shape), g.reduced, neutral)
        for loop in sorted(g.reduced, reverse=True):
            value = t.reduce(value, loop, combine)
        return value

    def _custom(self, g: Generic, inputs: Sequence[Value | None], init: Value) -> Value:
        """A reduction with a combiner of its own. What its body makes of the neutral element is
        the element that comes in; the elements are combined in any order."""
        if not COMBINE.on(g.op):
            raise LoweringError(
                "a reduction whose combiner is not known to be associative has no form in Triton",
                loc=location_text(g.op.location),
            )
        module = ir.Module.parse(COMBINE.of(g.op), g.op.context)
        block = module.body.operations[0].regions[0].blocks[0]

        def combine(a: Value, b: Value) -> Value:
            table = dict(zip(block.arguments, (a, b), strict=True))
            *ops, end = (op.operation for op in block.operations)
            for op in ops:
                table[op.results[0]] = self.scalars.op(op, [table[v] for v in op.operands])
            return table[end.operands[0]]

        neutral = IDENTITY.of(g.op).value
        start = self.text.constant(neutral, element_type(element_of(g.result)))
        end = g.block.operations[len(g.block.operations) - 1].operation
        value = self._evaluate(g, [*inputs, start], end.operands[0])
        value = self._result(g, self._reduce(g, value, neutral, combine), g.maps[-1])
        return value if self._is_neutral(init, neutral, value.dtype) else combine(init, value)

    def _is_neutral(self, init: Value, neutral: Any, dtype: str) -> bool:
        if init.name not in self._fills:
            return False
        held = self._fills[init.name]
        return held is not None and (bool(held) == bool(neutral) if dtype == "i1"
                                     else held == neutral)  # fmt: skip

    def _masked(self, g: Generic, value: Value, loops: Sequence[int], neutral: Any) -> Value:
        """`value` with `neutral` beyond the extents of `loops`."""
        t = self.text
        for loop in loops:
            if power_of_two(g.extents[loop]) > g.extents[loop]:
                limit = t.constant(g.extents[loop], "i32")
                inside = t.compare("arith.cmpi", "slt", self._index(g, loop), limit)
                value = t.select(inside, value, t.number(neutral, value))
        return value

    # ---- contractions

    def _contract(
        self, g: Generic, p: _Product, inputs: Sequence[Value | None], init: Value
    ) -> Value:
        t = self.text
        dtypes = self._factor_types(g, p)
        factors = []
        for k, rows, columns in ((p.a, p.m, p.k), (p.b, p.k, p.n)):
            tile = inputs[k]
            assert tile is not None
            tile = self._finite(g, tile, k, p)
            tile = self._factor(tile, dtypes[k], rounding_of(g, k))
            factors.append(self._matrix(g, tile, g.maps[k], (p.batch, rows, columns)))
        groups = (p.batch, p.m, p.n)
        shape = self._flat_shape(g, groups)
        total = element_type(element_of(g.result))
        empty = self._is_neutral(init, 0.0, total)
        acc = (
            t.constant(0, total, shape) if empty else self._matrix(g, init, g.maps[-1], groups)
        )
        precision = self.options.precision if factors[0].dtype == "f32" else "ieee"
        left, right = factors
        made = t.dot(left, right, acc, precision)
        loops = [loop for group in groups for loop in group]
        made = t.reshape(made, [power_of_two(g.extents[loop]) for loop in loops])
        return t.transpose(made, [loops.index(loop) for loop in g.maps[-1]])

    def _factor_types(self, g: Generic, p: _Product) -> dict[int, str]:
        """The type that each factor is multiplied in: one for both."""
        found = {k: rounding_of(g, k) or element_of(g.inputs[k]) for k in (p.a, p.b)}
        types = set(found.values())
        if len(types) == 1:
            return found
        small = types & {"f16", "bf16"}
        if self.options.narrow and types - small == {"f32"} and len(small) == 1:
            (dtype,) = small
            remark(g.op.location, f"an f32 factor is rounded to {dtype}, the other's type")
        else:
            dtype = "f64" if "f64" in types else "f32"
        return dict.fromkeys(found, dtype)

    def _factor(self, tile: Value, dtype: str, rounding: str | None) -> Value:
        for wanted in (rounding, dtype):
            if wanted is not None and wanted != tile.dtype:
                wider = int(wanted.lstrip("bf")) > int(tile.dtype.lstrip("bf"))
                tile = self.scalars.convert(tile, wanted, "arith.extf" if wider else "arith.truncf")
        return tile

    def _finite(self, g: Generic, tile: Value, k: int, p: _Product) -> Value:
        """A factor that is 0 beyond the extents of the summed loops."""
        ragged = [x for x in p.k if power_of_two(g.extents[x]) > g.extents[x]]
        if not ragged or tile.name in self._zero_padded:
            return tile
        t, rank = self.text, len(g.maps[k])
        for loop in ragged:
            places = t.along(t.range(power_of_two(g.extents[loop])), g.maps[k].index(loop), rank)
            inside = t.compare("arith.cmpi", "slt", places, t.constant(g.extents[loop], "i32"))
            tile = t.select(inside, tile, t.number(0, tile))
        return tile

    def _flat_shape(self, g: Generic, groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
        batch, *rest = [math.prod(power_of_two(g.extents[x]) for x in group) for group in groups]
        return (batch, *rest) if groups[0] else tuple(rest)

    def _matrix(
        self, g: Generic, tile: Value, loops: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> Value:
        """A tile over `loops` as a matrix whose rows and columns are groups of loops."""
        order = [loops.index(loop) for group in groups for loop in group]
        tile = self.text.transpose(tile, order)
        return self.text.reshape(tile, self._flat_shape(g, groups))


class _Product:
    """A sum of products: its loops by role, and which input has the rows (a) and columns (b)."""

    def __init__(self, g: Generic):
        a, b, c = (set(loops) for loops in g.maps)
        self.a, self.b = 0, 1
        left, right = a & c - b, b & c - a
        first = next((x for x in g.maps[-1] if x in left | right), None)
        if first in right:  # the rows come first in the result: no transposition
            self.a, self.b, left, right = 1, 0, right, left
        rank = {loop: k for k, loop in enumerate(g.maps[-1])}

        def ordered(loops: set[int]) -> list[int]:
            return sorted(loops, key=lambda x: rank.get(x, x))

        self.batch, self.m, self.n = ordered(a & b & c), ordered(left), ordered(right)
        self.k = ordered((a & b) - c)
        covered = {*self.batch, *self.m, *self.n, *self.k}
        sizes = [math.prod(g.extents[x] for x in group) for group in (self.m, self.n, self.k)]
        large = all(size >= least for size, least in zip(sizes, _LEAST, strict=True))
        self.fits = large and covered == set(range(len(g.extents))) and covered == a | b | c

    @staticmethod
    def read(g: Generic, combiner: str, element: Any) -> _Product | None:
        """The contraction that a generic is, or None."""
        product = defining_op(element)
        if combiner != "arith.addf" or len(g.inputs) != 2:
            return None
        if product is None or product.name != "arith.mulf" or product.block != g.block:
            return None
        arguments = list(g.block.arguments)[:2]
        factors = [unrounded(v) for v in product.operands]
        if sorted(arguments.index(f) if f in arguments else -1 for f in factors) != [0, 1]:
            return None
        if any(element_of(v) not in _DOT_TYPES for v in [*g.inputs, g.result]):
            return None
        return _Product(g) if element_of(g.result) in ("f32", "f64") else None
