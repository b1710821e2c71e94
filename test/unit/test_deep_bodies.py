# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One expression of many operations, each on the one before: no recursion limit, no walk of the
tree that it stands for, and machine code in a time that does not grow with a power of its length.
"""

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir.algebra import terms as T
from neptune_mlir.codegen.amd import amdgcn
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.driver import compiler
from neptune_mlir.driver.explain import explain
from neptune_mlir.driver.kernel import Source
from neptune_mlir.frontend import notation as N
from neptune_mlir.targets.amd import amd
from neptune_mlir.transforms.fusion.inline_maps import MAX_OPS

DEEP = 1100
CHIPS = ("sm_80", "gfx1100")
KIND = "tensor<4x64xf32>"
STEPS = ("arith.addf {a}, {x}", "arith.mulf {a}, {c}", "arith.minimumf {a}, {p}",
         "arith.subf {a}, {c}", "math.absf {a}")  # fmt: skip


def text_of(depth: int) -> str:
    """A softmax behind one op with a body of so many operations, of which some share operands."""
    lines, value, before = [], "%a", "%a"
    for k in range(depth):
        step = STEPS[k % len(STEPS)].format(a=value, x="%a", p=before, c="%c")
        lines.append(f"%t{k} = {step} : f32")
        value, before = f"%t{k}", value
    body = "\n    ".join(lines)
    return f"""#m = affine_map<(i, j) -> (i, j)>
func.func @main(%x: {KIND}) -> {KIND} {{
  %c = arith.constant 0.5 : f32
  %e = tensor.empty() : {KIND}
  %y = linalg.generic {{indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]}}
      ins(%x : {KIND}) outs(%e : {KIND}) {{
  ^bb0(%a: f32, %o: f32):
    {body}
    linalg.yield {value} : f32
  }} -> {KIND}
  %z = linalg.softmax dimension(1) ins(%y : {KIND}) outs(%e : {KIND}) -> {KIND}
  return %z : {KIND}
}}"""


def expected(x: np.ndarray, depth: int) -> np.ndarray:
    value, before = x, x
    for k in range(depth):
        made = (value + x, value * 0.5, np.minimum(value, before), value - 0.5, np.abs(value))
        value, before = made[k % len(STEPS)], value
    weights = np.exp(value - value.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def depth_of(body) -> int:
    depths = {}
    for node in T.walk(body):
        depths[node] = 0 if node.is_leaf else 1 + max(depths[a] for a in node.args)
    return depths[body]


def test_a_deep_body_on_a_cpu():
    kernel = neptune.compile(text_of(DEEP))
    given = np.random.default_rng(0).uniform(0, 1, (4, 64)).astype(np.float32)
    wanted = expected(given.astype(np.float64), DEEP)
    np.testing.assert_allclose(kernel(given), wanted, rtol=1e-4)
    assert len(kernel.explain()) < 50_000  # the tree has 2^300 nodes and more


@pytest.mark.first_of_each()
@pytest.mark.parametrize("chip", CHIPS)
def test_a_deep_body_on_a_gpu(chip):
    assert neptune.compile(text_of(DEEP), chip).bundle.plan.launches


@pytest.mark.parametrize("target", ("cpu", "sm_80"))
def test_functions_in_a_function_in_front_of_a_softmax(target):
    p = N.Program("nested")
    i, j = p.axis("i", 4), p.axis("j", 64)
    x = p.input("x", i, j)[i, j]
    for _ in range(300):
        x = N.tanh(x)
    weights = N.exp(x - N.max(x, j))
    p.output(weights / N.sum(weights, j), i, j)
    text = Source.of(p).text
    module, _ = compiler.lower_text(text, "nested", target, None, "fused")
    assert "tanh(tanh(" in explain(module, text)


def test_bodies_are_cut_where_they_are_joined():
    module, _ = compiler.lower_text(text_of(400), "deep", "cpu", None, "fused")
    for function in functions(module):
        bodies = [nest.body for nest in NestProgram(function).nests.values()]
        assert bodies and all(depth_of(body) <= MAX_OPS + 8 for body in bodies)


def test_a_deep_position_is_cut_too():
    """No tensor holds what has the type index."""
    steps = ("arith.addi {a}, %q", "arith.subi {a}, %q", "arith.addi {a}, {a}")
    order = [0, 2, 1, *[k % 2 for k in range(300)]]
    lines, value = ["%q = linalg.index 1 : index"], "%q"
    for k, step in enumerate(order):
        lines.append(f"%p{k} = {steps[step].format(a=value)} : index")
        value = f"%p{k}"
    lines += [f"%i = arith.index_cast {value} : index to i32", "%f = arith.sitofp %i : i32 to f32"]
    text = text_of(0).replace("    linalg.yield %a", "\n".join(lines) + "\n    linalg.yield %f")
    expected_row = np.arange(64.0)
    for step in order:
        made = (expected_row + np.arange(64), expected_row - np.arange(64), expected_row * 2)
        expected_row = made[step]
    weights = np.exp(expected_row - expected_row.max())
    found = neptune.compile(text)(np.zeros((4, 64), np.float32))
    np.testing.assert_allclose(found, [weights / weights.sum()] * 4, rtol=1e-5, atol=1e-30)


def block_of(length: int) -> str:
    lines = "\n".join(f"  %x{k + 1} = fadd float %x{k}, %x0" for k in range(length))
    return (
        "define amdgpu_kernel void @k(ptr addrspace(1) %p) {\n"
        f"  %x0 = load float, ptr addrspace(1) %p\n{lines}\n"
        f"  store float %x{length}, ptr addrspace(1) %p\n  ret void\n}}\n"
    )


def test_instructions_of_long_blocks_are_not_paired():
    """A block of 20,000 would take minutes: LLVM looks for pairs among all of them."""
    chip = amd("gfx1100")
    assert len(amdgcn.assembly(block_of(20_000), chip).splitlines()) > 20_000
