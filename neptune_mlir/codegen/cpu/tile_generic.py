# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector code for a `linalg.generic` on tiles: any elementwise body, any reduction.

One loop dimension is vectorised: the one along which most operands are contiguous. If it is a
reduction, several vectors accumulate in parallel and are folded at the end; so the combiner must
be one op with a known identity. Otherwise lanes are independent and any body will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra.combiners import identity_of
from neptune_mlir.codegen.cpu import tile_positions
from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.codegen.cpu.tile_fold import combine, extreme, fold, fold_lines, fold_parts
from neptune_mlir.codegen.cpu.tile_ops import (
    DIVISIONS,
    Allocate,
    TileGeneric,
    TileOperand,
    combiner,
)
from neptune_mlir.codegen.cpu.tile_positions import Positions
from neptune_mlir.codegen.cpu.tile_quotient import Divisor, divides_by_scalar, divisor, quotient
from neptune_mlir.ir.bindings import arith, ir, vector

_UNROLL = 4  # vectors that accumulate in parallel: hides the latency of the combiner


def lower_generic(
    em: VectorEmitter, generic: TileGeneric, allocate: Allocate | None = None
) -> None:
    """Emit the loops at the current insertion point, twice where results may go past the caches.
    `allocate` gives scratch memory."""
    past = next((o.view.past for o in generic.outputs if o.view and o.view.past), None)

    def lower(way: bool | None) -> None:
        outputs = [
            replace(o, view=replace(o.view, past=way)) if o.view else o for o in generic.outputs
        ]
        TileLowering(em, replace(generic, outputs=outputs), allocate).run()

    if past is None:
        lower(None)
    else:
        em.branch(past, lambda: lower(True), lambda: lower(None))


