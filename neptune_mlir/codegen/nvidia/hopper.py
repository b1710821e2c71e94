# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions of sm_90a that need inline PTX: mbarriers, TMA loads, wgmma, register reallocation.

Addresses of shared memory are i32 values, descriptors i64. A tile that TMA brings lies in
*panels* of 64 columns of 16 bits or 32 of 32 bits: rows of 128 bytes, swizzled by 128 bytes, one
panel after another; it starts at a multiple of 1024 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from neptune_mlir.algebra.terms import FLOAT8
from neptune_mlir.ir.bindings import ir

POLLS = 64  # without a look at the clock


def asm(
    text: str, constraints: str, operands: Sequence[Any] = (), result: Any = None,
    side_effects: bool = True,
) -> Any:  # fmt: skip
    """One inline PTX fragment, with side effects unless told otherwise; its result, if any."""
    made = ir.Operation.create(
        "llvm.inline_asm", results=[] if result is None else [result], operands=list(operands),
        attributes={
            "asm_string": ir.StringAttr.get(text),
            "constraints": ir.StringAttr.get(constraints),
            **({"has_side_effects": ir.UnitAttr.get()} if side_effects else {}),
        },
    )  # fmt: skip
    return None if result is None else made.results[0]


def polls(poll: str, timeout: str) -> str:
    """Inline PTX that does `poll` until that sets the predicate p, `timeout` milliseconds (an
    operand) at most; then the kernel ends in an error. (To read the clock takes about as long as a
    poll, so it is read where many have failed, for the first time then.)"""
    return (
        "{\n.reg .pred q;\n.reg .b32 n;\n.reg .b64 t, u;\nmov.b64 u, 0;\nmov.b32 n, 0;\n"
        f"LATE_${{:uid}}:\n{poll}@p bra THERE_${{:uid}};\n"
        f"add.u32 n, n, 1;\nsetp.lt.u32 q, n, {POLLS};\n@q bra LATE_${{:uid}};\n"
        "mov.b32 n, 0;\nmov.u64 t, %globaltimer;\nsetp.ne.u64 q, u, 0;\n@q bra ON_${:uid};\n"
        f"mul.wide.u32 u, {timeout}, 1000000;\nadd.u64 u, u, t;\n"
        "ON_${:uid}:\nsetp.gt.u64 q, t, u;\n@q trap;\nbra LATE_${:uid};\nTHERE_${:uid}:\n}\n"
    )


# ---- barriers


def converge() -> None:
    """The lanes of a warp come together and see each other's shared memory.

    Waits are loops that lanes might leave one by one, as far as the assembler knows. Where it
    cannot be sure that all are together, it keeps nothing in the registers that a warp shares.
    """
    asm("bar.warp.sync -1;", "")


def init_barrier(address: Any, count: int) -> None:
    asm(f"mbarrier.init.shared::cta.b64 [$0], {count};", "r", [address])


def publish_barriers() -> None:
    """Make initialised barriers known to the copy engine (a block barrier must follow)."""
    asm("fence.mbarrier_init.release.cluster;", "")


def wait_barrier(address: Any, parity: Any) -> None:
    """Wait until the phase of this parity is complete."""
    asm(
        "{\n.reg .pred p;\nWAIT_${:uid}:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n"
        "@p bra DONE_${:uid};\nbra WAIT_${:uid};\nDONE_${:uid}:\n}",
        "r,r", [address, parity],
    )  # fmt: skip


def expect_bytes(address: Any, count: int, lane: Any) -> None:
    """Lane 0 arrives; the phase is complete when `count` bytes have come as well."""
    asm(
        "{\n.reg .pred p;\nsetp.eq.b32 p, $1, 0;\n"
        f"@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {count};\n}}",
        "r,r", [address, lane],
    )  # fmt: skip


def arrive_if_first(address: Any, thread: Any) -> None:
    """Arrive, if `thread` is 0."""
    asm(
        "{\n.reg .pred p;\nsetp.eq.b32 p, $1, 0;\n"
        "@p mbarrier.arrive.shared::cta.b64 _, [$0];\n}",
        "r,r", [address, thread],
    )  # fmt: skip


