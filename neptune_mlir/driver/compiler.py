# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From program text to a bundle: runs the pipelines, level by level.

`driver/kernel.py` is the door for users; it comes here only when the cache has no entry.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.algebra.rules import MODES
from neptune_mlir.dialects.attributes import NUMERICS, PRECISION
from neptune_mlir.dialects.context import make_context
from neptune_mlir.dialects.program import NestProgram, functions, numerics_of
from neptune_mlir.errors import NeptuneError, OutOfMemory, Refused, ToolError, UsageError
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import runner
from neptune_mlir.pipelines.cases import Case, Conditions, add
from neptune_mlir.pipelines.lowering import (
    COMMON_LEVELS,
    Lowering,
    RaisedProgram,
    count,
    name_chip,
    steps_to_tiles,
)
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.pipelines.ways import Way, ways_of
from neptune_mlir.runtime.plan import describe
from neptune_mlir.targets import tuned
from neptune_mlir.targets.gpu import PRECISIONS
from neptune_mlir.targets.warp_groups import SPILLED
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.fast_paths import BEST
from neptune_mlir.transforms.fusion.defer import decide
from neptune_mlir.transforms.fusion.plan import Fusion, plan_fusions
from neptune_mlir.transforms.registry import Miss, Remark
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
        lowering = _best(RaisedProgram(text, source, schedule, knobs), target, level)
    return lowering.module, lowering.facts


@bindings.exclusive
def knobs_of_schedule(name: str) -> dict[str, list[int]]:
    """The knobs of a schedule (a shipped one, or a path) with their options; none where any number
    will do. Raises UsageError, InputError."""
    context = make_context()
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
    families = families_of(target)
    with bindings.source_name(source):
        program = RaisedProgram(text, source, schedule, knobs)
        with tuned.questions() as asked:
            bundles = [_compile_calls(program, family, entry, cases) for family in families]
        findings = [f for f in map(program.finding, families) if f]
    bundle = bundles[0]
    if len(bundles) > 1:
        from neptune_mlir.pipelines import gpu

        bundle = gpu.join(target, bundles)
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
    where the pipeline makes such. Where the copy engine moves those, other rows have kernels for
    any call alone: without it they are slow whatever the tiles, and their code is long. (Tensors of
    scores with aligned rows have cases of their own, `Lowering.alignable`.)"""
    chunks = getattr(pipeline_of(target), "CHUNKS", False) and not program.schedule
    chunked = program.of_chunks() if cases and chunks else None
    if chunked is None or _is_alignable(program, target):
        return _compile_family(program, target, entry, cases)
    try:
        some = _compile_family(chunked[0], target, entry, cases)
    except (OutOfMemory, Refused):
        return _compile_family(program, target, entry, cases)
    kernels = [k for image in some.facts["images"] for k in image["kernels"].values()]
    moved = any(kernel["consumers"] for kernel in kernels)
    return add(_compile_family(program, target, entry, cases and not moved), some, chunked[1])


def _is_alignable(program: RaisedProgram, target: str) -> bool:
    """Whether a program has kernels for aligned rows of tensors of scores: programs of several
    kernels have those for whole chunks alone."""
    ways = program.ways(target, ways_of(pipeline_of(target), target.partition(",")[0]))
    found = program.lowerings(target, ways[:1], "fused")
    return any(lowering.alignable and lowering.alone for lowering in found)


def _compile_family(program: RaisedProgram, target: str, entry: str | None, cases: bool) -> Any:
    """The bundle of a program for targets of one pipeline."""
    pipeline = pipeline_of(target)
    chip = {} if target == "cpu" else {"target": target}

    def begin(lowering: Lowering) -> Any:
        return pipeline.begin_tiles(lowering.module, entry=entry, facts=lowering.facts, **chip)

    def made_with_cases(lowering: Lowering, tiles: str) -> Any:
        """All begun before the first is waited for: their code generators run side by side."""
        base = begin(lowering)
        variants = program.variants(lowering, tiles, target)
        begun = [(case, begin(variant), variant.way.smaller) for case, variant in variants]
        bundle = base.finish()
        conditions = Conditions(base.plan)
        for case, variant, knobs in begun:
            found = finished(variant)
            while knobs and (found is None or _spilled(found)):
                knob, *knobs = knobs
                variant = begin([*program.variant(lowering, target, case, knob)][-1])
                found = finished(variant)
            if found and _spilled(found) <= _may_spill(case, lowering.way):
                condition = conditions.of(case, variant.plan)
                bundle = bundle if condition is None else add(bundle, found, condition)
        return bundle

    def finished(begun: Any) -> Any:
        """The bundle of a variant, or None where the target refuses it."""
        try:
            return begun.finish()
        except (OutOfMemory, Refused):
            return None

    best: Any = None
    refused: list[OutOfMemory | Refused] = []
    tried = ""
    ways = program.ways(target, ways_of(pipeline, target.partition(",")[0]))
    for lowering in program.lowerings(target, ways):
        tiles = str(lowering.module)
        if tiles == tried:  # this way changes nothing
            continue
        tried = tiles
        try:
            if cases and lowering.has_variants:
                bundle = made_with_cases(lowering, tiles)
            else:
                bundle = pipeline.compile_tiles(
                    lowering.module, entry=entry, facts=lowering.facts, **chip
                )
        except (OutOfMemory, Refused) as error:
            refused.append(error)
            continue
        _note_refusals(bundle, refused)
        if best is None or _spilled(bundle) < _spilled(best):
            best = bundle
        if lowering.way.spills or not _spilled(best):
            break
    if best is None:
        raise refused[-1]
    return best


def _note_refusals(bundle: Any, refused: Sequence[NeptuneError]) -> None:
    """Say in a bundle which ways before its own were refused."""
    found = [_refusal(error) for error in refused]
    bundle.facts["remarks"] = [*map(str, found), *bundle.facts["remarks"]]
    for image in bundle.facts.get("images", ()):
        image["missed"] = [*registry.misses(found), *image.get("missed", ())]


def _refusal(error: NeptuneError) -> Remark:
    """What is said of a way that was refused."""
    what = Miss(BEST.name, error.message, error.hint or BEST.change)
    return Remark("warning", error.loc or "unknown", error.message, what)


def _may_spill(case: Case, way: Way) -> int:
    """Bytes that a thread of a variant may keep in memory: long streams are worth a few registers
    there, where the way takes such code."""
    long = case.condition is not None and not case.schedule
    return SPILLED if long and way.spills else 0


def _spilled(bundle: Any) -> int:
    """Bytes that the threads of a bundle's kernels keep in memory for want of registers."""
    images = bundle.facts.get("images", ())
    return sum(kernel["spills"] for image in images for kernel in image["kernels"].values())


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
        program = RaisedProgram(text, source, schedule, knobs)
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
                lowered = lowering.copy()
                pipeline.emit_tiles(lowered.module, pipeline.EMITS[0], entry, **chip)
                return gpu.plan_of(lowered.module)

            plan = plan_of(lowering)
            names = [argument.name for argument in plan.arguments]
            conditions = Conditions(plan)
            for case, variant in program.variants(lowering, str(lowering.module), target):
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
        lowering = _best(RaisedProgram(text, source, schedule, knobs), target, "tile")
        steps = steps_to_tiles(lowering)
        if hasattr(pipeline, "steps_of"):
            steps += pipeline.steps_of(lowering.module, chip, entry or "")
        module = Lowering.of_text(text, source).module
        name_chip(module, target)
        runner.run(module, runner.until(steps, name))
        return str(module)


