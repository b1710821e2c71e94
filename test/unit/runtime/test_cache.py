# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The on-disk cache: found again, rebuilt when damaged, harmless when it cannot be written."""

import subprocess
import sys

import pytest

from neptune_mlir.runtime import cache
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan

BUNDLE = Bundle("cpu", Plan("f", (), (), (), (), ()), b"code")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_made_once():
    made = []

    def make():
        made.append(1)
        return BUNDLE

    name = cache.key("a program", "cpu")
    assert cache.get_or_make(name, make) == (BUNDLE, False)
    assert cache.get_or_make(name, make) == (BUNDLE, True)
    assert len(made) == 1


def test_key_tells_parts_apart():
    assert cache.key("ab", "c") != cache.key("a", "bc")
    assert cache.key("ab", "c") == cache.key("ab", "c")


def test_damaged_entry_is_rebuilt(folder):
    name = cache.key("x")
    cache.store(name, BUNDLE)
    (path,) = folder.rglob("*.bundle")
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.load(name) is None
    assert cache.get_or_make(name, lambda: BUNDLE) == (BUNDLE, False)
    assert cache.load(name) == BUNDLE


def test_nothing_left_behind(folder):
    cache.store(cache.key("x"), BUNDLE)
    assert [p.suffix for p in folder.rglob("*") if p.is_file()] == [".bundle"]


def test_unwritable_folder(monkeypatch, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(blocker / "below"))
    assert cache.get_or_make(cache.key("x"), lambda: BUNDLE) == (BUNDLE, False)


def test_second_process_compiles_nothing(tmp_path):
    program = """
import sys
import numpy as np
import neptune_mlir
text = '''func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c = arith.constant 0 : index
  %n = tensor.dim %x, %c : tensor<?xf32>
  %r = "neptune.map"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<?xf32>) -> f32
    %b = arith.addf %a, %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: -9223372036854775808>, result_axes = array<i64: 0>}
    : (index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}'''
kernel = neptune_mlir.compile(text)
assert (kernel(np.ones(5, np.float32)) == 2).all()
print(kernel.cached, 'torch_mlir' in sys.modules)
"""
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [r.stdout.split() for r in runs] == [["False", "True"], ["True", "False"]]
