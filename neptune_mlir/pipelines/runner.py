# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a list of passes on a module, ours and upstream's, through upstream's PassManager.

A pipeline is data: a sequence of `Step`s, or the same as text,

    rolling-update,tile{rows=64},func.func(canonicalize),cse

MLIR gives Python passes no textual name, so the text is split here at its top level: an element
that names one of our passes is added as a Python pass, everything else goes upstream as text.
Every step leaves verified IR, or the run stops with a located error (compilations verify where
a level ends: `common.run`). What upstream's pass manager
can show of a run (IR, times, statistics) is asked for with `Instruments`.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from neptune_mlir.errors import LoweringError, UsageError, did_you_mean
from neptune_mlir.ir.bindings import diagnostic_lines, ir, passmanager
from neptune_mlir.pipelines import upstream
from neptune_mlir.transforms import registry

TOP = "builtin.module"


@dataclass(frozen=True)
class Step:
    """One pass and its options: as text, `Step("tile", "rows=64")`, or, for a pass of ours, as
    keyword arguments, `Step("apply-schedule", {"file": path})`.

    `anchors` are the ops that it is nested in, as in `func.func(cse)`, from the outside. A step
    that `follows` stands in the same brackets as the one before it.
    """

    name: str
    options: str | Mapping[str, Any] = ""
    anchors: tuple[str, ...] = ()
    follows: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return _text_of([self])


def _text_of(steps: Sequence[Step]) -> str:
    """Steps in the same brackets as a textual pipeline."""
    inner = []
    for step in steps:
        given = step.options
        if not isinstance(given, str):
            given = ",".join(f"{k.replace('_', '-')}={v}" for k, v in given.items())
        inner.append(f"{step.name}{{{given}}}" if given else step.name)
    text = ",".join(inner)
    for anchor in reversed(steps[0].anchors):
        text = f"{anchor}({text})"
    return text


def parse_pipeline(text: str) -> list[Step]:
    """The steps of a textual pipeline; `builtin.module(...)` around it is optional.

    Raises:
        UsageError: brackets do not match, or an element is no pass.
    """
    text = text.strip()
    anchored = re.fullmatch(r"(?:builtin\.module|any)\s*\((.*)\)", text, re.DOTALL)
    if anchored and len(_split_top_level(text)) == 1:
        text = anchored.group(1)
    return _parse(text, ())


def _parse(text: str, anchors: tuple[str, ...]) -> list[Step]:
    steps = []
    for element in _split_top_level(text):
        nested = re.fullmatch(r"([\w.-]+)\s*\((.*)\)", element, re.DOTALL)
        single = re.fullmatch(r"([\w.-]+)\s*(?:\{(.*)\})?", element, re.DOTALL)
        if nested:
            steps += _parse(nested[2], (*anchors, nested[1]))
        elif single:
            follows = bool(anchors and steps and steps[-1].anchors == anchors)
            steps.append(Step(single[1], (single[2] or "").strip(), anchors, follows))
        else:
            raise UsageError(
                f"cannot read '{element}' in the pipeline", hint="PASS, PASS{OPTIONS} or OP(...)"
            )
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


def known_passes() -> list[str]:
    """The names of all passes, ours first."""
    return [*registry.names(), *upstream.passes()]


class UnknownPass(UsageError):
    """No pass has this `name`, neither here nor upstream."""

    def __init__(self, name: str):
        self.name = name
        hint = did_you_mean(name, known_passes(), "neptune-opt --list-passes")
        super().__init__(f"unknown pass '{name}'", hint=hint)


class PassFailure(LoweringError):
    """A pass failed; the `MLIRError` that says why is the `__cause__`."""

    def __str__(self) -> str:
        cause = self.__cause__
        said = diagnostic_lines(cause) if cause is not None else []
        return "\n".join([super().__str__(), *said])


ALL = "*"  # in place of the name of a pass: every pass


