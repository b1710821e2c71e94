# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What compiling for NVIDIA and for AMD shares: kernels to LLVM IR, images to a bundle."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from neptune_mlir.algebra.numerics.remembered import settle
from neptune_mlir.codegen import llvm_child
from neptune_mlir.codegen.gpu.host import GpuHost, KernelFacts
from neptune_mlir.dialects.attributes import PLAN
from neptune_mlir.errors import LoweringError, ToolError
from neptune_mlir.ir.bindings import ir, llvm
from neptune_mlir.pipelines import common, runner
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.targets.gpu import GpuTarget
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.fast_paths import UNSPILLED, missed
from neptune_mlir.transforms.hopper.specialize_warps import GROUP


@dataclass(frozen=True)
class Compiled:
    """Machine code for one architecture. `kernels` is, by name: threads, shared (bytes),
    registers, spills (bytes a thread), blocks_per_sm, resident (1: a launch has no more blocks
    than the chip runs at once), follows (1: the kernel waits by itself for the one before it in
    the plan, so it may be launched while that runs; 2: for any before it). `facts`: what else the
    image says of itself."""

    code: bytes
    kernels: dict[str, dict[str, int]]
    plan: Plan
    alignment: dict[tuple[str, int], int]
    warnings: list[str]
    tools: list[str]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Begun:
    """A compilation whose code generator and assembler run in the background; `wait` waits for
    them. `plan` is known before."""

    plan: Plan
    wait: Callable[[], Any]

    def finish(self) -> Any:
        """What was made. What was taken for granted is found out while code generators run."""
        settle()
        return self.wait()


def begin_images(
    module: Any, target: str, facts: dict[str, Any] | None,
    begin_one: Callable[[Any, str], Begun],
) -> Begun:  # fmt: skip
    """A bundle with an image for each architecture of `target` (names, separated by commas).

    Args:
        module: tile IR; each architecture gets a copy.
        begin_one: begins the image of one: what it finishes is a `Compiled`.
    """
    llvm_child.start()
    text, begun = str(module), []
    for name in map(str.strip, target.split(",")):

        def begin(name: str = name) -> tuple[Begun, list[registry.Remark]]:
            with registry.collect_remarks() as found:
                return begin_one(module.operation.clone(), name), found

        begun.append((name, *common.begun(name, text, begin)))

    def finish() -> Bundle:
        bundles = [_image(name, one, found) for name, one, found in begun]
        joined = join(target, bundles)
        own = {} if facts is None else facts
        remarks = [*own.get("remarks", ()), *joined.facts["remarks"]]
        above = own.pop("missed", [])  # on the way to tiles
        for image in joined.facts["images"]:
            image["missed"] = [*above, *(m for m in image["missed"] if m not in above)]
        own.update(joined.facts, remarks=remarks)
        return Bundle(target, joined.plan, joined.code, own)

    return Begun(begun[0][1].plan, finish)


def _image(name: str, begun: Begun, before: Sequence[Any]) -> Bundle:
    """`before`: remarks of its beginning."""
    with registry.collect_remarks() as found:
        made = begun.finish()
    image = {"target": name, "offset": 0, "size": len(made.code), "kernels": made.kernels,
             "tools": made.tools, "notes": made.warnings,
             "missed": registry.misses((*before, *found)), **made.facts}  # fmt: skip
    alignment = [[*place, unit] for place, unit in sorted(made.alignment.items())]
    remarks = [str(r) for r in (*before, *found)]
    own = {"images": [image], "alignment": alignment, "remarks": remarks}
    return Bundle(name, made.plan, made.code, own)


def compile_images(
    module: Any, target: str, facts: dict[str, Any] | None,
    compile_one: Callable[[Any, str], Compiled],
) -> Bundle:  # fmt: skip
    """`begin_images`, finished, of what is compiled one after the other."""

    def begin_one(copy: Any, name: str) -> Begun:
        made = compile_one(copy, name)
        return Begun(made.plan, lambda: made)

    bundle: Bundle = begin_images(module, target, facts, begin_one).finish()
    return bundle


_begun: WeakValueDictionary[Hashable, Future[Any]] = WeakValueDictionary()


def background(work: Callable[[], Any], of: Hashable = None) -> Callable[[], Any]:
    """Start a thread; what it returns waits for the result, or raises what `work` raised.

    Args:
        of: all that the result depends on. Who asks for the same while another still holds what
            was returned gets that: images of a program are often of the same code.
    """
    if of is not None and (before := _begun.get(of)) is not None:
        return before.result
    result: Future[Any] = Future()
    if of is not None:
        _begun[of] = result
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result.set_result(context.run(work))
        except BaseException as error:  # for whoever waits
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result


def join(target: str, bundles: Sequence[Bundle]) -> Bundle:
    """One bundle of several for the same program. The first one's plan is the bundle's; an image
    that is launched otherwise has a plan of its own, and the alignment that goes with it."""
    plan, code = bundles[0].plan, b""
    facts = dict(bundles[0].facts, images=[], remarks=[])
    alignment: dict[tuple[str, int], int] = {}
    for bundle in bundles:
        own: dict[str, Any] = {}
        if bundle.plan != plan:
            own = {"plan": bundle.plan.to_json(), "alignment": bundle.facts["alignment"]}
        facts["images"] += [
            {**own, **image, "offset": image["offset"] + len(code)}
            for image in bundle.facts["images"]
        ]
        facts["remarks"] = list(dict.fromkeys([*facts["remarks"], *bundle.facts["remarks"]]))
        for kind, number, unit in bundle.facts["alignment"] if not own else ():
            alignment[kind, number] = max(alignment.get((kind, number), 1), unit)
        code += bundle.code
    facts["alignment"] = [[*place, unit] for place, unit in sorted(alignment.items())]
    return Bundle(target, plan, code, facts)


