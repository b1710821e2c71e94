# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading tile IR: kernels, loads, contractions, reductions, in the form that GPU passes want."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra.combiners import IDENTITIES
from neptune_mlir.dialects.attributes import MULTIPLES, POINTS, TUNED
from neptune_mlir.dialects.op_names import ADD_SLICE, PAGED, START
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.ir.types import type_text
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.tuned import IN_TURNS
from neptune_mlir.targets.warp_groups import PANEL, of_size


def foralls(module: Any) -> list[Any]:
    """Every outermost `scf.forall` of a module that computes on tiles, in order."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "scf.forall":
            found.append(op)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return [op for op in found if not POINTS.on(op)]


def tuned(forall: Any, name: str, otherwise: int) -> int:
    """What a kernel does otherwise than by the rules: what was measured to be best for it
    (`targets/tuned.py`), or what somebody asked for (`set-choices`)."""
    return TUNED.find(forall, {}).get(name, otherwise)


def adds_in_turns(forall: Any) -> bool:
    """Whether programs add to what they share in the order of their numbers (choice `adder`)."""
    return tuned(forall, "adder", 0) == IN_TURNS


def note_choices(op: Any, numbers: Mapping[str, int]) -> None:
    """Say of a kernel, or of the op that becomes one, what it does otherwise than by the rules:
    what `tuned` reads. What was said of other names stays."""
    TUNED.set(op, {**TUNED.find(op, {}), **numbers})


def nested(block: Any) -> Iterator[Any]:
    """Every op in `block` and in the control flow within it (not in scalar regions)."""
    for op in block.operations:
        operation = op.operation
        yield operation
        if operation.name.startswith("scf."):
            for region in operation.regions:
                for inner in region.blocks:
                    yield from nested(inner)


def shape_of(value: Any) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def element_of(value: Any) -> str:
    return type_text(element_type(value))


def element_type(value: Any) -> Any:
    return ir.RankedTensorType(value.type).element_type


def is_tensor(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def element_bytes(dtype: str) -> int:
    bits = re.match(r"[bfiu]+(\d+)", dtype)  # f8E4M3FN has more behind it
    return max(1, (int(bits[1]) if bits else 64) // 8)


def chooses_scalars(op: Any) -> bool:
    """Whether a branch only makes numbers, of which each use may take those that it needs."""
    inner = [o.operation for region in op.regions for b in region.blocks for o in b.operations]
    plain = ("arith.", "affine.", "scf.yield", "tensor.extract")
    return not any(map(is_tensor, op.results)) and all(o.name.startswith(plain) for o in inner)


def is_blank(value: Any) -> bool:
    """Whether a tensor is only there for its shape, or one value throughout."""
    op = defining_op(value)
    return op is not None and op.name in ("tensor.empty", "linalg.fill")


def filled_with(value: Any) -> float | None:
    """The float that a tile is filled with; None where it is not, or the number is not known."""
    op = defining_op(value)
    constant = defining_op(op.operands[0]) if op is not None and op.name == "linalg.fill" else None
    if constant is None or constant.name != "arith.constant":
        return None
    attribute = constant.attributes["value"]
    return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None


def is_inside(value: Any, forall: Any) -> bool:
    """Whether a value is made in the body of `forall` (or is one of its block arguments)."""
    block = value.owner if isinstance(value, ir.BlockArgument) else value.owner.operation.block
    while True:
        parent = block.owner.operation
        if parent == forall:
            return True
        if parent.name in ("func.func", "builtin.module"):
            return False
        block = parent.block


def is_multiple(value: Any, n: int) -> bool:
    """Whether an index (an int or a value) is certainly a multiple of n."""
    return (value if isinstance(value, int) else multiple_of(value)) % n == 0


@dataclass(frozen=True)
class Pages:
    """How the rows of a tensor in pages are looked up (`neptune.paged`): row `start + r` is in page
    `table[at]`, with `(start + r) floordiv size` at dimension `column`, of `count` pages.

    `dim` and `slot` are the dimensions of the tensor that a page and the row's slot in it stand
    along; a slot of None: rows of a page are the same. `multiple` is a number that divides `start`.
    """

    table: Any
    at: tuple[Any, ...]
    column: int
    size: int
    count: Any
    dim: int
    slot: int | None
    start: Any = 0
    multiple: int = 1


@dataclass(frozen=True)
class Window:
    """A static tile of an outside tensor: where it stands and how much of it exists.

    Entries are ints or index values. `dims[k]` is the dimension of the tensor that dimension k
    of the tile runs along; `valid[k]` is None where the whole extent exists. Where the tile
    stands along its last dimension, and what of it exists there where that is no int, are multiples
    of `multiple` (0: of any number). Of a tensor in `pages` the offsets are those within a page's
    first row, and rows are looked up.
    """

    tensor: Any
    offsets: tuple[Any, ...]
    dims: tuple[int, ...]
    shape: tuple[int, ...]
    valid: tuple[Any, ...]
    multiple: int = 1
    pages: Pages | None = None


def load_window(value: Any, forall: Any) -> Window | None:
    """The window of a load: `tensor.extract_slice` of an outside tensor, perhaps padded with 0, or
    the whole of one, padded."""
    op = defining_op(value)
    if op is None or not is_tensor(value):
        return None
    shape = shape_of(value)
    if op.name == "tensor.pad":
        _check_pad(op)
        whole = op.operands[0]
        if not is_inside(whole, forall) and ir.RankedTensorType(whole.type).has_static_shape:
            valid = tuple(n if n < m else None for n, m in zip(shape_of(whole), shape, strict=True))
            return Window(whole, (0,) * len(shape), tuple(range(len(shape))), shape, valid, 0)
        op = defining_op(whole)
    if op is None or op.name != "tensor.extract_slice":
        return None
    source = op.operands[0]
    made = defining_op(source)
    paged = made if made is not None and made.name == PAGED else None
    if paged is None and is_inside(source, forall):
        return None
    offsets, sizes, dims = slice_parts(op)
    valid = tuple(
        None if isinstance(sizes[d], int) and sizes[d] >= n else sizes[d]
        for d, n in zip(dims, shape, strict=True)
    )
    if paged is not None:
        return _paged_window(paged, offsets, dims, shape, valid)
    return Window(source, offsets, dims, shape, valid, row_multiple(source, offsets, dims, valid))


def _paged_window(
    op: Any, offsets: Sequence[Any], dims: Sequence[int], shape: tuple[int, ...],
    valid: tuple[Any, ...],
) -> Window:  # fmt: skip
    """The window of a slice of a view of a tensor in pages."""
    tensor, table, count, *at = op.operands
    dim, slot, column, size = (
        int(ir.IntegerAttr(op.attributes[name]).value)
        for name in ("dim", "slot", "column", "page_size")
    )
    rank = ir.RankedTensorType(tensor.type).rank
    through = [d for d in range(rank) if d != slot]  # dimensions of the view, in the tensor
    own: list[Any] = [0] * rank
    for d, offset in zip(through, offsets, strict=True):
        own[d] = offset
    start = own[dim]
    pages = Pages(
        table, tuple(at), column, size, count, dim, slot if slot >= 0 else None, start,
        start if isinstance(start, int) else multiple_of(start),
    )  # fmt: skip
    own[dim] = 0
    along = tuple(through[d] for d in dims)
    looked_up = bool(along) and along[-1] == dim  # neighbours stand anywhere
    multiple = 1 if looked_up else row_multiple(tensor, own, along, valid)
    return Window(tensor, tuple(own), along, shape, valid, multiple, pages)


def row_multiple(
    source: Any, offsets: Sequence[Any], dims: Sequence[int], valid: Sequence[Any]
) -> int:
    """What the offset along the last of `dims`, the extent of the tensor, and what exists where
    that is no int, are multiples of. (1 where nothing is known of a row: nothing is to be asked of
    how it stands in memory.)"""
    if not dims:
        return 1
    offset, there = offsets[dims[-1]], valid[-1]
    known = offset if isinstance(offset, int) else multiple_of(offset)
    if there is not None and not isinstance(there, int):
        known = math.gcd(known, multiple_of(there))
    return math.gcd(known, extent_multiple(source, dims[-1]))


def extent_multiple(tensor: Any, dim: int) -> int:
    """What an extent of a tensor outside of kernels is certainly a multiple of: itself, where it is
    known. (Dimension -1: the last.)"""
    kind = ir.RankedTensorType(tensor.type)
    dim %= kind.rank
    if not kind.is_dynamic_dim(dim):
        return int(kind.shape[dim])
    made = defining_op(tensor)
    if made is None:
        return _assumed(tensor, dim)
    if made.name == "tensor.empty":
        return multiple_of(made.operands[sum(map(kind.is_dynamic_dim, range(dim)))])
    if made.name == "scf.forall":
        first = len(made.operands) - len(made.results)
        return extent_multiple(made.operands[first + list(made.results).index(tensor)], dim)
    return 1


def row_distance(tensor: Any) -> int:
    """What the distance between rows of a tensor in memory is certainly a multiple of, in
    elements. (What a kernel makes may be `pitched`: its rows begin at multiples of 128 bytes.)"""
    made, known = defining_op(tensor), extent_multiple(tensor, -1)
    if made is None or made.name != "scf.forall" or not tuned(made, "pitched", 0):
        return known
    unit = of_size(PANEL, element_bytes(element_of(tensor)))
    return -(-known // unit) * unit


def _assumed(argument: Any, dim: int) -> int:
    """What a dimension of an argument is a multiple of, as the function says."""
    function = argument.owner.owner.operation
    for flat in MULTIPLES.find(function, ()) if function.name == "func.func" else ():
        if tuple(flat[:2]) == (argument.arg_number, dim):
            return int(flat[2])
    return 1


def multiple_of(position: Any) -> int:
    """A number that divides an index value, 0 if all do: of a loop's variable that its start and
    its step are multiples of, of a sum its terms; 1 where nothing is known."""
    made = defining_op(position)
    if made is None:
        loop = position.owner.owner.operation
        counts = loop.name == "scf.for" and position.arg_number == 0
        return math.gcd(*(multiple_of(loop.operands[k]) for k in (0, 2))) if counts else 1
    if made.name == "arith.constant":
        return abs(int(ir.IntegerAttr(made.attributes["value"]).value))
    if made.name in ("affine.apply", "affine.min", "affine.max"):
        forms = ir.AffineMapAttr(made.attributes["map"]).value.results
        return math.gcd(*(_multiple_of_form(form, made) for form in forms))
    dim = defining_op(made.operands[1]) if made.name == "tensor.dim" else None
    if dim is not None and dim.name == "arith.constant":
        return extent_multiple(made.operands[0], ir.IntegerAttr(dim.attributes["value"]).value)
    if made.name in _FACTORS:
        return math.prod(map(multiple_of, made.operands))
    if made.name in _TERMS:
        return math.gcd(*map(multiple_of, list(made.operands)[-2:]))
    return 1


_FACTORS = {"arith.muli", "arith.index_cast"}
_TERMS = {"arith.addi", "arith.subi", "arith.minsi", "arith.maxsi", "arith.select"}


def _multiple_of_form(e: Any, op: Any) -> int:
    """`multiple_of` for an affine expression over the operands of `op`."""
    if isinstance(e, ir.AffineConstantExpr):
        return abs(int(ir.AffineConstantExpr(e).value))
    if isinstance(e, ir.AffineDimExpr):
        return multiple_of(op.operands[ir.AffineDimExpr(e).position])
    if isinstance(e, ir.AffineSymbolExpr):
        count = ir.AffineMapAttr(op.attributes["map"]).value.n_dims
        return multiple_of(op.operands[count + ir.AffineSymbolExpr(e).position])
    if not isinstance(e, (ir.AffineAddExpr, ir.AffineMulExpr)):
        return 1
    both = [_multiple_of_form(part, op) for part in (e.lhs, e.rhs)]
    return math.gcd(*both) if isinstance(e, ir.AffineAddExpr) else math.prod(both)


def _check_pad(op: Any) -> None:
    low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
    region = op.regions[0].blocks[0]
    fill = defining_op(region.operations[len(region.operations) - 1].operation.operands[0])
    known = fill is not None and fill.name == "arith.constant"
    if any(low) or not known or fill.attributes["value"].value != 0:
        raise LoweringError(
            "a load is padded at its start, or with another value than 0",
            loc=location_text(op.location),
        )


def slice_parts(op: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...]]:
    """Offsets and sizes (ints or values) of an extract or insert slice op, and kept dimensions."""
    offsets, sizes, strides, kept = strided_slice_parts(op)
    if any(s != 1 for s in strides):
        raise LoweringError("a slice with a stride", loc=location_text(op.location))
    return offsets, sizes, kept


def strided_slice_parts(op: Any) -> tuple[tuple[Any, ...], ...]:
    """Offsets, sizes and strides of an extract or insert slice op, and kept dimensions."""
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    given = iter(list(op.operands)[sum(segments[:-3]) :])
    dynamic = ir.ShapedType.get_dynamic_size()
    offsets, sizes, strides = (
        tuple(
            next(given) if s == dynamic else s
            for s in ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])
        )
        for name in ("offsets", "sizes", "strides")
    )
    tile = op.results[0] if op.name == "tensor.extract_slice" else op.operands[0]
    return offsets, sizes, strides, _kept(sizes, shape_of(tile))


def _kept(sizes: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Which dimensions a rank-reducing slice keeps: those of size 1 go, leftmost first, as long
    as what stays has the tile's shape."""
    found = _kept_from(0, sizes, shape)
    assert found is not None
    return found