def load_words_beside(address: Any, behind: int) -> list[Any]:
    """Read four f32 of another block's shared memory."""
    text = f"ld.shared::cluster.v4.f32 {{$0, $1, $2, $3}}, [$4+{behind}];"
    return _values(text, "=f,=f,=f,=f,r,~{memory}", [address], 4)


def keep_loop() -> None:
    """The loop that this begins the body of is not unrolled by the assembler."""
    asm('.pragma "nounroll";', "")


def bring_near(pointer: Any) -> None:
    """Ask the first-level cache for what stands at an address, which may be none."""
    asm("prefetch.global.L1 [$0];", "l", [pointer])


def unknown(word: Any) -> Any:
    """The same i32 value, of which the optimizer knows nothing: what is computed from it is
    computed here."""
    return asm("mov.b32 $0, $1;", "=r,r", [word], ir.IntegerType.get_signless(32))


def from_lane(word: Any, lane: Any) -> Any:
    """The word of another lane of the warp: an i32 value."""
    i32 = ir.IntegerType.get_signless(32)
    constants = [
        ir.Operation.create(
            "llvm.mlir.constant", results=[i32], attributes={"value": ir.IntegerAttr.get(i32, n)}
        ).results[0]
        for n in (-1, 31)
    ]  # fmt: skip
    everyone, width = constants
    return ir.Operation.create(
        "nvvm.shfl.sync", results=[i32], operands=[everyone, word, lane, width],
        attributes={"kind": ir.Attribute.parse("#nvvm<shfl_kind idx>")},
    ).results[0]  # fmt: skip


def bytes_of(one: Any, other: Any, chosen: int) -> Any:
    """A word of four bytes of two, that `chosen` says as `prmt` takes it."""
    i32 = ir.IntegerType.get_signless(32)
    return asm(f"prmt.b32 $0, $1, $2, {chosen};", "=r,r,r", [one, other], i32, side_effects=False)


def every_lane(word: Any) -> Any:
    """Whether (i32: 1 or 0) a word is not 0 in any lane of the warp."""
    return asm(
        "{\n.reg .pred p;\nsetp.ne.b32 p, $1, 0;\nvote.sync.all.pred p, p, -1;\n"
        "selp.b32 $0, 1, 0, p;\n}",
        "=r,r", [word], ir.IntegerType.get_signless(32),
    )  # fmt: skip


def count_modulo(address: Any, last: Any, lane: Any) -> Any:
    """Lane 0 counts at a global address, from `last` on to 0 again; what it found there."""
    return asm(
        "{\n.reg .pred p;\nsetp.eq.b32 p, $3, 0;\nmov.b32 $0, 0;\n"
        "@p atom.global.inc.u32 $0, [$1], $2;\n}",
        "=r,l,r,r", [address, last, lane], ir.IntegerType.get_signless(32),
    )  # fmt: skip


def await_count(address: Any, passed: Any, timeout: Any, seen: Any) -> None:
    """Wait until a word of global memory that others write is more than `passed`: what they wrote
    before it is there, for the copy engine as well. After `timeout` milliseconds the kernel ends
    in an error. A word of shared memory keeps what all lanes of the warp saw last, which may be
    enough. (All i32 values but the address.)"""
    asm(
        "{\n.reg .pred p;\n.reg .b32 v;\n"
        "ld.shared.b32 v, [$3];\nsetp.gt.s32 p, v, $1;\n@p bra SEEN_${:uid};\n"
        + polls("ld.acquire.sys.global.b32 v, [$0];\nsetp.gt.s32 p, v, $1;\n", "$2")
        + "redux.sync.min.s32 v, v, -1;\nst.shared.b32 [$3], v;\n"
        "fence.proxy.async.global;\nSEEN_${:uid}:\n}",
        "l,r,r,r,~{memory}", [address, passed, timeout, seen],
    )  # fmt: skip


