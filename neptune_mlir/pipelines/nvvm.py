# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to NVIDIA code: layouts, distribution, NVVM, PTX, cubin."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from neptune_mlir.codegen import clock_samples, sass
from neptune_mlir.codegen.gpu.host import facts_of
from neptune_mlir.codegen.nvidia import nvptx, ptxas
from neptune_mlir.errors import Refused
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import common, gpu, runner
from neptune_mlir.pipelines.cases import NO_PRODUCTS
from neptune_mlir.pipelines.gpu import Begun, Compiled
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.targets import resources
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.nvidia import NvidiaTarget, nvidia
from neptune_mlir.targets.resources import PRODUCT_WORDS
from neptune_mlir.transforms.hopper.specialize_warps import suits
from neptune_mlir.transforms.schedule.join_streams import are_faster_joined
from neptune_mlir.transforms.schedule.row_tiles import KEPT_ROWS, LEAST_ONCE, SHORT_ROWS


def _waiting(bits: int) -> tuple[str, str]:
    """Streams in chunks wait for memory: how many programs, with tiles under way in each, keep it
    busy (few chunks are cheap to join), and their tiles."""
    programs, elements = resources.waiting(bits)
    return f"programs:{programs * MULTIPROCESSORS};each:{programs}", f"product_stream:{elements}"


CUT, STREAM = _waiting(16)
NARROW = {"private": ";".join(_waiting(8))}  # for streams of 8-bit elements
PRIVATE = f"{STREAM};least:16;chunks:0;{CUT};columns:32"
HELD = f"held:{PRODUCT_WORDS[0]}"  # of streamed programs, and of streams that stay whole


def _cut(knobs: str) -> dict[str, str]:
    """Of the schedules that cut streams."""
    ahead = knobs.replace("product_stream:", "stream:")  # which is of products alone there
    return {"private": f"{knobs};{HELD}", "ahead_private": ahead}


# For calls with few rows, by rows of a tile: chunks that warp groups take, each with a
# multiprocessor alone (or all of the stream at once); 2 programs a multiprocessor, or 4 small ones.
CUT_GROUPS = {
    **_cut(f"warp_groups:1;chunks:0;programs:{MULTIPROCESSORS};each:1;columns:32"),
    "streamed": "warp_groups:1",
}
CUT_PORTABLE = (
    Way(
        _cut(PRIVATE.replace(STREAM, "stream:64")), least=64, most=64,
        smaller=("stream:32", "stream:16"),
    ),
    Way(
        _cut(PRIVATE.replace(CUT, f"programs:{4 * MULTIPROCESSORS};each:4")), least=32,
        most=32, smaller=("stream:16",),
    ),
    Way(
        {**_cut(PRIVATE), "streamed": "stream:32;least:16"}, least=1, most=16,
        smaller=("stream:16",),
    ),
    # rows without products: tiles by the rule, and twice as many programs
    Way(
        {"private": f"chunks:0;programs:{4 * MULTIPROCESSORS};each:4"}, least=NO_PRODUCTS,
        most=NO_PRODUCTS,
    ),
)  # fmt: skip
# Tiles of few rows that have a multiprocessor alone, for results so wide that chunks of large tiles
# are few: their warps share the columns, and long tiles of a stream are few.
SPARE = Way(
    _cut(f"product_stream:64;least:16;chunks:0;programs:{MULTIPROCESSORS};each:1;columns:32;warps:4"),
    least=16, most=16, spare=True,
)  # fmt: skip
KNOBS = {"streamed": f"{HELD};least:16", "private": f"{PRIVATE};{HELD}"}
CHUNKS = True  # kernels of their own for rows of whole chunks of 16 bytes
# Streams so short that one tile has a whole row, of rows whose length only a call knows: the
# longest first, for of several images that serve a call the last one counts.
_LEAST = {n: short.least for n, short in SHORT_ROWS.items()} | KEPT_ROWS
_LEAST |= {n: least for n, least in LEAST_ONCE.items() if n not in _LEAST}
SHORT_STREAMS = {
    "streamed": tuple((n, f"most:{n}", _LEAST[n]) for n in sorted(_LEAST, reverse=True))
}
WHOLE = ("streamed", "ahead", "scaled_ahead")  # schedules that cut no stream
# tile sizes of deep products, for programs that spill less and less
APART = ("rows:128;stream:128", "rows:128;stream:64", "rows:64;stream:64")


