# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic on 16-bit floats in GPU kernels: in f32, rounded once."""

import re

import numpy as np
import pytest

from neptune_mlir.driver import compiler
from support import math_functions as M
from support.chips import simt
from support.chips.run_kernels import Simulated

PROGRAM = """
func.func @f(%x: tensor<65536xT>) -> tensor<65536xT> {{
  %e = tensor.empty() : tensor<65536xT>
  %z = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}}
      ins(%x : tensor<65536xT>) outs(%e : tensor<65536xT>) {{
  ^bb0(%a: T, %o: T):
    {}
    linalg.yield %r : T
  }} -> tensor<65536xT>
  return %z : tensor<65536xT>
}}
"""
SWISH = """%one = arith.constant 1.0 : T
    %n = arith.negf %a : T
    %p = math.exp %n : T
    %d = arith.addf %p, %one : T
    %s = arith.divf %one, %d : T
    %r = arith.mulf %a, %s : T"""
MISH = """%p = math.exp %a : T
    %l = math.log1p %p : T
    %c = arith.constant 20.0 : T
    %big = arith.cmpf ogt, %a, %c : T
    %s = arith.select %big, %a, %l : T
    %t = math.tanh %s : T
    %r = arith.mulf %a, %t : T"""
# what stands in the body, and what it is in f64
BODIES = {
    "by a number": ("%c = arith.constant 10.0 : T\n    %r = arith.divf %a, %c : T",
                    lambda x: x / 10),
    "by a root": ("%c = arith.constant 4.0 : T\n    %d = math.sqrt %c : T\n"
                  "    %r = arith.divf %a, %d : T", lambda x: x / 2),
    "inverse": ("%c = arith.constant 1.0 : T\n    %r = arith.divf %c, %a : T", lambda x: 1 / x),
    "swish": (SWISH, lambda x: x * (1 / (1 + np.exp(-x)))),
    "mish": (MISH, lambda x: x * np.tanh(np.log1p(np.exp(np.minimum(x, 600))))),
    "tanh": ("%r = math.tanh %a : T", np.tanh),
    "log": ("%r = math.log %a : T", np.log),
    "log1p": ("%r = math.log1p %a : T", np.log1p),
    "rsqrt": ("%r = math.rsqrt %a : T", lambda x: 1 / np.sqrt(x)),
}  # fmt: skip


@pytest.mark.first_of_each("name", "dtype")
@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", BODIES)
def test_every_number(name, dtype, target):
    """Half a unit in the last place and a hundredth, and no quotient of 16 bits."""
    body, exact = BODIES[name]
    text = PROGRAM.format(body).replace("xT>", f"x{dtype}>").replace(": T", f": {dtype}")
    module, _ = compiler.lower_text(text, "test", target, None, "tile")
    run = Simulated(module, target=target)
    code = str(run.module)  # of one thread
    assert "gpu.func" in code
    assert not re.search(rf"(arith.divf|math\.\w+) .*{dtype}", code)
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = simt.from_bytes(bits.view(np.uint8), dtype)
    got = np.asarray(run(x.astype(np.float16) if dtype == "f16" else x), np.float64)
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
        largest = {"bf16": 3.3895e38, "f16": 65504.0}[dtype]
        assert (np.isnan(got) == np.isnan(want))[np.abs(x) < np.inf].all()
        usual = (np.abs(want) >= M.LEAST[dtype] * 256) & (np.abs(want) <= largest)
        want = want[usual]
        unit = 2.0 ** (np.floor(np.log2(np.abs(want))) - {"bf16": 7, "f16": 10}[dtype])
        assert (np.abs(got[usual] - want) / unit).max() <= 0.51


@pytest.mark.parametrize(("dtype", "few"), [("bf16", True), ("f16", False)])
def test_a_logarithm_of_few_digits_is_an_instruction(dtype, few):
    """Near 1 it is off by 2^-22, and the logarithm of an f16 may be 2^-11."""
    text = PROGRAM.format(BODIES["log"][0])
    text = text.replace("xT>", f"x{dtype}>").replace(": T", f": {dtype}")
    module, _ = compiler.lower_text(text, "test", "sm_80", None, "tile")
    assert ("lg2.approx" in str(Simulated(module).module)) == few


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_an_inverse_root_of_few_digits_is_an_instruction(dtype):
    text = PROGRAM.format(BODIES["rsqrt"][0])
    text = text.replace("xT>", f"x{dtype}>").replace(": T", f": {dtype}")
    module, _ = compiler.lower_text(text, "test", "sm_80", None, "tile")
    assert ("rsqrt.approx" in str(Simulated(module).module)) == (dtype == "bf16")
