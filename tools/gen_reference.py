# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The user's reference: pages about notation, operators, commands and bundles, from docstrings."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from typing import Any

from neptune_mlir import ops
from neptune_mlir.cli import main as commands
from neptune_mlir.frontend import notation
from neptune_mlir.frontend.expr import Expr
from neptune_mlir.frontend.program import DTYPES, Axis, Program, Tensor
from neptune_mlir.runtime import bundle, plan

MADE = "<!-- made by tools/gen_docs.py; edit the docstrings -->"
_WIDTH = 88  # of a signature on one line


def block(text: str, kind: str = "text") -> str:
    """A docstring as it stands: its formulas and examples depend on their columns. (On pages whose
    code runs, `text` is what it has printed.)"""
    return f"```{kind}\n{text}\n```"


def signature(name: str, function: Any) -> str:
    """How a function is called; one parameter a line where they are many."""
    parameters = list(inspect.signature(function).parameters.values())
    shown = [_parameter(p) for p in parameters if p.name != "self"]
    packed = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for place, parameter in enumerate(p for p in parameters if p.name != "self"):
        if parameter.kind is parameter.KEYWORD_ONLY and not packed:
            shown.insert(place, "*")
            break
    line = f"{name}({', '.join(shown)})"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {p},\n" for p in shown) + ")"


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{star}{parameter.name}{kind}{default}"


def operators() -> str:
    """docs/ops.md"""
    parts = ["# Ready operators", MADE, inspect.getdoc(ops) or "",
             "Each function returns a program for `neptune.compile`. Sizes that are `None` are "
             "known at run time."]  # fmt: skip
    for name in ops.__all__:
        found = getattr(ops, name)
        if inspect.isfunction(found):
            parts += [f"## `{name}`", block(f"{signature(name, found)}\n\n{_doc(found)}")]
    listed = "\n".join(f"| `{name}` | {_options(given)} |" for name, given in ops.OPERATORS.items())
    parts += ["## `operator`'s names", f"| name | options |\n|---|---|\n{listed}"]
    return "\n\n".join(parts) + "\n"


def _options(given: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in given.items())


def _doc(found: Any) -> str:
    return inspect.getdoc(found) or ""


EXAMPLE = """A program is built, compiled and called. [Operators](operators.md) goes on from here.

```python
import neptune_mlir as neptune
import numpy as np
from neptune_mlir.frontend.notation import Program, exp, max, sum

p = Program("attention")
i, j, d, e = p.axes("i j d e", d=64, e=64)       # i and j: as many as a call has
q, k, v = p.input("q", i, d), p.input("k", j, d), p.input("v", j, e)
s = sum(q[i, d] * k[j, d], d) / 8
w = exp(s - max(s, j))
p.output(sum(w * v[j, e], j) / sum(w, j), i, e)

kernel = neptune.compile(p)                      # or target="sm_90a", "gfx942", ...
rng = np.random.default_rng(0)
arrays = [rng.standard_normal((n, 64)).astype("f4") for n in (10, 30, 30)]
print(kernel(*arrays).shape, kernel.facts["kernels"], "kernel")
print(np.abs(kernel(*arrays) - p.reference(*arrays)).max() < 1e-5)
```

```text
(10, 64) 1 kernel
True
```"""


def index_notation() -> str:
    """docs/notation.md"""
    parts = ["# Index notation", MADE, EXAMPLE, block(_doc(notation), ""),
             f"Element types: {', '.join(f'`{d}`' for d in DTYPES)}.", "## Functions"]  # fmt: skip
    rows = ["| function | meaning |", "|---|---|"]
    for name in notation.__all__:
        found = getattr(notation, name)
        if isinstance(found, type) or not callable(found):
            continue
        rows.append(f"| `{_call(name, found)}` | {_cell(_doc(found))} |")
    parts.append("\n".join(rows))
    for found in (Program, Tensor, Axis, Expr):
        parts += [f"## `{found.__name__}`", block(_doc(found), "")]
        for name, method in inspect.getmembers(found, inspect.isfunction):
            if not name.startswith("_") and _doc(method):
                parts += [f"### `{found.__name__}.{name}`",
                          block(f"{signature(name, method)}\n\n{_doc(method)}", "")]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _call(name: str, found: Any) -> str:
    parameters = inspect.signature(found).parameters.values()
    return f"{name}({', '.join('*' * (p.kind is p.VAR_POSITIONAL) + p.name for p in parameters)})"


def _cell(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def command_line() -> str:
    """docs/cli.md"""
    parts = ["# Command line", MADE,
             "Exit codes: 0 done, 1 the input or the check failed, 2 wrong usage. "
             "[passes.md](passes.md) lists the passes of `neptune-opt`; "
             "`neptune-opt --help` lists its options.",
             "Where `--json` is asked for and a command fails, the last line of standard output is "
             "an object with `error`, `loc` (`file:line:col` where known), `hint`, `exit_code` and "
             "`diagnostics` (`kind`, `loc` and `message` of each), whatever the command; standard "
             "error has the same for people."]  # fmt: skip
    for name, summary in commands.COMMANDS.items():
        parts += [f"## `neptune {name}`", f"{summary[0].upper()}{summary[1:]}."]
        parts += _arguments(commands.parser_of(name), name)
    return "\n\n".join(parts) + "\n"


def _arguments(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """The arguments of a parser as a table, then those of its own subcommands."""
    rows, inner = ["| argument | meaning |", "|---|---|"], {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = action.choices
        elif not isinstance(action, argparse._HelpAction):
            text = (action.help or "").replace("%(default)s", str(action.default))
            rows.append(f"| {_spelled(action)} | {_cell(text)} |")
    if len(rows) > 2:
        yield "\n".join(rows)
    for choice, found in inner.items():
        yield f"### `neptune {name} {choice}`"
        yield from _arguments(found, f"{name} {choice}")


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def bundles() -> str:
    """docs/bundle.md"""
    parts = ["# The format of bundles", MADE, block(_doc(bundle)),
             f"The version of what code and runtime agree on (`abi`) is {bundle.ABI}. "
             "[Runtime](runtime.md) says what a kernel receives.",
             "## The launch plan", block(_doc(plan))]  # fmt: skip
    for found in (plan.Plan, plan.Argument, plan.Buffer, plan.Constant, plan.Launch):
        fields = ", ".join(found.__dataclass_fields__)
        parts += [f"### `{found.__name__}`", block(f"{fields}\n\n{_doc(found)}")]
    return "\n\n".join(parts) + "\n"


PAGES = {
    "ops.md": operators, "notation.md": index_notation, "cli.md": command_line,
    "bundle.md": bundles,
}  # fmt: skip
