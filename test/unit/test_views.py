# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of views around maps and reductions, fused, against NumPy and unfused.

`NEPTUNE_SEED=N` looks at other programs, `NEPTUNE_EXAMPLES=N` at more of them. A program that
fails is printed; `python test/unit/view_programs.py SEED [f32]` prints it again.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.driver import compiler
from neptune_mlir.errors import OutOfMemory
from support.chips.run_kernels import Simulated
from support.view_programs import Views
from support.view_writer import TYPES

pytestmark = pytest.mark.usefixtures("small_tiles")

CASES = Path(__file__).resolve().parent / "view_cases"
FIRST = int(os.environ.get("NEPTUNE_SEED", "0"))
EXAMPLES = int(os.environ.get("NEPTUNE_EXAMPLES", "60"))
TARGETS = ("sm_80", "gfx942")
NIGHTLY = 3000


def as_list(value):
    return list(value) if isinstance(value, tuple | list) else [value]


def compare(what, seed, program, results, tolerance):
    for got, wanted in zip(as_list(results), program.results, strict=True):
        got = np.asarray(got)
        where = f"{what}, seed {seed}:\n{program.text}"
        assert got.shape == wanted.shape, where
        scale = np.abs(wanted).max(initial=1.0)
        error = np.abs(got - wanted).max(initial=0.0) / scale
        assert error <= tolerance, f"error {error:.1e}, {where}"  # NaN fails as well


def on_cpu(seed):
    program = Views(seed)
    given = [a.copy() for a in program.arguments]
    try:
        fused = neptune_mlir.compile(program.text)(*program.arguments)
        unfused = compiler.compile_unfused(program.text, "views", None, vectorize=False)
        plain = unfused(*program.arguments)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error}\n{program.text}") from error
    compare("unfused", seed, program, plain, 1e-9)
    compare("fused", seed, program, fused, 1e-9)
    for before, after in zip(given, program.arguments, strict=True):
        np.testing.assert_array_equal(before, after, f"an argument changed, seed {seed}")


def simulated(seed):
    target = TARGETS[seed % len(TARGETS)]
    program = Views(seed, "f32", largest=400)
    try:
        module, _ = compiler.lower_text(program.text, "views", target, None, "tile")
        results = Simulated(module, target=target)(*program.arguments)
    except OutOfMemory:
        return  # a diagnostic: the tiles of this program do not fit this chip
    except Exception as error:
        raise AssertionError(f"{target}, seed {seed}: {error}\n{program.text}") from error
    compare(target, seed, program, results, 1e-4)


@pytest.mark.parametrize("part", range(4))
def test_on_the_cpu(part):
    for seed in range(FIRST + part, FIRST + EXAMPLES, 4):
        on_cpu(seed)


@pytest.mark.parametrize("part", range(2))
def test_simulated(part):
    for seed in range(FIRST + part, FIRST + EXAMPLES // 2, 2):
        simulated(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_many_on_the_cpu(part):
    for seed in range(FIRST + part, FIRST + NIGHTLY, 20):
        on_cpu(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_many_simulated(part):
    for seed in range(FIRST + part, FIRST + NIGHTLY // 3, 20):
        simulated(seed)


def case_inputs(text):
    """Arrays as the case's second line says: `4x3xf64`, or `7xi64<4` for positions under 4."""
    rng = np.random.default_rng(0)
    for spec in text.splitlines()[1].removeprefix("// inputs:").split():
        *shape, kind = spec.split("x")
        dtype, _, bound = kind.partition("<")
        if bound:
            yield rng.integers(0, int(bound), [int(n) for n in shape])
        else:
            yield rng.standard_normal([int(n) for n in shape]).astype(TYPES[dtype])


@pytest.mark.parametrize("case", sorted(CASES.glob("*.mlir")), ids=lambda path: path.stem)
def test_found_before(case):
    """Programs that went wrong once."""
    text = case.read_text()
    arguments = list(case_inputs(text))
    unfused = compiler.compile_unfused(text, "views", None, vectorize=False)
    fused = neptune_mlir.compile(text)
    for got, wanted in zip(as_list(fused(*arguments)), as_list(unfused(*arguments)), strict=True):
        assert not np.isnan(wanted).any()
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
