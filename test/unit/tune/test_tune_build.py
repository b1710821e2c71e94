# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building candidates: with a stand-in for the compiler, and one real program."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.cli.main import main
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.errors import InputError, ToolError, UsageError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Argument, Plan
from neptune_mlir.targets.tuned import Choice, Shape
from neptune_mlir.tune import manifest as manifests
from neptune_mlir.tune.arguments import Arguments, parse_extents
from neptune_mlir.tune.build import Subject, build
from neptune_mlir.tune.candidates import parse_knobs
from neptune_mlir.tune.manifest import RULE

SHAPE = Shape(64, 64, True, True)
SPEC = {"kind": "operator", "dtype": "f16"}

# stands for a builder: what becomes of a candidate by its name
FAKE = f'''
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m["do"] == "look":
        stream = {{"length": 0, "shape": {asdict(SHAPE)!r}, "rule": {Choice(128, 128).as_json()!r}}}
        answer = {{"streams": [] if "empty" in m["program"] else [stream], "why": ["no product"]}}
    else:
        name = m["out"].rpartition("/")[2].removesuffix(".bundle")
        open(m["out"], "w").write(name)
        answer = {{"kernels": {{"k": {{"registers": 168, "shared": 1000, "spills": 0}}}},
                  "digest": name, "specialised": True, "remarks": []}}
        if name.endswith("128x144"): answer["kernels"]["k"]["spills"] = 8
        if name.endswith("128x160"): answer["digest"] = name.replace("160", "176")
        if name.endswith("128x192"): answer |= {{"specialised": False, "remarks": ["spills"]}}
        if name.endswith("128x208"):
            answer |= {{"specialised": False, "remarks": ["warps are not specialised: no"]}}
        if name.endswith("192x64"): answer = {{"failed": "it cannot be\\\\nfor reasons"}}
        if name.endswith("192x80"): sys.exit(3)
        if name.startswith("broken"): answer = {{"failed": "no such op"}}
    print(json.dumps(answer), flush=True)
'''


@pytest.fixture
def fake(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "fake.py").write_text(FAKE)
    return (sys.executable, str(tmp_path / "fake.py"))


def test_what_is_built_and_what_is_not(fake: tuple[str, ...], tmp_path: Path) -> None:
    said: list[str] = []
    knobs = parse_knobs(["slots=0", "rows=128,192"])
    subjects = [Subject("a", "text", SPEC), Subject("empty", "", SPEC)]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "mine.bundle").write_text("")
    for _ in range(2):  # what is there of another build goes, what is not of one stays
        said.clear()
        found = build(tmp_path / "d", subjects, "sm_90a", knobs, [1024], said.append, fake)
    assert found == manifests.read(tmp_path / "d")
    (job,) = found["jobs"]
    assert list(job["candidates"]) == [RULE, *(
        f"128x{n}" for n in (160, 224, 240)
    ), *(f"192x{n}" for n in (96, 112, 128))]  # fmt: skip
    assert job["candidates"]["128x160"]["registers"] == 168
    for reason, count in (("spills", 2), ("same code as another", 1), ("does not compile", 2),
                          ("does not suit specialised warps", 1)):  # fmt: skip
        assert job["pruned"][reason] == count, reason
    names = {path.stem for path in (tmp_path / "d").glob("*.bundle")} - {"mine"}
    assert (tmp_path / "d" / "mine.bundle").exists()
    assert names == {c["bundle"].removesuffix(".bundle") for c in job["candidates"].values()}
    assert any("192x64: it cannot be" in line for line in said)
    assert "empty: nothing to tune\n  no product" in said
    assert "7 candidates; not tried:" in said[-1]


def test_nothing_to_build(fake: tuple[str, ...], tmp_path: Path) -> None:
    knobs = parse_knobs(["stream=128", "slots=0"])

    def built(name: str, target: str = "sm_90a") -> Any:
        return build(tmp_path, [Subject(name, "", SPEC)], target, knobs, [64], lambda _: None, fake)

    with pytest.raises(UsageError, match="no program has a stream"):
        built("empty")
    with pytest.raises(UsageError, match="nothing to tune for 'sm_80'"):
        built("a", "sm_80")
    with pytest.raises(InputError, match="'broken' cannot be compiled: no such op"):
        built("broken")


def test_manifests(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"target": "sm_90a"}'):
        (tmp_path / manifests.NAME).write_text(text)
        with pytest.raises(InputError, match="build the folder again"):
            manifests.read(tmp_path)


