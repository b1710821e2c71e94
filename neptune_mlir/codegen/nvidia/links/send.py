# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What warps of a kernel send to another device while the kernel runs.

Three of the four warps of a producer's group are idle. Where a mask ends what programs read, they
send the other device what it waits for, if a launch says so (`runtime.shards.gift`, a record behind
the tensor maps): no copy engine has to be started, and nothing takes a multiprocessor. Chunks of
all lanes go in turns, from the last positions down, in two steps; the last warp to end a step
writes the other device's word, so no warp waits for another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neptune_mlir.codegen.gpu.memory import under
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.codegen.nvidia.program_order import lengths_differ
from neptune_mlir.runtime.shards.gift import CHUNK, LOADS, OFFSETS
from neptune_mlir.targets import warp_groups

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

SPARE = warp_groups.GROUP_WARPS - 1  # warps of a block
_WIDTH = 16  # bytes that a lane loads at once


def gives(kernel: SpecializedWriter) -> bool:
    """Whether a kernel can send: where a mask ends what programs read, all that wait may wait at
    once."""
    return (
        bool(kernel.in_two) and lengths_differ(kernel)
        and (kernel.groups, kernel.blocks) in warp_groups.GIVING
    )  # fmt: skip


def give(kernel: SpecializedWriter, warp: Any) -> None:
    """What the warps behind the producer's do."""
    s = kernel.s
    with under(s, s.less(s.value(kernel.warps), warp)):
        number = s.value(s.sub(warp, kernel.warps + 1), s.i32)
        hopper.asm(_SEND, "l,r,~{memory}", [kernel.boxes.take_gift(), number])


def _field(name: str) -> str:
    return f"[$0+{OFFSETS[name]}]"


_REGISTERS = [f"{{a{k}, b{k}, c{k}, d{k}}}" for k in range(LOADS)]
_DATA = "".join(f".reg .b32 {names[1:-1]};\n" for names in _REGISTERS)
_STRIDE = CHUNK // LOADS
_LOADS = "".join(
    f"ld.global.L1::no_allocate.v4.b32 {names}, [from+{_STRIDE * k}];\n"
    for k, names in enumerate(_REGISTERS)
)
_STORES = "".join(
    f"st.global.v4.b32 [to+{_STRIDE * k}], {names};\n" for k, names in enumerate(_REGISTERS)
)
_SHIFT = CHUNK.bit_length() - 1
_SEND = f"""{{
.reg .pred p;
.reg .b64 from, to, at;
.reg .b32 items, warps, step, begin, chunks, all, chunk, lane, x, y;
{_DATA}ld.b32 items, {_field("items")};
setp.eq.u32 p, items, 0;
@p bra END_${{:uid}};
mov.u32 warps, %nctaid.x;
mul.lo.u32 warps, warps, {SPARE};
mov.b32 step, 0;
STEP_${{:uid}}:
ld.b32 x, {_field("size")};
ld.b32 y, {_field("step")};
sub.u32 x, x, y;
setp.eq.u32 p, step, 0;
selp.b32 begin, x, 0, p;
selp.b32 chunks, y, x, p;
ld.b32 y, {_field("row")};
mul.lo.u32 begin, begin, y;
mul.lo.u32 chunks, chunks, y;
shr.u32 chunks, chunks, {_SHIFT};
mul.lo.u32 all, chunks, items;
mov.u32 chunk, %ctaid.x;
mad.lo.u32 chunk, chunk, {SPARE}, $1;
CHUNK_${{:uid}}:
setp.ge.u32 p, chunk, all;
@p bra DONE_${{:uid}};
div.u32 x, chunk, items;
mul.lo.u32 lane, x, items;
sub.u32 lane, chunk, lane;
sub.u32 x, chunks, x;
sub.u32 x, x, 1;
shl.b32 x, x, {_SHIFT};
add.u32 x, x, begin;
mov.u32 y, %laneid;
mad.lo.u32 x, y, {_WIDTH}, x;
cvt.u64.u32 from, x;
mov.b64 to, from;
ld.b32 y, {_field("tensors")};
div.u32 x, lane, y;
mul.lo.u32 y, x, y;
sub.u32 y, lane, y;
mul.wide.u32 at, y, 8;
add.u64 at, at, $0;
ld.b32 y, {_field("source_lane")};
mad.wide.u32 from, x, y, from;
ld.b32 y, {_field("target_lane")};
mad.wide.u32 to, x, y, to;
"""
_SEND += f"""{{
.reg .b64 base;
ld.b64 base, [at+{OFFSETS["source"]}];
add.u64 from, from, base;
ld.b64 base, [at+{OFFSETS["target"]}];
add.u64 to, to, base;
}}
{_LOADS}{_STORES}add.u32 chunk, chunk, warps;
bra CHUNK_${{:uid}};
DONE_${{:uid}}:
fence.acq_rel.sys;
bar.warp.sync -1;
mov.u32 x, %laneid;
setp.ne.u32 p, x, 0;
@p bra NEXT_${{:uid}};
ld.b64 at, {_field("counter")};
mul.wide.u32 to, step, 4;
add.u64 at, at, to;
sub.u32 y, warps, 1;
atom.acq_rel.gpu.global.inc.u32 x, [at], y;
setp.ne.u32 p, x, y;
@p bra NEXT_${{:uid}};
ld.b64 at, {_field("forgotten")};
setp.ne.u64 p, at, 0;
@p st.volatile.global.u32 [at], 0;
ld.b32 x, {_field("size")};
ld.b32 y, {_field("step")};
setp.eq.u32 p, step, 0;
selp.b32 y, y, x, p;
ld.b64 at, {_field("word")};
fence.acq_rel.sys;
st.release.sys.global.u32 [at], y;
NEXT_${{:uid}}:
add.u32 step, step, 1;
setp.lt.u32 p, step, 2;
@p bra STEP_${{:uid}};
END_${{:uid}}:
}}"""
