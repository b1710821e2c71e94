# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes of torch-mlir, in a child process: on some programs they divide by zero or abort, and that
is not to end the process of who imports one.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from neptune_mlir import child
from neptune_mlir.errors import InputError, ToolError

_ELIDED = "--mlir-elide-elementsattrs-if-larger=8"
_HINT = "compute that in another way, or lower the program's parts one by one"
SHOWN = 5  # diagnostics of a program that cannot be lowered


def lower(
    program: str | bytes, passes: str, name: str, *, located: bool = False,
    timeout: float = 600,
) -> str:  # fmt: skip
    """A module as text after passes of torch-mlir.

    Args:
        program: text or bytecode of the module.
        passes: a textual pipeline on modules, without `builtin.module(...)` around it.
        name: what diagnostics call the program.
        located: the text says where its ops stood in the program.
        timeout: seconds.

    Raises:
        ToolError: torch-mlir is not installed, or does not finish.
        InputError: a pass refuses the program, or dies on it.
    """
    command = [str(_executable()), f"--pass-pipeline=builtin.module({passes})", "-"]
    command += ["--allow-unregistered-dialect"]  # attributes of others, which nothing reads
    command += ["--mlir-print-debuginfo"] if located else []
    data = program.encode() if isinstance(program, str) else program
    ended = child.run(command, data, timeout, f"torch-mlir did not lower {name} in {timeout:g} s")
    if ended.signal:
        last = _last_operation(command, data, timeout, name)
        raise InputError(
            f"torch-mlir died of {ended.signal} while it lowered "
            + (f"'{last}'" if last else "the program"),
            loc=name, hint=_HINT,
        )  # fmt: skip
    if ended.status:
        said = _diagnostics(ended.said, name)
        if (named := NAMED.search(said)) and GIVEN.match(named[1]):
            if left := _left_operation(command, data, timeout, name):
                said = f"{left[1]}: error: torch-mlir cannot lower '{left[0]}' as it is used here"
        raise InputError(said, hint=_HINT)
    text = ended.made.decode()
    return text.replace('loc("<stdin>":', 'loc("-":')  # which stands for the program's name


@functools.cache
def unverified(passes: str) -> str:
    """A pipeline of torch-mlir without the check at its end, which takes no call of a function."""
    command = [str(_executable()), f"--pass-pipeline=builtin.module({passes})", "-"]
    command += ["--dump-pass-pipeline"]
    ended = child.run(command, b"module {}", 60, f"torch-mlir did not list '{passes}'")
    text = re.sub(r"\s*\n\s*", "", (ended.said + ended.made.decode()))
    known = re.search(rf"builtin\.module\((.*),{_VERIFY}\)", text)
    if known is None:
        raise ToolError(f"torch-mlir does not say what '{passes}' is")
    return known[1]


def _last_operation(command: list[str], data: bytes, timeout: float, name: str) -> str:
    """The op that the last pattern was tried on before torch-mlir died, "" where none was."""
    late = f"torch-mlir did not lower {name} in {timeout:g} s"
    logged = child.run([*command, "--log-actions-to=-", _ELIDED], data, timeout, late)
    tried = re.findall(rb"`apply-pattern pattern: .*?\(.*?\b(torch\.[\w.]+)", logged.made)
    return tried[-1].decode() if tried else ""


def _left_operation(
    command: list[str], data: bytes, timeout: float, name: str
) -> tuple[str, str] | None:
    """The first op of torch that the pass that failed found, but for what is given to others (a
    constant is left because its user is), and where it stands. None where there is none."""
    late = f"torch-mlir did not lower {name} in {timeout:g} s"
    more = ["--mlir-print-ir-after-failure", "--mlir-print-debuginfo", _ELIDED]
    shown = child.run([*command, *more], data, timeout, late).said.partition(_FAILED)[2]
    for found in _LEFT_OP.finditer(shown):
        operator = found[1] or found[2]
        if not GIVEN.match(operator):
            return operator, _named_place(shown, found[3], name)
    return None


