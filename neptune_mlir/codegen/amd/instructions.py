# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD's instructions: `v_mfma` and `v_wmma`, plain loads and stores, moves between lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.analysis.layouts import CHUNK
from neptune_mlir.analysis.tiles import Window
from neptune_mlir.codegen.gpu.access.shared import SharedTile
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.ir.bindings import ir, llvm
from neptune_mlir.targets.amd import AmdTarget
from neptune_mlir.targets.gpu import MatrixInstruction

_QUAD = {1: 0b10_11_00_01, 2: 0b01_00_11_10}  # quad_perm: which lane of 4 each lane reads
_ROW_XMASK = 0x160  # | mask: the lane whose number differs in the mask, of 16
_ALL_16 = (0x76543210, -0x1234568)  # each lane of 16 reads its counterpart (0xFEDCBA98)
_SWIZZLE_XOR = 0x1F  # | mask << 10: all lanes of 32, exclusive or with the mask


class Amd(Chip):
    packs = True

    target: AmdTarget

    def shared_symbol(self, kernel: str) -> str:
        return f"{kernel}_shared"

    def declare_shared(self, kernel: str, size: int) -> None:
        """Each kernel has memory of its own and of known size: its notes then say how much."""
        kind, name = f"!llvm.array<{max(size, CHUNK)} x i8>", self.shared_symbol(kernel)
        llvm.global_array(kind, name, "internal", addr_space=3, alignment=128)

    def annotate(self, function: Any, blocks: int) -> None:
        """Registers are the code generator's choice."""

    def barrier(self) -> None:
        """Waits for shared memory only: loads from global memory stay under way."""
        ir.Operation.create(
            "gpu.barrier",
            attributes={
                "scope": ir.Attribute.parse("#gpu.barrier_scope<workgroup>"),
                "address_spaces": ir.Attribute.parse("[#gpu.address_space<workgroup>]"),
            },
        )

    def fetch(self, memory: Memory, array: Array, window: Window, tile: SharedTile) -> None:
        memory.store_staged(array, window, tile, memory.load_staged(array, window))

    # ---- scalars

    def exp2(self, s: Scalars, x: Any) -> Any:
        return s.op("rocdl.exp2", [x], x.type)

    def reciprocal(self, s: Scalars, x: Any) -> Any:
        return s.op("rocdl.rcp", [x], x.type)

    def exchange(self, s: Scalars, word: Any, distance: int) -> Any:
        if word.type != s.i32:
            bits = self.exchange(s, s.op("llvm.bitcast", [word], s.i32), distance)
            return s.op("llvm.bitcast", [bits], word.type)
        if distance in _QUAD:
            return self._modified(s, word, _QUAD[distance])
        if distance < 16 and "row" in self.target.moves:
            return self._modified(s, word, _ROW_XMASK | distance)
        if distance == 16 and "half" in self.target.moves:
            low, high = (s.constant(lanes, s.i32) for lanes in _ALL_16)
            return _operation(
                "rocdl.permlanex16", [word, word, low, high], s.i32,
                fi=ir.BoolAttr.get(False), boundControl=ir.BoolAttr.get(False),
            )  # fmt: skip
        if distance < 32:
            pattern = s.constant(_SWIZZLE_XOR | distance << 10, s.i32)
            return _operation("rocdl.ds_swizzle", [word, pattern], s.i32)
        lane = s.op("arith.xori", [self._lane(s), s.constant(distance, s.i32)], s.i32)
        address = s.op("arith.shli", [lane, s.constant(2, s.i32)], s.i32)
        return _operation("rocdl.ds_bpermute", [address, word], s.i32)

    def in_all_lanes(self, s: Scalars, condition: Any) -> Any:
        lanes = ir.IntegerType.get_signless(self.target.wave)
        those = _operation("rocdl.ballot", [condition], lanes)
        return s.op("arith.cmpi", [those, s.constant(-1, lanes)], s.i1,
                    predicate=ir.IntegerAttr.get(s.i64, 0))  # fmt: skip

    def _lane(self, s: Scalars) -> Any:
        dimension = ir.Attribute.parse("#gpu<dim x>")
        thread = s.op("gpu.thread_id", [], s.index, dimension=dimension)
        return s.value(s.mod(thread, self.target.wave), s.i32)

    def _modified(self, s: Scalars, word: Any, control: int) -> Any:
        """`word` of the lane that a data-parallel modifier names."""
        return _operation(
            "rocdl.update.dpp", [word, word], s.i32,
            dppCtrl=ir.IntegerAttr.get(s.i32, control), rowMask=ir.IntegerAttr.get(s.i32, 0xF),
            bankMask=ir.IntegerAttr.get(s.i32, 0xF), boundCtrl=ir.BoolAttr.get(False),
        )  # fmt: skip

    # ---- matrix products

    def fragment(self, memory: Memory, values: Sequence[Any], together: int = 1) -> list[Any]:
        return [memory.pack(list(values[at::together])) for at in range(together)]

    def accumulator(self, memory: Memory, values: list[Any], together: int = 1) -> list[Any]:
        return self.fragment(memory, values, together)

    def elements(self, memory: Memory, accumulator: Any, count: int) -> list[Any]:
        each = count // len(accumulator)
        parts = [memory.unpack(vector, each, memory.s.f32) for vector in accumulator]
        return [part[r] for r in range(each) for part in parts]

    def multiply(self, s: Scalars, i: MatrixInstruction, a: Any, b: Any, c: Any) -> list[Any]:
        return [self._multiply(s, i, x, b[0], y) for x, y in zip(a, c, strict=True)]

    def _multiply(self, s: Scalars, i: MatrixInstruction, a: Any, b: Any, c: Any) -> Any:
        if i.words:
            words = ir.VectorType.get(ir.VectorType(a.type).shape, ir.IntegerType.get_signless(16))
            a, b = (s.op("llvm.bitcast", [v], words) for v in (a, b))
        if i.name.startswith("rocdl.wmma"):
            return _operation(i.name, [a, b, c], c.type)
        zero = ir.IntegerAttr.get(s.i32, 0)
        none = ir.Attribute.parse("#rocdl<mfma_perm_b none>")
        if i.parts == 1:
            return _operation(i.name, [a, b, c], c.type, cbsz=zero, abid=zero, blgp=none)
        for k in range(i.parts):
            place = s.constant(k, s.i32)
            pair = [s.op("llvm.extractelement", [v, place], s.f32) for v in (a, b)]
            c = _operation(i.name, [*pair, c], c.type, cbsz=zero, abid=zero, blgp=none)
        return c


def _operation(name: str, operands: Sequence[Any], result: Any, **attributes: Any) -> Any:
    return ir.Operation.create(
        name, results=[result], operands=list(operands), attributes=attributes
    ).results[0]
