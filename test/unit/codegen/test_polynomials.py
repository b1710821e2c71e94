# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementary functions on CPUs: within their bounds of double precision, and IEEE at the edges."""

from pathlib import Path

import numpy as np
import pytest

from neptune_mlir.codegen.cpu import native
from neptune_mlir.dialects.context import parse
from neptune_mlir.driver import compiler
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime import CpuExecutable
from neptune_mlir.targets.cpu import NAMED, CpuTarget, describe, host
from support import math_functions as M
from support.pair_instructions import emulated
from support.tile_programs import single


def check(kind, functions, results, x, y):
    for f, result in zip(functions, results, strict=True):
        got = np.asarray(result).astype(np.float32)
        error = M.errors(f, got, x, y, kind, flushes=False)
        worst = int(np.argmax(error))
        bound = M.bound(f, kind, gpu=False)
        assert error[worst] <= bound, (f.name, x[worst], y[worst], got[worst])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_within_bounds(kind):
    numpy = {"f32": np.float32, "f16": np.float16}.get(kind)
    if numpy is None:
        numpy = pytest.importorskip("ml_dtypes").bfloat16
    run = CpuExecutable(compiler.compile_text(M.program(kind), "test", "cpu", None, None))
    x, y = M.operands(kind)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        given = x.astype(numpy), y.astype(numpy)
    check(kind, M.FUNCTIONS, run(*given), x, y)


def test_bounds_are_documented():
    text = (Path(__file__).parents[3] / "docs" / "numerics.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    stated = {name: (float(row[1]), float(row[3])) for row in rows
              if len(row) == 5 and row[1].replace(".", "").isdigit()
              for name in row[0].split(", ")}  # fmt: skip
    assert stated == {f.name: (f.gpu, f.cpu) for f in M.FUNCTIONS}


@pytest.mark.parametrize("chip", sorted(NAMED))
@pytest.mark.parametrize("name", ["exp", "log", "atan"])
def test_without_wide_instructions(name, chip):
    if not all(map(host().has, NAMED[chip])):
        pytest.skip("this machine lacks the instructions")
    x = M.samples(1000)
    text = single(f"%y = math.{name} %a0 : f32\nlinalg.yield %y : f32", ["(i) -> (i)"] * 2, "p",
                  [([len(x)], "f32")], ([len(x)], "f32"))  # fmt: skip
    target = describe(chip, NAMED[chip], host().triple)
    got = CpuExecutable(cpu.compile_tiles(parse(text), target=target))(x)
    check("f32", [f for f in M.FUNCTIONS if f.name == name], [got], x, x)


@pytest.mark.parametrize(("op", "numpy"), [("maximumf", np.maximum), ("minimumf", np.minimum)])
def test_maximum_keeps_nan(op, numpy):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 100)).astype(np.float32)
    a[::7], b[::5], a[3], b[4] = np.nan, np.nan, np.inf, -np.inf
    text = single(f"%y = arith.{op} %a0, %a1 : f32\nlinalg.yield %y : f32", ["(i) -> (i)"] * 3, "p",
                  [([100], "f32"), ([100], "f32")], ([100], "f32"))  # fmt: skip
    got = CpuExecutable(cpu.compile_tiles(parse(text)))(a, b)
    np.testing.assert_array_equal(got, numpy(a, b))


INTEGERS = """func.func @f(%x: tensor<?xi32>, %z: tensor<?xi32>) -> tensor<?xi32> {
  %c0 = arith.constant 0 : index
  %extent = tensor.dim %x, %c0 : tensor<?xi32>
  %e = tensor.empty(%extent) : tensor<?xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x, %z : tensor<?xi32>, tensor<?xi32>) outs(%e : tensor<?xi32>) {
  ^bb0(%a: i32, %b: i32, %u: i32):
    %y = math.ipowi %a, %b : i32
    linalg.yield %y : i32
  } -> tensor<?xi32>
  return %r : tensor<?xi32>
}"""


def test_powers_of_integers():
    base, exponent = (v.ravel() for v in np.meshgrid(np.arange(-9, 10), np.arange(-5, 40)))
    run = CpuExecutable(compiler.compile_text(INTEGERS, "test", "cpu", None, None))
    got = run(base.astype(np.int32), exponent.astype(np.int32))
    for b, n, found in zip(base.tolist(), exponent.tolist(), got.tolist(), strict=True):
        wanted = b**n if n >= 0 else {1: 1, -1: 1 if n % 2 == 0 else -1}.get(b, 0)
        assert found == (wanted + (1 << 31)) % (1 << 32) - (1 << 31), (b, n)


class Wide(CpuTarget):
    """This machine, with vectors of 512 bits and what scales them."""

    def has(self, feature):
        return feature == "avx512f" or super().has(feature)


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_no_instruction_makes_a_denormal_number(name, monkeypatch):
    """It takes some cores 150 cycles. (The scaling here makes a NaN of one.)"""
    x = np.linspace(-110, -80, 4000, dtype=np.float32)
    x = np.append(x * (1 if name == "exp" else np.float32(1.4427)), [-np.inf, np.nan, 90, -1e30, 0])
    x = x.astype(np.float32)
    compiled, made = native.object_code, []

    def object_code(text, target, **options):
        made.append(text)
        return compiled(emulated(text), target, **options)

    monkeypatch.setattr(native, "object_code", object_code)
    text = single(f"%y = math.{name} %a0 : f32\nlinalg.yield %y : f32", ["(i) -> (i)"] * 2, "p",
                  [([len(x)], "f32")], ([len(x)], "f32"))  # fmt: skip
    chip = host()
    target = Wide(chip.name, chip.features, chip.triple, 512, 32)
    got = CpuExecutable(cpu.compile_tiles(parse(text), target=target))(x)
    assert "mask.scalef" in made[0]
    assert np.isnan(got[-4]) and ((got > 0) & (got < 2.0**-126)).sum() > 1000
    check("f32", [f for f in M.FUNCTIONS if f.name == name], [got], x, x)