def _kept_from(
    d: int, sizes: tuple[Any, ...], shape: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Of dimensions from `d` on, for the last ones of the tile, which have this shape."""
    if d == len(sizes):
        return None if shape else ()
    size = sizes[d]
    rest = _kept_from(d + 1, sizes, shape) if isinstance(size, int) and size == 1 else None
    if rest is not None or not shape or (isinstance(size, int) and size != shape[0]):
        return rest
    rest = _kept_from(d + 1, sizes, shape[1:])
    return None if rest is None else (d, *rest)


def is_view(value: Any, forall: Any) -> bool:
    """Whether a tensor is (a part of) a result of `forall`: memory that is written, not a tile."""
    if isinstance(value, ir.BlockArgument):
        parent = value.owner.owner.operation
        if parent == forall:
            return True
        return parent.name == "scf.for" and is_view(parent.operands[2 + value.arg_number], forall)
    op = value.owner.operation
    if op.name == "tensor.extract_slice":
        return is_view(op.operands[0], forall)
    if op.name in ("tensor.insert_slice", ADD_SLICE):
        return is_view(op.operands[1], forall)
    if op.name == "scf.for":
        return is_view(op.operands[3 + list(op.results).index(value)], forall)
    if op.name == "scf.if" and is_tensor(value):
        return is_view(_yielded(op, value), forall)
    return False


def view_source(value: Any) -> Any:
    """What a view (`is_view`) is the same memory as: the strip that an op gives back with more in
    it, or that a loop or a branch does; the value itself, where there is none."""
    op = defining_op(value)
    if op is None:
        parent = value.owner.owner.operation
        return parent.operands[2 + value.arg_number] if parent.name == "scf.for" else value
    if op.name in ("tensor.insert_slice", ADD_SLICE):
        return op.operands[1]
    if op.name == "scf.for":
        return op.operands[3 + list(op.results).index(value)]
    return _yielded(op, value) if op.name == "scf.if" else value


def strip_slice(view: Any) -> Any:
    """The slice of a result that a strip is."""
    while (op := defining_op(view)) is None or op.name != "tensor.extract_slice":
        view = view_source(view)
    return op


def _yielded(branch: Any, result: Any) -> Any:
    """What the first side of a branch gives as a result."""
    *_, end = branch.regions[0].blocks[0].operations
    return end.operation.operands[list(branch.results).index(result)]


def added_at(op: Any) -> list[Any]:
    """Where in its strip an `add_slice` adds."""
    return list(op.operands)[2 : 2 + len(shape_of(op.operands[0]))]


def turn_of(op: Any) -> list[Any]:
    """When this program may add, where programs add in turns, or where it is counted: what an
    `add_slice` has behind its offsets."""
    return list(op.operands)[2 + len(shape_of(op.operands[0])) :] if op.name == ADD_SLICE else []


def is_added(value: Any) -> bool:
    """Whether a tile goes to a result that programs add to, and nowhere else."""
    users = [use.owner.operation.name for use in value.uses]
    return bool(users) and set(users) == {ADD_SLICE}


def is_tile(value: Any, forall: Any) -> bool:
    """Whether a value is a tile that lives in registers or shared memory."""
    return is_tensor(value) and not is_view(value, forall)


# ---- generics


@dataclass(frozen=True)
class Generic:
    """A `linalg.generic` of one result, or a `neptune.mma_start` (which has no body): the loop of
    each operand's dimensions, loop extents."""

    op: Any
    maps: tuple[tuple[int, ...], ...]  # of the inputs, then of the result
    extents: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def inputs(self) -> list[Any]:
        return list(self.op.operands)[:-1]

    @property
    def init(self) -> Any:
        return list(self.op.operands)[-1]

    @property
    def result(self) -> Any:
        return self.op.results[0]

    @property
    def block(self) -> Any:
        return self.op.regions[0].blocks[0]

    @property
    def reads_init(self) -> bool:
        return any(True for _ in self.block.arguments[len(self.maps) - 1].uses)

    def is_read(self, k: int) -> bool:
        """Whether the body uses input k (else it is there for its shape)."""
        return any(True for _ in self.block.arguments[k].uses)


def chooses_loops(op: Any) -> bool:
    """Whether each operand of a generic is read at some of its loops, at nothing else."""
    maps = (ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"])
    return all(isinstance(e, ir.AffineDimExpr) for found in maps for e in found.results)


def read_generic(op: Any) -> Generic:
    if not chooses_loops(op):
        raise LoweringError(
            "a tile op whose indexing map is more than a choice of loops",
            loc=location_text(op.location),
        )
    maps = []
    for attribute in op.attributes["indexing_maps"]:
        results = ir.AffineMapAttr(attribute).value.results
        maps.append(tuple(ir.AffineDimExpr(e).position for e in results))
    if len(op.results) != 1:
        raise LoweringError("a tile op with several results", loc=location_text(op.location))
    loops = {loop for found in maps for loop in found}
    reduced = tuple(sorted(loops - set(maps[-1])))
    if op.name != START:
        kinds = [str(a) for a in op.attributes["iterator_types"]]
        loops = set(range(len(kinds)))
        reduced = tuple(k for k, kind in enumerate(kinds) if "reduction" in kind)
    extents = [0] * len(loops)
    for value, along in zip(op.operands, maps, strict=True):
        for extent, loop in zip(shape_of(value) if along else (), along, strict=True):
            extents[loop] = extent
    return Generic(op, tuple(maps), tuple(extents), reduced)


@dataclass(frozen=True)
class Contraction:
    """`acc[m, n] += a[m, k] * b[n, k]`: loops m, n, k, and which input is a and b."""

    m: int
    n: int
    k: int
    a: int
    b: int

    def swapped(self) -> Contraction:
        """The same product with its factors exchanged."""
        return Contraction(self.n, self.m, self.k, self.b, self.a)


def read_contraction(g: Generic) -> Contraction | None:
    """The contraction that a generic is, or None."""
    if len(g.inputs) != 2 or len(g.reduced) != 1 or len(g.extents) != 3:
        return None
    if g.op.name != START and not _multiplies_and_adds(g):
        return None
    a, b, c = (set(loops) for loops in g.maps)
    m, n, k = a & c - b, b & c - a, (a & b) - c
    if not (len(m) == len(n) == len(k) == 1 and len(a) == len(b) == len(c) == 2):
        return None
    return Contraction(m.pop(), n.pop(), k.pop(), 0, 1)


def _multiplies_and_adds(g: Generic) -> bool:
    """Whether the body adds the product of the two inputs to the result."""
    arguments = list(g.block.arguments)
    combine = reduction_of(g)
    if combine is None or combine[0] != "arith.addf":
        return False
    product = defining_op(combine[1])
    if product is None or product.name != "arith.mulf":
        return False
    factors = [unrounded(v) for v in product.operands]
    return sorted(arguments.index(f) if f in arguments else -1 for f in factors) == [0, 1]


def unrounded(value: Any) -> Any:
    """The value that a factor takes, before it was widened (and perhaps rounded before that, or
    taken for a float of 8 bits)."""
    for names in (("arith.extf",), ("arith.truncf", "arith.bitcast")):
        op = defining_op(value)
        if op is None or op.name not in names:
            return value
        value = op.operands[0]
    return value


def factor_type(g: Generic, k: int) -> str:
    """The type that input k of a contraction is multiplied in; of bytes that `float8-bits` left as
    floats of 8 bits that."""
    for use in g.block.arguments[k].uses:
        op = use.owner.operation
        if op.name == "arith.bitcast":
            return str(op.results[0].type)
    return element_of(g.inputs[k])


def rounding_of(g: Generic, k: int) -> str | None:
    """The type that the body of a contraction rounds input k to, or None."""
    for use in g.block.arguments[k].uses:
        op = use.owner.operation
        if op.name == "arith.truncf":
            return str(op.results[0].type)
    return None


def reduction_of(g: Generic) -> tuple[str, Any] | None:
    """The combiner of a reduction and the value it takes in, if its body is one such op."""
    accumulator = g.block.arguments[len(g.maps) - 1]
    end = g.block.operations[len(g.block.operations) - 1].operation
    op = defining_op(end.operands[0])
    if op is None or op.name not in IDENTITIES or op.block != g.block:
        return None
    left, right = op.operands
    uses = sum(1 for _ in accumulator.uses)
    if uses != 1 or (left == accumulator) == (right == accumulator):
        return None
    return op.name, right if left == accumulator else left
