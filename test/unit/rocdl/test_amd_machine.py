# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMD machine code of this tree's bundles, executed by an emulator (see `emulator.py`).

Registers, local memory, results and workspace begin as NaN, arrays end at a page that nobody may
touch, and waves run up, down and in random turns between barriers. Waits and hazards are not
modelled: these rest on LLVM.
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from neptune_mlir import ops, zoo
from neptune_mlir.codegen.amd.instructions import Amd
from neptune_mlir.targets import amd
from support import amd_programs as programs
from support.amd_programs import BACKWARD, CHIPS, MACHINE, MORE, SERVING, TOLERANCE
from support.chips.emulator import Emulator, OutOfBounds, Process, compiled, missing
from support.often import nightly_if

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "found")
TWO = ("gfx942", "gfx1100")
HARD = 2e-4  # in f32, of inputs on which the definition in f32 loses digits, too


@pytest.fixture(scope="module")
def emulators(tmp_path_factory):
    """One process, whatever the order of the tests is: chips of one architecture share much."""
    process = Process(tmp_path_factory.mktemp("emulator"))
    yield {chip: Emulator(chip, process) for chip in CHIPS}
    process.close()


@pytest.fixture
def emulator(request, emulators):
    return emulators[request.param]


def on(chips):
    return pytest.mark.parametrize("emulator", chips, indirect=True)


@functools.cache
def bundle_of(chip, name):
    """One compilation for all tests of a program."""
    return compiled(MACHINE[name]().program, chip)


def check(emulator, case, strided=False, bundle=None):
    code = bundle or compiled(case.program, emulator.chip)
    for run in emulator.compare(code, case.program, case.inputs, strided=strided,
                                wanted=case.wanted):  # fmt: skip
        assert max(run.errors) < case.tolerance, run
        assert run.instructions > 0


# With each change each chip runs all but one of these.
RARE = ("attention 64",)  # causal, grouped attention has its instructions


def rare(case):
    return case[1] in RARE


@pytest.mark.parametrize(
    ("emulator", "name"), nightly_if(rare, itertools.product(CHIPS, MACHINE)), indirect=["emulator"]
)
def test_program(emulator, name):
    check(emulator, MACHINE[name](), bundle=bundle_of(emulator.chip, name))


def test_the_emulators_functions_round_as_instructions_do():
    """A product and a sum once, and square roots exactly; nothing is reassociated."""
    from tinygrad import UOp, dtypes
    from tinygrad.codegen import to_program
    from tinygrad.helpers import DEV
    from tinygrad.uop.ops import KernelInfo

    from support.chips.pattern_code import Renderer

    out, x = (UOp.param(n, dtypes.float32, (8,)) for n in range(2))
    a, b, c = (x.index(UOp.const(n, dtypes.int)) for n in range(3))
    values = (a * b + c, a.sqrt())
    stores = [out.index(UOp.const(n, dtypes.int)).store(v) for n, v in enumerate(values)]
    program = to_program(
        UOp.sink(*stores, arg=KernelInfo("f")).rtag(1), Renderer(DEV.target("CPU"))
    )
    text = program.src[2].arg
    assert text.count("@llvm.fma(float") == text.count("@llvm.sqrt(float") == 1
    assert "contract" not in text and "align" not in text


@on(["gfx1100"])
def test_rows_apart(emulator):
    """Strides are those of the arrays; what is between rows is neither read nor written."""
    case = MACHINE["softmax"]()
    check(emulator, case, strided=True, bundle=bundle_of(emulator.chip, "softmax"))


@pytest.mark.first_of_each()
@on(["gfx942", *(chip for chip in CHIPS if chip != "gfx942")])
def test_missing_barriers_are_seen(emulator, monkeypatch):
    """Without any barrier. One order of waves does for that; `test_each_missing_barrier_is_seen`
    removes them one by one."""
    case = MACHINE["attention 64, grouped, causal"]()
    monkeypatch.setattr(Amd, "barrier", lambda self: None)
    bundle = compiled(case.program, emulator.chip)
    runs = emulator.compare(bundle, case.program, case.inputs, orders=("up",))
    assert max(max(run.errors) for run in runs) > 0.02


def other_rows(c):
    """An accumulator's fragment, its rows in another order than the instruction's: what registers
    hold of a run of rows changes places with what lanes hold."""
    run, lanes = re.match(r"reg\[m:(\d+)\*\d+.* m:(\d+)\*\d+\]$", c).groups()
    swapped = {"1": (int(lanes), 1), "2": (1, int(run))}  # by the stride of registers
    far, near = swapped.get(re.match(r"reg\[m:\d+\*(\d+)", c)[1])
    c = re.sub(r"^reg\[m:(\d+)\*\d+", rf"reg[m:\1*{far}", c)
    return re.sub(r" m:(\d+)\*\d+\]$", rf" m:\1*{near}]", c)


