# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a list of passes on a module: ours by name, upstream's through the PassManager.

A pipeline is data: a sequence of `Step`s, or the same as text,

    rolling-update,tile{sizes=64},func.func(canonicalize),cse

MLIR gives Python passes no textual name, so the text is split here at its top level: an
element that names one of our passes runs as a function, everything else goes upstream.
Every step leaves verified IR, or the run stops with a located error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neptune_mlir.errors import LoweringError, UsageError
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.transforms import registry


@dataclass(frozen=True)
class Step:
    """One pass and its options: as text, `Step("tile", "sizes=64")`, or, for a pass of ours, as
    keyword arguments, `Step("apply-schedule", {"file": path})`."""

    name: str
    options: str | Mapping[str, Any] = ""

    def __str__(self) -> str:
        if isinstance(self.options, str):
            return f"{self.name}{{{self.options}}}" if self.options else self.name
        return f"{self.name}{{{','.join(f'{k}={v}' for k, v in self.options.items())}}}"


def parse_pipeline(text: str) -> list[Step]:
    """The steps of a textual pipeline; `builtin.module(...)` around it is optional.

    Raises:
        UsageError: brackets do not match.
    """
    text = text.strip()
    anchored = re.fullmatch(r"(?:builtin\.module|any)\s*\((.*)\)", text, re.DOTALL)
    if anchored:
        text = anchored.group(1)
    steps = []
    for element in _split_top_level(text):
        match = re.fullmatch(r"([\w.-]+)(?:\{(.*)\})?", element, re.DOTALL)
        steps.append(Step(match[1], (match[2] or "").strip()) if match else Step(element))
    return steps


def _split_top_level(text: str) -> list[str]:
    elements, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            elements.append(text[start:position])
            start = position + 1
        if depth < 0:
            break
    if depth != 0:
        raise UsageError(f"brackets do not match in the pipeline '{text}'")
    elements.append(text[start:])
    return [element.strip() for element in elements if element.strip()]


def prepare(step: Step, context: Any) -> Callable[[Any], None]:
    """The function that applies `step` to a module and verifies what it leaves.

    Raises:
        UsageError: no such pass, or a bad option (before anything ran).
    """
    if step.name in registry.names():
        spec = registry.lookup(step.name)
        given = step.options
        options = registry.parse_options(spec, given) if isinstance(given, str) else given

        def apply(module: Any) -> None:
            spec.run(module, **options)
            module.operation.verify()

        return apply
    manager = _upstream(step, context)
    return lambda module: manager.run(module.operation)  # which verifies


def _upstream(step: Step, context: Any) -> Any:
    """A PassManager for one upstream pass, nested where the pass asks for it."""
    text = str(step)
    with context:
        try:
            return passmanager.PassManager.parse(f"builtin.module({text})")
        except ValueError as error:
            anchor = re.search(r"restricted to '([\w.]+)'", str(error))
            if anchor:
                return passmanager.PassManager.parse(f"builtin.module({anchor[1]}({text}))")
            if "does not refer to a registered pass" in str(error):
                raise UsageError(
                    f"unknown pass '{step.name}'", hint="neptune-opt --list-passes"
                ) from None
            reason = str(error).strip().splitlines()[0]
            raise UsageError(f"cannot run pass '{step}': {reason}") from None


def check(
    steps: Sequence[Step], context: Any, stop_after: str | None = None
) -> list[tuple[Step, Callable[[Any], None]]]:
    """The steps, prepared. Raises UsageError where `run` would, without a module."""
    prepared = [(step, prepare(step, context)) for step in steps]
    if stop_after is not None and stop_after not in [step.name for step in steps]:
        raise UsageError(f"--stop-after={stop_after}: no such pass in this pipeline")
    return prepared


class PassFailure(LoweringError):
    """A pass failed; the exception that says why is the `__cause__`."""

    def __init__(self, step: Step, message: str):
        self.step = step
        super().__init__(message)


def run(
    module: Any,
    steps: Sequence[Step],
    *,
    stop_after: str | None = None,
    observe: Callable[[Step, Any], None] | None = None,
) -> None:
    """Run the steps in order; `observe(step, module)` sees the module after each.

    `NEPTUNE_DUMP=DIR` also writes the module after every step to `DIR/NN-pass.mlir`.

    Raises:
        UsageError: unknown pass or option, found before the first pass runs.
        PassFailure: a pass failed or left IR that does not verify.
        NeptuneError: whatever a pass of ours raised.
    """
    context = module.context
    prepared = check(steps, context, stop_after)
    dump = StageDump.from_environment()
    for step, apply in prepared:
        with context, ir.Location.unknown():
            try:
                apply(module)
            except ir.MLIRError as error:
                raise PassFailure(step, f"pass '{step.name}' failed") from error
        if dump:
            dump.write(step.name, str(module))
        if observe:
            observe(step, module)
        if step.name == stop_after:
            break


class StageDump:
    """Numbered files, one per stage, in the folder that `NEPTUNE_DUMP` names."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def from_environment(cls) -> StageDump | None:
        folder = os.environ.get("NEPTUNE_DUMP")
        return cls(folder) if folder else None

    def write(self, stage: str, text: str, suffix: str = "mlir") -> None:
        number = len(list(self.folder.iterdir()))
        name = re.sub(r"[^\w.-]+", "-", stage).strip("-")
        (self.folder / f"{number:02}-{name}.{suffix}").write_text(text)


def upstream_passes() -> Sequence[str]:
    """Names of upstream passes that people use with this project, for `--list-passes`."""
    return ("canonicalize", "cse", "symbol-dce", "inline", "sccp", "loop-invariant-code-motion")
