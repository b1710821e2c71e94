# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From program text to a bundle: runs the pipelines, level by level.

`kernel.py` is the door for users; it comes here only when the cache has no entry.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir import bindings
from neptune_mlir.errors import InputError, ToolError, UsageError
from neptune_mlir.pipelines import common, legal, runner
from neptune_mlir.pipelines import schedule as schedules
from neptune_mlir.pipelines.cases import Case, add, few, longer
from neptune_mlir.pipelines.ways import Way, ways_of
from neptune_mlir.transforms import registry

PRECISIONS = ("tf32",)  # that operands of f32 products may be rounded to
# the levels of docs/architecture.md that are MLIR and the same for every target
COMMON_LEVELS = ("neptune", "fused", "tile")

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


@dataclass
class Lowering:
    """A program on its way down. `facts` is JSON data for the bundle."""

    module: Any
    target: str
    schedule: str | None
    facts: dict[str, Any] = field(default_factory=dict)
    way: Way = field(default_factory=Way)
    cases: tuple[Case, ...] = ()

    @classmethod
    def of_text(cls, text: str, source: str, target: str, schedule: str | None) -> Lowering:
        """Parse a program. Raises InputError."""
        with bindings.source_name(source):
            module = bindings.parse(text, source=source)
        if not _functions(module):
            raise InputError("the program has no function with a body", loc=source)
        return cls(module, target, schedule, {"provenance": provenance(text, source)})

    def run(self, steps: Any) -> None:
        with registry.collect_remarks() as remarks:
            runner.run(self.module, tuple(steps))
        self.facts.setdefault("remarks", []).extend(str(r) for r in remarks)

    def to_program(self) -> None:
        self.run(common.IMPORT)
        self.facts["nests"] = count(self.module, "neptune.map", "neptune.reduce")

    def to_fused(self) -> None:
        # a schedule that somebody chose keeps its own tile sizes
        knobs = {} if self.schedule else self.way.knobs
        adapts = "programs:" in knobs.get("private", "")
        chosen = self.schedule or schedules.choose(
            self.module, parallelism(self.target), adapts
        )
        self.facts["schedule"] = chosen
        bound = knobs.get(chosen, "")
        self.run([runner.Step("apply-schedule", {"file": chosen, "knobs": bound})])
        self.facts["provenance"]["schedule"] = {
            "name": os.path.basename(chosen), "text": schedules.read(chosen), "knobs": bound
        }  # fmt: skip
        self.cases = longer(self.module)
        self.facts["corrections"] = count(self.module, "neptune.correct")
        self.facts["fused"] = count(self.module, "neptune.stream")

    def to_tiles(self) -> None:
        self.run(common.TO_TILES)
        self.facts["kernels"] = count(self.module, "scf.forall")

    def to(self, level: str) -> None:
        """Lower a fresh program to one of COMMON_LEVELS."""
        steps = (self.to_program, self.to_fused, self.to_tiles)
        for name, step in zip(COMMON_LEVELS, steps, strict=True):
            step()
            legal.check_when_asked(self.module, name)
            if name == level:
                return
        raise UsageError(f"no level '{level}'", hint=", ".join(COMMON_LEVELS))


def provenance(text: str, source: str) -> dict[str, Any]:
    """What a bundle says of its origin: the program, this compiler and the packages it uses.

    (Nothing of the machine or the time: the same program makes the same bundle.)
    """
    from neptune_mlir import __version__
    from neptune_mlir.runtime import cache

    compiler = {"neptune-mlir": f"{__version__}+{cache.source_digest()}"}
    return {
        "source": {"name": os.path.basename(source), "text": text},
        "tools": compiler | cache.tool_versions(),
    }


def parallelism(target: str) -> int:
    """How many programs the target runs at once (the schedule rule asks)."""
    if target == "cpu":
        from neptune_mlir.runtime import workers

        return workers.count()
    return 132  # streaming multiprocessors or compute units: the order of magnitude decides


def count(module: Any, *names: str) -> int:
    """How many ops of these names a module holds."""
    found = 0

    def visit(op: Any) -> Any:
        nonlocal found
        found += op.name in names
        return bindings.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _functions(module: Any) -> list[Any]:
    return [
        op
        for op in module.body.operations
        if op.operation.name == "func.func" and len(op.regions[0].blocks)
    ]


@bindings.exclusive
def lower_text(
    text: str, source: str, target: str, schedule: str | None, level: str
) -> tuple[Any, dict[str, Any]]:
    """The module at one of COMMON_LEVELS, and the facts gathered on the way."""
    lowering = next(_lowerings(text, source, target, schedule, level))
    return lowering.module, lowering.facts


def _lowerings(
    text: str, source: str, target: str, schedule: str | None, level: str,
    ways: Sequence[Way] = (),
) -> Iterator[Lowering]:  # fmt: skip
    """A program at one of COMMON_LEVELS, by each of the ways (default: the target's) that takes
    it."""
    refused: list[str] = []
    for way in ways or ways_of(pipeline_of(target), target.partition(",")[0]):
        lowering = Lowering.of_text(text, source, target, schedule)
        lowering.way = way
        with bindings.source_name(source):
            lowering.to(level)
            if level != "tile":
                yield lowering
                continue
            with registry.collect_remarks() as remarks:
                taken = way.takes(lowering.module)
        found = [str(r) for r in remarks]
        if taken:
            lowering.facts["remarks"] += [*refused, *(r for r in found if r not in refused)]
            yield lowering
        else:
            refused += found


