# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From program text to a bundle: runs the pipelines, level by level.

`driver/kernel.py` is the door for users; it comes here only when the cache has no entry.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra.rules import MODES
from neptune_mlir.dialects.attributes import NUMERICS, PRECISION
from neptune_mlir.dialects.context import usual_context
from neptune_mlir.dialects.program import NestProgram, functions, numerics_of
from neptune_mlir.driver import verdicts
from neptune_mlir.driver.family import best, chunks_of, tiled
from neptune_mlir.driver.garbage import collected_rarely
from neptune_mlir.errors import OutOfMemory, Refused, ToolError, UsageError
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import common, runner
from neptune_mlir.pipelines.conditions import Conditions
from neptune_mlir.pipelines.lowering import (
    COMMON_LEVELS,
    Lowering,
    RaisedProgram,
    name_chip,
    steps_to_tiles,
)
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.pipelines.ways import ways_of
from neptune_mlir.runtime import cache
from neptune_mlir.runtime.plan import describe
from neptune_mlir.targets import tuned
from neptune_mlir.targets.gpu import PRECISIONS
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.fusion.defer import decide
from neptune_mlir.transforms.fusion.plan import Fusion, plan_fusions
from neptune_mlir.transforms.schedule import library
from neptune_mlir.transforms.schedule import scripts as schedules

_FAMILIES = {"cpu": "cpu", "sm_": "nvvm", "gfx": "rocdl", "triton": "triton"}


def pipeline_of(target: str) -> Any:
    """The module of `pipelines/` that compiles for `target`.

    Raises:
        UsageError: no such target.
        ToolError: a target that this version does not build yet.
    """
    family = next((f for prefix, f in _FAMILIES.items() if target.startswith(prefix)), None)
    if family is None or (family == "cpu" and target != "cpu"):
        raise UsageError(
            f"unknown target '{target}'", hint="cpu, sm_80, sm_90a, gfx942, gfx1100, triton, ..."
        )
    name = f"neptune_mlir.pipelines.{family}"
    if importlib.util.find_spec(name) is None:
        raise ToolError(f"target '{target}' is not built yet in this version", hint="use cpu")
    return importlib.import_module(name)


@bindings.exclusive
def lower_text(
    text: str, source: str, target: str, schedule: str | None, level: str, knobs: str = ""
) -> tuple[Any, dict[str, Any]]:
    """The module at one of COMMON_LEVELS, and the facts gathered on the way."""
    with bindings.source_name(source):
        lowering = _best(RaisedProgram(text, source, schedule, knobs, target), target, level)
    return lowering.module, lowering.facts


@bindings.exclusive
def knobs_of_schedule(name: str) -> dict[str, list[int]]:
    """The knobs of a schedule (a shipped one, or a path) with their options; none where any number
    will do. Raises UsageError, InputError."""
    context = usual_context()
    script = schedules.parse(library.read(name), context, name)
    with context:
        return {knob: schedules.options(op) for knob, op in schedules.knobs(script).items()}


def nests_of(text: str, source: str, *passes: str) -> tuple[Any, list[NestProgram]]:
    """A program at its first level behind some passes: the module, and its functions as nests."""
    with bindings.source_name(source):
        lowering = Lowering.of_text(text, source)
        lowering.to_program()
        return _nests_behind(lowering, *passes)


def _nests_behind(lowering: Lowering, *passes: str) -> tuple[Any, list[NestProgram]]:
    lowering.run([Step(name) for name in passes])
    module = lowering.module
    with module.context:
        return module, [NestProgram(function) for function in functions(module)]


@bindings.exclusive
def planned_fusions(text: str, source: str) -> list[Fusion]:
    """What `rolling-update` makes of every function of a program, by the shipped schedules, each
    with what it was compared with."""
    definitions: dict[str, Any] = {}
    with bindings.source_name(source):
        lowering = Lowering.of_text(text, source)
        lowering.to_program()
        module, programs = _nests_behind(lowering, "inline-maps")
        with module.context, registry.collect_remarks():
            for program in programs:
                definitions |= decide(program.function, numerics_of(program.function)).definitions
        module, programs = _nests_behind(lowering, "defer")
    with bindings.source_name(source), module.context:
        found = [
            fusion
            for program in programs
            for fusion in plan_fusions(program, numerics_of(program.function))
        ]
    return [replace(f, definition=definitions.get(f.content, f.definition)) for f in found]


def _best(program: RaisedProgram, target: str, level: str) -> Lowering:
    """A program by the first way of a target that takes it."""
    ways = program.ways(target, ways_of(pipeline_of(target), target.partition(",")[0]))
    return next(program.lowerings(target, ways, level))


