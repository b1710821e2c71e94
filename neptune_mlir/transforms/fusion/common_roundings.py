# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of numbers that others see rounded.

    s = Σ_j |y_j|          r = Σ_j (x_j + s)          o = Σ_j (x_j + s - r / n) y_j

In one loop r is Σ x_j + n s: that of numbers which were not rounded. Whoever adds x_j and s itself
and subtracts r / n from that has the common rounding of all x_j + s left. In the program as written
both have it, and it cancels. So r is not fused with s, unless its reader is in the loop, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.chain import Unsolvable
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.program import NestProgram
from neptune_mlir.transforms.fusion.groups import Group

SUMS = ("add", "sub")


def refuse_seen_rounded(program: NestProgram, group: Group) -> None:
    """Raises Unsolvable for a sum of a group that a nest outside of the loop subtracts from what it
    adds up, rounded."""
    for key, loops in group.running.items():
        nest = program.nests[key]
        if nest.combiner != "add" or not T.is_float(nest.dtype):
            continue
        stream = loops.index(group.stream)
        moved = {_placed(n) for n in _added(nest.body) if _shifts(n, group, stream)}
        reader = _subtracted_in(program, group, key, moved) if moved else None
        if reader:
            raise Unsolvable(
                key, "rounding", nest.body,
                f"'{reader}' subtracts it from what it adds up, as that is rounded: in one pass it "
                "would be the sum of other numbers",
                "numerics=fast fuses it for data on which that does not matter",
            )  # fmt: skip


def _shifts(n: Term, group: Group, stream: int) -> bool:
    """Whether a term is a sum of what varies along the stream and of a result of the group that
    does not."""
    if n.op not in SUMS or stream not in n.axes:
        return False
    fixed = (a for a in n.args if stream not in a.axes)
    return any(r.attr in group.running for a in fixed for r in T.reads(a))


def _subtracted_in(
    program: NestProgram, group: Group, key: str, moved: set[Term]
) -> str | None:
    """A nest outside of the loop that has one of these terms less what is made of a reduction."""
    made = {key}
    for other, nest in program.nests.items():
        if nest.kind == "map" and made & {r.attr for r in T.reads(nest.body)}:
            made.add(other)
        if other in group:
            continue
        for n in (n for n in T.walk(nest.body) if n.op in SUMS):
            for own, taken in (n.args, n.args[::-1]):
                if made.isdisjoint(r.attr for r in T.reads(taken)):
                    continue
                if moved & {_placed(a) for a in _added(own)}:
                    return other
    return None


def _placed(t: Term) -> Term:
    """A term wherever it stands: nests have loops of their own."""
    return T.rename_axes(t, {k: T.index(0) for k in t.axes})


def _added(t: Term) -> Iterator[Term]:
    """The subterms that a term is a multiple of, or a sum of multiples."""
    yield t
    match t.op:
        case "mul" | "add" | "sub":
            parts = t.args
        case "div" | "neg" | "cast":
            parts = t.args[:1]
        case "select":
            parts = t.args[1:]
        case _:
            parts = ()
    for part in parts:
        yield from _added(part)