def ways(target: str) -> tuple[Way, ...]:
    """How tile programs may be made for a chip, the best first."""
    shared = nvidia(target).shared_block >> 10
    cut = tuple(way.within(shared) for way in CUT_PORTABLE)
    whole = Way(KNOBS).within(shared).knobs
    portable = tuple(
        Way(
            {**whole, **dict.fromkeys(WHOLE, sizes), "apart": f"{deep};{CUT}"},
            spills=held == PRODUCT_WORDS[-1],
            cut=cut,
            lengths=SHORT_STREAMS,
            narrow=NARROW if held == PRODUCT_WORDS[0] else {},
        )
        for held, deep in zip(PRODUCT_WORDS, APART, strict=True)
        for sizes in [f"held:{held};shared:{shared};least:16"]
    )
    if not nvidia(target).warp_groups:
        return (*portable, Way.unfused(shared))
    steps = (
        Step("turn-tiles", {"stays": "rows"}), Step("positions-ahead"), Step("specialize-warps"),
    )  # fmt: skip
    groups = Way(CUT_GROUPS, steps, suits, least=64, smaller=("stream:64",), needs="warp_groups")
    # of two groups, that wait for memory: with one, and in chunks, a third slot was slower
    pairs = replace(groups.bound("streamed", "waits:1"), least=128)
    cut = (replace(groups, most=64), pairs, *cut, SPARE.within(shared))
    portable = tuple(replace(way, cut=cut) for way in portable)
    specialised = {**whole, **dict.fromkeys(WHOLE, "warp_groups:1")}
    specialised["apart"] = f"warp_groups:1;{CUT}"
    few = {"streamed": ("few:1", "few:2"), "ahead": ("few:1",)}
    groups_alone = Way(
        specialised, steps, suits, few=few, cut=cut, needs="warp_groups", multiplies_bytes=True
    )
    joined = replace(groups_alone.bound("streamed", "joined:1"), applies=are_faster_joined)
    return (joined, groups_alone, *portable, Way.unfused(shared))


def compile_tiles(
    module: Any, *, target: str = "sm_80", entry: str | None = None,
    facts: dict[str, Any] | None = None,
) -> Bundle:  # fmt: skip
    """The bundle of tile IR for NVIDIA architectures.

    Args:
        module: consumed.
        target: one architecture or several, separated by commas.

    Raises:
        LoweringError: the program cannot be lowered.
        ToolError: the code generator or the assembler failed.
    """
    bundle: Bundle = begin_tiles(module, target=target, entry=entry, facts=facts).finish()
    return bundle


def begin_tiles(
    module: Any, *, target: str, entry: str | None, facts: dict[str, Any] | None
) -> Begun:
    """`compile_tiles`, but for waiting until the code generator and the assembler are done."""
    return gpu.begin_images(
        module, target, facts, lambda m, name: _begin_one(m, nvidia(name), entry or "")
    )


def _begin_one(module: Any, chip: NvidiaTarget, entry: str) -> Begun:
    with module.context, ir.Location.unknown():
        common.run(module, to_kernels(chip, entry))
        kernels, plan = facts_of(module), gpu.plan_of(module)
        text = to_llvm(module)
    context = module.context  # what waits below keeps no module alive
    dump = runner.StageDump.from_environment()

    def assemble() -> tuple[ptxas.Cubin, dict[str, clock_samples.Sampled]]:
        code, sampled = clock_samples.instrument(nvptx.ptx(text, chip))
        cubin = ptxas.assemble_without_spills(code, chip)
        if dump:
            dump.write("llvm", text, "ll")
            dump.write("ptx", code, "ptx")
            dump.write("sass", sass.disassembly(cubin.code), "sass")
        return cubin, sampled

    # (a dump numbers what each image writes)
    assembled = gpu.background(assemble, None if dump else (text, chip.name))

    def finish() -> Compiled:
        cubin, sampled = assembled()
        if any(kernel.specialized for kernel in kernels):
            _check_specialised(cubin)
        used = {
            name: (found.registers, found.spill_stores + found.spill_loads)
            for name, found in cubin.figures.items()
        }
        with ir.Location.unknown(context):
            infos = gpu.describe(kernels, chip, used)
        alignment = gpu.alignment_of(kernels)
        samples = {name: s.as_json() for name, s in sampled.items()}
        return Compiled(
            cubin.code, infos, plan, alignment, list(cubin.warnings), [cubin.tool],
            {"clock_samples": samples} if samples else {},
        )  # fmt: skip

    return Begun(plan, finish)


