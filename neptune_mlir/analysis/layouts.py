# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the elements of a tile live: in which register of which thread, or where in shared memory.

A register layout is a list of *digits*. The position of an element along each dimension is a
mixed-radix number whose digits are parts of the register number, the lane and the warp:

    position[dim] = sum of  digit value * stride   over the digits of `dim`

Register numbers, lanes and warps are split into their digits from the least significant one. A
digit of no dimension (`dim` None) is replication: threads that differ in it hold the same
element. So a row vector whose values are shared by the 4 lanes of a row is the row's layout
with the column digits replaced by replication, and every question ("does each thread hold
what it needs?") is a comparison of integer arrays, for any chip.

The text form, kept in the IR as an attribute, for the accumulator of an m16n8 instruction:

    reg[1:2*1 0:2*8] lane[1:4*2 0:8*1] warp[0:4*16]
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neptune_mlir.analysis.tiles import Window
from neptune_mlir.dialects.gpu_attributes import ITERATION, LAYOUT
from neptune_mlir.targets.gpu import MatrixInstruction


@dataclass(frozen=True)
class Digit:
    """`size` values that step `stride` elements along `dim` (None: replication)."""

    dim: int | None
    size: int
    stride: int = 0

    def __str__(self) -> str:
        return f"-:{self.size}" if self.dim is None else f"{self.dim}:{self.size}*{self.stride}"


def digit(dim: int | None, size: int, stride: int = 0) -> Digit:
    return Digit(dim, size, 0 if dim is None else stride)


Digits = tuple[Digit, ...]


@dataclass(frozen=True)
class Layout:
    """A distribution of a tile over registers, lanes and warps.

    Positions at or over the tile's extent are padding: they hold no element.
    """

    shape: tuple[int, ...]
    reg: Digits
    lane: Digits
    warp: Digits

    def __str__(self) -> str:
        parts = zip(("reg", "lane", "warp"), (self.reg, self.lane, self.warp), strict=True)
        return " ".join(f"{name}[{' '.join(map(str, digits))}]" for name, digits in parts)

    @property
    def registers(self) -> int:
        return _product(d.size for d in self.reg)

    @property
    def lanes(self) -> int:
        return _product(d.size for d in self.lane)

    @property
    def warps(self) -> int:
        return _product(d.size for d in self.warp)

    def offsets(self, part: Sequence[Digit]) -> np.ndarray:
        """Position contributed by each value of one part: array [values, rank]."""
        found = np.zeros((1, len(self.shape)), dtype=np.int64)
        for d in part:
            step = np.zeros((d.size, 1, len(self.shape)), dtype=np.int64)
            if d.dim is not None:
                step[:, 0, d.dim] = np.arange(d.size) * d.stride
            found = (step + found[None]).reshape(d.size * len(found), len(self.shape))
        return found

    @functools.cached_property
    def positions(self) -> np.ndarray:
        """Position of every element held: array [registers, warps * lanes, rank]."""
        regs, lanes, warps = (self.offsets(p) for p in (self.reg, self.lane, self.warp))
        count = len(warps) * len(lanes)
        threads = (warps[:, None] + lanes[None]).reshape(count, len(self.shape))
        return regs[:, None] + threads[None]

    @functools.cached_property
    def _outside(self) -> np.ndarray:
        """Of each position held, whether it lies outside the tile along each dimension."""
        return np.asarray(self.positions >= np.array(self.shape, dtype=np.int64))

    @functools.cached_property
    def beyond(self) -> tuple[bool, ...]:
        """Along which dimensions some position held lies outside the tile."""
        return tuple(bool(self._outside[..., d].any()) for d in range(len(self.shape)))

    @property
    def padded(self) -> bool:
        """Whether some position held lies outside the tile."""
        return any(self.beyond)

    @functools.cached_property
    def missing(self) -> frozenset[int]:
        """The registers that hold no element of the tile in any thread."""
        nowhere = np.asarray(self._outside.any(axis=-1)).all(axis=1)
        return frozenset(map(int, np.flatnonzero(nowhere)))

    def partial(self, dims: Sequence[int]) -> frozenset[int]:
        """The registers that lie outside of the tile along some of `dims` in some threads, and
        hold an element of it in others."""
        some = np.asarray(self._outside[..., list(dims)].any(axis=(1, 2)))
        return frozenset(map(int, np.flatnonzero(some))) - self.missing

    def partial_like(self, dims: Sequence[int]) -> dict[int, int]:
        """Of each register of `partial`, the first one that lies outside in the same threads: one
        condition serves neighbours, where a tile ends between their runs."""
        some = np.asarray(self._outside[..., list(dims)].any(axis=-1))
        first: dict[bytes, int] = {}
        return {r: first.setdefault(some[r].tobytes(), r) for r in sorted(self.partial(dims))}

    def members(self, kept: Sequence[int], out: Layout) -> list[list[int]]:
        """The registers that go into each register of `out`, a layout of the dimensions `kept`."""
        wanted = [tuple(o) for o in out.offsets(out.reg)]
        groups: dict[Any, list[int]] = {w: [] for w in wanted}
        for r, offset in enumerate(self.offsets(self.reg)[:, list(kept)]):
            if r not in self.missing:
                groups[tuple(offset)].append(r)
        return [groups[w] for w in wanted]

    def digits_of(self, dim: int, part: str) -> list[tuple[int, int]]:
        """Stride and size of the digits of `part` along one dimension."""
        return [(d.stride, d.size) for d in getattr(self, part) if d.dim == dim]

    def run_along(self, dim: int) -> int:
        """How many neighbours along a dimension a thread holds in whole runs, up to a chunk of
        bytes; 1 of a padded tile."""
        run, mine = 1, sorted(self.digits_of(dim, "reg"))
        for stride, size in mine:
            run *= size if stride == run else 1
        run = math.gcd(CHUNK, run)
        steps = [stride for part in ("lane", "warp") for stride, _ in self.digits_of(dim, part)]
        steps += [stride for stride, _ in mine if stride >= run]
        return run if all(step % run == 0 for step in steps) and not self.padded else 1

    def chunk_along(self, dim: int) -> int:
        """How many neighbours along a dimension follow one another in the registers, of which the
        first is at a multiple of that; 1: none do."""
        first = self.reg[0] if self.reg else Digit(None, 1)
        if first.dim != dim or first.stride != 1:
            return 1
        others = (*self.reg[1:], *self.lane, *self.warp)
        return math.gcd(first.size, *(d.stride for d in others if d.dim == dim))

    def digits_along(self, dims: Iterable[int], part: str) -> list[tuple[int, Digit]]:
        """The digits of `part` along `dims`, each with the distance between its values."""
        wanted, found, distance = set(dims), [], 1
        for d in getattr(self, part):
            if d.dim in wanted:
                found.append((distance, d))
            distance *= d.size
        return found

    def project(self, dims: Sequence[int]) -> Layout:
        """The layout of a value over dimensions `dims` only, held where this layout needs it.

        Register digits of other dimensions go; lane and warp digits of them become replication.
        """
        place = {d: k for k, d in enumerate(dims)}
        keep = [d for d in self.reg if d.dim in place]
        rename = functools.partial(_rename, place)
        return Layout(
            tuple(self.shape[d] for d in dims),
            tuple(map(rename, keep)),
            tuple(map(rename, self.lane)),
            tuple(map(rename, self.warp)),
        )

    def sources(self, held: Layout, dims: Sequence[int]) -> list[int] | None:
        """Which register of `held` has the element that each register of this layout needs.

        `dims` says which dimension of this layout each dimension of `held` is. None when some
        thread would need another thread's element.
        """
        return _sources(self, held, tuple(dims))


def is_replicated(layout: Layout) -> bool:
    """Whether several warps hold the same elements."""
    return any(d.dim is None for d in layout.warp)


def _product(sizes: Iterable[int]) -> int:
    return functools.reduce(lambda a, b: a * b, sizes, 1)


def _rename(place: Mapping[int, int], d: Digit) -> Digit:
    return digit(place[d.dim], d.size, d.stride) if d.dim in place else digit(None, d.size)


@functools.lru_cache(maxsize=4096)
def _sources(needed: Layout, held: Layout, dims: tuple[int, ...]) -> list[int] | None:
    if needed.lanes != held.lanes or needed.warps != held.warps:
        return None
    where = {p.tobytes(): k for k, p in reversed(list(enumerate(held.positions)))}
    wanted = np.ascontiguousarray(needed.positions[:, :, list(dims)])
    if not dims:
        return [0] * needed.registers
    found = []
    for p in wanted:
        register = where.get(p.tobytes())
        register = _inside(p, held) if register is None else register
        if register is None:
            return None
        found.append(register)
    return found


def _inside(wanted: np.ndarray, held: Layout) -> int | None:
    """A register that agrees wherever `wanted` is no padding."""
    real = (wanted < np.array(held.shape, dtype=np.int64)).all(axis=1)
    agree = (held.positions[:, real] == wanted[real]).all(axis=(1, 2))
    return int(agree.argmax()) if agree.any() else None


_SHARED = re.compile(r"shared\[(\d+)\*(\d+) (\d+)>>(\d+)\]")
_PART = re.compile(r"(reg|lane|warp)\[([^\]]*)\]")


@functools.lru_cache(maxsize=4096)
def parse(text: str, shape: tuple[int, ...]) -> Any:
    """The layout that `str` printed: Layout or Shared. Raises ValueError for other texts."""
    if found := _SHARED.fullmatch(text):
        element, pitch, mask, shift = map(int, found.groups())
        return Shared(shape, element, pitch, mask, shift)
    parts = _parse_parts(text, {str(d): d for d in range(len(shape))})
    if sorted(parts) != ["lane", "reg", "warp"]:
        raise ValueError(f"not a layout: {text}")
    return Layout(shape, parts["reg"], parts["lane"], parts["warp"])


def layout_of(op: Any, shape: Sequence[int]) -> Any:
    """Where the result of a tile op, load or copy lives, a tile of `shape`: Layout or Shared."""
    return parse(LAYOUT.of(op), tuple(shape))


def iteration_of(op: Any, extents: Sequence[int]) -> Any:
    """Which points of its loops, of these `extents`, each thread computes of a tile op: Layout."""
    return parse(ITERATION.of(op), tuple(extents))


def _parse_parts(text: str, dims: Mapping[str, int]) -> dict[str, Digits]:
    """Digits by part; `dims` says which dimension a name in `text` means."""

    def parse(part: str) -> Digit:
        name, _, rest = part.partition(":")
        size, _, stride = rest.partition("*")
        return digit(None if name == "-" else dims[name], int(size), int(stride or 0))

    return {name: tuple(map(parse, body.split())) for name, body in _PART.findall(text)}


@dataclass(frozen=True)
class Crossing:
    """How a tile gets another layout by exchanges between lanes that differ in one bit.

    `sources` has for each register needed where its element is, in lanes whose bit is 0 and in
    those where it is 1: the register held, and whether it is the other lane's.
    """

    distance: int
    sources: Sequence[tuple[tuple[int, bool], tuple[int, bool]]]


@functools.lru_cache(maxsize=4096)
def crossing(needed: Layout, held: Layout) -> Crossing | None:
    """The exchange that makes `needed` of `held` (layouts of one tile), if one bit is enough."""
    if needed.lanes != held.lanes or needed.warps != held.warps:
        return None
    distance = 1
    while distance < needed.lanes:
        found = _sources_across(needed, held, distance)
        if found is not None:
            return Crossing(distance, found)
        distance *= 2
    return None


def _sources_across(needed: Layout, held: Layout, distance: int) -> Any:
    lanes = np.arange(needed.lanes * needed.warps)
    halves = []
    for bit in (0, distance):
        here = lanes[lanes & distance == bit]
        where: dict[bytes, tuple[int, bool]] = {}
        for crossed in (True, False):  # a lane's own element wins
            there = held.positions[:, here ^ distance if crossed else here]
            for k in reversed(range(held.registers)):
                where[there[k].tobytes()] = (k, crossed)
        halves.append([where.get(p.tobytes()) for p in needed.positions[:, here]])
        if None in halves[-1]:
            return None
    return list(zip(*halves, strict=True))


# ---- constructions


def blocked(
    shape: Sequence[int], lanes: int, warps: int, vector: int = 1, apart: bool = False,
    across: tuple[int, int] | None = None,
) -> Layout:
    """Consecutive threads hold consecutive elements of the last dimension, `vector` at a time.

    Fits any shape: what does not divide is padding, threads left over replicate. `apart`: warps
    take rows of their own where there are several, so that what is summed of a row stays in a warp.
    `across`: a dimension and so many lanes that are side by side along it, behind the others.
    """
    done = [1] * len(shape)  # elements of each dimension that the digits so far cover

    def take(dim: int, most: int) -> int:
        left = -(-shape[dim] // done[dim])
        return min(1 << (left - 1).bit_length(), most)

    def fill(count: int, dims: Sequence[int]) -> Digits:
        """Digits for `count` threads (a power of two) along the dimensions, in this order."""
        found = []
        for dim in dims:
            size = take(dim, count)
            if size > 1:
                found.append(digit(dim, size, done[dim]))
                done[dim] *= size
                count //= size
        if count > 1:
            found.append(digit(None, count))
        return tuple(found)

    reg: list[Digit] = []
    if shape and vector > 1 and shape[-1] % vector == 0:
        reg.append(digit(len(shape) - 1, vector, 1))
        done[-1] = vector
    inward = range(len(shape))
    outward = inward[::-1]
    lane = (*fill(lanes // across[1], outward), *fill(across[1], (across[0],))) if across else (
        fill(lanes, outward)
    )
    warp = fill(warps, inward if apart else outward)
    for dim in outward:
        rest = -(-shape[dim] // done[dim])
        if rest > 1:
            reg.append(digit(dim, rest, done[dim]))
    return Layout(tuple(shape), tuple(reg), lane, warp)


@dataclass(frozen=True)
class WarpGrid:
    """How warps share a matrix product: along m, along n; `m_first` warps number m fastest."""

    m: int
    n: int
    total: int

    def digits(self, m: int | None, n: int | None, m_step: int, n_step: int) -> Digits:
        found = [
            digit(m, self.m, m_step) if m is not None else digit(None, self.m),
            digit(n, self.n, n_step) if n is not None else digit(None, self.n),
            digit(None, self.total // (self.m * self.n)),
        ]
        return tuple(d for d in found if d.size > 1)


def accumulator(
    shape: Sequence[int], m: int, n: int, warps: WarpGrid, instruction: MatrixInstruction
) -> Layout:
    """C fragments of a matrix product; m and n are dimensions of the tile.

    What no whole instruction has is padding, here and in the operands.
    """
    m_step, n_step = -(-shape[m] // warps.m), -(-shape[n] // warps.n)
    blocks = [*_columns(n, n_step, instruction), (m, m_step, instruction.m)]
    warp = warps.digits(m, n, m_step, n_step)
    return _fragment(shape, instruction.c, {"m": m, "n": n}, blocks, warp)


def operand_a(
    shape: Sequence[int], m: int, k: int, warps: WarpGrid, instruction: MatrixInstruction
) -> Layout:
    """A fragments for the product that `accumulator` lays out."""
    m_step = -(-shape[m] // warps.m)
    blocks = [*_depth(k, shape[k], instruction), (m, m_step, instruction.m)]
    warp = warps.digits(m, None, m_step, 0)
    return _fragment(shape, instruction.a, {"m": m, "k": k}, blocks, warp)


def four_pieces(layout: Layout) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Of tiles that warps hold in pieces of 8x8, a pair of neighbours a thread, as `stmatrix` takes
    them: how far the second and the third of four pieces are from the first one, and the fourth
    from the other; None for others."""
    if layout.lane != (digit(1, 4, 2), digit(0, 8, 1)) or layout.reg[:1] != (digit(1, 2, 1),):
        return None
    offsets = layout.offsets(layout.reg)
    along_rows = all(d.dim == 0 for d in layout.warp)
    if len(layout.shape) != 2 or len(offsets) % 8 or not along_rows or layout.padded:
        return None
    first, second, both = (offsets[k::8] - offsets[::8] for k in (2, 4, 6))
    alike = (first == first[0]).all() and (second == second[0]).all()
    if not alike or (both != first + second).any() or (offsets[::2] % 8).any():
        return None
    a, b = ((int(x[0, 0]), int(x[0, 1])) for x in (first, second))
    return (a, b) if {a, b} == {(8, 0), (0, 8)} else None


INTERLEAVES = 16  # columns of an accumulator that a left factor of 8 bits takes in another order


def interleaved(layout: Layout) -> list[int]:
    """Of a tile that is stored with each INTERLEAVES of its columns in the order of accumulators,
    of which lane t has columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9: for each register the one whose
    element goes in the place of its own. None (an empty list) where threads have no whole 16s."""
    if not layout.shape:
        return []
    last = len(layout.shape) - 1
    offsets = [tuple(o) for o in layout.offsets(layout.reg).tolist()]
    register = {o: r for r, o in enumerate(offsets)}
    others = [d.stride for d in (*layout.lane, *layout.warp) if d.dim == last]
    if layout.shape[-1] % INTERLEAVES or any(stride % INTERLEAVES for stride in others):
        return []
    found = []
    for *rows, column in offsets:
        whole, slot = divmod(column, INTERLEAVES)
        lane, byte = divmod(slot, 4)
        from_column = whole * INTERLEAVES + 2 * lane + byte % 2 + 8 * (byte // 2)
        found.append(register.get((*rows, from_column), -1))
    return [] if -1 in found else found


def operand_b(
    shape: Sequence[int], n: int, k: int, warps: WarpGrid, instruction: MatrixInstruction
) -> Layout:
    """B fragments for the product that `accumulator` lays out."""
    n_step = -(-shape[n] // warps.n)
    blocks = [*_depth(k, shape[k], instruction), *_columns(n, n_step, instruction)]
    warp = warps.digits(None, n, 0, n_step)
    return _fragment(shape, instruction.b, {"n": n, "k": k}, blocks, warp)


def _columns(n: int, extent: int, i: MatrixInstruction) -> list[tuple[int, int, int]]:
    """The pieces along n: those that take turns with columns, and the next ones."""
    return [(n, i.columns, 1), (n, extent, i.n * i.columns)]


def _depth(k: int, extent: int, i: MatrixInstruction) -> list[tuple[int, int, int]]:
    """The pieces along k: those whose elements a thread has side by side, and the next ones."""
    return [(k, i.runs * i.run, i.run), (k, extent, i.k * i.runs)]


def _fragment(
    shape: Sequence[int], text: str, dims: Mapping[str, int],
    blocks: Iterable[tuple[int, int, int]], warp: Digits,
) -> Layout:  # fmt: skip
    """An instruction's fragment, repeated: `blocks` are (dimension, extent of a warp, step)."""
    parts = _parse_parts(text, dims)
    reg = list(parts["reg"])
    for dim, extent, step in blocks:
        count, last = -(-extent // step), reg[-1]
        if count > 1 and last.dim == dim and last.stride * last.size == step:
            reg[-1] = digit(dim, last.size * count, last.stride)
        elif count > 1:
            reg.append(digit(dim, count, step))
    return Layout(tuple(shape), tuple(reg), parts["lane"], warp)


def fragment_offsets(text: str, row: str, column: str) -> list[tuple[int, int]]:
    """Row and column of each register of a fragment, less what the lane adds."""
    parts = _parse_parts(text, {row: 0, column: 1})
    piece = Layout((1, 1), parts["reg"], (), ())
    return [(int(r), int(c)) for r, c in piece.offsets(piece.reg)]


# ---- shared memory

CHUNK = 16  # bytes that one thread moves at once, and one row of an 8x8 piece of 16-bit elements


@dataclass(frozen=True)
class Shared:
    """A tile in shared memory: rows of `pitch` bytes, 16-byte chunks of a row permuted.

    Chunk c of row r stands at c xor ((r >> shift) & mask). So the 8 rows of an 8x8 piece lie
    in different banks, and a copy of whole rows still writes whole rows.
    """

    shape: tuple[int, ...]
    element: int  # bytes
    pitch: int
    mask: int
    shift: int

    def __str__(self) -> str:
        return f"shared[{self.element}*{self.pitch} {self.mask}>>{self.shift}]"

    @property
    def columns(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return _product(self.shape[:-1])

    @property
    def bytes(self) -> int:
        return -(-self.rows * self.pitch // CHUNK) * CHUNK


def shared(shape: Sequence[int], element: int, swizzle: bool = True) -> Shared:
    """The shared layout of a tile: swizzled where rows are 2^n chunks and the target can make use
    of it, else with an odd pitch."""
    columns = shape[-1] if shape else 1
    chunks = -(-columns * element // CHUNK)
    if not swizzle or chunks & (chunks - 1) or columns * element % CHUNK or chunks == 1:
        chunks += 1 - chunks % 2
        return Shared(tuple(shape), element, chunks * CHUNK, 0, 0)
    mask = min(chunks, 8) - 1
    shift = max(0, 3 - chunks.bit_length() + 1)  # rows that share one line of banks
    return Shared(tuple(shape), element, chunks * CHUNK, mask, shift)


def access_width(window: Window, size: int) -> int:
    """Elements of so many bytes that one access to memory may take: a power of two that where the
    window stands, what exists of it and its extent are multiples of."""
    extent, valid = window.shape[-1], window.valid[-1]
    whole = valid if isinstance(valid, int) else extent
    known = math.gcd(window.multiple, extent, whole)
    width = 1
    while known % (2 * width) == 0 and 2 * width * size <= CHUNK:
        width *= 2
    return width
