# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the stress test said is found on disk by later compilations, and is never another test's."""

import threading

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import accept as acceptance
from neptune_mlir.algebra.numerics import alike
from neptune_mlir.algebra.numerics.accept import accept
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
    report, folder = asked(), verdicts._Folder()
    report = alike._renamed(report, {"l": "0"})
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
