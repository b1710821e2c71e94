# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose code for some calls is compiled by the first of them, on CPUs."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.algebra.numerics import whole
from neptune_mlir.driver import verdicts
from neptune_mlir.driver.compiler import compile_text
from neptune_mlir.driver.family import Family
from neptune_mlir.driver.kernel import Source
from neptune_mlir.driver.on_demand import Asked
from neptune_mlir.driver.recipe import Recipe
from neptune_mlir.errors import LoweringError
from neptune_mlir.frontend import notation as N
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime import cache
from neptune_mlir.targets import tuned
from neptune_mlir.targets.cpu import EFFORT
from neptune_mlir.transforms.fusion import defer

TEXT = Source.of(ops.softmax()).text
LENGTHS = (5, 300, 5000)  # calls of three kinds


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """The images that were compiled after the first."""
    found, make = [], Recipe.made
    monkeypatch.setattr(Recipe, "made", lambda *given: found.append(given[1].case) or make(*given))
    return found


def run(kernel, length):
    x = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(kernel(x), e / e.sum(1, keepdims=True), rtol=1e-5)


def images(bundle):
    """Which calls each image of a bundle for CPUs is for, and its code."""
    made = bundle.facts.get("variants", ())
    end = len(bundle.code) - sum(image["size"] for image in made)
    found = {"any": bundle.code[:end]}
    for image in made:
        start = image.get("offset", end)
        end = start + image["size"]
        found[str(image["when"])] = bundle.code[start:end]
    return found


def test_calls_compile_what_they_take(made):
    kernel = neptune_mlir.compile(TEXT)
    assert not made and len(images(kernel._bundle.bundle)) == 1
    for count, length in enumerate(reversed(LENGTHS)):
        for _ in range(2):
            run(kernel, length)
            assert len(made) == count
    whole = compile_text(TEXT, "<program>", "cpu", None, None)
    assert images(kernel._bundle.bundle) == images(whole) and len(images(whole)) == 3
    assert kernel.bundle.to_bytes() == whole.to_bytes()


def test_what_is_written_has_all_whatever_was_called(made, tmp_path):
    kernel = neptune_mlir.compile(TEXT)
    run(kernel, 5)
    kernel.save(tmp_path / "some.bundle")
    neptune_mlir.compile(TEXT, on_demand=False).save(tmp_path / "all.bundle")
    assert (tmp_path / "some.bundle").read_bytes() == (tmp_path / "all.bundle").read_bytes()
    for length in LENGTHS:
        run(neptune_mlir.Kernel.load(tmp_path / "some.bundle"), length)
    assert len(made) == 1


def test_threads_that_need_an_image_compile_it_once(made):
    kernel, errors = neptune_mlir.compile(TEXT), []
    start = threading.Barrier(4)

    def work(length):
        start.wait()
        try:
            run(kernel, length)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (5, 5, 300, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and sorted(made) == sorted(set(made)) and len(made) == 2


def test_an_error_that_comes_late(monkeypatch):
    """It is that of the compiler, with its place; other calls go on, and so does the next try."""
    kernel, make = neptune_mlir.compile(TEXT), Recipe.made

    def fail(*given):
        raise LoweringError("no lowering", loc="program.mlir:3:1", hint="another one")

    monkeypatch.setattr(Recipe, "made", fail)
    with pytest.raises(LoweringError, match="no lowering"):
        run(kernel, 5)
    run(kernel, 5000)
    monkeypatch.setattr(Recipe, "made", make)
    run(kernel, 5)


AGAIN = """
import sys
import numpy as np
import neptune_mlir
kernel = neptune_mlir.compile(sys.argv[1])
for length in (5, 5000):
    kernel(np.ones((3, length), np.float32))
assert kernel.cached
assert not any(name.startswith(("torch_mlir", "mlir.")) for name in sys.modules)
"""


def test_another_process_compiles_nothing(tmp_path):
    program = tmp_path / "softmax.mlir"
    program.write_text(TEXT)
    from neptune_mlir.targets.cpu import EFFORT

    token = EFFORT.set(3)
    try:
        run(neptune_mlir.compile(program), 5)
    finally:
        EFFORT.reset(token)
    subprocess.run([sys.executable, "-c", AGAIN, program], check=True)


def test_a_damaged_image_is_made_again(made, empty_cache):
    run(neptune_mlir.compile(TEXT), 5)
    for path in empty_cache.rglob("*.bundle"):
        if cache.load(path.stem) is not None and "later" not in cache.load(path.stem).facts:
            path.write_bytes(path.read_bytes()[:-1])
    run(neptune_mlir.compile(TEXT), 5)
    assert len(made) == 2


def spread_of(few, cols=43):
    """A variance. Of weights of which a mask leaves `few`, one is 0 to the last bit, and fused it
    would be noise. (Of a size that no other test has: a process remembers verdicts.)"""
    p = N.Program("spread")
    i, j = p.axis("i", 7), p.axis("j", cols)
    x, keep = p.input("x", i, j)[i, j], p.input("w", i, j, dtype="i1")[i, j] if few else True
    e = N.exp(x * 2.0 - N.max(x, j)) if few else x
    count = N.cast(N.sum(N.cast(keep, "i64"), j), "f32") if few else float(cols)
    kept = (lambda y: N.where(keep, y, 0.0)) if few else lambda y: y
    d = e - N.sum(kept(e), j) / count
    p.output(N.sum(kept(d * d), j) / count, i)
    return p


@pytest.mark.parametrize("few", [False, True])
def test_whole_programs_are_judged_while_code_is_generated(monkeypatch, small_tiles, few):
    """And where the verdict is another one than was taken for granted, all is made again."""
    text, said = Source.of(spread_of(few)).text, []
    judge, begin = whole._wrong_values, Family.begin

    def judged(*given):
        said.append(judge(*given))
        return said[-1]

    defer.forget()
    monkeypatch.setenv(verdicts.ENVIRONMENT, "none")
    monkeypatch.setattr(whole, "_wrong_values", judged)
    monkeypatch.setattr(Family, "begin", lambda *given: said.append("begun") or begin(*given))
    asked = Asked(text, "<program>", "cpu", None, "", None, tuned.current(), EFFORT.get())
    bundle = Recipe(asked).begun()
    assert said[0] == "begun" and said.count("begun") == (2 if few else 1)
    assert bool(said[1]) == few
    monkeypatch.setattr(whole, "_wrong_values", judge)
    defer.forget()
    assert (
        images(bundle)["any"] == images(compile_text(text, "<program>", "cpu", None, None))["any"]
    )


def test_bundles_made_at_once_are_judged_while_code_is_generated(monkeypatch, small_tiles):
    said = []
    judge, background = whole._wrong_values, cpu.background
    defer.forget()
    monkeypatch.setenv(verdicts.ENVIRONMENT, "none")
    monkeypatch.setattr(whole, "_wrong_values", lambda *a: said.append(judge(*a)) or said[-1])
    monkeypatch.setattr(cpu, "background", lambda work: said.append("begun") or background(work))
    text = Source.of(spread_of(True, 41)).text
    Recipe(Asked(text, "<program>", "cpu", None, "", None, tuned.current(), EFFORT.get())).whole()
    assert said[0] == "begun" and said.count("begun") == 2 and said[1]
