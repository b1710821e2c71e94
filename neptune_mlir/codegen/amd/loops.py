# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an iteration of a kernel's inner loop asks of an AMD compute unit, read from assembly.

A *path* is one way through the loop. The shortest is the usual iteration of a stream that keeps its
reference, the longest the one in which the reference moves. The cycles are those of a model: each
wave issues in order, one instruction at a time; matrix units run beside the others; loads from
shared memory take a fixed time. Caches, conflicts of banks and other waves are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from neptune_mlir.targets.amd import AmdTarget

MATRIX, VECTOR, SLOW, SHARED, GLOBAL, SCALAR = (
    "matrix", "vector", "transcendental", "shared", "global", "scalar",
)  # fmt: skip
_SLOW = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_LABEL = re.compile(r"^(\.L\w+):")
_BYTES = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)_?(b?f16|f32)")


@dataclass(frozen=True)
class Instruction:
    """One line: the name without the encoding's suffix, and the operands as they stand."""

    name: str
    operands: str

    @property
    def kind(self) -> str:
        if self.name.startswith(("v_mfma", "v_wmma", "v_smfmac")):
            return MATRIX
        if _SLOW.match(self.name):
            return SLOW
        if self.name.startswith("v_"):
            return VECTOR
        if self.name.startswith("ds_"):
            return SHARED
        return GLOBAL if self.name.startswith(("global_", "buffer_", "flat_")) else SCALAR

    @property
    def target(self) -> str:
        """The label that a branch goes to, or ""."""
        found = re.search(r"\.L\w+", self.operands) if "branch" in self.name else None
        return found[0] if found else ""

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that each lane reads or writes."""
        if self.kind != SHARED or "permute" in self.name or "swizzle" in self.name:
            return 0
        width = _BYTES.get(self.name.split("_")[-1], 4)
        return width * (2 if "2addr" in self.name or "read2" in self.name
                        or "write2" in self.name else 1)  # fmt: skip

    @property
    def flops(self) -> tuple[int, str]:
        """Operations of a matrix instruction, and the type of its factors."""
        found = _SHAPE.search(self.name)
        if not found:
            return 0, ""
        factors = re.findall(r"b?f16|f32", self.name)[-1]
        return 2 * int(found[1]) * int(found[2]) * int(found[3]), factors


@dataclass
class Block:
    """Instructions without a label between them."""

    label: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True)
class Path:
    """One way through an iteration.

    Attributes:
        counts: instructions of a wave by kind, waits and barriers under their own names.
        busy: cycles that a unit of the wave's processor works for it, by kind; of shared memory
            those of the compute unit's.
        alone: cycles of one wave that has its processor to itself.
    """

    counts: Counter[str]
    busy: dict[str, float]
    alone: float

    @property
    def issue(self) -> float:
        """Cycles of the vector unit, transcendental functions included."""
        return self.busy[VECTOR] + self.busy[SLOW]


@dataclass(frozen=True)
class Loop:
    """The inner loop of a kernel that has the most matrix instructions (or, without any, the most
    instructions): its shortest and its longest path."""

    kernel: str
    shortest: Path
    longest: Path


def inner_loops(assembly: str, chip: AmdTarget) -> list[Loop]:
    """The inner loop of each kernel that has one, in order."""
    found = []
    for kernel, blocks in _kernels(assembly):
        paths = _best_loop(blocks)
        if paths:
            made = sorted((_path(p, chip) for p in paths), key=lambda path: path.alone)
            found.append(Loop(kernel, made[0], made[-1]))
    return found


def _kernels(assembly: str) -> Iterator[tuple[str, list[Block]]]:
    name, blocks = "", [Block("")]
    for line in assembly.splitlines():
        if line.startswith("\t.section") and name:
            yield name, blocks
            name, blocks = "", [Block("")]
        elif label := _LABEL.match(line):
            blocks.append(Block(label[1]))
        elif start := re.match(r"^(\w+):", line):
            name, blocks = start[1], [Block("")]
        elif re.match(r"^\t[a-z]\w*", line):
            op, _, operands = line.strip().partition(" ")
            op = re.sub(r"_(e32|e64|dpp|sdwa|e64_dpp)$", "", op)
            blocks[-1].instructions.append(Instruction(op, operands.split(";")[0].strip()))


def _pieces(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, cut behind each branch."""
    made: list[Block] = []
    for block in blocks:
        current = Block(block.label)
        for instruction in block.instructions:
            current.instructions.append(instruction)
            if instruction.target:
                made.append(current)
                current = Block("")
        made.append(current)
    return made