def forget_seen(seen: Any) -> None:
    """This warp has seen no count."""
    asm("st.volatile.shared.b32 [$0], 0;", "r,~{memory}", [seen])


def store_word(address: Any, word: Any, lane: Any) -> None:
    """Lane 0 writes a word to shared memory."""
    asm(
        "{\n.reg .pred p;\nsetp.eq.b32 p, $2, 0;\n@p st.shared.b32 [$0], $1;\n}",
        "r,r,r", [address, word, lane],
    )  # fmt: skip


def load_word(address: Any, lane: Any) -> Any:
    """Lane 0 reads a word of shared memory; the others get 0.

    The 0 is there for all: of a register that both sides of a condition write, the assembler keeps
    what was there before, all through the loop around.
    """
    return asm(
        "{\n.reg .pred p;\nsetp.eq.b32 p, $2, 0;\nmov.b32 $0, 0;\n"
        "@p ld.shared.b32 $0, [$1];\n}",
        "=&r,r,r", [address, lane], ir.IntegerType.get_signless(32),
    )  # fmt: skip


def store_address(place: Any, address: Any, thread: Any) -> None:
    """Thread 0 writes a global address (or another i64) to shared memory."""
    asm(
        "{\n.reg .pred p;\nsetp.eq.b32 p, $2, 0;\n@p st.shared.b64 [$0], $1;\n}",
        "r,l,r,~{memory}", [place, address, thread],
    )  # fmt: skip


def load_address(place: Any) -> Any:
    """A global address (i64) in shared memory."""
    kind = ir.IntegerType.get_signless(64)
    return asm("ld.shared.b64 $0, [$1];", "=l,r,~{memory}", [place], kind)


def is_somewhere(address: Any) -> Any:
    """Whether an address that all lanes have is not 0, as all of them know."""
    return asm(
        "{\n.reg .pred p;\nsetp.ne.b64 p, $1, 0;\nvote.sync.all.pred p, p, -1;\n"
        "selp.b32 $0, 1, 0, p;\n}",
        "=r,l", [address], ir.IntegerType.get_signless(32),
    )  # fmt: skip


def store_chunk(pointer: Any, words: Sequence[Any], wanted: Any) -> None:
    """Write 16 bytes to global memory, unless `wanted` (i32) is 0."""
    asm(
        "{\n.reg .pred p;\nsetp.ne.b32 p, $5, 0;\n"
        "@p st.global.v4.b32 [$0], {$1, $2, $3, $4};\n}",
        "l,r,r,r,r,r", [pointer, *words, wanted],
    )  # fmt: skip


def named_barrier(number: int, threads: int) -> None:
    asm(f"bar.sync {number}, {threads};", "")


def await_turn(number: Any, threads: int) -> None:
    """Wait at a named barrier (an i32 value) until `threads` threads have come, these included."""
    asm(f"bar.sync $0, {threads};", "r", [number])


def give_turn(number: Any, threads: int) -> None:
    """Come to a named barrier and go on."""
    asm(f"bar.arrive $0, {threads};", "r", [number])


def set_registers(count: int, increase: bool) -> None:
    kind = "inc" if increase else "dec"
    asm(f"setmaxnreg.{kind}.sync.aligned.u32 {count};", "")


# ---- TMA


