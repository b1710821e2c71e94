# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune inspect`: what a bundle holds, what it was made from, what its kernels take."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from neptune_mlir.cli.wording import Wording
from neptune_mlir.errors import InputError, ToolError
from neptune_mlir.runtime.bundle import ABI, Bundle
from neptune_mlir.runtime.paths import condition
from neptune_mlir.runtime.plan import Expression, Plan, describe
from neptune_mlir.targets.findings import ProgramFinding
from neptune_mlir.targets.tuned import Entry

_INTERNAL = ("offset", "size", "hidden")  # where code lies, not what it takes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("input", help="a bundle, as neptune compile writes it")
    parser.add_argument("--json", action="store_true", help="everything but the code, as JSON")


def execute(options: argparse.Namespace) -> int:
    try:
        data = Path(options.input).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read '{options.input}': {error.strerror}") from None
    try:
        bundle = Bundle.from_bytes(data)
    except ToolError as error:
        raise ToolError(f"'{options.input}': {error.message}", hint=error.hint) from None
    if options.json:
        print(json.dumps({"abi": ABI, "sha256": bundle.digest, "target": bundle.target,
                          "plan": asdict(bundle.plan), "facts": bundle.facts,
                          "data": {digest: len(raw) for digest, raw in bundle.data.items()}
                          }))  # fmt: skip
        return 0
    print(f"{Path(options.input).name}: {bundle.target}, {len(data)} bytes, ABI {ABI}")
    print(f"sha256 {bundle.digest}")
    print(*report(bundle), sep="\n")
    return 0


def report(bundle: Bundle) -> Iterator[str]:
    """Lines that say what a bundle holds."""
    made = bundle.facts.get("provenance", {})
    if made:
        source, schedule = made["source"], made.get("schedule")
        line = f"made from {source['name']} ({len(source['text'].splitlines())} lines)"
        if schedule:
            line += f", schedule '{schedule['name']}'"
            line += f" with {schedule['knobs']}" if schedule["knobs"] else ""
        yield line
        for entry in made.get("tuned", ()):
            if "program" in entry:
                found = ProgramFinding.from_json(entry)
                yield f"tuned for {found.chip}, this program: {found}"
                continue
            choice = Entry.from_json(entry)
            yield f"tuned for {choice.chip}, from {choice.start} on: {choice.choice}"
        yield "made with " + ", ".join(f"{name} {v}" for name, v in made["tools"].items())
    yield ""
    names = [argument.name for argument in bundle.plan.arguments]
    alignment, wording = bundle.facts.get("alignment", ()), Wording(_expressions(bundle), names)
    yield from _plan(bundle.plan, alignment, wording)
    for variant in bundle.facts.get("variants", ()):
        yield ""
        case = wording.say(variant["when"])
        yield from wording.definitions()
        yield f"variant where {case}: {variant['size']} bytes"
        yield from _launches(bundle.plan_of(variant), wording)
    for image in bundle.facts.get("images", ()):
        yield ""
        case = ""
        if "when" in image:
            said = image | {"when": wording.short(image["when"])}
            case = f" where {condition(said, wording.names, alignment)}"
            yield from wording.definitions()
        yield f"{image['target']}{case}: {image['size']} bytes, {', '.join(image['tools'])}"
        if "plan" in image:
            yield from _launches(bundle.plan_of(image), wording)
        yield from _table(image["kernels"])
        yield from (f"  note: {note}" for note in image["notes"])


def _expressions(bundle: Bundle) -> Iterator[Expression]:
    """What `report` says in words of the calls that code is for, and of its launches."""
    parts = [*bundle.facts.get("variants", ()), *bundle.facts.get("images", ())]
    yield from (part["when"] for part in parts if "when" in part)
    for plan in (bundle.plan, *(bundle.plan_of(part) for part in parts if "plan" in part)):
        yield from (e for launch in plan.launches for e in launch.grid)
        yield from (e for buffer in plan.buffers for e in buffer.shape)


def _plan(plan: Plan, alignment: Any, wording: Wording) -> Iterator[str]:
    yield plan.entry
    units = {tuple(place): unit for *place, unit in alignment}
    names = [argument.name for argument in plan.arguments]
    for k, argument in enumerate(plan.arguments):
        text = f"  takes {argument.name}: {argument.dtype}"
        if argument.kind == "tensor":
            text += f" [{', '.join('?' if n is None else str(n) for n in argument.shape)}]"
        unit = units.get(("argument", k), 1)
        yield text + (f", aligned to {unit} bytes" if unit > 1 else "")
    for constant in plan.constants:
        shape = ", ".join(map(str, constant.shape))
        yield f"  holds {constant.name}: {constant.dtype} [{shape}], sha256 {constant.sha256}"
    for left, right in plan.equal:
        yield f"  where {describe(left, names)} = {describe(right, names)}"
    for kind, k in plan.results:
        if kind == "argument":
            yield f"  gives {names[k]}"
        else:
            shape = ", ".join(describe(e, names) for e in plan.buffers[k].shape)
            yield f"  gives {plan.buffers[k].dtype} [{shape}]"
    made = {tuple(reference) for reference in plan.results}
    for k, buffer in enumerate(plan.buffers):
        if buffer.of is None and ("buffer", k) not in made:
            shape = ", ".join(wording.say(e) for e in buffer.shape)
            yield from wording.definitions()
            yield f"  needs {buffer.dtype} [{shape}] of workspace"
    yield from _launches(plan, wording)


def _launches(plan: Plan, wording: Wording) -> Iterator[str]:
    for launch in plan.launches:
        grid = " x ".join(wording.say(e) for e in launch.grid)
        yield from wording.definitions()
        yield f"  launches {launch.kernel} on {grid or 1}"


def _table(kernels: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The figures of each kernel, one column for each kind."""
    columns = [c for c in next(iter(kernels.values()), {}) if c not in _INTERNAL]
    width = max([len(name) for name in kernels] + [6])
    yield "  " + " ".join(["kernel".ljust(width), *columns])
    for name, figures in kernels.items():
        cells = [str(figures.get(c, "")).rjust(len(c)) for c in columns]
        yield "  " + " ".join([name.ljust(width), *cells])
