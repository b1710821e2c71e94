# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contractions of a kernel that fit matrix instructions: by which ones, and by how many warps."""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.layouts import Layout, WarpGrid
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    element_bytes,
    element_of,
    factor_type,
    is_added,
    is_blank,
    load_window,
    nested,
    read_contraction,
    read_generic,
    shape_of,
    tuned,
)
from neptune_mlir.dialects.gpu_attributes import CONSUMERS, SWAPPED
from neptune_mlir.dialects.program import precision_of
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.chips import gpu_target
from neptune_mlir.targets.gpu import GpuTarget, MatrixInstruction
from neptune_mlir.targets.group_tiles import sharing
from neptune_mlir.targets.resources import warps_of
from neptune_mlir.transforms.fast_paths import MATRIX, missed
from neptune_mlir.transforms.gpu import layout_factors as factors
from neptune_mlir.transforms.gpu import layout_work as work
from neptune_mlir.transforms.gpu.layout_factors import round_factors, slice_whole_arrays


def matrix_products(forall: Any, target: str) -> list[work.MatrixProduct]:
    """A kernel's products as warp groups have them, in program order (changes it as
    `assign-layouts` does first)."""
    slice_whole_arrays(forall)
    round_factors(forall, bool(tuned(forall, "narrow", 1)))
    found = MatrixProducts(forall, gpu_target(target), 1, grouped=True)
    return [
        work.MatrixProduct(*sizes, g.op.block != found.body, is_added(g.result))
        for g in found.generics
        if (p := found.matrix.get(g.result)) and (sizes := (g.extents[p.m], g.extents[p.n]))
    ]


def have_wide(forall: Any) -> bool:
    """Whether groups share rows of a product of a program: it is wider than an instruction."""
    generics = [read_generic(op) for op in nested(forall.regions[0].blocks[0])
                if op.name == "linalg.generic"]  # fmt: skip
    found = ((g, read_contraction(g)) for g in generics)
    return any(p is not None and sharing(g.extents[p.n]) > 1 for g, p in found)


