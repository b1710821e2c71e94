# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results that leave by the copy engine, on the simulator: the code of the consumers' threads and
the tensor maps that the runtime encodes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from neptune_mlir.analysis import layouts as L
from neptune_mlir.analysis.tiles import Window
from neptune_mlir.codegen.distribute_tiles import chip_of
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.boxed_results import BoxedResults
from neptune_mlir.codegen.nvidia.boxes import Boxes
from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter
from neptune_mlir.dialects.context import parse
from neptune_mlir.ir.bindings import gpu, ir, passmanager
from neptune_mlir.runtime import parameters
from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.targets.chips import gpu_target
from support.chips import simt
from support.chips.simt_hopper import HopperBlock
from support.chips.simt_ops import Kernel
from support.chips.simt_parts import Maps

ROWS, WARPS, TARGET = 128, 8, gpu_target("sm_90a")


class Consumers(SpecializedWriter):
    """Threads that hold tiles of a result [batch, heads, rows, columns] and write them: the tile
    at (b, h, row), and the one below it."""

    def __init__(self, columns, dtype, room):
        chip = chip_of(TARGET)
        chip.declare_module()
        s = self.s = Scalars(chip)
        kinds = [s.i32] * 3
        function = gpu.GPUFuncOp(
            ir.FunctionType.get(kinds, []), "results", kernel=True,
            known_block_size=[32 * WARPS, 1, 1],
        )  # fmt: skip
        self.entry, self.boxes = function.add_entry_block(), Boxes(self)
        self.forall = SimpleNamespace(location=ir.Location.unknown())
        self.function = function.operation
        layout = L.accumulator((ROWS, columns), 0, 1, L.WarpGrid(WARPS, 1, WARPS), TARGET.matrix[0])
        with s.scope(self.entry):
            self.threads = Threads(s, 32, WARPS)
            symbol = ir.FlatSymbolRefAttr.get("neptune_shared")
            kind = ir.Type.parse("!llvm.ptr<3>")
            pointer = s.op("llvm.mlir.addressof", [], kind, global_name=symbol)
            self.smem = s.op("llvm.ptrtoint", [pointer], s.i32)
            self.memory = Memory(s, self.threads, pointer)
            result = ir.Type.parse(f"tensor<?x?x?x{columns}x{dtype}>")
            self.signature = SimpleNamespace(tensors=[SimpleNamespace(type=result)])
            boxed = BoxedResults(self, self.memory.take(WARPS * room * 2048), room)
            b, h, row = (s.value(v) for v in self.entry.arguments)
            array = Array(0, None, (1, 1, 1, 1), dtype)
            for tile in range(2):
                place = (b, h, s.add(row, tile * ROWS), 0)
                window = Window(None, place, (2, 3), (ROWS, columns), (None, None))
                boxed.store(array, window, layout, self._values(layout, place, columns, dtype))
            boxed.finish()
            gpu.ReturnOp([])
        self.boxes.pass_maps(self.function, kinds)
        self.function.attributes["neptune.shared"] = ir.IntegerAttr.get(s.i64, self.memory.peak)

    def _values(self, layout, place, columns, dtype):
        """Of each element of the tile: `element` of its place."""
        s, (b, h, row, _) = self.s, place
        head = s.add(s.mul(b, 31), s.mul(h, 17))
        found = []
        for r, c in self.threads.positions(layout):
            n = s.mod(s.add(s.add(s.mul(s.add(r, row), columns), c), head), 251)
            wide = s.op("arith.sitofp", [s.value(n, s.i32)], s.f32)
            found.append(s.op("arith.truncf", [wide], ir.Type.parse(dtype)))
        return found


def element(b, h, row, column, columns):
    return (row * columns + column + 31 * b + 17 * h) % 251


def results(columns, rows, dtype="f16", strided=False, parts=1):
    """The result of a launch over tiles of twice 128 rows, each in some parts, and the blocks."""
    shape, maps, memory = (2, 3, rows, columns), Maps(), simt.Memory()
    order = (0, 2, 1, 3) if strided else (0, 1, 2, 3)  # heads beside positions
    held = [shape[d] for d in order]
    address = memory.put(np.full(2 * int(np.prod(shape)), 0xFF, np.uint8))
    strides = [0] * 4
    for k, d in enumerate(order):
        strides[d] = int(np.prod(held[k + 1 :]))
    view = ArrayView(address, dtype, shape, tuple(strides), False, None)
    module = parse("module {}")
    with module.context, ir.Location.unknown(), ir.InsertionPoint(module.body):
        kernels = gpu.GPUModuleOp("kernels")
        with ir.InsertionPoint(kernels.regions[0].blocks.append()):
            kernel = Consumers(columns, dtype, -(-columns // (64 * parts)))
        pipeline = "builtin.module(gpu.module(canonicalize,cse))"
        passmanager.PassManager.parse(pipeline).run(module.operation)
        (operand,) = kernel.boxes.operands([("buffer", 0)])
        assert operand[:3] == ["map", "buffer", 0]
        numbers = [parameters.tensor_map(maps, view, *operand[3:])]
        decoded = Kernel.of(kernel.function)
        blocks = [
            HopperBlock(decoded, memory, [b, h, row, *numbers], 0, maps)
            for b in range(2) for h in range(3) for row in range(0, rows, 2 * ROWS)
        ]  # fmt: skip
    memory.check_guards()
    found = memory.get(address, tuple(held), dtype).astype(np.float32)
    return found.transpose(np.argsort(order)), blocks


@pytest.fixture(autouse=True)
def no_maps(monkeypatch):
    monkeypatch.setattr(parameters, "_maps", {})


@pytest.mark.parametrize(
    ("columns", "rows", "dtype", "strided", "parts"),
    [(64, 256, "f16", False, 1), (64, 130, "bf16", True, 1), (128, 77, "f16", True, 2),
     (40, 130, "f16", True, 1), (72, 77, "bf16", False, 1), (160, 130, "f16", True, 2)],
)
def test_tiles_arrive_and_nothing_is_written_beyond_the_last_row(
    columns, rows, dtype, strided, parts
):
    found, blocks = results(columns, rows, dtype, strided, parts)
    b, h, r, c = np.indices(found.shape)
    assert (found == element(b, h, r, c, columns)).all()
    boxes = parts if columns % 64 == 0 else -(-columns // 64)  # partly filled panels go alone
    assert all(block.stored == 2 * WARPS * boxes for block in blocks)


def test_the_simulator_sees_a_room_that_is_written_too_early(monkeypatch):
    monkeypatch.setattr(hopper, "await_boxes", lambda: None)
    with pytest.raises(AssertionError, match="while its shared memory is being read"):
        results(64, 128)
    waits = iter([False, False, True] * 6)  # only at the end
    wait = hopper.asm
    monkeypatch.setattr(
        hopper, "await_boxes",
        lambda: next(waits) and wait("cp.async.bulk.wait_group.read 0;", ""),
    )  # fmt: skip
    found, _ = results(64, 256)
    assert not (found[0, 0, :ROWS, 0] == element(0, 0, np.arange(ROWS), 0, 64)).all()


def test_the_simulator_sees_a_missing_fence(monkeypatch):
    monkeypatch.setattr(hopper, "publish_tile", lambda: None)
    with pytest.raises(AssertionError):
        results(64, 128)
