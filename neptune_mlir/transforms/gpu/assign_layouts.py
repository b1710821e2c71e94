# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `assign-layouts`: decide where the elements of every tile value live.

Contractions that fit a matrix instruction fix the layout of their accumulator and operands.
From there layouts spread along elementwise ops and reductions, in both directions, until
nothing changes; a factor that is computed from loads alone is then made where the instruction
takes it, and what is left gets consecutive elements in consecutive threads. Loads and
constants have no layout of their own: each user takes them as it needs them, from shared
memory where a matrix instruction (or what makes a factor for it, or a loop over a reduced axis)
reads them.

What the pass leaves, for `distribute-tiles`:

* `neptune.layout` on a tile op: one layout per result, "" for what has none of its own;
* `neptune.via` on a generic: "mma" (and `neptune.instruction`), "registers" or "loop", and its
  `neptune.iteration`;
* `linalg.copy` with a layout wherever elements must change threads, each with a remark;
* `neptune.stages` on a loop that loads to shared memory;
* `neptune.rough` on functions that need few digits (`assign_layouts_tolerance`);
* on the kernel `neptune.warps`, `neptune.held` (registers that matrix products hold in a loop) and,
  where an option asks for it, `neptune.blocks` (blocks that are to share a multiprocessor).
"""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.body_forms import extents_held, prefix_of, results_along
from neptune_mlir.analysis.layouts import Layout, Shared
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    element_bytes,
    element_of,
    foralls,
    is_blank,
    is_tile,
    load_window,
    reduction_of,
    shape_of,
    tuned,
)
from neptune_mlir.dialects.attributes import BLOCKS, HELD, TARGET, WARPS
from neptune_mlir.dialects.gpu_attributes import (
    CONSUMERS,
    HANDED,
    INSTRUCTION,
    ITERATION,
    LAYOUT,
    LAYOUTS,
    STAGES,
    VIA,
)
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, linalg, location_text, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.transforms.fast_paths import IN_REGISTERS, missed
from neptune_mlir.transforms.gpu import layout_factors as factors
from neptune_mlir.transforms.gpu import layout_products as products
from neptune_mlir.transforms.gpu import layout_work as work
from neptune_mlir.transforms.gpu.layout_factors import round_factors, slice_whole_arrays
from neptune_mlir.transforms.gpu.layout_products import MatrixProducts
from neptune_mlir.transforms.gpu.layout_stages import is_boxed, is_staged, stages_of
from neptune_mlir.transforms.gpu.tolerance import mark_tolerant
from neptune_mlir.transforms.registry import register

# A reduction with more points per thread than this runs as a loop, not unrolled.
UNROLL_LIMIT = 512


@register("assign-layouts", "decide in which registers or shared memory tile values live")
def assign_layouts(
    module: Any,
    *,
    target: str = "sm_80",
    warps: int = 0,
    stages: int = 0,
    blocks: int = 0,
    narrow: bool = True,
) -> None:
    for forall in foralls(module):
        slice_whole_arrays(forall)
        round_factors(forall, narrow and bool(tuned(forall, "narrow", 1)))
        mark_tolerant(forall)
        chosen = warps or tuned(forall, "warps", 0)
        if CONSUMERS.on(forall):  # warp groups of a specialised kernel
            chosen = 4 * CONSUMERS.of(forall)
            if products.have_wide(forall):
                factors.add_up_products(forall)
        slots = stages or tuned(forall, "slots", 0)
        _Assignment(forall, gpu_target(target), chosen, slots).run()
        if blocks:
            BLOCKS.set(forall, blocks)


class _Assignment:
    """The layouts of one kernel."""

    def __init__(self, forall: Any, target: GpuTarget, warps: int, stages: int):
        self.forall, self.target, self.stages = forall, target, stages
        self.body = forall.regions[0].blocks[0]
        self.products = MatrixProducts(forall, target, warps)
        self.generics, self.loops = self.products.generics, self.products.loops
        self.matrix, self.instruction = self.products.matrix, self.products.instruction
        self.same: dict[Any, Any] = {}  # value -> representative: one layout for all
        self.known: dict[Any, Layout] = {}
        self.iteration: dict[Any, Layout] = {}
        self.via: dict[Any, str] = {}
        self.factors: set[Any] = set()  # made for an instruction, and what they are made from
        self.read_as: dict[Any, Layout] = {}  # loads that these are made from

    def run(self) -> None:
        self._unify_loops()
        for g in self.generics:
            if g.result in self.matrix:
                self._assign_matrix(g, self.matrix[g.result])
        self._spread()
        for g in self.generics:
            self._convert_operands(g)
        for loop in self.loops:
            self._convert_carried(loop)
        self._write()

    # ---- matrix products

    def _assign_matrix(self, g: Generic, p: Contraction) -> None:
        grid, i = self.products.warp_grid(g, p), self.instruction[g.result]
        out = g.maps[-1]
        layout = L.accumulator(shape_of(g.result), out.index(p.m), out.index(p.n), grid, i)
        self._set(g.result, layout)
        self._set(g.init, layout)
        self.via[g.result] = "mma"
        self.iteration[g.result] = layout

    # ---- values that share a layout

    def _find(self, value: Any) -> Any:
        while value in self.same:
            value = self.same[value]
        return value

    def _unify_loops(self) -> None:
        for loop in self.loops:
            body = loop.regions[0].blocks[0]
            for k, result in enumerate(loop.results):
                if is_tile(result, self.forall):
                    self.same[body.arguments[1 + k]] = self._find(result)

    def layout(self, value: Any) -> Layout | None:
        return self.known.get(self._find(value))

    def _set(self, value: Any, layout: Layout) -> bool:
        key = self._find(value)
        if self.products.is_flexible(value) or key in self.known:
            return False
        self.known[key] = layout
        return True

    # ---- propagation

    def _spread(self) -> None:
        while True:
            if self._spread_once() or self._ask_for_factors():
                continue
            unknown = [g for g in self.generics if g.result not in self.via]
            if not unknown:
                break
            # the first of those with most points: what a tile needs beside it follows the tile
            self._default(max(unknown, key=lambda g: math.prod(extents_held(g))))
        for loop in self.loops:  # carried values that nothing constrains
            for result in loop.results:
                if is_tile(result, self.forall) and self.layout(result) is None:
                    self._set(result, self._blocked(shape_of(result), element_of(result)))

    def _spread_once(self) -> bool:
        changed = False
        for loop in self.loops:
            end = loop.regions[0].blocks[0]
            yielded = list(end.operations[len(end.operations) - 1].operation.operands)
            starts = list(loop.operands)[3:]
            for k, result in enumerate(loop.results):
                if not is_tile(result, self.forall):
                    continue
                for other in (yielded[k], starts[k]):
                    mine, theirs = self.layout(result), self.layout(other)
                    if mine is None and theirs is not None:
                        changed |= self._set(result, theirs)
                    elif theirs is None and mine is not None:
                        changed |= self._set(other, mine)
        for g in self.generics:
            if g.result not in self.via:
                changed |= self._try(g)
        return changed

    def _ask_for_factors(self) -> bool:
        """Have a computed factor that nothing gave a layout made as its instruction takes it, and
        what else reads a loaded one read it so."""
        for g in self.generics:
            p = self.matrix.get(g.result)
            if p is None:
                continue
            grid, chain = self.products.warp_grid(g, p), self.instruction[g.result].chain
            for which in (chain, "b" if chain == "a" else "a"):
                value = g.inputs[p.a if which == "a" else p.b]
                alone = (grid.n if which == "a" else grid.m) == 1  # else several make the same
                if not alone or value in self.read_as or is_blank(value):
                    continue
                layout = self.products.operand_layout(g, p, which)
                if self._set(value, layout):
                    self.factors.add(self._find(value))
                    return True
                # (elsewhere registers are short: threads that share the rows otherwise hold fewer)
                held = which == chain and self.products.is_flexible(value)
                if held and "tma" in self.target.copies:
                    self.read_as[value] = layout
                    return True
        return False

    def _full_rank(self, g: Generic) -> list[int]:
        """Inputs that run over every loop."""
        return [k for k, m in enumerate(g.maps[:-1]) if len(m) == len(g.extents)]

    def _iteration_of(self, held: Layout, loops: tuple[int, ...]) -> Layout:
        """A layout of a value as a layout of the loops that its dimensions run along."""
        return held.project([loops.index(k) for k in range(len(loops))])

    def _try(self, g: Generic) -> bool:
        """Assign a generic whose iteration layout follows from a known value."""
        found = None
        for k in self._full_rank(g):
            held = self.layout(g.inputs[k]) or self.read_as.get(g.inputs[k])
            if held is not None and g.is_read(k):
                found = self._iteration_of(held, g.maps[k])
                break
        if found is None and not g.reduced:
            held = self.layout(g.result)
            found = None if held is None else self._iteration_of(held, g.maps[-1])
        if found is None or not self._register_able(g, found) or prefix_of(g):
            return False
        self._assign(g, found)
        return True

    def _register_able(self, g: Generic, iteration: Layout) -> bool:
        if g.reduced and reduction_of(g) is None:
            return False
        held = any(self.layout(g.inputs[k]) is not None for k in self._full_rank(g))
        # each element of a full-rank input is used once: shared memory would only be a detour
        limit = UNROLL_LIMIT if self._full_rank(g) else self.target.unroll
        return not g.reduced or held or iteration.registers <= limit

    def _assign(self, g: Generic, iteration: Layout) -> None:
        self.via[g.result] = "registers"
        self.iteration[g.result] = iteration
        maps = [*g.maps[:-1], *[results_along(g)] * 2]
        for value, loops in zip([*g.inputs, g.init, g.result], maps, strict=True):
            self._set(value, iteration.project(loops))
        if self._find(g.result) in self.factors:
            for value, loops in zip(g.inputs, g.maps, strict=False):
                if load_window(value, self.forall) is not None:
                    self.read_as.setdefault(value, iteration.project(loops))
                else:
                    self.factors.add(self._find(value))

    def _default(self, g: Generic) -> None:
        # what is read beside a tile (classes beside logits) has no say: the tile is loaded once
        most = [*(g.inputs[k] for k in self._full_rank(g)), *g.inputs, g.result][0]
        if prefix := prefix_of(g):
            vector = min(work.access_of(g, self.forall), L.CHUNK // element_bytes(element_of(most)))
            wave, warps = self.target.wave, self.products.warps
            self._assign(g, work.by_prefixes(g, prefix, wave, warps, vector))
            return
        if loops := work.crossing_of(g, self.forall):
            iteration = work.crossed(g, loops, self.target.wave, self.products.warps)
        elif work.sums_vectors(g, self.target.wave * self.products.warps):
            iteration = work.by_results(g, self.target.wave, self.products.warps)
        else:
            iteration = self._blocked(g.extents, element_of(most), work.access_of(g, self.forall))
        if self._register_able(g, iteration):
            self._assign(g, iteration)
            return
        if g.reduced and reduction_of(g) is None:
            condition = "a reduction with a combiner of its own runs element by element"
            missed(g.op.location, IN_REGISTERS, condition, "a combiner that has a name")
        else:
            condition = "a large reduction runs as a loop over shared memory"
            missed(g.op.location, IN_REGISTERS, condition)
        self.via[g.result] = "loop"
        layout = self.layout(g.result) or self._blocked(shape_of(g.result), element_of(g.result))
        self.iteration[g.result] = layout
        self._set(g.result, layout)
        self._set(g.init, layout)

    def _blocked(self, shape: tuple[int, ...], dtype: str, most: int = L.CHUNK) -> Layout:
        """`most`: elements that a thread has side by side. Where memory is accessed element by
        element, neighbours go to neighbouring threads: together they take whole sectors."""
        vector = min(most, L.CHUNK // element_bytes(dtype))
        while vector > 1 and math.prod(shape) < vector * self.products.warps * self.target.wave:
            vector //= 2
        rows = work.of_rows(self.generics, shape, vector, self.target, self.products.warps)
        return L.blocked(shape, self.target.wave, self.products.warps, vector, *rows)

    # ---- conversions

    def _convert_operands(self, g: Generic) -> None:
        via = self.via[g.result]
        product = self.matrix.get(g.result)
        for k, value in enumerate(g.inputs):
            if self.products.is_flexible(value) or not g.is_read(k):
                continue
            held = self._made_in(value)
            if held is None:
                made = defining_op(value) or g.op
                raise LoweringError(
                    f"a tile of {list(shape_of(value))} comes from an op with no GPU lowering",
                    loc=location_text(made.location),
                )
            if product is not None:
                which = "a" if k == product.a else "b"
                needed: Layout = self.products.operand_layout(g, product, which)
                if needed.sources(held, work.dims_of(held)) is None:
                    crosses = L.crossing(needed, held) is not None
                    to = needed if crosses else self._shared(value)
                    self._copy(g.op, k, to, f"operand {which} of a product")
                elif which == "a" and self._is_handed(value, held):
                    self._copy(g.op, k, self._shared(value), "one group makes it for all")
                    HANDED.set(defining_op(g.op.operands[k]))
            elif via == "loop":
                self._copy(g.op, k, self._shared(value), "a loop reads it element by element")
            else:
                needed = self.iteration[g.result].project(g.maps[k])
                if needed.sources(held, work.dims_of(held)) is None:
                    self._copy(g.op, k, needed, "its user holds other elements in each thread")
        init = len(g.inputs)
        held = None if self.products.is_flexible(g.init) else self._made_in(g.init)
        needed = self.result_layout(g)
        if held is not None and needed.sources(held, work.dims_of(held)) is None:
            self._copy(g.op, init, needed, "it is accumulated into elsewhere")

    def _is_handed(self, value: Any, held: Layout) -> bool:
        """Whether one group makes a factor for all of them."""
        made = defining_op(value)
        there = made is not None and made.block != self.body
        once = any(self.products.is_made_once(g) for g in self.generics)
        return there and once and L.is_replicated(held)

    def result_layout(self, g: Generic) -> Layout:
        """The layout that a generic makes its result in."""
        if self.via[g.result] == "registers":
            return self.iteration[g.result].project(results_along(g))
        return self.iteration[g.result]

    def _convert_carried(self, loop: Any) -> None:
        end = loop.regions[0].blocks[0]
        terminator = end.operations[len(end.operations) - 1].operation
        for k, result in enumerate(loop.results):
            if not is_tile(result, self.forall):
                continue
            needed = self.layout(result)
            assert needed is not None
            for op, position in ((loop, 3 + k), (terminator, k)):
                value = op.operands[position]
                held = None if self.products.is_flexible(value) else self._made_in(value)
                if held is not None and needed.sources(held, work.dims_of(held)) is None:
                    self._copy(op, position, needed, "a loop carries it in another layout")

    def _made_in(self, value: Any) -> Layout | None:
        op = defining_op(value)
        if op is not None and op.name == "linalg.generic":
            return self.result_layout(next(g for g in self.generics if g.op == op))
        return self.layout(value)

    def _shared(self, value: Any) -> Shared:
        return L.shared(shape_of(value), element_bytes(element_of(value)), self.target.swizzle)

    def _copy(self, op: Any, position: int, layout: Layout | Shared, why: str) -> None:
        value = op.operands[position]
        with ir.InsertionPoint(op), op.location:
            empty = tensor.empty(shape_of(value), ir.RankedTensorType(value.type).element_type)
            copy = linalg.copy(value, outs=[empty])
        made = defining_op(copy)
        LAYOUT.set(made, str(layout))
        if isinstance(layout, Layout):
            self.known[copy] = layout
        op.operands[position] = copy
        where = "shared memory" if isinstance(layout, Shared) else "other threads"
        text = f"a tile of {list(shape_of(value))} moves to {where}: {why}"
        missed(op.location, IN_REGISTERS, text, message=text)

    # ---- results

    def _write(self) -> None:
        WARPS.set(self.forall, self.products.warps)
        TARGET.set(self.forall, self.target.name)
        for g in self.generics:
            VIA.set(g.op, self.via[g.result])
            ITERATION.set(g.op, str(self.iteration[g.result]))
            LAYOUT.set(g.op, str(self.result_layout(g)))
            product = self.matrix.get(g.result)
            if product is not None:
                INSTRUCTION.set(g.op, self.instruction[g.result].label)
        self._write_loads()
        held = max((self._registers(o.regions[0].blocks[0]) for o in self.loops), default=0)
        HELD.set(self.forall, held)
        stages = stages_of(self.forall, self.target, self.loops, self.products.rows, self.stages)
        for loop in self.loops:
            LAYOUTS.set(loop, [
                str(self.layout(r)) if is_tile(r, self.forall) else "" for r in loop.results
            ])  # fmt: skip
            block = loop.regions[0].blocks[0]
            if any(is_staged(o.operation) for o in block.operations):
                STAGES.set(loop, stages)

    def _write_loads(self) -> None:
        """What goes to shared memory or to registers for good: loads that products and loops
        read, those of a loop that a factor is made from, and what the copy engine brings."""
        wanted: dict[Any, set[str]] = {}
        for g in self.generics:
            for k, value in enumerate(g.inputs):
                if not g.is_read(k) or load_window(value, self.forall) is None:
                    continue
                made_from = value in self.read_as and defining_op(value).block != self.body
                streamed = made_from or is_boxed(self.forall, value)
                if g.result in self.matrix or self.via[g.result] == "loop" or streamed:
                    text = str(self._resident(g, k) or self._shared(value))
                    wanted.setdefault(value, set()).add(text)
        for value, texts in wanted.items():
            text = texts.pop() if len(texts) == 1 else str(self._shared(value))
            LAYOUT.set(defining_op(value), text)

    def _resident(self, g: Generic, k: int) -> Layout | None:
        """The fragments of a factor that a loop multiplies each time, if registers can keep it."""
        product, value = self.matrix.get(g.result), g.inputs[k]
        if product is None or defining_op(value).block != self.body or g.op.block == self.body:
            return None
        i = self.instruction[g.result]
        if k != (product.a if i.chain == "a" else product.b):
            return None  # all warps would keep the same
        layout = self.products.operand_layout(g, product, i.chain)
        size = element_bytes(element_of(value))
        return layout if layout.registers * size <= 4 * factors.room(self.target, i) else None

    def _registers(self, block: Any) -> int:
        """Registers of a thread that accumulators and computed operands of products take."""
        total = 0
        for g in self.generics:
            product = self.matrix.get(g.result)
            if product is None or g.op.block != block:
                continue
            total += self.iteration[g.result].registers
            which = self.instruction[g.result].chain
            if not self.products.is_flexible(g.inputs[product.a if which == "a" else product.b]):
                total += self.products.operand_layout(g, product, which).registers // 2
        return total
