# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Accesses to global memory under a predicate (`codegen/gpu/access/guarded.py` says where).

They are inline PTX: LLVM has no access of a vector under a condition, and a branch for each keeps
the accesses of a thread from being under way together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.codegen.gpu.access.guarded import WORD, GuardedAccess
from neptune_mlir.codegen.gpu.scalars import Scalars
from neptune_mlir.codegen.nvidia.hopper import asm
from neptune_mlir.ir.bindings import ir

PASSING = ".L1::no_allocate"


def load(s: Scalars, access: GuardedAccess, size: int, vector: int) -> list[Any]:
    """The registers that `vector` elements of `size` bytes fill, 0 if they do not exist."""
    total = size * vector
    count = max(1, total // WORD)
    zeros = " ".join(f"mov.b{_bits(total)} ${k}, 0;" for k in range(count))
    text = (
        f"ld.global{PASSING if access.passing else ''}{_shape(total)} {_list(0, count)}, "
        f"[${count}+{access.place * size}];"
    )
    if access.left is not None:
        exists = f"setp.gt.s32 p, ${count + 1}, {access.place};"
        text = f"{{ .reg .pred p; {exists} {zeros} @p {text} }}"
    kind = ir.IntegerType.get_signless(_bits(total))
    made = kind if count == 1 else ir.Type.parse(f"!llvm.struct<({', '.join(['i32'] * count)})>")
    # (`&`: the zeros are written before the address is read)
    operands = [access.pointer, *([] if access.left is None else [access.left])]
    given = ",".join([f"=&{_letter(total)}"] * count + ["l", "r"][: len(operands)])
    loaded = asm(text, given, operands, made)
    if count == 1:
        return [loaded]
    places = [ir.DenseI64ArrayAttr.get([k]) for k in range(count)]
    return [s.op("llvm.extractvalue", [loaded], s.i32, position=place) for place in places]


def store(access: GuardedAccess, size: int, vector: int, words: Sequence[Any]) -> None:
    """Write registers that hold `vector` elements of `size` bytes, if they exist."""
    total = size * vector
    text = (
        f"{{ .reg .pred p; setp.gt.s32 p, $1, {access.place}; "
        f"@p st.global{_shape(total)} [$0+{access.place * size}], {_list(2, len(words))}; }}"
    )
    given = ",".join(["l", "r", *[_letter(total)] * len(words), "~{memory}"])
    asm(text, given, [access.pointer, access.left, *words])


def _bits(total: int) -> int:
    """Of a register: PTX has none of 8 bits."""
    return 16 if total < WORD else 32


def _letter(total: int) -> str:
    return "h" if total < WORD else "r"


def _shape(total: int) -> str:
    return f".b{8 * total}" if total <= WORD else f".v{total // WORD}.b32"


def _list(first: int, count: int) -> str:
    names = ", ".join(f"${k}" for k in range(first, first + count))
    return f"{{{names}}}" if count > 1 else names
