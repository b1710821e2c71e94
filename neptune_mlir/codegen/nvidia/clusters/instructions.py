# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions by which blocks of a cluster meet, and reach each other's shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.codegen.nvidia.hopper import asm
from neptune_mlir.ir.bindings import ir


def meet_in_cluster(writes: bool = False) -> None:
    """All threads of a cluster's blocks wait for each other; `writes`: others read what this one
    has written to shared memory (it waits for all that it wrote elsewhere, too)."""
    how = "release" if writes else "relaxed"
    asm(f"barrier.cluster.arrive.{how};\nbarrier.cluster.wait.acquire;", "~{memory}", [])


def rank_in_cluster() -> Any:
    """The number of a block in its cluster (i32)."""
    i32 = ir.IntegerType.get_signless(32)
    return asm("mov.u32 $0, %cluster_ctarank;", "=r", [], i32, side_effects=False)


def arrive_beside_if_first(address: Any, thread: Any, other: Any) -> None:
    """The same at the barrier that has this address in another block of the cluster. (What this
    thread wrote is nobody's business: to release it there waits for all of it, a microsecond.)"""
    asm(
        "{\n.reg .pred p;\n.reg .b32 there;\nsetp.eq.b32 p, $1, 0;\n"
        "@p mapa.shared::cluster.u32 there, $0, $2;\n"
        "@p mbarrier.arrive.shared::cluster.b64 _, [there];\n}",
        "r,r,r", [address, thread, other],
    )  # fmt: skip


def tell_beside(word: Any, barrier: Any, value: Any, lane: Any, other: Any) -> None:
    """Lane 0 writes a word to the place that has this address in another block of the cluster; its
    bytes count on that block's barrier, and nobody waits for them here."""
    asm(
        "{\n.reg .pred p;\n.reg .b32 there, told;\nsetp.eq.b32 p, $3, 0;\n"
        "@p mapa.shared::cluster.u32 there, $0, $4;\n"
        "@p mapa.shared::cluster.u32 told, $1, $4;\n"
        "@p st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [there], $2, [told];\n}",
        "r,r,r,r,r,~{memory}", [word, barrier, value, lane, other],
    )  # fmt: skip


def wait_for_told(address: Any, parity: Any) -> None:
    """Wait until a phase is complete that another block of the cluster counts on: what that wrote
    is there."""
    asm(
        "{\n.reg .pred p;\nWAIT_${:uid}:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [$0], $1;\n"
        "@p bra DONE_${:uid};\nbra WAIT_${:uid};\nDONE_${:uid}:\n}",
        "r,r,~{memory}", [address, parity],
    )  # fmt: skip


def address_beside(address: Any, other: Any) -> Any:
    """The address that another block of the cluster has for the same place (shared::cluster)."""
    i32 = ir.IntegerType.get_signless(32)
    return asm("mapa.shared::cluster.u32 $0, $1, $2;", "=r,r,r", [address, other], i32)


def store_words(address: Any, values: Sequence[Any], behind: int) -> None:
    """Write four f32 to shared memory, so many bytes behind an address."""
    text = f"st.shared.v4.f32 [$0+{behind}], {{$1, $2, $3, $4}};"
    asm(text, "r,f,f,f,f,~{memory}", [address, *values])
