# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images that other processes make are those of this one, and a call that comes has its own begun
beside that for any call."""

from __future__ import annotations

import functools
import json

import pytest

from neptune_mlir import child, ops
from neptune_mlir.dialects.context import parse
from neptune_mlir.driver.kernel import Source
from neptune_mlir.driver.on_demand import Asked, Coming, OnDemand
from neptune_mlir.driver.recipe import Recipe
from neptune_mlir.errors import OutOfMemory, Refused
from neptune_mlir.pipelines import gpu, image_child, nvvm
from neptune_mlir.pipelines.lowering import RaisedProgram
from neptune_mlir.targets import tuned
from neptune_mlir.targets.gpu import MULTIPROCESSORS

TEXT = Source.of(ops.softmax()).text
SHORT = [(100, 100)]  # a call that has an image of its own


@pytest.fixture(scope="module")
def tiles():
    program = RaisedProgram(TEXT, "softmax")
    lowering = next(program.lowerings("sm_90a", nvvm.ways("sm_90a")))
    return lowering.module.operation.get_asm(enable_debug_info=True)


@pytest.fixture
def asked(monkeypatch):
    """Processes are used, and what each was asked for."""
    found, make = [], image_child.make
    monkeypatch.setattr(image_child, "CORES", 1)
    monkeypatch.setattr(image_child, "make", lambda *given: found.append(given) or make(*given))
    return found


def _same(x):
    return x


def image(tiles):
    return nvvm.begin_tiles(parse(tiles), target="sm_90a", entry=None, facts={})


def test_they_are_the_same(tiles, asked):
    with image_child.used():
        begun = image(tiles)
    here = image(tiles)
    assert len(asked) == 1 and [x.grid for x in begun.plan.launches] == [
        x.grid for x in here.plan.launches
    ]
    assert begun.finish().to_bytes() == here.finish().to_bytes()


def test_what_a_process_cannot_make_is_made_here(monkeypatch, tiles, asked):
    """One that dies, is stopped, or fails, which says nothing of why."""
    forked, died = child.forked, child.Ended(b"", "", -6)
    monkeypatch.setattr(  # (LLVM's process is another one)
        child, "forked", lambda n, *given: died if n == image_child.NAME else forked(n, *given)
    )
    with image_child.used():
        begun = image(tiles)
    assert begun.finish().to_bytes() == image(tiles).finish().to_bytes()
    assert len(asked) == 1


@pytest.mark.parametrize("kind", [OutOfMemory, Refused])
def test_a_refusal_is_handed_on(monkeypatch, kind):
    said = json.dumps([kind.__name__, "tiles are too large", "x.mlir:1:2", "others"]).encode()
    monkeypatch.setattr(child, "forked", lambda *given: child.Ended(said, "", 0))
    with pytest.raises(kind) as error:
        image_child.make("", "", "sm_90a", "", "")
    assert (error.value.loc, error.value.hint) == ("x.mlir:1:2", "others")


@pytest.mark.parametrize("coming", [None, Coming(SHORT, [], MULTIPROCESSORS)])
def test_what_a_call_takes_is_begun_before_any_is_waited_for(
    monkeypatch, tmp_path, tiles, asked, coming
):
    """The last image that serves it, of those whose calls are known before."""
    own, finish = image(tiles).finish(), gpu.Begun.finish
    waited = []
    monkeypatch.setattr(gpu, "background", lambda work, of=None: functools.partial(_same, work()))
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(image_child, "make", lambda *given: asked.append(given) or own)
    monkeypatch.setattr(gpu.Begun, "finish", lambda b: waited.append(len(asked)) or finish(b))
    recipe = Recipe(Asked(TEXT, "<program>", "sm_90a", None, "", None, tuned.current(), 3))
    images = OnDemand.begin("softmax", lambda: recipe, coming)[0]
    assert waited[0] == len(asked) == (1 if coming else 0)
    images.grow(images.bundle.facts["images"][-1]["offset"], SHORT, [], MULTIPROCESSORS)
    assert len(asked) == (1 if coming else 0) and len(images.bundle.facts["images"]) == 3