def _check_specialised(cubin: ptxas.Cubin) -> None:
    """Matrix products that the assembler runs one by one, or a refused register
    reallocation, undo what specialised warps are for. Raises Refused."""
    lost = [w for w in cubin.warnings if re.search(r"C75\d\d|serializ|setmaxnreg", w)]
    if lost:
        raise Refused(f"ptxas serialised a kernel of specialised warps: {lost[0]}")


EMITS = ("target", "llvm", "ptx", "sass")  # the levels below tile IR that `emit_tiles` shows
CONVERSION = "convert-gpu-to-nvvm{index-bitwidth=32 use-bare-ptr-memref-call-conv=1}"


def emit_tiles(module: Any, level: str, entry: str | None = None, target: str = "sm_80") -> str:
    """A function in tile IR at a lower level, as text (changes `module`)."""
    chip = nvidia(target)
    with module.context, ir.Location.unknown():
        common.run(module, to_kernels(chip, entry or ""))
        if level == "target":
            return str(module)
        text = to_llvm(module)
    if level == "llvm":
        return text
    code = nvptx.ptx(text, chip)
    if level == "ptx":
        return code
    return sass.disassembly(ptxas.assemble_without_spills(code, chip).code)


def steps_of(module: Any, target: str, entry: str = "") -> list[Step]:
    """All passes from tile IR down to the LLVM dialect."""
    return [*to_kernels(nvidia(target), entry), *gpu.to_llvm_dialect(CONVERSION)]


def to_kernels(chip: NvidiaTarget, entry: str) -> list[Step]:
    """Tile IR to `gpu.func`s and a plan. (Warps are those of a producer and consumers where
    `specialize-warps` said so, in the steps of a way.)"""
    found = [
        *gpu.MERGE,
        Step("assign-layouts", {"target": chip.name}),
        Step("picks-first"),
        Step("defer-joins"),
        *([Step("interleave-factors"), Step("sums-in-fragments")] if chip.warp_groups else []),
        Step("partition-warps"),
        *([Step("form-clusters")] if chip.warp_groups else []),
        Step("keep-references"),
    ]
    if chip.warp_groups:
        asynchronous = (
            "hold-references", "lazy-rescaling", "split-matmuls", "run-on-products",
            "schedule-loops", "pipeline-loops", "make-once",
        )  # fmt: skip
        found += map(Step, asynchronous)
    return [*found, *gpu.outline_rest(chip.name), Step("distribute-tiles", {"entry": entry})]


def to_llvm(module: Any) -> str:
    """Lower the `gpu.module` in place and translate it to LLVM IR text."""
    common.run(module, gpu.to_llvm_dialect(CONVERSION))
    kernels = gpu.kernels_of(module)
    _keep_constants_in_place(kernels)
    return gpu.translate(kernels)


def _keep_constants_in_place(kernels: Any) -> None:
    """Arguments passed by value are constants of the grid: without this LLVM copies them first.

    (`gpu.func` cannot carry the attribute, so it is set on what became of it.)
    """
    for op in kernels.regions[0].blocks[0].operations:
        attributes = op.operation.attributes
        if op.operation.name != "llvm.func" or "arg_attrs" not in attributes:
            continue
        by_value = {
            "nvvm.grid_constant": ir.UnitAttr.get(),
            "llvm.byval": ir.TypeAttr.get(ir.Type.parse("!llvm.array<128 x i8>")),
        }
        found = []
        for argument in map(ir.DictAttr, attributes["arg_attrs"]):
            known = {entry.name: entry.attr for entry in argument}
            # the conversion keeps the alignment of a tensor map and drops that it is a value
            found.append(ir.DictAttr.get(known | by_value if "llvm.align" in known else known))
        attributes["arg_attrs"] = ir.ArrayAttr.get(found)