def describe(
    kernels: Sequence[KernelFacts], chip: GpuTarget, used: Mapping[str, tuple[int, int]]
) -> dict[str, dict[str, int]]:
    """The figures of each kernel, for the bundle; spills are warned of.

    Args:
        used: registers and spilled bytes of a thread, by kernel.

    Raises:
        ToolError: the tools say nothing of a kernel.
    """
    infos = {}
    for kernel in kernels:
        if kernel.name not in used:
            raise ToolError(f"the compiled code has no kernel '{kernel.name}'")
        registers, spills = used[kernel.name]
        if spills:
            text = f"kernel '{kernel.name}' spills {spills} bytes a thread on {chip.name}"
            missed(ir.Location.unknown(), UNSPILLED, text, kind="warning", message=text)
        infos[kernel.name] = {
            "threads": kernel.threads, "shared": kernel.shared, "registers": registers,
            "spills": spills, "follows": int(kernel.follows),
            "blocks_per_sm": chip.blocks_per_sm(kernel.threads, registers, kernel.shared),
            "resident": int(kernel.resident), "consumers": _consumers(kernel, chip),
            **({"cluster": kernel.cluster} if kernel.cluster > 1 else {}),
        }  # fmt: skip
    return infos


def _consumers(kernel: KernelFacts, chip: GpuTarget) -> int:
    """Warp groups that compute, beside one that loads; 0: its warps have no roles."""
    return kernel.threads // chip.wave // GROUP - 1 if kernel.specialized else 0


def alignment_of(kernels: Sequence[KernelFacts]) -> dict[tuple[str, int], int]:
    """Bytes that the addresses and strides of arrays must be aligned to."""
    alignment: dict[tuple[str, int], int] = {}
    for kernel in kernels:
        for kind, number, unit in kernel.alignment:
            alignment[kind, number] = max(alignment.get((kind, number), 1), unit)
    return alignment


# Tile IR comes clean (`common.TO_TILES`); two programs that became one both load.
MERGE = (Step("merge-programs"), Step("longest-first"), Step("canonicalize"), Step("cse"))


def outline_rest(target: str) -> tuple[Step, ...]:
    """Make kernels, a thread for each point, of what is outside of all kernels in tile IR."""
    return (
        Step("tensor-to-generic"),
        Step("points-to-kernels", {"target": target}),
        Step("sink-reads"),
    )


def to_llvm_dialect(conversion: str) -> tuple[Step, ...]:
    """From `gpu.func`s to the LLVM dialect.

    Args:
        conversion: the pass that converts `gpu` to the chip's dialect, with options; it takes
            arith, cf and vector along.
    """
    # `cse` first, and canonicalize from the bottom: a quarter of the ops are dead, and it takes
    # long to find them. LLVM merges blocks (`region-simplify`) itself.
    # 32-bit positions: an axis has less than 2^31 elements; addresses are 64-bit all the same.
    inside = (
        "cse", "canonicalize{top-down=false region-simplify=disabled}", "cse", "arith-expand",
        "convert-scf-to-cf", conversion, "canonicalize{region-simplify=disabled}", "cse",
    )  # fmt: skip
    kernels = runner.parse_pipeline(f"gpu.module({','.join(inside)})")
    return (Step("math-to-gpu"), Step("lower-affine"), *kernels)


def sketch(module: Any, chip: str, entry: str | None) -> Plan:
    """The launch plan of tile IR but for what only code generation knows: which kernels, in which
    order, and how many programs each has."""
    copy = module.operation.clone()
    with copy.context, ir.Location.unknown():
        common.run(copy, (*MERGE, *outline_rest(chip)))
        host = GpuHost.find(copy, entry or "")
        host.read()
        return host.plan()


def plan_of(module: Any) -> Plan:
    """The launch plan that `distribute-tiles` left."""
    return Plan.from_json(PLAN.of(module.operation))


def kernels_of(module: Any) -> Any:
    """The `gpu.module`."""
    kernels = next(op for op in module.body.operations if op.operation.name == "gpu.module")
    return kernels.operation


def translate(kernels: Any) -> str:
    """LLVM IR text of a lowered `gpu.module`."""
    check_translatable(kernels)
    return str(llvm.translate_module_to_llvmir(kernels))


def check_translatable(operation: Any) -> None:
    """Raise LoweringError on an op that translation to LLVM IR would die on."""
    foreign: set[str] = set()

    def visit(op: Any) -> Any:
        if op.name.split(".")[0] not in ("llvm", "nvvm", "rocdl") and op.name != "gpu.module":
            foreign.add(op.name)
        return ir.WalkResult.ADVANCE

    operation.walk(visit)
    if foreign:
        raise LoweringError(f"no lowering to LLVM for {', '.join(sorted(foreign))}")