def load_tile(
    target: Any, tensor_map: Any, coordinates: Sequence[Any], barrier: Any, lane: Any = None,
    both: bool = False,
) -> None:  # fmt: skip
    """Lane 0 starts bringing a box of a tensor map to shared memory; its bytes count on `barrier`.

    All lanes of a warp come here with equal operands, so that the assembler keeps them in
    registers that a warp shares. Where it cannot know that they are equal (a page that was looked
    up), `lane` is None and the chip elects a lane: for one that is chosen by its number the
    assembler writes a loop over lanes, 8 instructions a box. `both`: it comes to both blocks of a
    cluster, where it counts on the barrier of each.
    """
    rank = len(coordinates)
    where = ", ".join(f"${2 + k}" for k in range(rank))
    chosen = "elect.sync _|p, -1;" if lane is None else f"setp.eq.b32 p, ${3 + rank}, 0;"
    mine = [] if lane is None else [lane]
    many, blocks = (".multicast::cluster", ", blocks") if both else ("", "")
    mask = ".reg .b16 blocks;\nmov.b16 blocks, 3;\n" if both else ""
    asm(
        f"{{\n.reg .pred p;\n{mask}{chosen}\n"
        f"@p cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        f"{many} [$0], [$1, {{{where}}}], [${2 + rank}]{blocks};\n}}",
        ",".join(["r", "l"] + ["r"] * (rank + 1 + len(mine))),
        [target, tensor_map, *coordinates, barrier, *mine],
    )


def fetch_map(tensor_map: Any) -> None:
    """Bring a tensor map to where the copy engine reads it."""
    asm("prefetch.tensormap [$0];", "l", [tensor_map])


def fence_products() -> None:
    """Products that start from here on read registers as they are now."""
    asm("wgmma.fence.sync.aligned;", "")


def publish_tile() -> None:
    """What this thread wrote to shared memory is there for the copy engine (a barrier of those
    that wrote must follow)."""
    asm("fence.proxy.async.shared::cta;", "")


def store_box(tensor_map: Any, coordinates: Sequence[Any], source: Any) -> None:
    """One lane, always the same, starts writing a box of a tensor map from shared memory.

    All lanes of a warp come here with equal operands. (With a lane chosen by its number, the
    assembler keeps less in the registers that a warp shares, all through the kernel: 10% at head
    dim 64.)
    """
    _box_to_memory("cp.async.bulk.tensor", "", tensor_map, coordinates, source)


def add_box(tensor_map: Any, coordinates: Sequence[Any], source: Any) -> None:
    """As `store_box`, but what is there is added to, in memory."""
    _box_to_memory("cp.reduce.async.bulk.tensor", ".add.tile", tensor_map, coordinates, source)


def _box_to_memory(
    copy: str, how: str, tensor_map: Any, coordinates: Sequence[Any], source: Any
) -> None:
    rank = len(coordinates)
    where = ", ".join(f"${2 + k}" for k in range(rank))
    asm(
        f"{{\n.reg .pred p;\nelect.sync _|p, -1;\n"
        f"@p {copy}.{rank}d.global.shared::cta{how}.bulk_group "
        f"[$0, {{{where}}}], [$1];\n}}\ncp.async.bulk.commit_group;",
        ",".join(["l", "r"] + ["r"] * rank), [tensor_map, source, *coordinates],
    )  # fmt: skip


def add_runs(
    address: Any, source: Any, moved: Sequence[tuple[int, int]], size: int, turn: Any = None
) -> None:
    """One lane starts adding runs of so many bytes of f32 to memory, from shared memory: for each,
    what to add to both addresses. (To an address below 3, nothing.) With `turn` (as of
    `await_word`) they are stored where nobody added before."""
    kinds = {"p": "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"}
    first = ""
    if turn is not None:
        kinds["q"] = "cp.async.bulk.global.shared::cta.bulk_group"
        first = (
            ".reg .pred q;\n.reg .b32 w, o;\nmov.b64 {w, o}, $2;\n"
            "setp.eq.and.b32 q, w, 0, p;\nsetp.ne.and.b32 p, w, 0, p;\n"
        )
    runs = "\n".join(
        f"@{when} {kind} [$0+{there}], [$1+{here}], {size};"
        for when, kind in kinds.items()
        for there, here in moved
    )
    asm(
        "{\n.reg .pred p;\nelect.sync _|p, -1;\nsetp.gt.and.u64 p, $0, 2, p;\n"
        f"{first}{runs}\n}}\ncp.async.bulk.commit_group;",
        "l,r" if turn is None else "l,r,l", [address, source, *([] if turn is None else [turn])],
    )  # fmt: skip


