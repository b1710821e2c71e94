# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From clock samples to spans, roles, shares and a timeline."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from neptune_mlir.bench import profile, run
from neptune_mlir.bench.build import build
from neptune_mlir.bench.profile import ISSUE, WAIT, Span
from neptune_mlir.bench.timeline import COLOURS, timeline
from neptune_mlir.codegen.clock_samples import BLOCKS, CAPACITY, KINDS, Sampled
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.bundle import Bundle

KERNEL = Sampled(
    "k_clock_samples",
    8,
    ["kernel", ISSUE, WAIT, "start a copy", WAIT, "wait for threads"],
    {2: 1, 4: 0},
)
START = (1 << 32) - 50  # the clock wraps around


def words(*samples: tuple[int, list[tuple[int, int]]]) -> np.ndarray:
    """The array where warps of block 0 wrote pairs of cycles and tags."""
    made = np.zeros((BLOCKS, KERNEL.warps, CAPACITY, 2), np.uint32)
    for warp, pairs in samples:
        for k, (cycles, tag) in enumerate(pairs):
            made[0, warp, k] = (START + cycles) % (1 << 32), tag
    return made.ravel()


CONSUMER = [
    (0, 1),
    (10, 3),
    (14, 4),
    (20, 3),
    (24, 4),
    (30, 5),
    (60, 6),
    (70, 9),
    (90, 10),
    (100, 2),
]
PRODUCER = [(5, 1), (20, 7), (25, 8), (45, 2)]


def test_tracks() -> None:
    idle = [(0, 1), (4, 11), (9, 12), (12, 2)]
    first, second = profile.tracks(words((0, CONSUMER), (4, PRODUCER), (5, idle)), KERNEL)
    assert (first.role, second.role) == ("consumer 0", "producer")
    assert (first.start, first.end, second.start, second.end) == (0, 100, 5, 45)
    assert second.spans == [Span("start a copy", 20, 25)]
    assert [(s.start, s.end) for s in first.spans if s.kind == WAIT] == [(30, 60), (70, 90)]
    # the first wait leaves one group of products under way
    assert [(s.start, s.end) for s in first.products] == [(10, 60), (20, 90)]


def test_what_comes_after_a_warp_ran_out_of_room_is_left_out() -> None:
    full = [(k, 7 + k % 2) for k in range(CAPACITY)]
    found = profile.tracks(words((0, full), (4, [(5, 1), (9, 3), (CAPACITY + 9, 2)])), KERNEL)
    assert [t.warp for t in found] == [0]
    later = [(5, 1), (9, 7), (12, 8), (CAPACITY + 9, 2)]
    _, second = profile.tracks(words((0, full), (4, later)), KERNEL)
    assert (second.start, second.end) == (5, 12)


def test_table() -> None:
    found = profile.tracks(words((0, CONSUMER), (4, PRODUCER)), KERNEL)
    made = profile.table("k", found)
    lines = {line[0]: dict(zip(made.header, line, strict=True)) for line in made.lines}
    consumer = lines["consumer 0"]
    assert (consumer[ISSUE], consumer[WAIT], consumer["other work"]) == ("8.0", "50.0", "42.0")
    assert consumer[profile.UNDER_WAY] == lines["block"][profile.UNDER_WAY] == "80.0"
    assert lines["producer"]["start a copy"] == "12.5"


def test_union() -> None:
    spans = [Span("", 5, 9), Span("", 0, 3), Span("", 2, 4), Span("", 6, 7)]
    assert profile.union(spans) == 8


def test_timeline() -> None:
    found = profile.tracks(words((0, CONSUMER), (4, PRODUCER)), KERNEL)
    root = ElementTree.fromstring(timeline({"a & b": found, "none": []}))
    space = "{http://www.w3.org/2000/svg}"
    texts = [t.text for t in root.iter(f"{space}text")]
    assert texts[:3] == ["a & b: cycles 0 to 100 of 100", "consumer 0", "producer"]
    bars = [r for r in root.iter(f"{space}rect") if r.get("fill") == COLOURS[WAIT]]
    widths = [float(r.get("width")) for r in bars]
    assert widths[0] == pytest.approx(1.5 * widths[1], rel=0.01)
    assert set(KINDS.values()) <= set(COLOURS)


def test_a_bundle_with_samples_is_apart(tmp_path: Path) -> None:
    assert not build(tmp_path, ["operators"], "sm_80", ["f16"], only="decode_causal",
                     say=lambda _: None, profile=True)  # fmt: skip
    [path] = run.bundles_of(tmp_path, profile=True)
    kernels = profile.sampled_kernels(Bundle.from_bytes(path.read_bytes()))
    assert kernels and all("kernel" in k.sites for k in kernels.values())
    assert any("wait for copies" in k.sites for k in kernels.values())
    with pytest.raises(UsageError, match="no bundles"):
        run.bundles_of(tmp_path)