def _best_loop(blocks: Sequence[Block]) -> list[list[Instruction]]:
    """The paths of the loop that counts: the shortest and the longest by instructions, of those
    that have at least half as many matrix instructions as any (a reference that moves may take a
    product again)."""
    pieces = _pieces(blocks)
    place = {b.label: k for k, b in enumerate(pieces) if b.label}
    after: list[list[int]] = []
    for k, piece in enumerate(pieces):
        last = piece.instructions[-1] if piece.instructions else None
        goes = [place[last.target]] if last and last.target in place else []
        ends = last is not None and last.name in ("s_branch", "s_endpgm")
        after.append(goes + ([k + 1] if not ends and k + 1 < len(pieces) else []))
    best: tuple[tuple[int, int], list[list[Instruction]]] = ((-1, 0), [])
    for head in sorted({t for k, targets in enumerate(after) for t in targets if t <= k}):
        paths = _paths(pieces, after, head)
        if not paths:
            continue
        most = max(map(_products, paths))
        full = sorted((p for p in paths if 2 * _products(p) >= most), key=len)
        # of loops with the same products, the one without masks is the usual one
        weight = (most, -len(full[0]) if most else len(full[0]))
        if weight > best[0]:
            best = (weight, [full[0], full[-1]])
    return best[1]


def _products(path: Sequence[Instruction]) -> int:
    return sum(i.kind == MATRIX for i in path)


_MOST_PATHS = 4096  # of a loop: more are not looked at


def _paths(
    pieces: Sequence[Block], after: Sequence[Sequence[int]], head: int
) -> list[list[Instruction]]:
    """The ways from a block back to itself that meet no block twice."""
    returning, before = {head}, {head}
    while before:  # no way goes where none comes back: behind a loop may be any number of branches
        before = {k for k, to in enumerate(after) if before & {*to}} - returning
        returning |= before
    found: list[list[Instruction]] = []
    stack: list[tuple[int, tuple[int, ...]]] = [(head, (head,))]
    while stack and len(found) < _MOST_PATHS:
        here, way = stack.pop()
        for target in after[here]:
            if target == head:
                found.append([i for k in way for i in pieces[k].instructions])
            elif target in returning and target not in way:
                stack.append((target, (*way, target)))
    return found


def _path(instructions: Sequence[Instruction], chip: AmdTarget) -> Path:
    counts: Counter[str] = Counter()
    busy = dict.fromkeys((MATRIX, VECTOR, SLOW, SHARED), 0.0)
    for i in instructions:
        named = i.name in ("s_waitcnt", "s_barrier", "s_nop") or i.name.startswith("s_wait")
        counts[i.name if named else i.kind] += 1
        if i.kind in busy:
            busy[i.kind] += _cycles(i, chip)
    return Path(counts, busy, _alone(instructions, chip))


def _cycles(i: Instruction, chip: AmdTarget) -> float:
    """Cycles for which an instruction keeps its unit."""
    model = chip.issue
    if i.kind == MATRIX:
        flops, factors = i.flops
        return flops / (model.flops32 if factors == "f32" else model.flops16)
    if i.kind == SHARED:
        return i.shared_bytes * chip.wave / model.shared_bytes
    return model.slow if i.kind == SLOW else model.vector


def _alone(instructions: Sequence[Instruction], chip: AmdTarget) -> float:
    """Cycles of the second of two iterations of one wave."""
    model, time, matrix = chip.issue, 0.0, 0.0
    ready: list[float] = []  # when each load from shared memory will have come
    ends = []
    for _ in range(2):
        for i in instructions:
            if i.kind == MATRIX:
                time = max(time, matrix)
                matrix = time + _cycles(i, chip)
                time += model.vector
            elif i.kind == SHARED:
                time += model.vector
                ready.append(max(time + model.shared_latency, ready[-1] if ready else 0.0))
            elif i.kind in (VECTOR, SLOW):
                time += _cycles(i, chip)
            elif i.name == "s_nop":
                time += model.vector * (int(i.operands or 0) + 1)
            else:
                left = _pending(i)
                if left is not None and left < len(ready):
                    time = max(time, ready[len(ready) - left - 1])
                    ready = ready[len(ready) - left :] if left else []
                time += 1
        ends.append(time)
    return ends[1] - ends[0]


def _pending(i: Instruction) -> int | None:
    """How many accesses to shared memory may be under way behind a wait; None where it does not
    say."""
    if i.name in ("s_wait_dscnt", "s_wait_loadcnt_dscnt"):
        value = int(i.operands, 0)
        return value & 0x3F
    found = re.search(r"lgkmcnt\((\d+)\)", i.operands)
    return int(found[1]) if found else None