def look_at_word(address: Any, distance: int) -> Any:
    """The word (i32) of global memory so many bytes behind an address (0: 0), as `await_word` sees
    it."""
    return asm(
        "{\n.reg .pred p;\nsetp.ne.b64 p, $1, 0;\nmov.b32 $0, 0;\n"
        f"@p ld.acquire.gpu.global.b32 $0, [$1+{distance}];\n}}",
        "=&r,l,~{memory}", [address], ir.IntegerType.get_signless(32),
    )  # fmt: skip


def await_word(address: Any, turn: Any, seen: Any) -> None:
    """Wait until a word of global memory that another block writes (`tell_word`), and that was
    `seen`, is the low half of `turn` (i64); what the copy engine did for that block before is done
    then, for this warp's copies. Where the half is 0, there is nothing to wait for."""
    asm(
        "{\n.reg .pred p;\n.reg .b32 v, w, o;\nmov.b64 {w, o}, $1;\nsetp.eq.b32 p, w, 0;\n"
        "@p bra THERE_${:uid};\nmov.b32 v, $2;\nbra SEEN_${:uid};\n"
        "LATE_${:uid}:\nld.acquire.gpu.global.b32 v, [$0];\nSEEN_${:uid}:\n"
        "setp.ne.b32 p, v, w;\n@p bra LATE_${:uid};\nfence.proxy.async.global;\nTHERE_${:uid}:\n}",
        "l,l,r,~{memory}", [address, turn, seen],
    )  # fmt: skip


def tell_word(address: Any, turn: Any) -> None:
    """Wait until memory has all that this warp's copies have written, and write the high half of
    `turn` to a word of global memory, which says so. (A half of 0, nothing.)"""
    asm(
        "cp.async.bulk.wait_group 0;\n{\n.reg .pred p;\n.reg .b32 w, o;\nmov.b64 {w, o}, $1;\n"
        "elect.sync _|p, -1;\nsetp.ne.and.b32 p, o, 0, p;\n@!p bra TOLD_${:uid};\n"
        "fence.proxy.async.global;\nst.release.gpu.global.b32 [$0], o;\nTOLD_${:uid}:\n}",
        "l,l,~{memory}", [address, turn],
    )  # fmt: skip


def count_word(address: Any) -> None:
    """Wait until memory has all that this warp's copies have written, and add 1 to a word of global
    memory, which says so."""
    asm(
        "cp.async.bulk.wait_group 0;\n{\n.reg .pred p;\nelect.sync _|p, -1;\n"
        "@!p bra COUNTED_${:uid};\nfence.proxy.async.global;\n"
        "red.release.gpu.global.add.u32 [$0], 1;\nCOUNTED_${:uid}:\n}",
        "l,~{memory}", [address],
    )  # fmt: skip


def await_boxes() -> None:
    """Wait until all boxes that this warp started to write have been read from shared memory."""
    asm("cp.async.bulk.wait_group.read 0;", "")


# ---- wgmma

_SWIZZLES = {128: 1, 64: 2}  # of a descriptor, by bytes of a row


def descriptor_bits(leading: int, row: int) -> int:
    """A matrix descriptor but for its address: the byte distance `leading`, that of 8 rows, and the
    swizzle of rows of `row` bytes."""
    bits = (_SWIZZLES[row] << 62) | ((8 * row >> 4) << 32) | ((leading >> 4) << 16)
    return bits - (1 << 64) * (bits >> 63)  # as a signed number


STEP_BYTES = 32  # of a row, that an instruction multiplies: 16 elements of 16 bits, 8 of 32
# by types of factors that are not called so in PTX: what they are called, and how many are 32 bytes
_KINDS = {"f32": ("tf32", 8), FLOAT8: ("e4m3", 32)}


def step_along_rows(k: int) -> int:
    """Of a descriptor, to the k-th STEP_BYTES where the rows run along the reduced axis."""
    return k * STEP_BYTES >> 4


