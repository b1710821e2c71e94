# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the cache's key depends on, besides the program."""

import os

from neptune_mlir.runtime import cache


def test_files_that_shape_code_are_part_of_the_key():
    names = {os.path.basename(path) for path in cache.own_files()}
    assert {"rolling_update.py", "streamed.mlir", "tuned.json"} <= names
    assert not {name for name in names if name.endswith(".pyc")}


def test_a_changed_schedule_changes_the_key(tmp_path, monkeypatch):
    script = tmp_path / "streamed.mlir"
    script.write_text("before")
    monkeypatch.setattr(cache, "own_files", lambda: [str(script)])
    found = []
    for text in ("before", "behind it"):
        script.write_text(text)
        cache.compiler_version.cache_clear()
        found.append(cache.key("program"))
    cache.compiler_version.cache_clear()
    assert found[0] != found[1]


def test_files_are_looked_for_once(monkeypatch):
    looked, walk = [], os.walk
    monkeypatch.setattr(cache.os, "walk", lambda folder: looked.append(folder) or walk(folder))
    for found in (cache.own_files, cache.source_digest, cache.compiler_version):
        found.cache_clear()
    cache.key("program")
    assert cache.compiler_versions()["neptune-mlir"].endswith(cache.source_digest())
    assert len(looked) == 1
