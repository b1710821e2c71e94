# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to AMD code: layouts, distribution, ROCDL, an object file, HSACO."""

from __future__ import annotations

import functools
from typing import Any

from neptune_mlir.analysis.tiles import element_bytes
from neptune_mlir.codegen.amd import amdgcn, hsaco
from neptune_mlir.codegen.gpu.host import facts_of
from neptune_mlir.errors import OutOfMemory, ToolError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import common, gpu, runner
from neptune_mlir.pipelines.gpu import Compiled
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Launch, Plan
from neptune_mlir.targets.amd import AmdTarget, amd
from neptune_mlir.targets.resources import PRODUCT_WORDS
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.registry import remark

# Tiles of streamed reductions by lanes of a wave, the largest first; the first that fits is taken.
# 128 rows are 32 for each of 4 waves of 64, and the larger matrix instruction; waves of 32 have
# half the registers for them. What a loop streams is under way in registers: 32 at once.
_TILES = {
    64: (f"held:{PRODUCT_WORDS[0]};stream:32;least:16", "stream:32;least:16", "stream:16;least:16",
         "rows:16;stream:16"),
    32: ("stream:32;least:16", "stream:16;least:16", "rows:16;stream:16"),
}  # fmt: skip
# Fewer words of tiles without products, where code spills in all ways of these: lanes of a wave of
# 32 have twice as many, and what is computed of each takes registers as well.
_FEWER = ("words:2048", "words:1024")
# Streams in chunks: 2 programs a compute unit, so that one computes while the other waits. A
# program with few rows is one wave, and has what it streams in the registers of that wave.
_CHUNKS = "product_stream:{};least:16;chunks:0;programs:{};each:2;columns:32"


