# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the stress test said is found on disk by later compilations, and is never another test's."""

import threading
from dataclasses import asdict, replace

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import accept as acceptance
from neptune_mlir.algebra.numerics import alike, whole
from neptune_mlir.algebra.numerics.accept import accept
from neptune_mlir.algebra.numerics.steps import NestStep, StreamStep
from neptune_mlir.algebra.numerics.whole import WholeProgram, wrong_values
from neptune_mlir.algebra.solver import solve_chain
from neptune_mlir.algebra.terms import ref as ref_to
from neptune_mlir.driver import verdicts
from support.chains import AXIS, exp, read, reduction, ref


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """The chains whose tests are run."""
    monkeypatch.delenv(verdicts.ENVIRONMENT)
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    found, honest = [], alike.stress

    def counted(chain, *others, **named):
        found.append([r.name for r in chain])
        return honest(chain, *others, **named)

    monkeypatch.setattr(alike, "stress", counted)
    yield found
    acceptance.forget()


def asked(data="x", top="m", total="l", scale=1.0):
    """As another process asks: nothing is left in this one."""
    acceptance.forget()
    x = read(data, 0, 1)
    chain = [reduction(top, "max", x), reduction(total, "add", exp(x * scale - ref(top) * scale))]
    with verdicts.kept():
        return accept(chain, AXIS, {total: ref_to(total)})[1]


def lost():
    """A verdict with a failure: the exponential of what is asked for."""
    acceptance.forget()
    x = read("x", 0, 1)
    chain = [reduction("a", "add", x), reduction("b", "add", x + ref("a"))]
    with verdicts.kept():
        return alike.stressed(
            chain, chain, AXIS, {"b": ref_to("b")}, {"b": exp(ref("b")).term}, frozenset()
        )  # fmt: skip


def test_a_verdict_is_found_again_under_other_names(runs):
    first = asked()
    tests = len(runs)  # one for each form that is tried
    again = asked("y", "top", "sum")
    assert len(runs) == tests > 0
    assert again.fused == {"sum": first.fused["l"]} and again.runs == first.runs and again.ok
    asked(scale=0.5)
    assert len(runs) == 2 * tests


def test_a_failure_is_found_again(runs):
    first = lost().failure
    again = lost().failure
    assert len(runs) == 1 and again == first and str(again) == str(first)
    assert np.isinf(first.error) or first.error > 1


def test_a_damaged_verdict_is_made_again(runs, tmp_path):
    first = asked()
    path = min(tmp_path.rglob("*.verdict"))
    whole = path.read_bytes()
    for damaged in (b"", whole[:-9], whole.replace(b'"runs": ', b'"runs": 9'), b"\xff" * 80):
        path.write_bytes(damaged)
        before = len(runs)
        assert asked() == first and len(runs) == before + 1
        assert path.read_bytes() == whole


def test_none_is_read_where_none_are_wanted(runs, monkeypatch, tmp_path):
    asked()
    monkeypatch.setenv(verdicts.ENVIRONMENT, "none")
    files, tests = list(tmp_path.rglob("*.verdict")), len(runs)
    asked()
    assert len(runs) == 2 * tests == 2 * len(files)
    assert len(list(tmp_path.rglob("*.verdict"))) == len(files)


def test_many_write_one(tmp_path, runs):
    """Readers see all of a verdict or none."""
    report, folder = asdict(asked()), verdicts._Folder()
    stop, seen = threading.Event(), []

    def write():
        while not stop.is_set():
            folder.keep("content", report)

    folder.keep("content", report)
    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(seen) < 200:
        seen.append(folder.load("content"))
    stop.set()
    for thread in threads:
        thread.join()
    assert all(found == report for found in seen)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.fixture
def trials(runs, monkeypatch):
    """The whole programs that are tried."""
    found, honest = [], whole._Trial

    def counted(*arguments):
        found.append(arguments)
        return honest(*arguments)

    monkeypatch.setattr(whole, "_Trial", counted)
    return found


SIZE = (3, 9)
PROGRAM = WholeProgram({"x": (SIZE, "f32")}, {}, {"l": "f32"}, frozenset({"x"}))


def softmax_steps():
    """The sum of a softmax as written, and fused."""
    x = read("x", 0, 1)
    chain = [reduction("m", "max", x), reduction("l", "add", exp(x - ref("m")))]
    written = [NestStep("m", "max", x.term, SIZE, (0,)),
               NestStep("l", "add", exp(x - read("m", 0)).term, SIZE, (0,))]  # fmt: skip
    fused = StreamStep(solve_chain(chain, AXIS), AXIS, SIZE, (("l", ref_to("l"), (0,)),))
    return written, fused


def judged(now, program=PROGRAM):
    with verdicts.kept():
        return wrong_values(program, softmax_steps()[0], program, now)


def test_what_was_said_of_a_whole_program_is_found_again(trials):
    written, _ = softmax_steps()
    assert judged(written) == judged(written) == ""
    assert len(trials) == 1
    larger = replace(PROGRAM, inputs={"x": ((3, 11), "f32")})
    assert judged(written, larger) == "" and len(trials) == 2


def test_a_whole_program_that_is_wrong_stays_wrong(trials):
    """A correction that is another one makes another program."""
    _, fused = softmax_steps()
    running = tuple(replace(r, correction=None) for r in fused.solution.running)
    lost = replace(fused, solution=replace(fused.solution, running=running))
    first, second = judged([fused]), judged([lost])
    assert "mask -inf everywhere" in first  # (no row of it has a key, and nothing guards that)
    assert "'l'" in second and first != second
    assert (judged([fused]), judged([lost])) == (first, second) and len(trials) == 2
