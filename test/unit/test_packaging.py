# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wheels and source distributions: what is in them, and that they can be built again."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EPOCH = "1700000000"
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # setuptools changes the list
build_meta.build_wheel(folder)
build_meta.build_sdist(folder)
"""


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def built(folder: Path) -> dict[str, Path]:
    """Both archives, built from a copy of the tree whose files have the time of the copy."""
    tree, out = folder / "tree", folder / "dist"
    for name in tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    out.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=tree, check=True,
                   capture_output=True, env=environment)  # fmt: skip
    (sdist,) = out.glob("*.tar.gz")
    tool = str(ROOT / "tools" / "reproducible_sdist.py")
    subprocess.run([sys.executable, tool, str(sdist)], check=True, env=environment)
    (wheel,) = out.glob("*.whl")
    return {"wheel": wheel, "sdist": sdist}


@pytest.mark.nightly
def test_archives_are_the_same_when_built_again(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    first, second = built(tmp_path / "a"), built(tmp_path / "b")
    for kind, path in first.items():
        assert path.read_bytes() == second[kind].read_bytes(), kind
    names = set(zipfile.ZipFile(first["wheel"]).namelist())
    # data that no import would find
    needed = {"driver/page/page.css", "driver/page/page.js", "py.typed", "targets/tuned.json",
              "transforms/schedule/shipped/streamed.mlir"}  # fmt: skip
    assert {f"neptune_mlir/{name}" for name in needed} <= names
    assert not any(name.startswith("test") for name in names)
    with tarfile.open(first["sdist"]) as archive:
        members = archive.getmembers()
    packed = {m.name.partition("/")[2] for m in members if m.isfile()}
    assert {name for name in tracked() if not name.startswith(".")} <= packed
    assert {m.mtime for m in members} == {int(EPOCH)} and {m.uid for m in members} == {0}


def test_metadata_names_what_is_supported():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = {c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c}
    assert versions == {f"3.{minor}" for minor in range(10, 15)}
    assert project["requires-python"] == ">=3.10,<3.15"
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    assert {"compiler", "mlir", "attention"} <= set(project["keywords"]) and project["urls"]