@dataclass(frozen=True)
class Instruments:
    """What upstream's pass manager shows of a run, on stderr.

    Attributes:
        verify: check the IR after every pass, or after those of a name for which it is true.
        before, after: names of the passes before and after which the IR is printed, or ALL.
        printing: further arguments of `PassManager.enable_ir_printing`.
        timing: print how long each pass took.
        statistics: a `PassDisplayMode`: print the statistics of the passes.
    """

    verify: bool | Callable[[str], bool] = True
    before: Collection[str] = ()
    after: Collection[str] = ()
    printing: Mapping[str, Any] = field(default_factory=dict)
    timing: bool = False
    statistics: Any = None

    def attach(self, manager: Any, name: str) -> None:
        """Instrument a pass manager; `name` is its only pass, or ALL where it has several."""
        verify = self.verify
        manager.enable_verifier(verify if isinstance(verify, bool) else verify(name))
        before, after = ({name, ALL} & set(names) for names in (self.before, self.after))
        if before or after:
            manager.enable_ir_printing(
                print_before_all=bool(before), print_after_all=bool(after), **self.printing
            )
        if self.timing:
            manager.enable_timing()
        if self.statistics is not None:
            manager.enable_statistics(self.statistics)

    @property
    def selective(self) -> bool:
        """Whether some passes are to be shown and others not."""
        return bool({*self.before, *self.after} - {ALL})

    @property
    def of_the_whole(self) -> bool:
        """Whether one report, or one numbering of files, is wanted for all passes together."""
        reports = self.timing or self.statistics is not None
        return not self.selective and (reports or "tree_printing_dir_path" in self.printing)


class Pipeline:
    """Steps as pass managers: one for each step or brackets of steps, or one for all where `whole`.

    Passes that another one starts from (`registry.Pass.after`) are put before it.

    Args:
        top: the op that the pipeline runs on.
        done: passes that the module has been through.
        apart: each step is one, in brackets or not.

    Raises:
        UsageError: an unknown pass or a bad option. Nothing has run then.
    """

    def __init__(
        self, steps: Sequence[Step], context: Any, *, top: str = TOP, whole: bool = False,
        done: Collection[str] = (), apart: bool = False,
    ):  # fmt: skip
        self._raised: list[BaseException] = []
        self.managers: list[tuple[tuple[Step, ...], Any]] = []
        had = set(done)
        steps = complete(steps, done)
        nested = _in_brackets(steps, apart)
        self.elements = len(nested)
        groups = [nested] if whole else [[steps] for steps in nested]
        with context:
            for group in groups:
                manager = passmanager.PassManager(top)
                for together in group:
                    if len(together) > 1:
                        _add_upstream(manager, [_within(step, top) for step in together])
                    else:
                        add(manager, *together, top=top, raised=self._raised, had=frozenset(had))
                    had |= {step.name for step in together}
                self.managers.append((tuple(itertools.chain(*group)), manager))

    def run(self, module: Any, done: Callable[[Step], None] = lambda step: None) -> None:
        """Run on a module; `done` is called with every step, or with the last of a whole."""
        for steps, manager in self.managers:
            with module.context, ir.Location.unknown():
                try:
                    manager.run(module.operation)
                except ir.MLIRError as error:
                    cause = self._raised.pop() if self._raised else error
                    if not isinstance(cause, ir.MLIRError):
                        raise cause from None
                    name = f"pass '{steps[0].name}'" if len(steps) == 1 else "the pipeline"
                    nested = "unable to schedule pass" in str(cause)
                    more = f": nest it, as in 'func.func({steps[0].name})'" if nested else ""
                    raise PassFailure(f"{name} failed{more}") from cause
            if steps:
                done(steps[-1])


def _in_brackets(steps: Sequence[Step], apart: bool) -> list[list[Step]]:
    """The steps, those of upstream in the same brackets together: each function then goes through
    all of them before the next one does."""
    found: list[list[Step]] = []
    for step in steps:
        if step.follows and not apart and found and not any(map(_is_ours, _names(found[-1], step))):
            found[-1].append(step)
        else:
            found.append([step])
    return found


def _names(steps: Sequence[Step], last: Step) -> list[str]:
    return [step.name for step in (*steps, last)]


def complete(steps: Sequence[Step], done: Collection[str] = ()) -> list[Step]:
    """The steps, each after those that it starts from; `done` ones are not repeated."""
    had, found = set(done), []
    for step in steps:
        names = registry.prerequisites(step.name, had) if _is_ours(step.name) else []
        needed = [Step(name) for name in names]
        found += [*needed, step]
        had |= {s.name for s in (*needed, step)}
    return found