@pytest.mark.parametrize(
    "emulator", nightly_if(lambda chip: chip not in TWO, CHIPS), indirect=True
)
def test_a_wrong_fragment_is_seen(emulator, monkeypatch):
    target, case = amd.TARGETS[emulator.chip], MACHINE["rms norm matmul"]()
    matrix = tuple(replace(m, c=other_rows(m.c)) for m in target.matrix)
    assert not set(matrix) & set(target.matrix)
    monkeypatch.setitem(amd.TARGETS, emulator.chip, replace(target, matrix=matrix))
    bundle = compiled(case.program, emulator.chip)
    (run,) = emulator.compare(bundle, case.program, case.inputs, orders=("up",))
    assert max(run.errors) > 0.02


@on(["gfx1100"])
def test_an_access_past_the_end_is_seen(emulator):
    case = MACHINE["softmax"]()
    bundle = bundle_of(emulator.chip, "softmax")
    with pytest.raises(OutOfBounds):
        emulator.results(bundle, case.inputs, ("up",), short=1)


def normal():
    return np.random.default_rng(2).standard_normal((8, 600)).astype(np.float32)


def softmax_errors(emulator, x):
    bundle = bundle_of(emulator.chip, "softmax")
    (run,) = emulator.compare(bundle, ops.softmax(), [x], orders=("up",))
    return run.errors


@pytest.mark.first_of_each("emulator")
@on(TWO)
@pytest.mark.parametrize("offset", [1e6, 1e5, 1e4, 1e3])
def test_softmax_far_from_zero(emulator, offset):
    assert max(softmax_errors(emulator, normal() + np.float32(offset))) < TOLERANCE["f32"]


@on(["gfx1201"])  # whose instructions for that are its own
def test_rows_that_are_undefined(emulator):
    x = normal()
    x[0], x[1, 3], x[2, 590] = -np.inf, np.nan, np.inf
    with np.errstate(invalid="ignore"):
        assert max(softmax_errors(emulator, x)) < TOLERANCE["f32"]


def masked(hidden):
    return np.where(hidden, np.finfo(np.float32).min, normal())


@on(TWO)
def test_elements_masked_with_the_smallest_float(emulator):
    hidden = np.random.default_rng(5).random((8, 600)) < 0.5
    assert max(softmax_errors(emulator, masked(hidden))) < TOLERANCE["f32"]


@on(TWO)
@pytest.mark.parametrize("hidden", ["first tiles", "whole rows"])
def test_tiles_masked_with_the_smallest_float(emulator, hidden):
    """A row whose maximum is the smallest float, at first or to the end."""
    where = np.arange(600)[None] < 500 if hidden == "first tiles" else np.arange(8)[:, None] < 4
    assert max(softmax_errors(emulator, masked(where))) < TOLERANCE["f32"]


@pytest.mark.nightly
@on(CHIPS)
@pytest.mark.parametrize("name", [*MACHINE, *MORE])
def test_every_program(emulator, name):
    case = (MACHINE | MORE)[name]()
    check(emulator, case)
    check(emulator, case, strided=True)


@pytest.mark.nightly
@on(CHIPS)
@pytest.mark.parametrize("name", SERVING)
def test_serving(emulator, name):
    """What unused pages and table entries hold is not read, or does not matter."""
    check(emulator, SERVING[name]())


@pytest.mark.nightly
@on(CHIPS)
@pytest.mark.parametrize("name", BACKWARD)
def test_backward(emulator, name):
    check(emulator, BACKWARD[name]())


@pytest.mark.nightly
@on(CHIPS)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("name", ops.OPERATORS)
def test_every_operator(emulator, name, head_dim):
    bundle = compiled(programs.operator(name, 64, head_dim)().program, emulator.chip)
    for length in (64, 97, 131, 200):
        case = programs.operator(name, length, head_dim)()
        for run in emulator.compare(bundle, case.program, case.inputs):
            assert max(run.errors) < case.tolerance, (length, run)


@pytest.mark.nightly
@on(CHIPS)
@pytest.mark.parametrize("example", zoo.ZOO, ids=lambda e: e.name)
def test_zoo(emulator, example):
    case = programs.of_zoo(example)()
    check(emulator, case)
    if example.hard:
        hard = list(example.hard(np.random.default_rng(0)))
        check(emulator, replace(case, inputs=hard, tolerance=HARD))


@pytest.mark.nightly
@on(CHIPS)
def test_each_missing_barrier_is_seen(emulator, monkeypatch):
    """By one order of waves at least: none of the three sees all of them. The keys are so many that
    each loop over them, with a mask and without, takes several tiles."""
    case = programs.attention(causal=True, q_len=130, kv_len=400)()
    program = case.program
    whole, real = compiled(program, emulator.chip).code, Amd.barrier
    counter, skipped, seen = itertools.count(), 0, 0

    def barrier(self):
        if next(counter) != skipped:
            real(self)

    monkeypatch.setattr(Amd, "barrier", barrier)
    while True:
        bundle = compiled(program, emulator.chip)
        if next(counter) <= skipped:  # that many barriers were made, over all candidates
            break
        if bundle.code != whole:  # else the candidate was not taken
            runs = emulator.compare(bundle, program, case.inputs)
            assert max(max(run.errors) for run in runs) > 3 * case.tolerance, skipped
            seen += 1
        counter, skipped = itertools.count(), skipped + 1
    assert seen >= 2
