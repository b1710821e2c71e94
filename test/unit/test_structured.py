# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The linalg dialect of the bindings without their language of named ops (`ir.structured`)."""

import subprocess
import sys

PROGRAM = """
import sys
from neptune_mlir.ir.bindings import PACKAGE, ir, linalg

with ir.Context(), ir.Location.unknown():
    module = ir.Module.parse('''
      func.func @f(%to: tensor<4xf32>, %x: f32, %memory: memref<4xf32>) -> tensor<4xf32> {
        return %to : tensor<4xf32>
      }''')
    block = module.body.operations[0].regions[0].blocks[0]
    to, x, memory = block.arguments
    with ir.InsertionPoint(block.operations[0]):
        filled = linalg.fill(x, outs=[to])
        linalg.copy(filled, outs=[to])
        linalg.copy(memory, outs=[memory])
    assert module.operation.verify()
    assert [type(op) for op in list(block.operations)[:3]] == [
        linalg.FillOp, linalg.CopyOp, linalg.CopyOp
    ]
    assert not any("opdsl" in name for name in sys.modules)
    theirs = __import__(f"{PACKAGE}.dialects.linalg", fromlist=["matmul"])
    assert callable(theirs.matmul) and theirs.FillOp is linalg.FillOp
"""


def test_named_ops_need_no_language():
    """And who imports the bindings' own module gets it."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