def ways(target: str) -> tuple[Way, ...]:
    """The tile sizes to try on a chip, each if shared memory holds its tiles; the first whose code
    spills no register is taken."""
    chip = amd(target)
    shared = chip.shared_block >> 10
    private = f"{_CHUNKS.format(chip.wave // 2, 2 * chip.units)};shared:{shared}"
    # Then the rule by what a block can have: it cuts streams inside streams, too. It does not count
    # what lies between factors, so there is one more with a half.
    rules = [f"held:{PRODUCT_WORDS[0]};shared:{n};least:16" for n in (shared, shared // 2)]
    tiles = _TILES[chip.wave]
    sizes = [(streamed, "") for streamed in (*tiles, *rules)]
    sizes += [(streamed, f";{words}") for words in _FEWER for streamed in (tiles[0], *rules)]
    fused = (
        Way(
            {"streamed": streamed + fewer, "ahead": streamed + fewer, "private": private + fewer},
            suits=functools.partial(_fits, chip), spills=(streamed, fewer) == sizes[-1],
        )
        for streamed, fewer in sizes
    )  # fmt: skip
    return (*fused, Way.unfused(shared))


def _fits(chip: AmdTarget, module: Any) -> bool:
    """Whether every kernel of a tile program gets by with the shared memory of a block."""
    entries = [op.name.value for op in module.body.operations if op.operation.name == "func.func"]
    try:
        with module.context, ir.Location.unknown(), registry.collect_remarks():
            for entry in entries:
                trial = module.operation.clone()
                common.run(trial, to_kernels(chip, entry))
    except OutOfMemory as error:
        with ir.Location.unknown(module.context):
            remark(ir.Location.current, f"smaller tiles: {error.message}")
        return False
    return True


EMITS = ("target", "llvm", "asm")  # the levels below tile IR that `emit_tiles` shows


def compile_tiles(
    module: Any, *, target: str = "gfx942", entry: str | None = None,
    facts: dict[str, Any] | None = None,
) -> Bundle:  # fmt: skip
    """The bundle of tile IR for AMD architectures.

    Args:
        module: consumed.
        target: one architecture or several, separated by commas.

    Raises:
        LoweringError: the program cannot be lowered.
        ToolError: the code generator or the linker failed, or made what cannot be launched.
    """
    return gpu.compile_images(
        module, target, facts, lambda m, name: _compile_one(m, amd(name), entry or "")
    )


def emit_tiles(module: Any, level: str, entry: str | None = None, target: str = "gfx942") -> str:
    """A function in tile IR at a lower level, as text (changes `module`)."""
    chip = amd(target)
    with module.context, ir.Location.unknown():
        common.run(module, to_kernels(chip, entry or ""))
        if level == "target":
            return str(module)
        text = to_llvm(module, chip)
    return text if level == "llvm" else amdgcn.assembly(text, chip)


def _compile_one(module: Any, chip: AmdTarget, entry: str) -> Compiled:
    with module.context, ir.Location.unknown():
        common.run(module, to_kernels(chip, entry))
        kernels, plan = facts_of(module), gpu.plan_of(module)
        text = to_llvm(module, chip)
    if dump := runner.StageDump.from_environment():
        dump.write("llvm", text, "ll")
        dump.write("asm", amdgcn.assembly(text, chip), "s")
    code = _without_scratch(text, chip)
    target, notes = hsaco.read_notes(code)
    if not target.endswith(f"-{chip.name}"):
        raise ToolError(f"the code generator made code for {target}, not {chip.name}")
    launches = {launch.kernel: launch for launch in plan.launches}
    for kernel in kernels:
        if kernel.name in notes:
            hsaco.check(
                notes[kernel.name], argument_sizes(plan, launches[kernel.name]),
                threads=kernel.threads, shared=kernel.shared, wave=chip.wave,
            )  # fmt: skip
    used = {name: (found.registers, found.scratch) for name, found in notes.items()}
    with ir.Location.unknown(module.context):
        infos = gpu.describe(kernels, chip, used)
    tools = [amdgcn.linker_version()]
    return Compiled(code, infos, plan, gpu.alignment_of(kernels), [], tools)


def _without_scratch(text: str, chip: AmdTarget) -> bytes:
    """The code of an LLVM IR module; where it keeps registers in scratch memory, with loops as they
    are, if that needs less. LLVM unrolls a loop over the depth of a product on FMA and moves all of
    its loads to the front."""
    code = amdgcn.hsaco(text, chip)
    needed = _scratch(code)
    if not needed:
        return code
    rolled = amdgcn.hsaco(text, chip, unroll=False)
    return rolled if _scratch(rolled) < needed else code


def _scratch(code: bytes) -> int:
    """Bytes of scratch memory of a thread, of all kernels."""
    return sum(found.scratch for found in hsaco.read_notes(code)[1].values())


def argument_sizes(plan: Plan, launch: Launch) -> list[int]:
    """Bytes of each argument of a launch, in order: an address and the strides of all but the
    innermost dimension for an array, 32 bits for an index."""
    sizes: list[int] = []
    for kind, which, *_ in launch.operands:
        if kind == "value":
            sizes.append(4 if which == "index" else element_bytes(which))
        else:
            sizes += [8] * max(1, len(plan.array((kind, which)).shape))
    return sizes


def steps_of(module: Any, target: str, entry: str = "") -> list[Step]:
    """All passes from tile IR down to the LLVM dialect."""
    chip = amd(target)
    return [*to_kernels(chip, entry), *gpu.to_llvm_dialect(_conversion(chip))]


def to_kernels(chip: AmdTarget, entry: str) -> list[Step]:
    """Tile IR to `gpu.func`s and a plan."""
    return [
        *gpu.MERGE,
        Step("assign-layouts", {"target": chip.name}),
        Step("picks-first"),
        Step("defer-joins"),
        Step("keep-references"),
        *gpu.outline_rest(chip.name),
        Step("distribute-tiles", {"entry": entry}),
        Step("pace-products", {"target": chip.name}),
    ]


def _conversion(chip: AmdTarget) -> str:
    return (
        f"convert-gpu-to-rocdl{{chipset={chip.name} runtime=HIP index-bitwidth=32 "
        "use-bare-ptr-memref-call-conv=1}"
    )


def to_llvm(module: Any, chip: AmdTarget) -> str:
    """Lower the `gpu.module` in place and translate it to LLVM IR text."""
    common.run(module, gpu.to_llvm_dialect(_conversion(chip)))
    return gpu.translate(gpu.kernels_of(module))
