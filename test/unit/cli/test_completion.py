# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The completion scripts, sourced by the shells that are here; and what is near a mistyped word."""

import shutil
import subprocess

import pytest

from neptune_mlir.cli import main

CASES = {
    "neptune ex": ["explain"],
    "neptune run --che": ["--check", "--check-bounds"],
    "neptune run --schedule priv": ["private"],
    "neptune compile --kn": ["--knob"],
    "neptune-opt --roll": ["--rolling-update"],
    "neptune-opt --mlir-tim": ["--mlir-timing", "--mlir-timing-display"],
    "neptune-opt --convert-linalg-to-l": ["--convert-linalg-to-loops"],
    "neptune no-such-command --che": [],
}


def script(shell, tmp_path, capsys):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    assert main.main(["completion", shell]) == 0
    path = tmp_path / f"complete.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def said_by(shell, lines):
    done = subprocess.run([shell], input="\n".join(lines), capture_output=True, text=True)
    assert not done.stderr
    return [line.split("\t")[0].split() for line in done.stdout.split("END\n")[:-1]]


def test_bash(tmp_path, capsys):
    lines = [f"source {script('bash', tmp_path, capsys)}"]
    for line in CASES:
        words = line.split()
        function = "_" + words[0].replace("-", "_")
        lines += [f"COMP_WORDS=({line})", f"COMP_CWORD={len(words) - 1}", function]
        lines.append('echo "${COMPREPLY[@]}"; echo END')
    assert said_by("bash", lines) == list(CASES.values())


def test_fish(tmp_path, capsys):
    lines = [f"source {script('fish', tmp_path, capsys)}"]
    for line in CASES:
        lines.append(f'complete -C "{line}"; echo END')
    assert said_by("fish", lines) == list(CASES.values())


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["rn"], "no command 'rn'", "did you mean 'run'?"),
        (["quite-another"], "no command 'quite-another'", "one of: compile, inspect, run"),
        (["run", "x.mlir", "--chek"], "unknown argument '--chek'", "'--check'"),
        (["compile", "x.mlir", "--knobs=x=1"], "unknown argument '--knobs=x=1'", "'--knob'"),
        (["doctor", "--jsn"], "unknown argument '--jsn'", "'--json'"),
        (["completion", "bash", "--zzz"], "unknown argument '--zzz'", "completion --help"),
    ],
)
def test_mistyped_words(capsys, arguments, message, hint):
    assert main.main(arguments) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert hint in printed