@bindings.exclusive
def with_options(
    text: str, source: str, *, precision: str | None = None, numerics: str | None = None
) -> str:
    """A program whose functions say how exact it has to be.

    Args:
        precision: what operands of f32 products may be rounded to (`neptune.precision`), where an
            instruction of the target does that.
        numerics: which fused forms are good enough (`neptune.numerics`, see `algebra.accept`).

    Raises:
        UsageError: a word that is not one of PRECISIONS, or of MODES.
    """
    for name, word, known in (
        ("precision", precision, PRECISIONS), ("numerics mode", numerics, MODES),
    ):  # fmt: skip
        if word is not None and word not in known:
            raise UsageError(f"no {name} '{word}'", hint=f"one of: {', '.join(known)}")
    module = Lowering.of_text(text, source).module
    with module.context:
        for function in functions(module):
            for key, word in ((PRECISION, precision), (NUMERICS, numerics)):
                if word is not None:
                    key.set(function.operation, word)
    return str(module.operation.get_asm(enable_debug_info=True))


@bindings.exclusive
def compile_text(
    text: str, source: str, target: str, schedule: str | None, entry: str | None,
    cases: bool = True, knobs: str = "",
) -> Any:  # fmt: skip
    """The bundle of a program.

    Of several GPUs (`sm_90a,gfx942`) those of one maker share a tiled program. `cases`: also with
    kernels for some calls alone (`pipelines/cases.py`). `knobs`: see `pipelines.lowering.Program`.
    """
    families_of(target)  # an unknown one, before all else
    with bindings.source_name(source), verdicts.kept(), common.once(), collected_rarely():
        program = RaisedProgram(text, source, schedule, knobs, target)
        return bundle_of(program, target, entry, cases)


def bundle_of(program: RaisedProgram, target: str, entry: str | None, cases: bool = True) -> Any:
    """`compile_text`, of a program that was raised."""
    families = families_of(target)
    with tuned.questions() as asked:
        bundles = [_compile_calls(program, family, entry, cases) for family in families]
    bundle = bundles[0]
    if len(bundles) > 1:
        from neptune_mlir.pipelines import gpu

        bundle = gpu.join(target, bundles)
    return finished(bundle, program, families, asked)


def finished(
    bundle: Any, program: RaisedProgram, families: Sequence[str], asked: Sequence[tuned.Question]
) -> Any:
    """A bundle with the data of its constants, and what else it says of its origin: this compiler
    and the packages that it uses; and what measurements decided, by what was asked of the tuning
    table. (Nothing of the machine or the time: the same program makes the same bundle.)"""
    bundle.facts["provenance"]["tools"] = cache.compiler_versions()
    findings = [f for f in map(program.finding, families) if f]
    taken = [q.entry.as_json() for q in asked if q.entry] + [f.as_json() for f in findings]
    if taken:
        bundle.facts["provenance"]["tuned"] = taken
    return bundle.with_data(program.constants)


def families_of(target: str) -> list[str]:
    """A target as targets that share tile programs. Raises UsageError for what shares no
    bundle."""
    if target.startswith("triton"):
        return [target]
    listed = [name.strip() for name in target.split(",")]
    if len(listed) > 1 and any(n == "cpu" or n.startswith("triton") for n in listed):
        raise UsageError(f"no bundle holds all of '{target}'", hint="only GPUs share a bundle")
    table = tuned.current()
    families: list[tuple[Any, list[str]]] = []
    for name in listed:
        ways = (pipeline_of(name), ways_of(pipeline_of(name), name), table.of_chip(name))
        alike = next((names for known, names in families if known == ways), None)
        if alike is None:
            families.append((ways, [name]))
        else:
            alike.append(name)
    return [",".join(names) for _, names in families]


def _compile_calls(program: RaisedProgram, target: str, entry: str | None, cases: bool) -> Any:
    """The bundle of a program for targets of one pipeline, with kernels for rows of whole chunks
    where it has such. Where the copy engine moves those, other rows have kernels for any call
    alone: without it they are slow whatever the tiles, and their code is long."""
    pipeline = pipeline_of(target)
    ways = functools.partial(tiled, pipeline=pipeline, target=target, entry=entry)
    chunked = chunks_of(program, pipeline, target) if cases else None
    if chunked is None:
        return best(ways(program), cases).bundle
    try:
        some = best(ways(chunked[0])).bundle
    except (OutOfMemory, Refused):
        return best(ways(program)).bundle
    others = best(ways(program), not moves(some)).bundle
    return others.adding(some, chunked[1])


def moves(bundle: Any) -> bool:
    """Whether the copy engine moves what kernels of a bundle multiply."""
    kernels = [k for image in bundle.facts["images"] for k in image["kernels"].values()]
    return any(kernel["consumers"] for kernel in kernels)


