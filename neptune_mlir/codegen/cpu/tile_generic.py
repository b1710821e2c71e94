# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector code for a `linalg.generic` on tiles: any elementwise body, any reduction.

One loop dimension is vectorised: the one along which most operands are contiguous. If it is a
reduction, several vectors accumulate in parallel and are folded at the end; so the combiner must
be one op with a known identity. Otherwise lanes are independent and any body will do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from neptune_mlir.algebra.combiners import IDENTITIES, identity_of
from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.ir.bindings import arith, ir, vector

_UNROLL = 4  # vectors that accumulate in parallel: hides the latency of the combiner
DIVISIONS = {"arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi",
              "arith.ceildivsi", "arith.ceildivui"}  # fmt: skip


@dataclass
class TileOperand:
    """One operand: a view read through affine `index` expressions, or a scalar."""

    view: MemoryView | None
    scalar: Any
    index: list[Any]

    def position_of(self, dim: int) -> int | None:
        """The dimension of the view that is exactly loop `dim`."""
        for k, e in enumerate(self.index):
            if isinstance(e, ir.AffineDimExpr) and e.position == dim:
                return k
        return None

    def lane_of(self, dim: int) -> int | None:
        """The dimension of the view along which neighbours of loop `dim` lie: read at the loop, or
        at the loop plus what other loops say, as a convolution reads."""
        found = [k for k, e in enumerate(self.index) if _mentions(e, dim)]
        exact = self.position_of(dim)
        if exact is not None or len(found) != 1 or self.view is None:
            return exact
        moved = _is_shifted(self.index[found[0]], dim) and self.view.padded != found[0]
        return found[0] if moved else None

    def uses(self, dim: int) -> bool:
        return any(_mentions(e, dim) for e in self.index)


@dataclass
class TileGeneric:
    """A `linalg.generic` with its operands resolved to views. `extents` are static.

    Attributes:
        loaded: the views of arrays that the body loads single elements from.
        live: where each loop may end before its extent (see `tile_live`); None: nowhere.
    """

    op: Any
    inputs: list[TileOperand]
    outputs: list[TileOperand]
    extents: list[int]
    reduced: list[bool]
    lows: list[Index]  # where each loop starts (a strip of the op's domain)
    loaded: dict[Any, MemoryView] = field(default_factory=dict)
    live: list[Any] = field(default_factory=list)

    @property
    def body(self) -> Any:
        return self.op.regions[0].blocks[0]

    @property
    def operands(self) -> list[TileOperand]:
        return [*self.inputs, *self.outputs]

    def end(self, em: VectorEmitter, d: int, extent: int) -> Index:
        """Where loop `d` ends that has so many points from its start on."""
        end = em.add(self.lows[d], extent)
        bound = self.live[d] if self.live else None
        return end if bound is None else em.minimum(end, bound)

    def spans(self, output: TileOperand) -> bool:
        """Whether the output is written at every point (no loop is reduced away)."""
        return all(output.uses(d) for d, r in enumerate(self.reduced) if r)


def _mentions(expression: Any, dim: int) -> bool:
    if isinstance(expression, ir.AffineDimExpr):
        return bool(expression.position == dim)
    if isinstance(expression, ir.AffineConstantExpr):
        return False
    return _mentions(expression.lhs, dim) or _mentions(expression.rhs, dim)


def _is_shifted(expression: Any, dim: int) -> bool:
    """Whether an expression is loop `dim` plus what does not depend on it."""
    if isinstance(expression, ir.AffineDimExpr):
        return bool(expression.position == dim)
    if not isinstance(expression, ir.AffineAddExpr):
        return False
    sides = (expression.lhs, expression.rhs)
    return sum(_mentions(e, dim) for e in sides) == 1 and any(_is_shifted(e, dim) for e in sides)


def combiner(generic: TileGeneric, position: int) -> str | None:
    """The op that combines output `position`, if the body is `yield op(acc, x)`."""
    block = generic.body
    acc = block.arguments[len(generic.inputs) + position]
    value = block.operations[len(block.operations) - 1].operands[position]
    uses = list(acc.uses)
    if isinstance(value, ir.BlockArgument) or len(uses) != 1:
        return None
    op = value.owner.operation
    if op.name not in IDENTITIES or uses[0].owner.operation != op:
        return None
    return str(op.name)


def copied_places(generic: TileGeneric) -> list[tuple[int, int]] | None:
    """For an op that only copies or transposes: the dimensions of source and target that each
    loop runs along."""
    if len(generic.inputs) != 1 or len(generic.outputs) != 1 or any(generic.reduced):
        return None
    (source,), (target,) = generic.inputs, generic.outputs
    (first, *others) = generic.body.operations
    if others or first.operands[0] != generic.body.arguments[0] or not source.view:
        return None
    loops = range(len(generic.extents))
    places = [(source.position_of(d), target.position_of(d)) for d in loops]
    plain = all(len(o.index) == len(loops) for o in (source, target))
    return places if plain and None not in [k for pair in places for k in pair] else None


def as_copy(em: VectorEmitter, generic: TileGeneric) -> tuple[MemoryView, MemoryView] | None:
    """Source and target, dimension by dimension, of an op that only copies or transposes."""
    places = copied_places(generic)
    if places is None:
        return None

    def seen(o: TileOperand, side: int) -> MemoryView:
        assert o.view is not None
        origin = em.shifted(o.view, [em.affine(e, generic.lows) for e in o.index])
        strides = tuple(origin.strides[pair[side]] for pair in places)
        return replace(origin, sizes=tuple(generic.extents), strides=strides, padded=None)

    return seen(generic.inputs[0], 0), seen(generic.outputs[0], 1)


