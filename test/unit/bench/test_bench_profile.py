# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From clock samples to spans, roles, shares and a timeline."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from neptune_mlir.bench import profile, run
from neptune_mlir.bench.build import build
from neptune_mlir.bench.perfetto import trace
from neptune_mlir.bench.profile import ISSUE, WAIT, Span
from neptune_mlir.bench.rows import Rows
from neptune_mlir.bench.timeline import COLOURS, timeline
from neptune_mlir.cli.main import main
from neptune_mlir.codegen.clock_samples import BLOCKS, CAPACITY, KINDS, Sampled
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.gpu import GpuExecutable
from support.chips.fake_drivers import MODULES, FakeGpu
from support.chips.fake_gpu import FakeArray, aligned

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
    row = {"bundle": "b", "kernel": "k", "where": "n <= 2", "length": 9, "us": 3.0,
           "us_sampled": 4.4, "roles": profile.shares(found)}  # fmt: skip
    made = profile.table(row)
    assert made.title == "b, k where n <= 2, length 9, 4 us with samples, 3 us without, % of cycles"
    lines = {line[0]: dict(zip(made.header, line, strict=True)) for line in made.lines}
    consumer = lines["consumer 0"]
    assert (consumer[ISSUE], consumer[WAIT], consumer["other work"]) == ("8.0", "50.0", "42.0")
    assert consumer[profile.UNDER_WAY] == lines["block"][profile.UNDER_WAY] == "80.0"
    assert lines["producer"]["start a copy"] == "12.5"
    firsts = {role: line["first issue"] for role, line in lines.items()}
    assert firsts == {"consumer 0": "10", "producer": "20", "block": ""}


def test_first_issue() -> None:
    """A warp that also starts copies is looked at for its products; some warps issue neither."""
    both = [(0, 1), (3, 7), (5, 8), *CONSUMER[1:]]
    waits = [(0, 1), (4, 11), (9, 12), (12, 2)]
    found = profile.tracks(words((0, both), (4, PRODUCER)), KERNEL)
    assert [profile.first_issue(t) for t in found] == [10, 20]
    (only,) = profile.shares(profile.tracks(words((0, waits)), KERNEL))
    assert only["role"] == "all warps" and only["first_issue"] is None


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
    both = ElementTree.fromstring(timeline({"k": found}, window=20))
    texts = [t.text for t in both.iter(f"{space}text")]
    assert [t for t in texts if t and t.startswith("k:")] == [
        "k: cycles 0 to 20 of 100", "k: cycles 40 to 60 of 100"
    ]  # fmt: skip


def test_a_bundle_with_samples_is_apart(tmp_path: Path) -> None:
    assert not build(tmp_path, ["operators"], "sm_80", ["f16"], only="decode_causal",
                     say=lambda _: None, profile=True)  # fmt: skip
    [path] = run.bundles_of(tmp_path, profile=True)
    (image,) = Bundle.from_bytes(path.read_bytes()).facts["images"]
    kernels = [Sampled.from_json(data) for data in image["clock_samples"].values()]
    assert kernels and all("kernel" in k.sites for k in kernels)
    assert any("wait for copies" in k.sites for k in kernels)
    with pytest.raises(UsageError, match="no bundles"):
        run.bundles_of(tmp_path)


@pytest.fixture(scope="module")
def two_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose norm before a product has an image for few programs, of the same kernel; what
    the assembler would run one by one with samples in the wrong places fails here."""
    folder = tmp_path_factory.mktemp("profile")
    assert not build(folder, ["fused"], "sm_90a", ["bf16"], only="rms_norm_matmul_4096x1024",
                     say=lambda _: None, profile=True)  # fmt: skip
    [path] = run.bundles_of(folder, profile=True)
    return path


def test_samples_are_those_of_the_image_that_a_call_launches(two_images: Path) -> None:
    bundle = Bundle.from_bytes(two_images.read_bytes())
    images = bundle.facts["images"]
    (figures,) = images[0]["kernels"].values()  # (test_hopper_products.py has rows that are known)
    assert figures["threads"] == 3 * 128 and figures["spills"] == 0
    assert all(image["when"] for image in images[1:])
    assert images[0]["clock_samples"].keys() == images[1]["clock_samples"].keys()
    gpu = FakeGpu({}, units=132)
    gpu.limit = min(image["size"] for image in images)
    execute = GpuExecutable(bundle, gpu.driver)
    found = {}
    for rows in (2048, 4096):
        shapes = [(rows, 4096), (4096,), (4096, 1024), (rows, 1024)]
        *arrays, out = (FakeArray(aligned(shape, "u2")) for shape in shapes)
        space = FakeArray(aligned((1024,), "u1"))
        call = execute.prepare(*arrays, out=out, workspace=space, stream=7)
        assert len(call.launches) == 1
        found[rows] = profile.launched(call)
    taken = []
    for rows in (2048, 4096):
        ((name, (module, kernel)),) = found[rows].items()
        loaded = gpu.loads[module - MODULES - 1][1]
        (image,) = (i for i in images if loaded == bundle.code[i["offset"] :][: gpu.limit])
        assert kernel == Sampled.from_json(image["clock_samples"][name])
        assert kernel.warps == image["kernels"][name]["threads"] // 32
        taken.append(images.index(image))
    assert taken[0] > 0 and taken[1] == 0  # an image for few programs, and the one for any
    assert found[2048] != found[4096] and gpu.loads[0] != gpu.loads[1] and not gpu.failures


def test_profile_as_json(
    two_images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`record` needs a GPU; the rest of the command does not."""
    made = profile.tracks(words((0, CONSUMER), (4, PRODUCER)), KERNEL)
    asked = []

    def record(path: Path, problem: Rows) -> profile.Recorded:
        asked.append(problem.keys)
        return profile.Recorded({"k": made}, "", 4.0)

    monkeypatch.setattr(profile, "record", record)
    out, plot = (two_images.with_name(name) for name in ("out.json", "out.svg"))
    assert not main(["bench", "run", str(two_images.parent), "--profile", "--lengths", "64,128",
                     "--json", str(out), "--plot", str(plot)])  # fmt: skip
    rows = json.loads(out.read_text())
    assert asked == [64, 128] == [row["length"] for row in rows]
    assert rows[0]["roles"] == profile.shares(made) and "us" not in rows[0]
    assert capsys.readouterr().out.count("first issue") == 2
    assert "length 64" in plot.read_text() and "length 128" in plot.read_text()


def test_trace_for_perfetto() -> None:
    found = profile.tracks(words((0, CONSUMER), (4, PRODUCER)), KERNEL)
    events = json.loads(trace({"a": found, "b": found}))["traceEvents"]
    named = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert named == ["a, block 0", "b, block 0"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == 2 * sum(len(t.spans) + len(t.products) for t in found)
    copy = next(e for e in spans if e["name"] == "start a copy")
    assert (copy["ts"], copy["dur"]) == (pytest.approx(0.02), pytest.approx(0.005))


def test_spans_for_a_page() -> None:
    found = profile.tracks(words((0, CONSUMER), (4, PRODUCER)), KERNEL)
    consumer, producer = profile.in_window(found, 50)
    assert (consumer["role"], consumer["end"], producer["start"]) == ("consumer 0", 50, 5)
    assert producer["spans"] == [["start a copy", 20, 25]]
    assert consumer["products"] == [[10, 50], [20, 50]]
    assert profile.in_window([], 50) == []
