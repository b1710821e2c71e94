# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Positions in tile IR: what they are known to be multiples of."""

from __future__ import annotations

from neptune_mlir.analysis.tiles import load_window, multiple_of, slice_parts
from neptune_mlir.dialects.context import parse
from neptune_mlir.ir import bindings

PROGRAM = """
func.func @f(%a: tensor<?x144xf16>, %b: tensor<?x?xf16>, %c: tensor<?x333xf16>, %n: index) {
  %c0 = arith.constant 0 : index
  %c24 = arith.constant 24 : index
  %c64 = arith.constant 64 : index
  scf.forall (%p) in (2) {
    scf.for %i = %c0 to %n step %c64 {
      %from_0 = arith.index_cast %i : index to i32
      %known = tensor.extract_slice %a[%p, %i] [8, 16] [1, 1]
          : tensor<?x144xf16> to tensor<8x16xf16>
      %whole = tensor.extract_slice %a[%i, 8] [8, 16] [1, 1]
          : tensor<?x144xf16> to tensor<8x16xf16>
      %other = tensor.extract_slice %b[%p, %i] [8, 16] [1, 1]
          : tensor<?x?xf16> to tensor<8x16xf16>
      %far = tensor.extract_slice %a[%i, %p] [8, 16] [1, 1]
          : tensor<?x144xf16> to tensor<8x16xf16>
      %odd = tensor.extract_slice %c[%i, 0] [8, 16] [1, 1]
          : tensor<?x333xf16> to tensor<8x16xf16>
      %first = tensor.extract_slice %b[%i, 0] [8, 16] [1, 1]
          : tensor<?x?xf16> to tensor<8x16xf16>
    }
    scf.for %i = %c24 to %n step %c64 {
      %from_24 = arith.index_cast %i : index to i32
      scf.for %j = %i to %n step %c64 {
        %from_i = arith.index_cast %j : index to i32
      }
    }
    scf.for %i = %n to %n step %c64 {
      %from_n = arith.index_cast %i : index to i32
    }
  }
  return
}
"""


def test_multiples():
    module = parse(PROGRAM)
    positions, loads, forall = [], [], []

    def visit(op):
        if op.name == "arith.index_cast":
            positions.append(multiple_of(op.operands[0]))
        if op.name == "scf.forall":
            forall.append(op)
        if op.name == "tensor.extract_slice":
            loads.append(load_window(op.results[0], forall[0]).multiple)
        return bindings.ir.WalkResult.ADVANCE

    module.operation.walk(visit, bindings.ir.WalkOrder.PRE_ORDER)
    assert positions == [64, 8, 8, 1]
    # 144 is 9 times 16; of rows of any length nothing is known
    assert loads == [16, 8, 1, 1, 333, 1]


def test_dimensions_that_slices_keep():
    shapes = {"1, 16, 1": "1x16", "1, 1, 16": "1x16", "1, 16, 1 ": "16x1", "1, 1, 1": "1x1"}
    slices = "".join(
        f"%s{k} = tensor.extract_slice %a[0, 0, 0] [{sizes}] [1, 1, 1]\n"
        f" : tensor<8x16x16xf16> to tensor<{tile}xf16>\n"
        for k, (sizes, tile) in enumerate(shapes.items())
    )
    slices += """%n = tensor.extract_slice %a[0, 0, 0] [1, %m, 1] [1, 1, 1]
        : tensor<8x16x16xf16> to tensor<1x?xf16>\n"""
    text = f"func.func @f(%a: tensor<8x16x16xf16>, %m: index) {{ {slices} return }}"
    module = parse(text)
    *found, _ = [op.operation for op in module.body.operations[0].body.blocks[0].operations]
    kept = [slice_parts(op)[2] for op in found]
    assert kept == [(0, 1), (1, 2), (1, 2), (1, 2), (0, 1)]
