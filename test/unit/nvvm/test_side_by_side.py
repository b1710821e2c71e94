# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that other processes make are those of this one, and a call that comes has its own begun
beside that for any call."""

from __future__ import annotations

import json

import pytest

from neptune_mlir import child, ops
from neptune_mlir.driver.kernel import Source
from neptune_mlir.driver.on_demand import Asked, Coming, OnDemand
from neptune_mlir.driver.recipe import Recipe
from neptune_mlir.errors import OutOfMemory, Refused
from neptune_mlir.pipelines import image_child
from neptune_mlir.targets import tuned
from neptune_mlir.targets.gpu import MULTIPROCESSORS

make = image_child.make
TEXT = Source.of(ops.softmax()).text
SHORT = [(100, 100)]  # a call that has an image of its own


@pytest.fixture
def forked(monkeypatch):
    """Processes are used, and what each was asked for."""
    found, make = [], image_child.make

    def asked(*arguments):
        found.append(arguments)
        return make(*arguments)

    monkeypatch.setattr(image_child, "CORES", 1)
    monkeypatch.setattr(image_child, "make", asked)
    return found


def begin(folder, monkeypatch, coming=None):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(folder))
    asked = Asked(TEXT, "<program>", "sm_90a", None, "", None, tuned.current(), 3)
    return OnDemand.begin("softmax", lambda: Recipe(asked), coming)[0]


def grown(images):
    place = images.bundle.facts["images"][0]["offset"]
    images.grow(place, SHORT, [], MULTIPROCESSORS)
    return images.bundle.to_bytes()


def test_they_are_the_same_and_begun_together(monkeypatch, tmp_path, forked):
    coming = Coming(SHORT, [], MULTIPROCESSORS)
    images = begin(tmp_path / "apart", monkeypatch, coming)
    assert len(forked) == 1 + len(images.bundle.facts["images"])
    made = grown(images)
    assert len(forked) == 3  # nothing was begun again
    monkeypatch.setattr(image_child, "CORES", 1 << 20)
    assert made == grown(begin(tmp_path / "here", monkeypatch, coming))
    assert len(forked) == 3


def test_what_a_process_cannot_make_is_made_here(monkeypatch, tmp_path, forked):
    """One that dies, is stopped, or fails, which says nothing of why."""
    wanted = begin(tmp_path / "here", monkeypatch).bundle.to_bytes()
    monkeypatch.setattr(image_child, "make", lambda *given: forked.append(given))
    found = begin(tmp_path / "died", monkeypatch).bundle.to_bytes()
    assert found == wanted and len(forked) == 4
    monkeypatch.setattr(child, "forked", lambda *given: child.Ended(b"", "", -6))
    assert make(*forked[0]) is None


@pytest.mark.parametrize("kind", [OutOfMemory, Refused])
def test_a_refusal_is_handed_on(monkeypatch, kind):
    said = json.dumps([kind.__name__, "tiles are too large", "x.mlir:1:2", "others"]).encode()
    monkeypatch.setattr(child, "forked", lambda *given: child.Ended(said, "", 0))
    with pytest.raises(kind) as error:
        image_child.make("", "", "sm_90a", "", "")
    assert (error.value.loc, error.value.hint) == ("x.mlir:1:2", "others")
