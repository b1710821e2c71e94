# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""AMX, `vdpbf16ps` and `vscalefps` in ordinary LLVM IR, for machines that lack them: denormal
factors count as zeros, and tiles are arrays in memory (of one thread: programs run with one). A
power of two that makes a denormal number makes a NaN here: the instruction takes long there."""

from __future__ import annotations

import re

_DOT = """
define internal <16 x float> @emulated.number(<16 x i32> %bits) alwaysinline {
  %size = and <16 x i32> %bits, splat (i32 2139095040)
  %small = icmp eq <16 x i32> %size, zeroinitializer
  %kept = select <16 x i1> %small, <16 x i32> zeroinitializer, <16 x i32> %bits
  %r = bitcast <16 x i32> %kept to <16 x float>
  ret <16 x float> %r
}
define internal <16 x float> @emulated.avx512bf16.dpbf16ps.512(
    <16 x float> %c, <32 x i16> %a, <32 x i16> %b) alwaysinline {
  %x = bitcast <32 x i16> %a to <16 x i32>
  %y = bitcast <32 x i16> %b to <16 x i32>
  %x0 = shl <16 x i32> %x, splat (i32 16)
  %y0 = shl <16 x i32> %y, splat (i32 16)
  %x1 = and <16 x i32> %x, splat (i32 -65536)
  %y1 = and <16 x i32> %y, splat (i32 -65536)
  %a0 = call <16 x float> @emulated.number(<16 x i32> %x0)
  %b0 = call <16 x float> @emulated.number(<16 x i32> %y0)
  %a1 = call <16 x float> @emulated.number(<16 x i32> %x1)
  %b1 = call <16 x float> @emulated.number(<16 x i32> %y1)
  %p1 = fmul <16 x float> %a1, %b1
  %s1 = fadd <16 x float> %c, %p1
  %p0 = fmul <16 x float> %a0, %b0
  %s0 = fadd <16 x float> %s1, %p0
  ret <16 x float> %s0
}
"""

_ROUNDED = """
define internal <16 x i16> @emulated.avx512bf16.cvtneps2bf16.512(<16 x float> %x) alwaysinline {
  %bits = bitcast <16 x float> %x to <16 x i32>
  %number = call <16 x float> @emulated.number(<16 x i32> %bits)
  %kept = bitcast <16 x float> %number to <16 x i32>
  %high = lshr <16 x i32> %kept, splat (i32 16)
  %odd = and <16 x i32> %high, splat (i32 1)
  %half = add <16 x i32> %kept, splat (i32 32767)
  %sum = add <16 x i32> %half, %odd
  %near = lshr <16 x i32> %sum, splat (i32 16)
  %quiet = or <16 x i32> %high, splat (i32 64)
  %nan = fcmp uno <16 x float> %x, %x
  %word = select <16 x i1> %nan, <16 x i32> %quiet, <16 x i32> %near
  %r = trunc <16 x i32> %word to <16 x i16>
  ret <16 x i16> %r
}
"""

_TILES = """
@emulated.tiles = internal global [8 x [16 x <16 x i32>]] zeroinitializer
define internal void @emulated.ldtilecfg(ptr %p) { ret void }
define internal void @emulated.tilerelease() { ret void }
define internal void @emulated.tilezero(i8 %t) {
  %n = zext i8 %t to i64
  %p = getelementptr [8 x [16 x <16 x i32>]], ptr @emulated.tiles, i64 0, i64 %n
  store [16 x <16 x i32>] zeroinitializer, ptr %p
  ret void
}
define internal void @emulated.move(i8 %t, ptr %at, i64 %pitch, i1 %out) {
entry:
  %n = zext i8 %t to i64
  br label %rows
rows:
  %r = phi i64 [ 0, %entry ], [ %next, %rows ]
  %tile = getelementptr [8 x [16 x <16 x i32>]], ptr @emulated.tiles, i64 0, i64 %n, i64 %r
  %shift = mul i64 %r, %pitch
  %row = getelementptr i8, ptr %at, i64 %shift
  %from = select i1 %out, ptr %tile, ptr %row
  %to = select i1 %out, ptr %row, ptr %tile
  %v = load <16 x i32>, ptr %from, align 2
  store <16 x i32> %v, ptr %to, align 2
  %next = add i64 %r, 1
  %more = icmp ult i64 %next, 16
  br i1 %more, label %rows, label %done
done:
  ret void
}
define internal void @emulated.tileloadd64(i8 %t, ptr %at, i64 %pitch) {
  call void @emulated.move(i8 %t, ptr %at, i64 %pitch, i1 false)
  ret void
}
define internal void @emulated.tilestored64(i8 %t, ptr %at, i64 %pitch) {
  call void @emulated.move(i8 %t, ptr %at, i64 %pitch, i1 true)
  ret void
}
define internal void @emulated.tdpbf16ps(i8 %c, i8 %a, i8 %b) {
entry:
  %nc = zext i8 %c to i64
  %na = zext i8 %a to i64
  %nb = zext i8 %b to i64
  br label %rows
rows:
  %m = phi i64 [ 0, %entry ], [ %m1, %ended ]
  %total = getelementptr [8 x [16 x <16 x i32>]], ptr @emulated.tiles, i64 0, i64 %nc, i64 %m
  %start = load <16 x float>, ptr %total
  br label %pairs
pairs:
  %k = phi i64 [ 0, %rows ], [ %k1, %pairs ]
  %s = phi <16 x float> [ zeroinitializer, %rows ], [ %s1, %pairs ]
  %pa = getelementptr [8 x [16 x [16 x i32]]], ptr @emulated.tiles, i64 0, i64 %na, i64 %m, i64 %k
  %w = load i32, ptr %pa
  %first = insertelement <16 x i32> poison, i32 %w, i32 0
  %words = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %x = bitcast <16 x i32> %words to <32 x i16>
  %pb = getelementptr [8 x [16 x <16 x i32>]], ptr @emulated.tiles, i64 0, i64 %nb, i64 %k
  %y = load <32 x i16>, ptr %pb
  %s1 = call <16 x float> @emulated.avx512bf16.dpbf16ps.512(
    <16 x float> %s, <32 x i16> %x, <32 x i16> %y)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, 16
  br i1 %more, label %pairs, label %ended
ended:
  %sum = fadd <16 x float> %start, %s1
  store <16 x float> %sum, ptr %total
  %m1 = add i64 %m, 1
  %again = icmp ult i64 %m1, 16
  br i1 %again, label %rows, label %done
done:
  ret void
}
"""

_SCALEF = """
declare <16 x float> @llvm.ldexp.v16f32.v16i32(<16 x float>, <16 x i32>)
define internal <16 x float> @emulated.avx512.mask.scalef.ps.512(
    <16 x float> %x, <16 x float> %n, <16 x float> %rest, i16 %lanes, i32 %rounding) {
  %whole = call <16 x i32> @llvm.fptosi.sat.v16i32.v16f32(<16 x float> %n)
  %made = call <16 x float> @llvm.ldexp.v16f32.v16i32(<16 x float> %x, <16 x i32> %whole)
  %bits = bitcast <16 x float> %made to <16 x i32>
  %size = and <16 x i32> %bits, splat (i32 2147483647)
  %less = sub <16 x i32> %size, splat (i32 1)
  %denormal = icmp ult <16 x i32> %less, splat (i32 8388607)
  %late = select <16 x i1> %denormal, <16 x float> splat (float 0x7FF8000000000000),
                 <16 x float> %made
  %some = bitcast i16 %lanes to <16 x i1>
  %r = select <16 x i1> %some, <16 x float> %late, <16 x float> %rest
  ret <16 x float> %r
}
declare <16 x i32> @llvm.fptosi.sat.v16i32.v16f32(<16 x float>)
"""

_NAMES = r"llvm\.x86\.(?=avx512bf16|avx512\.mask\.scalef|tile|ldtilecfg|tdp)"


def emulated(text: str) -> str:
    """A module with calls of the above in place of the instructions."""
    if not re.search(_NAMES, text):
        return text
    text = re.sub(rf"^declare [^\n]*@{_NAMES}[^\n]*\n", "", text, flags=re.MULTILINE)
    text = re.sub(f"@{_NAMES}", "@emulated.", text)
    text = re.sub(r"<(16|32) x bfloat>", r"<\1 x i16>", text)
    return text + _DOT + _ROUNDED + _TILES + _SCALEF
