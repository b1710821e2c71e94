# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Clock samples: a kernel that writes down when it waits, copies and multiplies.

    with clock_samples.recording():
        bundle = compile(...)
    bundle.facts["images"][0]["clock_samples"]["attention_0"]     # what its samples mean

While recording, the PTX of every kernel gets samples before and after each *site*: an instruction
that waits, starts a copy or issues matrix products (`KINDS`), and the kernel as a whole. The
first lane of each warp of the first `BLOCKS` blocks appends pairs of 32-bit words, clock and tag,
to its part of a global array. The kernels themselves know nothing of it, whatever wrote them.
Images may have kernels of the same name, so that what samples mean is said of each image.

A sample takes about ten cycles and a few registers, so a sampled kernel is a little slower.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

BLOCKS = 4  # that write samples: the first of the grid
CAPACITY = 16384  # samples of a warp, a power of two
BYTES = 8  # of a sample
KERNEL = "kernel"  # site 0
PRODUCTS, BARRIER = "wait for products", "wait for an mbarrier"

# what a site does, by the first that its text contains
KINDS = {
    "wgmma.mma_async": "issue products",
    "wgmma.wait_group": PRODUCTS,
    "cp.async.bulk.tensor": "start a copy",
    "mbarrier.try_wait": BARRIER,
    "cp.async.wait_group": "wait for copies",
    "cp.async.bulk.wait_group": "wait for copies",
    "bar.sync": "wait for threads",
    "barrier.sync": "wait for threads",
}

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(")
_THREADS = re.compile(r"\.maxntid\s+(\d+)")
_BEGIN, _END = "// begin inline asm", "// end inline asm"
_PENDING = re.compile(r"wgmma\.wait_group\.sync\.aligned\s+(\d+)")


@dataclass(frozen=True)
class Sampled:
    """What the samples of a kernel mean.

    Attributes:
        symbol: the global array: `BLOCKS` x `warps` x `CAPACITY` samples, those never written 0.
        warps: of a block.
        sites: kinds by number. A sample at the start of site k has the tag 2 k + 1, at its end
            2 k + 2.
        pending: by site, how many groups of products a wait leaves under way.
    """

    symbol: str
    warps: int
    sites: list[str]
    pending: dict[int, int]

    def as_json(self) -> dict[str, Any]:
        return {"symbol": self.symbol, "warps": self.warps, "sites": self.sites,
                "pending": sorted(self.pending.items())}  # fmt: skip

    @staticmethod
    def from_json(data: dict[str, Any]) -> Sampled:
        pending = {int(site): int(left) for site, left in data["pending"]}
        return Sampled(data["symbol"], data["warps"], data["sites"], pending)


_recording: ContextVar[bool] = ContextVar("recording", default=False)


@contextmanager
def recording() -> Iterator[None]:
    """What is compiled for NVIDIA inside has samples."""
    token = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(token)


def instrument(ptx: str) -> tuple[str, dict[str, Sampled]]:
    """While recording, the PTX with samples and what they mean, by kernel; else the PTX as it is
    and nothing."""
    if not _recording.get():
        return ptx, {}
    kernels: dict[str, Sampled] = {}
    out: list[str] = []
    lines = iter(ptx.splitlines())
    for line in lines:
        entry = _ENTRY.search(line)
        if entry is None:
            out.append(line)
            continue
        name = entry[1]
        text, sampled = _kernel(name, [line, *_body(lines)])
        size = BLOCKS * sampled.warps * CAPACITY * BYTES
        out.append(f".visible .global .align 16 .b8 {sampled.symbol}[{size}];")
        out += text
        kernels[name] = sampled
    return "\n".join(out) + "\n", kernels


def _body(lines: Iterator[str]) -> Iterator[str]:
    """The rest of a kernel, up to the brace in the first column that ends it."""
    inline = False  # which may have such a brace too
    for line in lines:
        yield line
        inline = line.strip() == _BEGIN or (inline and line.strip() != _END)
        if line.startswith("}") and not inline:
            return


def _kernel(name: str, lines: list[str]) -> tuple[list[str], Sampled]:
    found = _THREADS.search("\n".join(lines))
    warps = -(-int(found[1]) // 32) if found else 32
    sampled = Sampled(f"{name}_clock_samples", warps, [KERNEL], {})
    body = next(k for k, line in enumerate(lines) if line.startswith("\t.reg"))
    while lines[body].startswith("\t.reg"):  # blocks have registers of their own behind these
        body += 1
    out = [*lines[:body], *_start(sampled), *_sample(1, sampled.symbol)]
    for block in _without_gates(_blocks(iter(lines[body:]))):
        out += _around(block, sampled)
    return out, sampled


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Single lines, and inline PTX as a whole."""
    for line in lines:
        block = [line]
        if line.strip() == _BEGIN:
            while block[-1].strip() != _END:
                block.append(next(lines))
        yield block


def _without_gates(blocks: Iterator[list[str]]) -> list[list[str]]:
    """A wait directly before one for products is a gate, which keeps arithmetic from moving there
    (docs/nvidia.md). Both become one block: a sample between them would be a place to move it to,
    and factors of the next product that are computed there have all products run one by one."""
    out: list[list[str]] = []
    for block in blocks:
        if out and _kind(out[-1]) == BARRIER and _kind(block) == PRODUCTS:
            out[-1] += block
        else:
            out.append(block)
    return out


def _kind(block: list[str]) -> str | None:
    text = "\n".join(block)
    return next((kind for token, kind in KINDS.items() if token in text), None)


def _around(block: list[str], sampled: Sampled) -> list[str]:
    """An instruction, or inline PTX, with samples if it is a site."""
    text = "\n".join(block)
    if text.strip() == "ret;":
        return [*_sample(2, sampled.symbol), *block]
    kind = _kind(block)
    if kind is None:
        return block
    site = len(sampled.sites)
    sampled.sites.append(kind)
    if left := _PENDING.search(text):
        sampled.pending[site] = int(left[1])
    begin, end = (_sample(2 * site + k, sampled.symbol) for k in (1, 2))
    return [*begin, *block, *end]


def _start(sampled: Sampled) -> list[str]:
    """Registers of the whole kernel: where in the array the next sample goes, and whether this
    thread writes any."""
    return [
        "\t.reg .b64 %sample_at, %sample_from;",
        "\t.reg .b32 %sample_next, %sample_clock, %sample_tag;",
        "\t.reg .pred %sample_on;",
        "\tmov.u32 %sample_clock, %ctaid.x;",
        f"\tsetp.lt.u32 %sample_on, %sample_clock, {BLOCKS};",
        "\tmov.u32 %sample_tag, %laneid;",
        "\tsetp.eq.and.u32 %sample_on, %sample_tag, 0, %sample_on;",
        "\tmov.u32 %sample_tag, %tid.x;",
        "\tshr.u32 %sample_tag, %sample_tag, 5;",
        f"\tmad.lo.u32 %sample_tag, %sample_clock, {sampled.warps}, %sample_tag;",
        f"\tmul.lo.u32 %sample_next, %sample_tag, {CAPACITY * BYTES};",
    ]


def _sample(tag: int, symbol: str) -> list[str]:
    return [
        "\tmov.u32 %sample_clock, %clock;",
        f"\tmov.u32 %sample_tag, {tag};",
        f"\tmov.u64 %sample_from, {symbol};",
        "\tcvt.u64.u32 %sample_at, %sample_next;",
        "\tadd.s64 %sample_at, %sample_at, %sample_from;",
        "\t@%sample_on st.global.v2.b32 [%sample_at], {%sample_clock, %sample_tag};",
        f"\tadd.s32 %sample_next, %sample_next, {BYTES};",
        # room ends where that of the next warp begins
        f"\tand.b32 %sample_tag, %sample_next, {CAPACITY * BYTES - 1};",
        "\tsetp.ne.and.s32 %sample_on, %sample_tag, 0, %sample_on;",
    ]
