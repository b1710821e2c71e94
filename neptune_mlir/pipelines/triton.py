# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR to NVIDIA and AMD code by way of Triton: `triton:sm_90a`, `triton:gfx942`.

The route of the Neptune paper, a fallback for chips without a lowering of our own, and a second
opinion on them. Kernels take the same arguments as those of `pipelines/nvvm.py` (and two
pointers that Triton adds), so the same runtime launches both.
"""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from neptune_mlir.analysis.tiles import is_tensor, nested, shape_of, tuned
from neptune_mlir.codegen.gpu.host import GpuHost, KernelSignature
from neptune_mlir.codegen.triton import tool
from neptune_mlir.codegen.triton.tool import Binary
from neptune_mlir.codegen.triton.ttir import TritonOptions, alignments, kernel_text
from neptune_mlir.errors import ToolError, UsageError
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Plan
from neptune_mlir.targets.amd import TARGETS as AMD
from neptune_mlir.targets.gpu import MULTIPROCESSORS, GpuTarget
from neptune_mlir.targets.nvidia import TARGETS as NVIDIA
from neptune_mlir.targets.resources import PRODUCT_WORDS
from neptune_mlir.transforms import registry

EMITS = ("ttir", "ttgir", "llvm", "ptx", "amdgcn")
_LARGE_TILE = 128 * 128  # elements of an f32 tile that 4 warps cannot keep in registers
_MOST_WARPS = 8
# More hide more of memory's latency (decode on an H200: 1.46 times as fast with 4 as with 2);
# Triton's AMD pipeliner fails on some loops with 4.
_STAGES = {"nvidia": 4, "amd": 2}

# Streams in chunks: 2 programs a multiprocessor, counted at launch. Other programs have
# the tiles of the schedule; where code spills, products that hold fewer registers.
_PRIVATE = f"stream:32;least:16;chunks:0;programs:{2 * MULTIPROCESSORS};each:2;columns:32"
_HELD = tuple(f"held:{words};least:16" for words in PRODUCT_WORDS[1:])
_STREAMED = ("", *_HELD, "rows:16;stream:32")


def ways(target: str) -> tuple[Way, ...]:
    """How tile programs may be made, the best first; the next where code spills."""
    return tuple(
        Way({"streamed": knobs, "private": _PRIVATE}, spills=knobs == _STREAMED[-1])
        for knobs in _STREAMED
    )


def compile_tiles(
    module: Any,
    *,
    target: str,
    entry: str | None = None,
    facts: dict[str, Any] | None = None,
) -> Bundle:
    """The bundle of tile IR, compiled by Triton.

    Kernels have the number of warps, and at most the number of iterations whose loads are under
    way (`slots`), that somebody chose (`analysis.tiles.tuned`); else warps by the size of their
    tiles, more where code spills, and the slots that suit the vendor.

    Args:
        module: consumed.
        target: "triton:" and one chip or several, separated by commas; none of two vendors.

    Raises:
        LoweringError: the program has something that Triton cannot express.
        ToolError: Triton is missing or failed.
        UsageError: no such target.
    """
    chips = _chips(target)
    with registry.collect_remarks() as remarks:
        signatures, texts, settings, plan = _print(module, entry, _vendor(chips[0]))
    jobs = [(chip, k) for chip in chips for k in range(len(texts))]
    with ThreadPoolExecutor(2) as pool:  # each job waits for a process of its own
        made = list(
            pool.map(
                lambda job: _compile(texts[job[1]], job[0], *settings[job[1]]),
                jobs,
            )
        )
    images, code = [], b""
    for chip in chips:
        binaries = [b for (name, _), b in zip(jobs, made, strict=True) if name == chip]
        kernels = {}
        start = len(code)
        for signature, binary in zip(signatures, binaries, strict=True):
            kernels[signature.name] = {"offset": len(code), "size": len(binary.code),
                                       "hidden": tool.HIDDEN_POINTERS,
                                       **_figures(chip, binary)}  # fmt: skip
            code += binary.code
        images.append({"target": chip, "offset": start, "size": len(code) - start,
                       "kernels": kernels, "tools": sorted({b.tool for b in binaries}),
                       "notes": _notes(kernels)})  # fmt: skip
    facts = {} if facts is None else facts
    facts.setdefault("remarks", []).extend(dict.fromkeys(str(r) for r in remarks))
    above = facts.pop("missed", [])
    own = [miss for miss in registry.misses(remarks) if miss not in above]
    facts["images"] = [{**image, "missed": [*above, *own]} for image in images]
    units: dict[tuple[str, int], int] = {}
    for signature in signatures:
        for place, unit in signature.alignment.items():
            units[place] = max(units.get(place, 1), unit)
    facts["alignment"] = [[*place, unit] for place, unit in sorted(units.items())]
    return Bundle(target, plan, code, facts)


def _compile(text: str, chip: str, warps: int, wanted: int, stages: int) -> Binary:
    """A kernel's code: with fewer `stages` where they do not fit in shared memory, and, unless
    somebody chose the number of warps, with twice as many where registers spill."""
    known = _known(chip)
    best = tool.compile_kernel(text, chip, warps=warps or wanted, stages=stages)
    while known is not None and best.shared > known.shared_block:
        if stages == 1:
            raise ToolError(
                f"kernel '{best.name}' needs {best.shared} bytes of shared memory; {chip} has "
                f"{known.shared_block}", hint="use smaller tiles",
            )  # fmt: skip
        stages -= 1
        best = tool.compile_kernel(text, chip, warps=warps or wanted, stages=stages)
    if best.spills and not warps and wanted < _MOST_WARPS:
        more = _compile(text, chip, 0, 2 * wanted, stages)
        best = min(best, more, key=lambda binary: binary.spills)
    return best


def emit_tiles(module: Any, level: str, entry: str | None, target: str = "triton:sm_90a") -> str:
    """The kernels as text at one of EMITS: "ttir" as written here, the others by Triton.

    Raises:
        UsageError: a level of another vendor.
    """
    chip = _chips(target)[0]
    if level == ("amdgcn" if _vendor(chip) == "nvidia" else "ptx"):
        raise UsageError(f"target '{target}' has no level '{level}'")
    _, texts, settings, _ = _print(module, entry, _vendor(chip))
    if level != "ttir":
        texts = [
            tool.compile_kernel(text, chip, warps=warps or wanted, stages=stages, level=level).text
            for text, (warps, wanted, stages) in zip(texts, settings, strict=True)
        ]
    return "\n".join(texts)


def _print(
    module: Any, entry: str | None, vendor: str
) -> tuple[list[KernelSignature], list[str], list[tuple[int, int, int]], Plan]:
    """The kernels, the TTIR and the settings of each, and the plan."""
    library = "nv" if vendor == "nvidia" else "ocml"
    with module.context, ir.Location.unknown():
        passmanager.PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)
        host = GpuHost.find(module, entry or "")
        signatures = host.read()
        texts = [
            kernel_text(s, TritonOptions(library, narrow=bool(tuned(s.forall, "narrow", 1))))
            for s in signatures
        ]
        for signature in signatures:
            signature.alignment = alignments(signature)
        settings = [_settings(s, vendor) for s in signatures]
        return signatures, texts, settings, host.finish(module)


def _settings(signature: KernelSignature, vendor: str) -> tuple[int, int, int]:
    """Warps that somebody chose (0: nobody did), warps by the rule, and stages of a kernel."""
    slots = tuned(signature.forall, "slots", 0) or _STAGES[vendor]
    return tuned(signature.forall, "warps", 0), _warps(signature), slots


def _warps(signature: KernelSignature) -> int:
    """4 warps, or 8 where a tile is too large for the registers of 4."""
    largest = 0
    for op in nested(signature.forall.regions[0].blocks[0]):
        for value in op.results:
            if is_tensor(value) and ir.RankedTensorType(value.type).has_static_shape:
                largest = max(largest, math.prod(shape_of(value)))
    return 8 if largest >= _LARGE_TILE else 4


def _chips(target: str) -> list[str]:
    chips = [c.strip() for c in target.removeprefix("triton").removeprefix(":").split(",")]
    chips = [c.removeprefix("triton:") for c in chips if c]
    vendors = {_vendor(c) for c in chips}
    if len(vendors) != 1 or "" in vendors:
        raise UsageError(
            f"unknown target '{target}'", hint="triton:sm_80, triton:sm_90a, triton:gfx942, ..."
        )
    return chips


def _known(chip: str) -> GpuTarget | None:
    """What we know of a chip; Triton has more than we do."""
    return NVIDIA.get(chip) or AMD.get(chip)


def _vendor(chip: str) -> str:
    """"nvidia", "amd", or "" for a chip of neither."""
    if chip in NVIDIA:
        return "nvidia"
    return "amd" if re.fullmatch(r"gfx\d+[0-9a-f]{2}", chip) else ""


def _figures(chip: str, binary: Binary) -> dict[str, int]:
    found = {"threads": binary.threads, "shared": binary.shared, "registers": binary.registers,
             "spills": binary.spills}  # fmt: skip
    known = _known(chip)
    if known is not None:
        found["blocks_per_sm"] = known.blocks_per_sm(
            binary.threads, binary.registers, binary.shared
        )
    return found


def _notes(kernels: dict[str, dict[str, int]]) -> list[str]:
    return [
        f"kernel '{name}' spills: it has {info['spills']} bytes of stack a thread"
        for name, info in kernels.items()
        if info["spills"]
    ]
