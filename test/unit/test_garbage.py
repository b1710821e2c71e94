# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compilation does beside its passes: Python looks for garbage rarely, and LLVM's process
starts."""

import atexit
import gc
import platform
import subprocess
import sys

import pytest

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.cli import main, opt
from neptune_mlir.codegen import llvm_child
from neptune_mlir.driver import compiler, kernel
from neptune_mlir.driver.garbage import RARELY, collected_rarely
from neptune_mlir.driver.recipe import Recipe


@pytest.fixture(autouse=True)
def as_before():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_garbage_is_looked_for_rarely_within_a_compilation(monkeypatch, tmp_path):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    seen, raised = [], Recipe._program.func
    monkeypatch.setattr(
        Recipe, "_program",
        property(lambda self: seen.append(gc.get_threshold()[0]) or raised(self)),
    )  # fmt: skip
    gc.set_threshold(700, 10, 10)
    neptune_mlir.compile(ops.softmax())
    assert set(seen) == {RARELY}
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("module, name, call", [
    (main, "_execute", lambda: main.main(["doctor"])),
    (opt, "_run", lambda: opt.main(["-"])),
    (compiler, "RaisedProgram", lambda: compiler.compile_text("", "", "cpu", None, None)),
])  # fmt: skip
def test_commands_and_compilations_of_text_look_rarely_too(monkeypatch, module, name, call):
    class Begun(Exception):
        pass

    def begin(*_):
        raise Begun if gc.get_threshold()[0] == RARELY else AssertionError

    monkeypatch.setenv("NEPTUNE_TRACEBACK", "1")
    monkeypatch.setattr(module, name, begin)
    gc.set_threshold(700, 10, 10)
    with pytest.raises(Begun):
        call()
    assert gc.get_threshold() == (700, 10, 10)


def test_nobody_looks_behind_the_command_of_a_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["neptune", "no-such-command"])
    gc.set_threshold(700, 10, 10)
    assert main.main() == 2
    assert gc.get_threshold()[0] == RARELY


@pytest.mark.parametrize("module", [main, opt])
def test_nobody_looks_where_a_command_ends(monkeypatch, module):
    called = []
    monkeypatch.setattr(atexit, "register", called.append)
    module.main(["no-such-command"])
    assert called == [gc.freeze]


ARRAYS = """
import numpy as np, resource
from types import SimpleNamespace
from neptune_mlir.algebra.numerics import whole

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

whole._wrong_values(SimpleNamespace(rows=1, steps=1), ())
first = faults()
for _ in range(20):
    arrays = [np.ones(1 << 17) for _ in range(8)]
    del arrays
print((faults() - first) * resource.getpagesize() / (20 * 8 * 8 << 17))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's")
def test_a_check_in_a_new_process_keeps_the_memory_of_its_arrays():
    made = subprocess.run([sys.executable, "-c", ARRAYS], capture_output=True, text=True)
    assert float(made.stdout) < 0.2, made.stderr  # of the arrays' bytes were new pages


@pytest.mark.parametrize("first", [0, RARELY + 1])
def test_whoever_looks_yet_more_rarely_keeps_that(first):
    gc.set_threshold(first, 10, 10)
    with collected_rarely():
        assert gc.get_threshold()[0] == first
    assert gc.get_threshold()[0] == first


def test_one_within_another_ends_with_it_and_changes_by_others_stay():
    gc.set_threshold(700, 10, 10)
    with collected_rarely():
        with collected_rarely():
            pass
        assert gc.get_threshold()[0] == RARELY
    assert gc.get_threshold()[0] == 700
    with collected_rarely():
        gc.set_threshold(123, 10, 10)
    assert gc.get_threshold()[0] == 123


def test_the_process_of_llvm_starts_before_the_compiler_is_imported(monkeypatch):
    started = []
    monkeypatch.setattr(llvm_child, "start", lambda: started.append(None))
    monkeypatch.setitem(sys.modules, "neptune_mlir.driver.recipe", None)
    for target, wanted in (("cpu", 0), ("sm_90a", 1)):
        asked = kernel.Asked("", "", target, None, "", None, None, 0)
        with pytest.raises(ImportError):  # the compiler's, which comes after
            kernel._recipe(asked)
        assert len(started) == wanted