@bindings.exclusive
def emit_text(
    text: str, source: str, target: str, schedule: str | None, entry: str | None, level: str,
    knobs: str = "",
) -> tuple[str, list[str]]:  # fmt: skip
    """The program at a level, as text, and what the passes remarked.

    Where calls have kernels of their own, all are shown, each after a comment that says which
    calls it is for. (A bundle leaves out those whose code spills.)

    Raises:
        UsageError: the target has no such level.
    """
    pipeline = pipeline_of(target)
    levels = (*COMMON_LEVELS, *getattr(pipeline, "EMITS", ()))
    if level not in levels:
        raise UsageError(
            f"target '{target}' has no level '{level}'", hint=", ".join((*levels, "bundle"))
        )
    chip = {} if target == "cpu" else {"target": target}
    with bindings.source_name(source):
        program = RaisedProgram(text, source, schedule, knobs, target)
        lowering = _best(program, target, level if level == "neptune" else "tile")

        def shown(lowering: Lowering) -> str:
            if level == "fused":
                schedule = lowering.facts["schedule"]
                return str(program.by(target, lowering.way, level, schedule).module)
            if level in COMMON_LEVELS:
                return str(lowering.module)
            return str(pipeline.emit_tiles(lowering.module, level, entry, **chip))

        texts = {}
        if lowering.has_variants:
            from neptune_mlir.pipelines import gpu

            def plan_of(lowering: Lowering) -> Any:
                if target != "cpu":
                    return gpu.sketch(lowering.module, target, entry)
                lowered = lowering.copy()  # code of a CPU is cheap to make
                pipeline.emit_tiles(lowered.module, pipeline.EMITS[0], entry)
                return gpu.plan_of(lowered.module)

            lowering, variants = program.images(lowering, str(lowering.module), target)
            plan = plan_of(lowering)
            names = [argument.name for argument in plan.arguments]
            conditions = Conditions(plan)
            for case, variant in variants:
                when = conditions.of(case, plan_of(variant))
                if when is not None:
                    texts[f"calls where {describe(when, names)}"] = shown(variant)
        mark = ";" if level == "llvm" else "//"
        parts = [f"{mark} other calls\n{shown(lowering)}" if texts else shown(lowering)]
        parts += [f"{mark} -----\n{mark} {calls}\n{text}" for calls, text in texts.items()]
        return "\n".join(parts), lowering.facts["remarks"]


@bindings.exclusive
def text_after(
    text: str, source: str, target: str, schedule: str | None, entry: str | None, name: str,
    knobs: str = "",
) -> str:  # fmt: skip
    """The module after the first pass called `name` of all those between a program and the LLVM
    dialect of a target, as text: for the kernels that serve any call.

    Raises:
        UsageError: the target has no such pass.
    """
    pipeline = pipeline_of(target)
    chip = target.partition(",")[0]
    with bindings.source_name(source):
        lowering = _best(RaisedProgram(text, source, schedule, knobs, target), target, "tile")
        steps = steps_to_tiles(lowering)
        if hasattr(pipeline, "steps_of"):
            steps += pipeline.steps_of(lowering.module, chip, entry or "")
        module = Lowering.of_text(text, source).module
        name_chip(module, target)
        runner.run(module, runner.until(steps, name))
        return str(module)


@bindings.exclusive
def compile_unfused(
    text: str, source: str, entry: str | None, *, vectorize: bool = True, order: int = 0,
    hide: bool = False,
) -> Any:  # fmt: skip
    """The program as written, through upstream's loops: what results are checked against.

    Args:
        vectorize: False compiles several times sooner into code that runs slower.
        order: the number of an order of its sums (`algebra/numerics/orders.py`).
        hide: whether 0 times anything is 0: what a mask leaves out is not there.

    Raises:
        NeptuneError: the program has no lowering to loops.
    """
    from neptune_mlir.driver.as_written import AsWritten

    return AsWritten(text, source, entry).compiled(vectorize=vectorize, order=order, hide=hide)


@bindings.exclusive
def compile_reference(
    text: str, source: str, entry: str | None, *, digits: int = 0, numbered: bool = False,
    order: int = 0, hide: bool = False,
) -> Any:  # fmt: skip
    """The program as written, all of its floats f64 (arguments and results too): what errors
    count from.

    Args:
        digits: of every value that it computes, in bits (0: all of f64's).
        numbered: calls say by `rounding`, the number of a way, how values are rounded to so many.
        order: the number of an order of its sums.
        hide: whether 0 times anything is 0.

    Raises:
        NeptuneError: the program has no lowering to loops, or reads floats as bits.
    """
    from neptune_mlir.driver.as_written import AsWritten

    loops = AsWritten(text, source, entry, wide=True)
    return loops.compiled(order=order, digits=digits, numbered=numbered, hide=hide)