# linalg.softmax has no loops of its own; upstream decomposes it, which only a script can ask for
_DECOMPOSE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %found = transform.structured.match ops{["linalg.softmax"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %found
        : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


@bindings.exclusive
def compile_unfused(
    text: str, source: str, entry: str | None, *, vectorize: bool = True, order: int = 0
) -> Any:
    """The program as written, through upstream's loops: what results are checked against.

    Args:
        vectorize: False compiles several times sooner into code that runs slower.
        order: the number of an order of its sums (`algebra/numerics/orders.py`).

    Raises:
        NeptuneError: the program has no lowering to loops.
    """
    return _through_loops(Lowering.of_text(text, source), source, entry, vectorize, order)


@bindings.exclusive
def compile_reference(text: str, source: str, entry: str | None, *, digits: int = 0) -> Any:
    """The program as written, all of its floats f64 (arguments and results too): what errors
    count from.

    Args:
        digits: of every value that it computes, in bits (0: all of f64's).

    Raises:
        NeptuneError: the program has no lowering to loops, or reads floats as bits.
    """
    lowering = Lowering.of_text(text, source)
    with bindings.source_name(source):
        lowering.lift_constants()
        lowering.run([Step("widen-floats", {"digits": digits})])
    return _through_loops(lowering, source, entry, vectorize=False)


def _through_loops(
    lowering: Lowering, source: str, entry: str | None, vectorize: bool, order: int = 0
) -> Any:
    from neptune_mlir.pipelines import cpu
    from neptune_mlir.runtime.function import FunctionExecutable

    with bindings.source_name(source):
        lowering.lift_constants()
        if count(lowering.module, "linalg.softmax"):
            schedules.apply(lowering.module, _DECOMPOSE, {}, "decompose")
        bundle = cpu.compile_unfused(lowering.module, entry, vectorize=vectorize, order=order)
    return FunctionExecutable(bundle.with_data(lowering.constants))