class TileLowering:
    def __init__(
        self, em: VectorEmitter, generic: TileGeneric, allocate: Allocate | None = None
    ) -> None:
        self.em, self.generic, self.allocate = em, generic, allocate
        self.v = self._choose()
        self.position: list[Index] = list(generic.lows)
        self.live: Index | None = None  # live lanes of the vector at hand; None: all
        self.kept: dict[Any, Any] = {}  # what the body makes that is the same along loop `v`
        self.divisors: dict[Any, Divisor] = {}
        self.whole = False  # whether all lanes of the vector at hand are elements of arrays

    def _choose(self) -> int | None:
        """The loop to vectorise, or None. (Its extent is static: that of a tile always is.)"""
        g = self.generic
        for op in g.body.operations:
            plain = op.operation.name.startswith(("arith.", "math.", "linalg."))
            if not plain or len(op.operation.regions):
                return None
        best, choice = float("-inf"), None
        for d, extent in enumerate(g.extents):
            touched = [o for o in g.operands if o.view and o.uses(d)]
            if not isinstance(extent, int) or not touched:
                continue
            if any(o.lane_of(d) is None for o in touched):
                continue
            ends = bool(g.live) and g.live[d] is not None
            if ends and any(o.position_of(d) is None for o in touched):
                continue
            if g.reduced[d] and not all(
                g.spans(o) or combiner(g, k) for k, o in enumerate(g.outputs)
            ):
                continue
            score = 0.0
            for o in touched:
                assert o.view is not None
                unit = o.view.strides[o.lane_of(d)] == 1
                # what other loops repeat is loaded once for all of them
                often = all(o.uses(other) for other in range(len(g.extents)))
                score += (2.0 if unit else -1.5) * (1.0 if often else 0.25)
            score *= extent / (-(-extent // self.em.lanes) * self.em.lanes)
            if extent > 1 and score >= best:
                best, choice = score, d
        return choice

    # --- loops

    def run(self) -> None:
        g = self.generic
        outer = [d for d in range(len(g.extents)) if not g.reduced[d] and d != self.v]
        self.inner = [d for d in range(len(g.extents)) if g.reduced[d] and d != self.v]
        rows = self._row_loop(outer)
        if rows is not None:
            outer.remove(rows)
        ranges = [self._range(d) for d in outer]

        def at(position: list[Index]) -> None:
            for d, i in zip(outer, position, strict=True):
                self.position[d] = i
            if self.v is None:
                self._point()
                return
            if rows is not None:
                self._reduce_rows(rows)
                return
            self._keep()
            if g.reduced[self.v]:
                self._reduce_lanes()
            else:
                self._vectors(self._parallel_lanes)

        self.em.nest(ranges, at)

    def _range(self, d: int, step: int = 1) -> tuple[Index, Index, int]:
        generic = self.generic
        return generic.lows[d], generic.end(self.em, d, generic.extents[d]), step

    def _vectors(self, body: Any) -> None:
        """`body()` for every vector along the vectorised loop, the ragged last one too."""
        assert self.v is not None
        v, lanes, extent = self.v, self.em.lanes, self.generic.extents[self.v]
        low = self.generic.lows[v]
        whole = extent // lanes * lanes

        def one(i: Index, _: list[Any]) -> list[Any]:
            self.position[v] = i
            body()
            return []

        self.live = None
        if self._within(v):
            self._vectors_inside(v, one)
            return
        # in a strip of one vector some lanes are live
        high = self.em.add(low, whole) if whole == lanes else self.generic.end(self.em, v, whole)
        self.em.loop(low, high, lanes, one)
        if whole < extent:
            self.live = extent - whole
            one(self.em.add(low, whole), [])
            self.live = None

    def _vectors_inside(self, v: int, one: Callable[[Index, list[Any]], list[Any]]) -> None:
        """The vectors of which all lanes are elements of arrays, then the last one."""
        em, g = self.em, self.generic
        low, end = g.lows[v], g.end(self.em, v, g.extents[v])
        inside = self._inside(v, em.sub(end, low))
        middle = em.add(low, arith.andi(em.value(inside), em.constant(-em.lanes)))
        self.whole = True
        em.loop(low, middle, em.lanes, one)
        self.whole = False
        em.loop(middle, end, em.lanes, one)

    def _inside(self, v: int, count: Index) -> Index:
        """How many of the first `count` points of loop `v` are elements of arrays."""
        em, low, found = self.em, self.generic.lows[v], count
        for o in self.generic.operands:
            place = o.position_of(v)
            if o.view and o.view.within and place is not None and o.view.within[place] is not None:
                found = em.minimum(found, em.sub(o.view.within[place], low))
        return count if found is count else arith.maxsi(em.value(found), em.constant(0))

    def _point(self) -> None:
        self._accumulate(self._load_outputs(), self.inner, store=True)

    def _parallel_lanes(self) -> None:
        self._accumulate(self._load_outputs(), self.inner, store=True)

    def _load_outputs(self) -> list[Any]:
        g = self.generic
        arguments = list(g.body.arguments)[len(g.inputs) :]
        return [
            self._load(o) if list(a.uses) and not (self.inner and g.spans(o)) else None
            for o, a in zip(g.outputs, arguments, strict=True)
        ]

    def _accumulate(self, carried: list[Any], dims: list[int], store: bool) -> list[Any]:
        """Loops over `dims`, carrying the accumulators; outputs that span them store inside."""
        g = self.generic
        through = [k for k, o in enumerate(g.outputs) if not (dims and g.spans(o))]
        # an output that the body does not read is still carried: start it from memory
        start = [
            self._load(g.outputs[k]) if dims and carried[k] is None else carried[k] for k in through
        ]

        def level(depth: int, values: list[Any]) -> list[Any]:
            if depth == len(dims):
                accumulators: list[Any] = [None] * len(g.outputs)
                for k, value in zip(through, values, strict=True):
                    accumulators[k] = value
                for k, o in enumerate(g.outputs):
                    if k not in through:
                        accumulators[k] = self._load(o)
                results = self.evaluate(accumulators)
                for k, o in enumerate(g.outputs):
                    if k not in through:
                        self._store(o, results[k])
                return [self._shaped(results[k], g.outputs[k]) for k in through]

            def body(i: Index, inner: list[Any]) -> list[Any]:
                self.position[dims[depth]] = i
                return level(depth + 1, inner)

            low, high, step = self._range(dims[depth])
            return self.em.loop(low, high, step, body, values)

        final = level(0, start)
        if store:
            for k, value in zip(through, final, strict=True):
                self._store(g.outputs[k], value)
        return final

    def _shaped(self, value: Any, output: TileOperand) -> Any:
        """A carried value must not change its type: a vector where the output has lanes."""
        assert output.view is not None
        wide = self.v is not None and (output.uses(self.v) or self.generic.reduced[self.v])
        if wide and not isinstance(value.type, ir.VectorType):
            return self.em.splat(value)
        return value

    def _reduce_lanes(self) -> None:
        """The vectorised loop is reduced: lanes accumulate apart and are folded at the end."""
        names = self._combiners()
        for (k, name), value in zip(names.items(), self._lane_values(names), strict=True):
            o = self.generic.outputs[k]
            whole = combine(name, self._load(o, scalar=True), fold(name, value))
            self._store(o, whole, scalar=True)

    def _reduce_rows(self, p: int) -> None:
        """The same for as many rows (points of loop `p`) as a vector has lanes: all are folded
        together, and make a vector of results."""
        em, names = self.em, self._combiners()
        assert self.allocate is not None
        views = [self.generic.outputs[k].view for k in names]
        # (`allocate` gives the same memory for the same question)
        kinds = [v.kind for v in views if v is not None]
        asked = [kinds[:k].count(kind) for k, kind in enumerate(kinds)]
        squares = [(kinds.count(kind) * em.lanes, em.lanes) for kind in kinds]
        whole_places = [self.allocate(k, s, 1) for k, s in zip(kinds, squares, strict=True)]
        places = [em.shifted(p, [n * em.lanes, 0])
                  for p, n in zip(whole_places, asked, strict=True)]  # fmt: skip
        low, high, _ = self._range(p)

        def rows(i: Index, _: list[Any]) -> list[Any]:
            def row(r: Index, _: list[Any]) -> list[Any]:
                self.position[p] = em.add(i, r)
                self._keep()
                for place, value in zip(places, self._lane_values(names), strict=True):
                    em.store_vector(place, [r, 0], 1, value)
                return []

            count = em.minimum(em.lanes, em.sub(high, i))
            em.loop(0, count, 1, row)
            self.position[p] = i

            def results(fold_of: Callable[[str, MemoryView], Any]) -> None:
                for (k, name), place in zip(names.items(), places, strict=True):
                    o = self.generic.outputs[k]
                    where = [em.affine(e, self.position) for e in o.index]
                    at = o.position_of(p)
                    assert o.view is not None and at is not None
                    new = combine(name, em.load_vector(o.view, where, at), fold_of(name, place))
                    em.store_vector(o.view, where, at, new)

            em.branch(em.equal(count, 1), lambda: results(alone), lambda: results(together))
            return []

        def alone(name: str, place: MemoryView) -> Any:
            return em.splat(fold(name, em.load_vector(place, [0, 0], 1)))

        def together(name: str, place: MemoryView) -> Any:
            return fold_lines(name, [em.load_vector(place, [r, 0], 1) for r in range(em.lanes)])

        em.loop(low, high, em.lanes, rows)

    def _row_loop(self, outer: list[int]) -> int | None:
        """A loop over rows whose results stand side by side, a vector of them or more."""
        g, lanes = self.generic, self.em.lanes
        if self.v is None or not g.reduced[self.v] or self.allocate is None or not outer:
            return None
        p = outer[-1]
        views = [(g.outputs[k].view, g.outputs[k].position_of(p)) for k in self._combiners()]
        suits = all(
            v is not None and k is not None and v.strides[k] == 1 and v.padded == k
            and getattr(v.kind, "width", 0) == 32
            for v, k in views
        )  # fmt: skip
        return p if suits and g.extents[p] % lanes == 0 else None

    def _combiners(self) -> dict[int, str]:
        """Of the outputs that are not written at every point."""
        g = self.generic
        return {k: str(combiner(g, k)) for k, o in enumerate(g.outputs) if not g.spans(o)}

    def _identities(self, names: dict[int, str]) -> list[Any]:
        found = []
        for k, name in names.items():
            view = self.generic.outputs[k].view
            assert view is not None
            kind = self.em.vector_type(view.kind)
            found.append(self.em.constant(_identity(name, view.kind), kind))
        return found

    def _lane_values(self, names: dict[int, str]) -> list[Any]:
        """For each output that is folded, a vector of what its lanes accumulated."""
        g, em, v = self.generic, self.em, self.v
        assert v is not None
        folded, starts = list(names), self._identities(names)
        extent, lanes, low = g.extents[v], em.lanes, g.lows[v]
        unroll = max(1, min(_UNROLL, extent // lanes))
        values = starts * unroll
        width = len(folded)

        def short(values: list[Any], block: int) -> list[Any]:
            """The vectors that are live, `unroll` of them together as long as there are."""
            some = em.sub(g.end(em, v, extent), low)
            inside = self._inside(v, some)
            main = arith.andi(em.value(inside), em.constant(-block))
            self.whole = True
            values = em.loop(low, em.add(low, main), block, blocks, values)
            self.whole = False

            def rest(i: Index, inner: list[Any]) -> list[Any]:
                live = em.sub(em.add(low, inside), i) if self._within(v) else None
                return self._lanes_at(i, folded, inner, live)

            first = em.loop(em.add(low, main), em.add(low, some), lanes, rest, values[:width])
            return [*first, *values[width:]]

        def blocks(i: Index, inner: list[Any]) -> list[Any]:
            out: list[Any] = []
            for u in range(unroll):
                here = inner[u * width : (u + 1) * width]
                out += self._lanes_at(em.add(i, u * lanes), folded, here, None)
            return out

        def sweep(dims: list[int], values: list[Any]) -> list[Any]:
            if dims:

                def body(i: Index, inner: list[Any]) -> list[Any]:
                    self.position[dims[0]] = i
                    return sweep(dims[1:], inner)

                a, b, step = self._range(dims[0])
                return em.loop(a, b, step, body, values)
            block = unroll * lanes
            main = extent // block * block
            bounded = bool(g.live) and g.live[v] is not None and extent % lanes == 0
            if bounded and block & (block - 1) == 0:
                return short(values, block)
            values = em.loop(low, em.add(low, main), block, blocks, values)
            for start in range(main, extent, lanes):
                here = values[:width]
                live = extent - start if extent - start < lanes else None
                values[:width] = self._lanes_at(em.add(low, start), folded, here, live)
            return values

        values = sweep(self.inner, values)
        self.live = None
        return [fold_parts(name, values[n::width]) for n, name in enumerate(names.values())]

    def _lanes_at(
        self, i: Index, folded: list[int], carried: list[Any], live: int | None
    ) -> list[Any]:
        g = self.generic
        assert self.v is not None
        self.position[self.v], self.live = i, live
        accumulators: list[Any] = [None] * len(g.outputs)
        for k, value in zip(folded, carried, strict=True):
            accumulators[k] = value
        for k, o in enumerate(g.outputs):
            if k not in folded:
                accumulators[k] = self._load(o)
        results = self.evaluate(accumulators)
        for k, o in enumerate(g.outputs):
            if k not in folded:
                self._store(o, results[k])
        found = [self._shaped(results[k], g.outputs[k]) for k in folded]
        if live is not None:
            mask = self.em.mask(live)
            found = [arith.select(mask, new, old) for new, old in zip(found, carried, strict=True)]
        self.live = None
        return found

    # --- one point (or vector of points)

    def _load(self, o: TileOperand, scalar: bool = False) -> Any:
        if o.view is None:
            return o.scalar
        where = [self.em.affine(e, self.position) for e in o.index]
        if self.v is None or scalar or not o.uses(self.v):
            return self.em.load(o.view, where)
        dim = o.lane_of(self.v)
        assert dim is not None
        return self.em.load_vector(o.view, where, dim, self._guard(o.view, dim))

    def _store(self, o: TileOperand, value: Any, scalar: bool = False) -> None:
        assert o.view is not None
        where = [self.em.affine(e, self.position) for e in o.index]
        if self.v is None or scalar or not o.uses(self.v):
            self.em.store(o.view, where, value)
            return
        dim = o.lane_of(self.v)
        assert dim is not None
        if not isinstance(value.type, ir.VectorType):
            value = self.em.splat(value)
        self.em.store_vector(o.view, where, dim, value, self._guard(o.view, dim))

    def _guard(self, view: MemoryView, dim: int) -> Index | None:
        """How many lanes may be touched: all of them where the view has room."""
        if view.within and view.within[dim] is not None:
            assert self.v is not None
            left = self.em.sub(view.within[dim], self.position[self.v])
            return None if self.whole else left
        return None if view.padded == dim else self.live

    def _within(self, d: int) -> bool:
        """Whether an operand lies in an array that may end before loop `d` does."""
        places = [(o.view, o.position_of(d)) for o in self.generic.operands if o.view]
        return any(v.within and k is not None and v.within[k] is not None for v, k in places)

    def _keep(self) -> None:
        """Make what is the same along the vectorised loop before it."""
        g, block = self.generic, self.generic.body
        moving = [self.v, *self.inner]
        env: dict[Any, Any] = {}
        for argument, o in zip(list(block.arguments)[: len(g.inputs)], g.inputs, strict=True):
            if list(argument.uses) and not any(o.uses(d) for d in moving if d is not None):
                env[argument] = self._load(o)
        divided = []
        for op in block.operations:
            op = op.operation
            same = [v in env or _comes_from_outside(v, block) for v in op.operands]
            plain = op.name.startswith(("arith.", "math.")) and op.name not in DIVISIONS
            if plain and all(same) and any(v in env for v in op.operands):
                self._scalar_op(op, env)
            elif op.name == "arith.divf" and same[1]:
                divided.append(op.operands[1])
        self.kept = env
        found = dict.fromkeys(env.get(v, v) for v in divided)
        self.divisors = {
            v: divisor(self.em, v) for v in found if self.em.fma and isinstance(v.type, ir.F32Type)
        }

    def evaluate(self, accumulators: list[Any]) -> list[Any]:
        """The body's yielded values, scalars or vectors, given the outputs' old values."""
        g, block = self.generic, self.generic.body
        env = dict(self.kept)
        for argument, o in zip(list(block.arguments)[: len(g.inputs)], g.inputs, strict=True):
            if argument not in env and list(argument.uses):
                env[argument] = self._load(o)
        for argument, value in zip(
            list(block.arguments)[len(g.inputs) :], accumulators, strict=True
        ):
            env[argument] = value
        for op in block.operations:
            if op.operation.name == "linalg.yield":
                found = [env.get(value, value) for value in op.operands]
                return [tile_positions.as_vector(self.em, value) for value in found]
            if not len(op.results) or op.results[0] not in self.kept:
                self._scalar_op(op.operation, env)
        raise AssertionError("a body ends in linalg.yield")

    def _scalar_op(self, op: Any, env: dict[Any, Any]) -> None:
        em = self.em
        if op.name == "linalg.index":
            dim = int(ir.IntegerAttr(op.attributes["dim"]).value)
            here = em.value(self.position[dim])
            env[op.results[0]] = Positions(here) if dim == self.v else here
            return
        operands = [env.get(value, value) for value in op.operands]
        if any(isinstance(value, Positions) for value in operands):
            end = self.generic.live[self.v] if self.whole and self.v is not None else None
            made = tile_positions.compute(em, op, operands, end)
            if made is not None:
                env[op.results[0]] = made
                return
            operands = [tile_positions.as_vector(em, value) for value in operands]
        if op.name == "memref.load" and operands[0] in self.generic.loaded:
            env[op.results[0]] = em.load(self.generic.loaded[operands[0]], operands[1:])
            return
        if not any(isinstance(value.type, ir.VectorType) for value in operands):
            clone = op.clone()
            for k, value in enumerate(operands):
                clone.operands[k] = value
            _rename_nested(clone, env)
            self._load_nested(clone)
            env.update(zip(op.results, clone.results, strict=True))
            return
        fused = self._fused(op, env)
        if fused is not None:
            env[op.results[0]] = fused
            return
        if divides_by_scalar(op, operands) and operands[1] in self.divisors:
            env[op.results[0]] = quotient(em, operands[0], self.divisors[operands[1]])
            return
        operands = [
            value if isinstance(value.type, ir.VectorType) else em.splat(value)
            for value in operands
        ]
        if op.name in DIVISIONS and self.live is not None:
            # lanes past the end hold anything: do not divide by it
            one = em.constant(1, operands[1].type)
            operands[1] = arith.select(em.mask(self.live), operands[1], one)
        chosen = extreme(op.name, *operands) if len(operands) == 2 else None
        if chosen is not None:
            env[op.results[0]] = chosen
            return
        made = ir.Operation.create(
            op.name,
            results=[em.vector_type(result.type) for result in op.results],
            operands=operands,
            attributes={name: op.attributes[name] for name in op.attributes},
        )
        env.update(zip(op.results, made.results, strict=True))

    def _fused(self, op: Any, env: dict[Any, Any]) -> Any:
        """A sum of products takes them by multiply-adds, as contractions do."""
        g = self.generic
        accumulators = list(g.body.arguments)[len(g.inputs) :]
        if op.name != "arith.addf" or not self.em.fma or not any(g.reduced):
            return None
        acc, other = op.operands
        if other in accumulators:
            acc, other = other, acc
        if acc not in accumulators or isinstance(other, ir.BlockArgument):
            return None
        product = other.owner.operation
        if product.name != "arith.mulf" or product.block != op.block:
            return None
        values = [env.get(v, v) for v in (*product.operands, acc)]
        vectors = [isinstance(v.type, ir.VectorType) for v in values]
        f32 = isinstance(product.results[0].type, ir.F32Type)
        if not f32 or not vectors[2] or not any(vectors[:2]):
            return None
        wide = [v if w else self.em.splat(v) for v, w in zip(values, vectors, strict=True)]
        return vector.fma(*wide)

    def _load_nested(self, op: Any) -> None:
        """Loads in the regions of an op read the views of their arrays."""
        for inner in [i.operation for r in op.regions for b in r.blocks for i in b.operations]:
            self._load_nested(inner)
            if inner.name == "memref.load" and inner.operands[0] in self.generic.loaded:
                with ir.InsertionPoint(inner):
                    view = self.generic.loaded[inner.operands[0]]
                    value = self.em.load(view, list(inner.operands)[1:])
                inner.results[0].replace_all_uses_with(value)
                inner.erase()


def _comes_from_outside(value: Any, block: Any) -> bool:
    if isinstance(value, ir.BlockArgument):
        return bool(value.owner != block)
    return bool(value.owner.operation.block != block)


def _rename_nested(op: Any, env: dict[Any, Any]) -> None:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                for k, value in enumerate(inner.operation.operands):
                    if value in env:
                        inner.operation.operands[k] = env[value]
                _rename_nested(inner.operation, env)


def _identity(name: str, kind: Any) -> Any:
    return identity_of(name, kind.width if isinstance(kind, ir.IntegerType) else 64)