def test_arguments() -> None:
    q = Argument("tensor", "f16", (None, None, None, 64), "q")
    k = Argument("tensor", "f16", (None, None, None, 64), "k")
    equal = tuple((["dim", 0, n], ["dim", 1, n]) for n in (0, 1))
    plan = Plan("f", (q, k), equal, (), (), ())
    extents = parse_extents(["q.0=2,q.1=16"])
    found = Arguments(plan, extents, 4096)
    assert found.shapes() == [[2, 16, 4096, 64]] * 2
    found.check_size()
    with pytest.raises(UsageError, match=r"take 16384 GiB"):
        Arguments(plan, {}, 4096).check_size()
    with pytest.raises(UsageError, match=r"no extent 'q\.3'"):
        Arguments(plan, {"q.3": 2}, 4096)
    for text in ("q.0", "q=2", "q.0=0", "q.x=1"):
        with pytest.raises(UsageError, match="is no extent"):
            parse_extents([text])
    assert Arguments(plan, {}, 64).has_length
    assert parse_extents(["argument 0.1=4"]) == parse_extents(["0.1=4"])


def test_the_command_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real compiler: bundles, and results of the unfused program for small calls."""
    try:
        ptxas.find_ptxas()
    except ToolError:
        pytest.skip("no ptxas here")
    program, folder = tmp_path / "att.mlir", tmp_path / "d"
    program.write_text(ops.attention(head_dim=64, dtype="f16", causal=True).to_mlir())
    asked = ["tune", "build", str(folder), str(program), "--lengths", "1024", "--knob", "slots=0",
             "--knob", "rows=192", "--knob", "stream=64"]  # fmt: skip
    assert main(asked) == 2
    assert "--extent q.0=1" in capsys.readouterr().err
    assert main([*asked, "--extent", "q.0=1,q.1=2"]) == 0
    (job,) = manifests.read(folder)["jobs"]
    assert list(job["candidates"]) == [RULE, "192x64"] and job["spec"]["tolerance"] == 4e-3
    bundle = Bundle.from_bytes((folder / job["candidates"]["192x64"]["bundle"]).read_bytes())
    assert bundle.plan.launches[0].grid[-1] == ["ceildiv", ["dim", 0, 2], 192]
    assert len(bundle.facts["images"]) == 1
    with np.load(folder / job["spec"]["stored"]) as stored:
        assert int(stored["calls"]) == 2 and stored["1:out0"].dtype == np.float64
        assert stored["1:arg0"].shape == (1, 2, 200, 64)
        own = [stored[f"1:arg{n}"].astype(np.float64) for n in range(3)]
        s = own[0] @ own[1].swapaxes(-1, -2) / 8
        s = np.where(np.tril(np.ones((200, 200))), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        wanted = p @ own[2] / p.sum(-1, keepdims=True)
        assert np.linalg.norm(stored["1:out0"] - wanted) < 1e-3 * np.linalg.norm(wanted)


def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    (tmp_path / "a.mlir").write_text("")
    twice = [f"{folder}/a.mlir", f"{folder}/a.mlir"]
    assert main(["tune", "build", folder]) == 2
    assert main(["tune", "build", folder, *twice]) == 2
    assert main(["tune", "build", folder, "--suite", "prefill", "--lengths", "x"]) == 2
    assert main(["tune", "build", folder, f"{folder}/none.mlir"]) == 1
    said = capsys.readouterr().err
    assert "nothing to tune" in said and "the same name" in said and "--lengths is 'x'" in said
    assert "cannot read" in said


def test_runs_without_mlir(tmp_path: Path) -> None:
    job = {"name": "a", "spec": {"kind": "program", "fixed": {}, "stored": "a.npz",
           "tolerance": 1e-3}, "shape": asdict(SHAPE), "stream": 0, "candidates": {
               n: {"bundle": n, "choice": Choice(128, 128).as_json()} for n in (RULE, "x")
           }}  # fmt: skip
    (tmp_path / manifests.NAME).write_text(json.dumps({
        "target": "sm_90a", "tools": {}, "build": "", "lengths": [64], "jobs": [job],
    }))  # fmt: skip
    code = f"""
import importlib.abc, importlib, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_mlir", "mlir", "torch"):
            raise ImportError("without " + name)
sys.meta_path.insert(0, Block())
for name in ("run", "record", "gain", "manifest", "arguments", "worker"):
    importlib.import_module(f"neptune_mlir.tune.{{name}}")
from pathlib import Path
from neptune_mlir.tune import manifest, run
cells = run.cells_of(Path("d"), manifest.read(Path({str(tmp_path)!r})), run.Options())
sys.exit(len(cells) != 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