def lower_generic(em: VectorEmitter, generic: TileGeneric) -> None:
    """Emit the loops at the current insertion point."""
    TileLowering(em, generic).run()


class TileLowering:
    def __init__(self, em: VectorEmitter, generic: TileGeneric):
        self.em, self.generic = em, generic
        self.v = self._choose()
        self.position: list[Index] = list(generic.lows)
        self.live: Index | None = None  # live lanes of the vector at hand; None: all

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
        ranges = [self._range(d) for d in outer]

        def at(position: list[Index]) -> None:
            for d, i in zip(outer, position, strict=True):
                self.position[d] = i
            if self.v is None:
                self._point()
            elif g.reduced[self.v]:
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
        # in a strip of one vector some lanes are live
        high = self.em.add(low, whole) if whole == lanes else self.generic.end(self.em, v, whole)
        self.em.loop(low, high, lanes, one)
        if whole < extent:
            self.live = extent - whole
            one(self.em.add(low, whole), [])
            self.live = None

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
        g, em, v = self.generic, self.em, self.v
        assert v is not None
        folded = [k for k, o in enumerate(g.outputs) if not g.spans(o)]
        kinds = [g.outputs[k].view.kind for k in folded]  # type: ignore[union-attr]
        names = [combiner(g, k) for k in folded]
        starts = [
            em.constant(_identity(str(name), kind), em.vector_type(kind))
            for name, kind in zip(names, kinds, strict=True)
        ]
        extent, lanes, low = g.extents[v], em.lanes, g.lows[v]
        unroll = max(1, min(_UNROLL, extent // lanes))
        values = starts * unroll
        width = len(folded)

        def short(values: list[Any], block: int) -> list[Any]:
            """The vectors that are live, `unroll` of them together as long as there are."""
            some = em.sub(g.end(em, v, extent), low)
            main = arith.andi(em.value(some), em.constant(-block))
            values = em.loop(low, em.add(low, main), block, blocks, values)

            def rest(i: Index, inner: list[Any]) -> list[Any]:
                return self._lanes_at(i, folded, inner, None)

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
        for n, k in enumerate(folded):
            name = str(names[n])
            parts = values[n :: len(folded)]
            while len(parts) > 1:  # a balanced tree
                half = [_combine(name, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
                parts = half + parts[len(half) * 2 :]
            whole = _combine(
                name, self._load(g.outputs[k], scalar=True), self._fold(name, parts[0])
            )
            self._store(g.outputs[k], whole, scalar=True)

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

    def _fold(self, name: str, value: Any) -> Any:
        """All lanes of a vector combined, by halves."""
        width = value.type.shape[0]
        while width > 1:
            width //= 2
            low = vector.shuffle(value, value, list(range(width)))
            high = vector.shuffle(value, value, list(range(width, 2 * width)))
            value = _combine(name, low, high)
        return vector.extract(value, [], [0])

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
        return None if view.padded == dim else self.live

    def evaluate(self, accumulators: list[Any]) -> list[Any]:
        """The body's yielded values, scalars or vectors, given the outputs' old values."""
        g, block = self.generic, self.generic.body
        env: dict[Any, Any] = {}
        for argument, o in zip(list(block.arguments)[: len(g.inputs)], g.inputs, strict=True):
            if list(argument.uses):
                env[argument] = self._load(o)
        for argument, value in zip(
            list(block.arguments)[len(g.inputs) :], accumulators, strict=True
        ):
            env[argument] = value
        for op in block.operations:
            if op.operation.name == "linalg.yield":
                return [env.get(value, value) for value in op.operands]
            self._scalar_op(op.operation, env)
        raise AssertionError("a body ends in linalg.yield")

    def _scalar_op(self, op: Any, env: dict[Any, Any]) -> None:
        em = self.em
        if op.name == "linalg.index":
            dim = int(ir.IntegerAttr(op.attributes["dim"]).value)
            here = em.value(self.position[dim])
            env[op.results[0]] = arith.addi(em.iota(), em.splat(here)) if dim == self.v else here
            return
        operands = [env.get(value, value) for value in op.operands]
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
        operands = [
            value if isinstance(value.type, ir.VectorType) else em.splat(value)
            for value in operands
        ]
        if op.name in DIVISIONS and self.live is not None:
            # lanes past the end hold anything: do not divide by it
            one = em.constant(1, operands[1].type)
            operands[1] = arith.select(em.mask(self.live), operands[1], one)
        made = ir.Operation.create(
            op.name,
            results=[em.vector_type(result.type) for result in op.results],
            operands=operands,
            attributes={name: op.attributes[name] for name in op.attributes},
        )
        env.update(zip(op.results, made.results, strict=True))

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


def _rename_nested(op: Any, env: dict[Any, Any]) -> None:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                for k, value in enumerate(inner.operation.operands):
                    if value in env:
                        inner.operation.operands[k] = env[value]
                _rename_nested(inner.operation, env)


def _combine(name: str, a: Any, b: Any) -> Any:
    return ir.Operation.create(name, results=[a.type], operands=[a, b]).result


def _identity(name: str, kind: Any) -> Any:
    return identity_of(name, kind.width if isinstance(kind, ir.IntegerType) else 64)