def _named_place(text: str, said: str | None, name: str) -> str:
    """What a location of printed IR says, `name` where that is no place that a program gave."""
    label = said or "unknown"
    if label.startswith("#") and (line := re.search(rf"^{label} = loc\((.*)\)$", text, re.M)):
        label = line[1]
    found = re.match(r'"(.*?)"(:\d+:\d+)?', label)
    if found is None:
        return name
    return f"{name if found[1] in ('-', '<stdin>') else found[1]}{found[2] or ''}"


def refused_operators(program: str, passes: str, name: str, timeout: float = 600) -> dict[str, str]:
    """ONNX's operators that a conversion leaves as they are, or refuses: where the first of each
    stands. Arguments as for `lower`."""
    command = [str(_executable()), f"--pass-pipeline=builtin.module({passes})", "-"]
    command += [_ELIDED, "--mlir-print-debuginfo"]
    ended = child.run(command, program.encode(), timeout, f"torch-mlir did not convert {name}")
    found: dict[str, str] = {}
    text = ended.made.decode()
    for operator, label in _LEFT.findall(text):
        place = re.search(rf'^{label} = loc\("(.*)"\)$', text, re.M)
        found.setdefault(operator, place[1] if place else name)
    for line in ended.said.splitlines():
        error = _error(line, name)
        if error and (named := _OPERATOR.search(error[1])):
            found.setdefault(named[1].removeprefix("onnx."), error[0])
    return found


def _executable() -> Path:
    from neptune_mlir.ir.bindings import TORCH_MLIR

    found = importlib.util.find_spec(TORCH_MLIR)
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "_mlir_libs" / "torch-mlir-opt"
        if path.exists():
            return path
    raise ToolError(
        "this program needs torch-mlir, which is not installed", hint="pip install torch-mlir"
    )


_DIAGNOSTIC = re.compile(r"^(?P<place>.*?): (?P<kind>error|note): (?P<text>.*)$")
_OPERATOR = re.compile(r'name = "([\w.]+)"')  # what a `torch.operator` stands for
_VERIFY = "torch-verify-linalg-on-tensors-backend-contract"
_LEFT = re.compile(r'torch\.operator "onnx\.(\w+)".* loc\((#loc\d+)\)$', re.M)
_LEFT_OP = re.compile(
    r'^\s*%[^=]* = (?:torch\.operator "([\w.]+)"|(torch\.\w+\.[\w.]+)).*?(?: loc\((.*)\))?$',
    re.M,
)
GIVEN = re.compile(r"torch\.(constant|vtensor|prim)\.")  # it has no lowering of its own
_FAILED = "IR Dump After "
NAMED = re.compile(r"'((?:torch|stablehlo|chlo)\.[\w.]+)'")


def _error(line: str, name: str) -> tuple[str, str] | None:
    """The place and the text of a line of output that is an error."""
    match = _DIAGNOSTIC.match(line)
    if not match or match["kind"] != "error":
        return None
    place, text = match["place"].replace("<stdin>", name).replace('"-":', f"{name}:"), match["text"]
    if named := re.match(r'loc\("([^"]*)"\): ', text):  # a place without a file stands in the text
        place, text = named[1], text[named.end() :]
    text = re.sub(r' loc\((unknown|#loc\d*|"[^"]*")\)$', "", text)
    return name if place in ("<unknown>:0", "loc(unknown)") else place, text


def _diagnostics(output: str, name: str) -> str:
    """The errors of a pass, each `file:line:col: error: message`, one a line."""
    errors = []
    for line in output.splitlines():
        if error := _error(line, name):
            place, text = error
            if named := _OPERATOR.search(text) or NAMED.search(text):
                text = f"torch-mlir cannot lower '{named[1]}' as it is used here: {text}"
            errors.append(f"{place}: error: {text}")
    last = output.strip().splitlines()
    return "\n".join(errors[:SHOWN]) or f"{name}: error: {last[-1] if last else 'no message'}"
