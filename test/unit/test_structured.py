# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the bindings import for a dialect: `ir.structured`, `ir.llvm`."""

import subprocess
import sys

from neptune_mlir.ir.bindings import ir, llvm, module

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


BY_NAME = """
import sys
from neptune_mlir.ir.bindings import PACKAGE, ir, llvm
from neptune_mlir.ir.structured import BY_NAME

TEXT = '''
  module attributes {gpu.container_module} {
    gpu.module @kernels {
      llvm.func @f(%x: i32) -> i32 attributes {nvvm.kernel} {
        %y = llvm.add %x, %x : i32
        %z = nvvm.read.ptx.sreg.tid.x : i32
        %w = rocdl.workitem.id.x : i32
        llvm.return %y : i32
      }
    }
  }'''
with ir.Context(), ir.Location.unknown():
    def names(block):
        for op in block.operations:
            yield op.operation.name
            for region in op.regions:
                for inner in region:
                    yield from names(inner)
    module = ir.Module.parse(TEXT)
    assert {n.split(".")[0] for n in names(module.body)} == {"gpu", "llvm", "nvvm", "rocdl"}
    ir.Attribute.parse("#gpu.block<linear_dim_0>")
    assert not {f"{PACKAGE}.dialects.{name}" for name in BY_NAME} & {*sys.modules}
    assert "_llvm_ops_gen" not in str([*sys.modules])
    theirs = __import__(f"{PACKAGE}.dialects.llvm", fromlist=["AddOp"])
    function = module.body.operations[0].regions[0].blocks[0].operations[0]
    assert isinstance(function, theirs.LLVMFuncOp)
"""


def test_ops_are_met_by_name():
    """And who imports the bindings' classes of them gets them."""
    subprocess.run([sys.executable, "-c", BY_NAME], check=True, timeout=60)


def test_ops_of_llvm_are_those_of_the_bindings():
    theirs = module("dialects.llvm")
    with ir.Context(), ir.Location.unknown():
        program = ir.Module.parse("func.func @f(%a: vector<16xf32>, %b: i16, %c: i32) { return }")
        block = program.body.operations[0].regions[0].blocks[0]
        a, b, c = block.arguments
        whole = ir.Type.parse("vector<16xi32>")
        seven = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 7)
        number = ir.DenseElementsAttr.get_splat(whole, seven)
        name, kind = "llvm.x86.avx512.mask.scalef.ps.512", "!llvm.array<4 x i8>"
        linkage = ir.Attribute.parse("#llvm.linkage<internal>")
        places = {"addr_space": 3, "alignment": 128}
        with ir.InsertionPoint(block.operations[0]):
            pairs = [
                (llvm.bitcast(whole, a), theirs.bitcast(whole, a)),
                (llvm.constant(number), theirs.mlir_constant(number)),
                (llvm.call_intrinsic(a.type, name, [a, a, a, b, c]),
                 theirs.call_intrinsic(a.type, name, [a, a, a, b, c], [], [])),
            ]  # fmt: skip
        pairs = [(one.owner, other.owner) for one, other in pairs]
        with ir.InsertionPoint(program.body):
            ours = llvm.global_array(kind, "memory", "internal", **places)
            known = theirs.GlobalOp(ir.Type.parse(kind), "memory", linkage, **places).operation
        for pair in [*pairs, (ours, known)]:
            texts = [op.get_asm(print_generic_op_form=True).partition("=")[2] for op in pair]
            assert texts[0] == texts[1]
