# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C ends a command with one line and the exit code that shells know."""

import signal
import threading

import pytest

from neptune_mlir.cli import main, run
from neptune_mlir.errors import LoweringError


def interrupted(options):
    signal.raise_signal(signal.SIGINT)
    return 0


def interrupted_in_a_pass(options):
    """MLIR catches what a pass in Python raises, and says that the pass failed."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise LoweringError("pass 'lower-to-tiles' failed") from None
    return 0


@pytest.fixture
def _listens():
    """A shell starts what runs in the background with Ctrl-C ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_listens")
@pytest.mark.parametrize("execute", [interrupted, interrupted_in_a_pass])
def test_one_line_and_130(execute, monkeypatch, capsys):
    monkeypatch.setattr(run, "execute", execute)
    before = signal.getsignal(signal.SIGINT)
    assert main.main(["run", "softmax"]) == 130
    assert capsys.readouterr() == ("", "neptune run: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_without_ctrl_c_is_an_error(monkeypatch, capsys):
    def fail(options):
        raise LoweringError("pass 'lower-to-tiles' failed")

    monkeypatch.setattr(run, "execute", fail)
    assert main.main(["run", "softmax"]) == 1
    assert "lower-to-tiles" in capsys.readouterr().err


def test_commands_run_in_other_threads(monkeypatch):
    monkeypatch.setattr(run, "execute", lambda options: 3)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main.main(["run", "softmax"])))
    thread.start()
    thread.join()
    assert codes == [3]