def add(
    manager: Any, step: Step, *, top: str = TOP, raised: list[BaseException] | None = None,
    had: frozenset[str] = frozenset(),
) -> None:  # fmt: skip
    """Add a step to a pass manager that runs on `top` ops, after those that `had` names.

    What a pass of ours raises is put into `raised`; without that list it becomes a diagnostic, so
    that `PassManager.run` raises an MLIRError which says it.

    Raises:
        UsageError: an unknown pass, a bad option, or a pass that does not run there.
    """
    step = _within(step, top)
    if not _is_ours(step.name):
        _add_upstream(manager, [step])
        return
    spec = registry.lookup(step.name)
    if step.anchors or top != TOP:
        where = step.anchors[-1] if step.anchors else top
        raise UsageError(
            f"pass '{step.name}' runs on {TOP}, not on {where}",
            hint="put it outside of the nested pipeline",
        )
    given = step.options
    parse: Callable[..., dict[str, Any]] = (
        registry.parse_options if isinstance(given, str) else registry.checked
    )
    options = parse(spec, given)
    name = "".join(word.capitalize() for word in step.name.split("-"))
    run = functools.partial(_with_history, had, spec.run)
    manager.add(_callback(run, options, raised), name=name, argument=str(step))


def _within(step: Step, top: str) -> Step:
    """The step as a pass manager of `top` ops takes it."""
    if step.anchors[:1] == (top,) and top != TOP:
        return replace(step, anchors=step.anchors[1:])
    return step


def _with_history(
    had: frozenset[str], run: Callable[..., None], module: Any, **options: Any
) -> None:
    """Run a pass that may ask which ones the module has been through (`registry.done`)."""
    token = registry.done.set(had)
    try:
        run(module, **options)
    finally:
        registry.done.reset(token)


def _callback(
    run: Callable[..., None], options: Mapping[str, Any], raised: list[BaseException] | None
) -> Callable[[Any, Any], None]:
    """A pass of ours as the bindings call it.

    (It must not refer to the pass manager, which owns it: that cycle would never be freed.)
    """

    def call(operation: Any, external: Any) -> None:
        try:
            with operation.context, ir.Location.unknown():
                run(operation.opview, **options)
        except BaseException as error:  # not through MLIR's frames, which expect none
            if raised is not None:
                raised.append(error)
            else:
                operation.location.emit_error(f"{type(error).__name__}: {error}")
            external.signal_pass_failure()

    return call


def is_of_others(name: str) -> bool:
    """Whether a pass, or a script that it runs, may be a user's."""
    return name == "apply-schedule" or (_is_ours(name) and name not in registry.built_in())


def _is_ours(name: str) -> bool:
    """Whether a name is not upstream's (what other packages have is looked up last: 20 ms)."""
    if registry.is_loaded(name):
        return True
    return name not in upstream.passes() and name in registry.names()


def _add_upstream(manager: Any, steps: Sequence[Step]) -> None:
    """Add upstream passes of the same brackets, nested where the pass asks for it."""
    try:
        manager.add(_text_of(steps))
    except ValueError as error:
        anchor = re.search(r"restricted to '([\w.]+)'", str(error))
        if anchor and not steps[0].anchors:
            return _add_upstream(manager, [replace(s, anchors=(anchor[1],)) for s in steps])
        if lost := re.search(r"'([^']*)' does not refer to a registered pass", str(error)):
            raise UnknownPass(lost[1]) from None
        reason = str(error).strip().splitlines()[0]
        raise UsageError(f"cannot run pass '{_text_of(steps)}': {reason}") from None


def until(steps: Sequence[Step], stop_after: str | None) -> list[Step]:
    """The steps up to the first of that name. Raises UsageError where there is none."""
    if stop_after is None:
        return list(steps)
    names = [step.name for step in steps]
    if stop_after not in names:
        hint = did_you_mean(stop_after, names)
        raise UsageError(f"--stop-after={stop_after}: no such pass in this pipeline", hint=hint)
    return list(steps[: names.index(stop_after) + 1])


def run(
    module: Any, steps: Sequence[Step], *, instruments: Instruments | None = None,
    done: Collection[str] = (),
) -> None:  # fmt: skip
    """Run the steps in order on a module that has been through `done`.

    `NEPTUNE_DUMP=DIR` also writes the module after every step to `DIR/NN-pass.mlir`.

    Raises:
        UsageError: unknown pass or option, found before the first pass runs.
        PassFailure: a pass failed or left IR that does not verify.
        NeptuneError: whatever a pass of ours raised.
    """
    dump = StageDump.from_environment()
    whole = instruments is not None and instruments.of_the_whole and not dump
    top = module.operation.name
    apart = dump is not None or (instruments is not None and instruments.selective)
    pipeline = Pipeline(steps, module.context, top=top, whole=whole, done=done, apart=apart)
    if instruments is not None:
        for group, manager in pipeline.managers:
            instruments.attach(manager, ALL if whole else group[0].name)
    pipeline.run(module, lambda step: dump.write(step.name, str(module)) if dump else None)


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
        (self.folder / f"{number:03}-{name}.{suffix}").write_text(text)