def multiply(
    dtype: str,
    width: int,
    accumulators: Sequence[Any] | None,
    a: Any | Sequence[Any],
    b: Any,
    steps: Sequence[tuple[int, int]],
    turned: tuple[bool, bool],
    ahead: int,
) -> Iterator[list[Any]]:
    """Issue `acc[64, width] += A B` of one warp group, in pieces: f32 accumulators, to be read from
    `wait_products` alone. The first piece is one group to wait for, all others are another one.

    Args:
        accumulators: values to add to; None: the product alone.
        dtype: of both factors; f32 is multiplied as TF32. Of e4m3, as of f32, no factor is turned.
        a: a descriptor, or the words of the fragments (4 for 32 bytes along the reduced axis).
        b: a descriptor.
        steps: for each 32 bytes of the reduced axis, what to add to the descriptors of A and of B:
            an instruction.
        turned: of A and of B, whether rows in shared memory run along the free axis, not along the
            reduced axis (of 16-bit elements alone).
        ahead: instructions of the first piece; others have one.
    """
    kind, deep = _KINDS.get(dtype, (dtype, 16))
    count = width // 2
    words, a = (list(a), None) if isinstance(a, (list, tuple)) else ([], a)
    descriptors = [b] if a is None else [a, b]
    acc = [] if accumulators is None else list(accumulators)
    held = ", ".join(f"${k}" for k in range(count))
    kinds = f"m64n{width}k{deep}.f32.{kind}.{kind} {{{held}}},"
    for begin, end in pairwise([0, *range(ahead, len(steps) + 1)]):
        here = words[4 * begin : 4 * end]
        first = count + len(acc)  # of the operands that are not accumulators
        place_a, place_b = first + len(here), first + len(here) + len(descriptors) - 1
        lines = ["{", ".reg .b64 a, b;", ".reg .pred p, q;", "setp.ne.b32 p, 1, 0;",
                 "setp.ne.b32 q, 0, 0;", *["wgmma.fence.sync.aligned;"][begin:]]  # fmt: skip
        for k, (move_a, move_b) in enumerate(steps[begin:end]):
            held_too = 4 * k < len(here)
            if held_too:
                left = "{" + ", ".join(f"${first + 4 * k + j}" for j in range(4)) + "}"
            else:
                lines.append(f"add.s64 a, ${place_a}, {move_a};")
                left = "a"
            lines.append(f"add.s64 b, ${place_b}, {move_b};")
            keep = "q" if k == 0 and not acc else "p"
            major = turned[held_too:] if deep == 16 else ()
            numbers = ", ".join(map(str, [1, 1, *map(int, major)]))
            lines.append(f"wgmma.mma_async.sync.aligned.{kinds} {left}, b, {keep}, {numbers};")
        lines += ["wgmma.commit_group.sync.aligned;"] * (end in (ahead, len(steps))) + ["}"]
        constraints = ["=f"] * count + [*map(str, range(len(acc)))]
        constraints += ["r"] * len(here) + ["l"] * len(descriptors)
        acc = _values("\n".join(lines), ",".join(constraints), [*acc, *here, *descriptors], count)
        yield acc


def wait_products(pending: int, values: Sequence[Any]) -> list[Any]:
    """The values of an issued product, once at most `pending` later ones are under way."""
    constraints = ["=f"] * len(values) + [str(k) for k in range(len(values))]
    text = f"wgmma.wait_group.sync.aligned {pending};"
    return _values(text, ",".join(constraints), values, len(values))


def _values(text: str, constraints: str, operands: Sequence[Any], count: int) -> list[Any]:
    """The `count` f32 results of an inline PTX fragment."""
    f32 = ir.F32Type.get()
    kind = ir.Type.parse(f"!llvm.struct<({', '.join(['f32'] * count)})>")
    made = asm(text, constraints, operands, kind)
    return [
        ir.Operation.create(
            "llvm.extractvalue", results=[f32], operands=[made],
            attributes={"position": ir.DenseI64ArrayAttr.get([k])},
        ).results[0]
        for k in range(count)
    ]  # fmt: skip
