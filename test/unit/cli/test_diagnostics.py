# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expected-diagnostic comments, and exceptions as diagnostics."""

import pytest

from neptune_mlir.cli.diagnostics import Diagnostic, check_expected, of_exception
from neptune_mlir.errors import FusionError, InputError

ERROR = Diagnostic("error", "f.mlir:3:5", "no such thing")


@pytest.mark.parametrize(
    "comment",
    [
        "\n\n// expected-error {{no such}}",
        "// expected-error@+2 {{thing}}",
        "\n// expected-error@below {{no such thing}}\nhere",
        "\n\nhere\n// expected-error@above {{no such thing}}",
        "\n\n\n\n// expected-error@-2 {{no such thing}}",
        "\n\n// expected-error-re {{no {{.*}} thing}}",
        "\n\n// expected-error-re {{{{^no such thing$}}}}",
        "// expected-error@below {{no such}}\n// expected-note@below {{hm}}\nhere",
        "\n\nhere\n// expected-error@above {{no such}}\n// expected-note@above {{hm}}",
    ],
)
def test_met_expectation(comment):
    assert check_expected(comment, [ERROR, Diagnostic("note", "f.mlir:3:1", "hm")], "f.mlir") == []


@pytest.mark.parametrize(
    "comment",
    [
        "// expected-error {{no such}}",  # another line
        "\n\n// expected-remark {{no such}}",  # another kind
        "\n\n// expected-error {{no .* thing}}",  # not a pattern
        "\n\n// expected-error-re {{no .* thing}}",  # no pattern without inner braces
        "\n\n// expected-error 2 {{no such}}",  # upstream has no counts
        "\n\n// expected-error {{no such}} expected-note {{hm}}",  # the text ends with the line
        "// expected-error@unknown {{no such}}",
    ],
)
def test_unmet_expectation(comment):
    assert check_expected(comment, [ERROR], "f.mlir")


def test_unexpected_diagnostics_are_problems_but_notes_are_not():
    remark, note = Diagnostic("remark", "f.mlir:1:1", "hm"), Diagnostic("note", "f.mlir:1:1", "hm")
    assert len(check_expected("", [ERROR, remark], "f.mlir")) == 2
    assert check_expected("", [note], "f.mlir") == []


def test_error_with_hint():
    error, hint = of_exception(FusionError("cannot", loc="a.mlir:1:2", hint="do this"))
    assert str(error) == "a.mlir:1:2: error: cannot"
    assert str(hint) == "a.mlir:1:2: note: hint: do this"


def test_parse_errors_keep_their_places():
    found = of_exception(InputError("a.mlir:1:2: error: first\na.mlir:3:4: note: second"))
    assert [str(e) for e in found] == ["a.mlir:1:2: error: first", "a.mlir:3:4: note: second"]


def test_defects_become_one_line_and_a_note():
    error, note = of_exception(KeyError("oops"), "a.mlir")
    assert "internal error" in error.message and "KeyError" in error.message
    assert "NEPTUNE_TRACEBACK" in note.message


def test_errors_that_mlir_turned_into_text():
    text = "Exception raised in callback: Traceback (most recent call last):\n  File ...\n"
    (error,) = of_exception(RuntimeError(f"{text}LoweringError: a.mlir:1:2: no lowering for x"))
    assert str(error) == "a.mlir:1:2: error: no lowering for x"
    error, _ = of_exception(RuntimeError(f"{text}KeyError: 'x'"))
    assert error.message == "internal error, please report it: RuntimeError: KeyError: 'x'"
