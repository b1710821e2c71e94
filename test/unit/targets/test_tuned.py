# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of measured choices: as a file, the user's over the shipped one, and who asks it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from neptune_mlir import ops
from neptune_mlir.cli.main import main
from neptune_mlir.driver import kernel
from neptune_mlir.errors import InputError
from neptune_mlir.runtime import cache
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Choice, Entry, Shape, Table

SHAPE = Shape(64, 64, True, True, band=True)
ENTRY = Entry("sm_90a", SHAPE, 4096, Choice(192, 96, slots=3, turns=True), {"gain": 0.03})
OTHER = Entry("sm_90a", Shape(128, 128, False, True), 0, Choice(128, 176))


@pytest.fixture(autouse=True)
def no_user_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tuned.ENVIRONMENT, "none")


def test_a_file_and_back(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(Table((OTHER, ENTRY)).to_json())
    found = tuned.read(path)
    assert set(found.entries) == {ENTRY, OTHER}
    assert found.of("sm_90a", SHAPE)[0].measured == {"gain": 0.03}
    assert found.to_json() == path.read_text() == Table((ENTRY, OTHER)).to_json()
    assert tuned.shipped().to_json() == (Path(tuned.__file__).parent / "tuned.json").read_text()


def entry(**changes: object) -> dict[str, object]:
    made = {**ENTRY.as_json(), **changes}
    return {k: v for k, v in made.items() if v is not None}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting"),
        ("[]", "no list of 'entries'"),
        (json.dumps({"entries": [entry(rows=100)]}), "entry 0: 'rows' is a multiple of 64"),
        (json.dumps({"entries": [entry(stream="wide")]}), "'stream' is a multiple of 16"),
        (json.dumps({"entries": [entry(chip=None)]}), "'chip' is a string"),
        (json.dumps({"entries": [entry(triangle=2)]}), "'triangle' is true or false"),
        (json.dumps({"entries": [entry(band="wide")]}), "'band' is true or false"),
        (json.dumps({"entries": [entry(speed=9)]}), "an entry has no 'speed'"),
        (json.dumps({"entries": [entry(), entry(rows=128)]}), "two entries for sm_90a, 64x64"),
    ],
)
def test_a_damaged_table_is_a_diagnostic(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(InputError, match="tuning table") as caught:
        tuned.read(path)
    assert str(path) in str(caught.value) and says in str(caught.value)
    assert "NEPTUNE_TUNING=none" in str(caught.value)


def test_the_users_table_speaks_for_its_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned, "shipped", lambda: Table((
        Entry("sm_90a", SHAPE, 8192, Choice(192, 128)), OTHER,
    )))  # fmt: skip
    assert tuned.current() == tuned.shipped()
    path = tmp_path / "table.json"
    monkeypatch.setenv(tuned.ENVIRONMENT, str(path))
    with pytest.raises(InputError, match="No such file"):
        tuned.current()
    path.write_text(Table((ENTRY,)).to_json())
    assert tuned.current().entries == (ENTRY, OTHER)
    monkeypatch.delenv(tuned.ENVIRONMENT)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert tuned.current() == tuned.shipped()
    default = tuned.user_path()
    assert default is not None
    default.parent.mkdir(parents=True)
    default.write_text(Table((ENTRY,)).to_json())
    assert tuned.current().entries == (ENTRY, OTHER)
    with tuned.using(Table()):
        assert tuned.current() == Table()


def test_the_digest_is_of_what_decides_code() -> None:
    same = Entry(ENTRY.chip, ENTRY.shape, ENTRY.start, ENTRY.choice, {"gain": 0.5})
    assert Table((ENTRY, OTHER)).digest("p", "sm_90a") == Table((OTHER, same)).digest("p", "sm_90a")
    others = [Table(), Table((OTHER,)),
              Table((Entry(ENTRY.chip, SHAPE, 4096, Choice(192, 96, slots=3)), OTHER))]  # fmt: skip
    assert len({t.digest("p", "sm_90a") for t in [Table((ENTRY, OTHER)), *others]}) == 4


def test_cached_code_depends_on_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another table is another entry of the cache, on GPUs."""
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    made = Bundle("sm_90a", Plan("f", (), (), (), (), ()), b"code")
    keys = []

    def load(key: str) -> Bundle:
        keys.append(key)
        return made

    monkeypatch.setattr(cache, "load", load)
    path = tmp_path / "table.json"
    path.write_text(Table((ENTRY,)).to_json())
    for target in ("sm_90a", "cpu"):
        kernel.compile("a program", target)
        kernel.compile("a program", target, tuning=path)
    assert keys[0] != keys[1] and keys[2] == keys[3]


def test_none_leaves_the_shipped_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the environment and by the argument, whatever the user has."""
    path, program = tmp_path / "table.json", tmp_path / "program.mlir"
    path.write_text("{}")  # damaged: an error where it is read
    program.write_text(ops.attention(head_dim=64, dtype="f32").to_mlir())
    monkeypatch.setenv(tuned.ENVIRONMENT, str(path))
    with tuned.using("none"):
        assert tuned.current() is tuned.shipped()
    command = ["compile", str(program), "--emit", "fused", "-o", str(tmp_path / "o")]
    assert main([*command, "--tuning", "none"]) == 0
    with pytest.raises(InputError, match="cannot be read"), tuned.using(Path("none")):
        pass  # a file of that name is named as a path


def test_a_damaged_users_table_stops_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, program = tmp_path / "table.json", tmp_path / "program.mlir"
    path.write_text("{}")
    program.write_text(ops.attention(head_dim=64, dtype="f16").to_mlir())
    monkeypatch.setenv(tuned.ENVIRONMENT, str(path))
    assert main(["compile", str(program), "--target", "sm_90a", "-o", str(tmp_path / "o")]) == 1
    said = capsys.readouterr().err
    assert f"the tuning table '{path}' cannot be read" in said and "hint: correct" in said


def test_the_table_needs_no_mlir() -> None:
    code = "import sys; from neptune_mlir.targets import tuned; tuned.current();" \
        "sys.exit(any(m.startswith(('torch_mlir', 'mlir')) for m in sys.modules))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 0