@bindings.exclusive
def with_precision(text: str, source: str, precision: str) -> str:
    """A program whose functions allow the operands of products to be rounded (`neptune.precision`),
    where an instruction of the target does that.

    Raises:
        UsageError: a precision that is not one of PRECISIONS.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"no precision '{precision}'", hint=f"one of: {', '.join(PRECISIONS)}")
    module = Lowering.of_text(text, source, "cpu", None).module
    with module.context:
        for function in _functions(module):
            allowed = bindings.ir.StringAttr.get(precision)
            function.operation.attributes["neptune.precision"] = allowed
    return str(module.operation.get_asm(enable_debug_info=True))


@bindings.exclusive
def compile_text(
    text: str, source: str, target: str, schedule: str | None, entry: str | None
) -> Any:
    """The bundle of a program.

    Of several GPUs (`sm_90a,gfx942`) those of one maker share a tiled program.
    """
    bundles = [_compile_family(text, source, t, schedule, entry) for t in families_of(target)]
    if len(bundles) == 1:
        return bundles[0]
    from neptune_mlir.pipelines import gpu

    return gpu.join(target, bundles)


def families_of(target: str) -> list[str]:
    """A target as targets that share tile programs. Raises UsageError for what shares no
    bundle."""
    if target.startswith("triton"):
        return [target]
    listed = [name.strip() for name in target.split(",")]
    if len(listed) > 1 and any(n == "cpu" or n.startswith("triton") for n in listed):
        raise UsageError(f"no bundle holds all of '{target}'", hint="only GPUs share a bundle")
    families: list[tuple[Any, list[str]]] = []
    for name in listed:
        ways = (pipeline_of(name), ways_of(pipeline_of(name), name))
        alike = next((names for known, names in families if known == ways), None)
        if alike is None:
            families.append((ways, [name]))
        else:
            alike.append(name)
    return [",".join(names) for _, names in families]


def _compile_family(
    text: str, source: str, target: str, schedule: str | None, entry: str | None
) -> Any:
    """The bundle of a program for targets of one pipeline."""
    pipeline = pipeline_of(target)
    chip = {} if target == "cpu" else {"target": target}

    def made(lowering: Lowering) -> Any:
        with bindings.source_name(source):
            return pipeline.compile_tiles(
                lowering.module, entry=entry, facts=lowering.facts, **chip
            )

    def made_with_cases(lowering: Lowering, tiles: str) -> Any:
        """All begun before the first is waited for: their code generators run side by side."""
        with bindings.source_name(source):
            base = pipeline.begin_tiles(lowering.module, entry=entry, facts=lowering.facts, **chip)
        name, begun = lowering.facts["schedule"], []
        some = few(base.plan, lowering.way.few.get(name, ""), parallelism(target))
        for case in (*lowering.cases, *some):
            way = lowering.way.bound(name, case.knob)
            for variant in _lowerings(text, source, target, schedule, "tile", [way]):
                if str(variant.module) != tiles:
                    with bindings.source_name(source):
                        begun.append((case, pipeline.begin_tiles(
                            variant.module, entry=entry, facts=variant.facts, **chip
                        )))  # fmt: skip
        bundle = base.finish()
        for case, variant in begun:
            found = variant.finish()
            bundle = bundle if _spilled(found) else add(bundle, found, case.condition)
        return bundle

    best: Any = None
    tried = ""
    for lowering in _lowerings(text, source, target, schedule, "tile"):
        tiles = str(lowering.module)
        if tiles == tried:  # this way changes nothing
            continue
        tried = tiles
        several = lowering.cases or lowering.way.few
        bundle = made_with_cases(lowering, tiles) if several else made(lowering)
        if best is None or _spilled(bundle) < _spilled(best):
            best = bundle
        if lowering.way.spills or not _spilled(best):
            break
    return best


def _spilled(bundle: Any) -> int:
    """Bytes that the threads of a bundle's kernels keep in memory for want of registers."""
    images = bundle.facts.get("images", ())
    return sum(kernel["spills"] for image in images for kernel in image["kernels"].values())


@bindings.exclusive
def emit_text(
    text: str, source: str, target: str, schedule: str | None, entry: str | None, level: str
) -> str:
    """The program at one of the target's own levels, as text.

    Raises:
        UsageError: the target has no such level.
    """
    pipeline = pipeline_of(target)
    levels = getattr(pipeline, "EMITS", ())
    if level not in levels:
        raise UsageError(
            f"target '{target}' has no level '{level}'",
            hint=", ".join((*COMMON_LEVELS, *levels, "bundle")),
        )
    lowering = next(_lowerings(text, source, target, schedule, "tile"))
    with bindings.source_name(source):
        chip = {} if target == "cpu" else {"target": target}
        return pipeline.emit_tiles(lowering.module, level, entry, **chip)


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
def compile_unfused(text: str, source: str, entry: str | None, *, vectorize: bool = True) -> Any:
    """The program as written, through upstream's loops: what results are checked against.

    Args:
        vectorize: False compiles several times sooner into code that runs slower.

    Raises:
        NeptuneError: the program has no lowering to loops.
    """
    from neptune_mlir.pipelines import cpu
    from neptune_mlir.runtime.function import FunctionExecutable

    lowering = Lowering.of_text(text, source, "cpu", None)
    with bindings.source_name(source):
        if count(lowering.module, "linalg.softmax"):
            schedules.apply(lowering.module, _DECOMPOSE, {}, "decompose")
        return FunctionExecutable(cpu.compile_unfused(lowering.module, entry, vectorize=vectorize))