class MatrixProducts:
    """Those of one kernel.

    Attributes:
        generics, loops: of the kernel, in order.
        matrix: the contractions, by their results; the factor that an accumulator may become is
            the one that is computed.
        instruction: of each.
        rows: the most of any, along what an accumulator keeps as the next operand.
        warps: of a program.
    """

    def __init__(self, forall: Any, target: GpuTarget, warps: int, grouped: bool = False):
        """`grouped`: for warp groups, whether or not the kernel has consumers yet."""
        self.forall = forall
        self.grouped = grouped or CONSUMERS.on(forall)
        self.target = target
        self.body = forall.regions[0].blocks[0]
        ops = list(nested(self.body))
        self.generics = [read_generic(op) for op in ops if op.name == "linalg.generic"]
        self.loops = [op for op in ops if op.name == "scf.for"]
        self.precision = precision_of(forall.parent)
        self.matrix: dict[Any, Contraction] = {}
        self.instruction: dict[Any, MatrixInstruction] = {}
        self._find()
        products = [g for g in self.generics if g.result in self.matrix]
        self.rows = max(map(self._rows, products), default=0)
        self.warps = warps or self._choose_warps()
        self._choose_instructions()

    def _find(self) -> None:
        for g in self.generics:
            product = read_contraction(g)
            if product is None:
                continue
            types = {factor_type(g, k) for k in (0, 1)}
            known = self._instructions(types.pop()) if len(types) == 1 else ()
            if not known or element_of(g.result) != "f32":
                missed(g.op.location, MATRIX, "there is none for its types")
                continue
            # the computed factor stays in registers: it becomes the operand that accumulators can
            loaded = [self.is_flexible(factors.unwidened(v)) for v in g.inputs]
            computed = loaded[0] and not loaded[1]
            across = self.grouped and all(loaded) and factors.lies_across(g, product)
            if (computed or across) != (known[0].chain == "b"):
                product = product.swapped()
                SWAPPED.set(g.op)
            if any(self._fits(g, product, i) for i in known):
                self.matrix[g.result] = product
            else:
                sizes = [g.extents[d] for d in (product.m, product.n, product.k)]
                missed(g.op.location, MATRIX, f"its tile of {sizes} does not fit {known[-1].name}")

    def _instructions(self, dtype: str) -> tuple[MatrixInstruction, ...]:
        return self.target.matrix_for(dtype, self.precision, self.grouped)

    def _fits(self, g: Generic, p: Contraction, i: MatrixInstruction) -> bool:
        m, n, k = (g.extents[d] for d in (p.m, p.n, p.k))
        rows, row, columns, column = (m, i.m, n, i.n) if i.chain == "a" else (n, i.n, m, i.m)
        few = rows < row  # the rest is padding
        return (few or rows % row == 0) and columns % column == 0 and k % i.k == 0

    def _choose_instructions(self) -> None:
        """Of those that fit, the one that lets most warps have rows of their own and pads least;
        several side by side where that makes neighbours of what a thread reads."""
        for g in self.generics:
            p = self.matrix.get(g.result)
            if p is None:
                continue
            fitting = [i for i in self._instructions(factor_type(g, 0)) if self._fits(g, p, i)]
            rows = self._rows(g)
            self.instruction[g.result] = max(
                fitting,
                key=lambda i: (
                    math.gcd(self.warps, self._pieces(g, p, i)[0]),
                    -(-rows % (i.m if i.chain == "a" else i.n)),
                ),
            )
            chosen = self.instruction[g.result].wide(self._side_by_side(g, p))
            chosen = chosen.spread(self._apart(g, p))
            if not self.grouped and self.is_flexible(g.inputs[p.a]):
                chosen = chosen.along(factors.in_one_run(g, p, chosen))
            elif self.grouped and factors.through_registers(g, p):
                chosen = chosen.paired()
            self.instruction[g.result] = chosen

    def _side_by_side(self, g: Generic, p: Contraction) -> int:
        """How many instructions along m take 16 bytes of a row of shared memory, where that row
        runs along m and nothing transposes it on the way."""
        i = self.instruction[g.result]
        if self.target.swizzle or i.chain == "a" or g.maps[p.a].index(p.k) != 0:
            return 1
        pieces = self._pieces(g, p, i)[1] // self.warp_grid(g, p).m
        size = element_bytes(element_of(g.inputs[p.a]))
        fragment = len(L.fragment_offsets(i.a, "m", "k")) * size // 4
        most = max((self._held_in(x) + self._loaded_words(x) for x in self.loops), default=0)
        left = self.target.thread_registers - most // (self.warps * self.target.wave)
        # fragments get an eighth of what accumulators and loads leave (transposing takes more)
        spare = 1 << max(0, (left // 8 // fragment).bit_length() - 1)
        return math.gcd(pieces, L.CHUNK // size, spare)

    def _apart(self, g: Generic, p: Contraction) -> int:
        """How many pieces along n take turns with columns: bytes that a thread reads at once."""
        i, grid = self.instruction[g.result], self.warp_grid(g, p)
        along = factors.byte_rows(g.inputs[p.b]) == g.maps[p.b].index(p.n)
        pieces, rest = divmod(g.extents[p.n], i.n * grid.n)
        fits = i.chain == "a" and grid.m == 1 and not rest
        return math.gcd(pieces, L.CHUNK) if along and fits else 1

    def _pieces(self, g: Generic, p: Contraction, i: MatrixInstruction) -> tuple[int, int]:
        """Pieces along the rows (what an accumulator keeps as the next operand) and columns."""
        m, n = max(1, g.extents[p.m] // i.m), max(1, g.extents[p.n] // i.n)
        return (m, n) if i.chain == "a" else (n, m)

    def _choose_warps(self) -> int:
        """So that warps share no row: what one product makes is the next one's operand, and nothing
        of a row has to be joined (`resources.warps_of`)."""
        held = max(map(self._held_in, self.loops), default=0)
        loaded = max(map(self._loaded_words, self.loops), default=0)
        words, row = work.work_of(self.generics)
        return warps_of(self.target, self.rows, words, held, loaded, row)

    def _loaded_words(self, loop: Any) -> int:
        return work.loaded_in(self.generics, self.matrix, loop, self.is_flexible)

    def _held_in(self, loop: Any) -> int:
        return work.held_in(self.generics, self.matrix, loop)

    def _rows(self, g: Generic) -> int:
        """Rows of a product: its extent along what an accumulator keeps as the next operand."""
        p = self.matrix[g.result]
        chain = self._instructions(factor_type(g, 0))[0].chain
        return int(g.extents[p.m if chain == "a" else p.n])

    def warp_grid(self, g: Generic, p: Contraction) -> WarpGrid:
        """As many warps along the rows as there are pieces for, the others along the columns."""
        i = self.instruction[g.result]
        rows, columns = self._pieces(g, p, i)
        along, across = math.gcd(self.warps, rows), 1
        shared = not self.is_made_once(g)
        while shared and along * across * 2 <= self.warps and columns % (across * 2) == 0:
            across *= 2
        m, n = (along, across) if i.chain == "a" else (across, along)
        return WarpGrid(m, n, self.warps)

    def is_made_once(self, g: Generic) -> bool:
        """Whether one group makes all of a product, for all of them: what a factor is made of that
        results wider than an instruction have, whose columns groups share (`make-once`)."""
        while g.init in self.matrix:  # what it is added to
            g = read_generic(defining_op(g.init))
        if not self.grouped or g.result not in self.matrix or not is_blank(g.init):
            return False
        widths = {x.result: x.extents[self.matrix[x.result].n] for x in self.generics
                  if x.result in self.matrix}  # fmt: skip
        return sharing(max(widths.values())) > 1 and sharing(widths[g.result]) == 1

    def operand_layout(self, g: Generic, p: Contraction, which: str) -> Layout:
        grid, i = self.warp_grid(g, p), self.instruction[g.result]
        k = p.a if which == "a" else p.b
        loops, shape = g.maps[k], shape_of(g.inputs[k])
        if which == "a":
            return L.operand_a(shape, loops.index(p.m), loops.index(p.k), grid, i)
        return L.operand_b(shape, loops.index(p.n), loops.index(p.k), grid, i)

    def is_flexible(self, value: Any) -> bool:
        """A value that any user can have in any layout: a load, a constant tile, no value."""
        op = defining_op(value)
        if op is None:
            return False
        return is_blank(value) or load_window(value, self.forall) is not None
