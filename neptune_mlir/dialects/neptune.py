# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `neptune` dialect: reduction loop nests on ranked tensors, and their fused forms.

Two levels share the nests:

* **program**: `neptune.map` and `neptune.reduce` nests, each over an iteration domain of
  its own, no schedule;
* **fused**: `neptune.stream`, `neptune.private` and `neptune.global` hold nests that share
  one iteration domain (the region's axes), with `neptune.correct` repairing what was
  accumulated under an old reference.

At the tile level the dialect adds what warps share: a `neptune.producer` and rings of tiles,
asynchronous references (`neptune.aref_...`), asynchronous matmuls (`neptune.mma_...`), and ops
about warps (`neptune.warp_all` and others).

Common vocabulary of the nests (`map`, `reduce`, `accumulate`, `correct`):

* `domain`: the extent of every loop, `-9223372036854775808` where it is known at run time
  only; the `extents` operands give those, in order.
* the region holds scalar code (`arith`, `math`) for one point of the domain. `neptune.read`
  takes the element of a tensor at that point, `neptune.index` a position; scalars defined
  above (function arguments, `tensor.dim`, constants) may be used as they are. It ends in
  `neptune.yield`.
* `result_axes`: the loop of each dimension of the result.
* `neptune.axes` (attribute, only inside a fused op): which axis of the fused op's domain each
  loop of this nest is.

Why reads are ops inside the region and not operands of the nest: IRDL gives every operand of
one variadic group the same type, and a nest reads tensors of many shapes. It also puts each
access next to its use, so a diagnostic about an access points at the access.
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
from collections.abc import Sequence
from typing import Any

from neptune_mlir.dialects import verify, verify_read
from neptune_mlir.ir.bindings import ext, ir


class Neptune(ext.Dialect, name="neptune"):
    pass


class Numbers(ir.Attribute):
    """An `array<i64: ...>`, as constraint of an attribute (the bindings name no kind of it)."""

    attr_name = "builtin.dense_array"


# Every op but the terminators is a value computation: CSE and dead-code elimination may act.
_PURE = [ext.Pure]

# IRDL constrains all values of one variadic group to one type, so a group of mixed types is
# spelled as this many optional ones. The segment attribute shows it; accessors hide it.
MAX_VALUES = 16


def _mixed(prefix: str, kind: Any) -> dict[str, Any]:
    return {f"{prefix}{k}": kind | None for k in range(MAX_VALUES)}


def segment_sizes(count: int) -> list[int]:
    """Segment sizes of `count` values of mixed types. Raises ValueError over MAX_VALUES."""
    if count > MAX_VALUES:
        raise ValueError(f"{count} values; a fused op carries at most {MAX_VALUES}")
    return [1] * count + [0] * (MAX_VALUES - count)


class YieldOp(Neptune.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """Ends the scalar region of a nest and gives its value.

    Example: `"neptune.yield"(%x) : (f32) -> ()`
    """

    value: ext.Operand[Any]


class ProduceOp(Neptune.Operation, name="produce", traits=[ir.IsTerminatorTrait]):
    """Ends a region of a fused op and gives its tensors (at most 16).

    Example: `"neptune.produce"(%m, %l) {operandSegmentSizes = array<i32: 1, 1, 0, ...>} : ...`
    """

    __annotations__ = _mixed("value", ext.Operand[Any])


class IndexOp(Neptune.Operation, name="index", traits=_PURE):
    """The position along loop `dim` of the enclosing nest.

    Inside a fused op the position is global (not relative to the tile at hand).

    Rejected: `dim` outside the enclosing nest's domain; use outside a nest.
    """

    dim: ir.IntegerAttr
    result: ext.Result[ir.IndexType] = ext.result(default_factory=lambda: ir.IndexType.get())

    verify_invariants = staticmethod(verify_read.index)


class MultiprocessorsOp(Neptune.Operation, name="multiprocessors", traits=_PURE):
    """How many multiprocessors (compute units) the device has that runs the program.

    The host's code alone holds it; the launch plan asks the device.
    """

    result: ext.Result[ir.IndexType] = ext.result(default_factory=lambda: ir.IndexType.get())


class ReadOp(Neptune.Operation, name="read", traits=_PURE):
    """The element of a tensor at this point of the domain: `result = tensor[map(d)[lookups]]`.

    A result of `map` is a position: a loop (`d0`), a loop divided by a constant (`d0 floordiv 4`:
    several query heads share one key head) or its remainder (`d0 mod 16`), a constant, a lookup
    (a symbol), or a sum of one of each. A lookup is an element of another tensor, as index: a
    page of a table, the first row of a sequence. What it reads is data: bounds are the
    program's business, and code that is made of a read through a lookup never leaves the tensor.

    Examples:

        %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32

        %n = "neptune.read"(%table) {map = affine_map<(b, j) -> (b, j floordiv 16)>}
               : (tensor<4x8xi32>) -> i32
        %p = arith.index_cast %n : i32 to index
        %k = "neptune.read"(%pages, %p) {map = affine_map<(b, j)[page] -> (page, j mod 16)>}
               : (tensor<32x16xf32>, index) -> f32

    In the `live` region of a stream a read's loops are the axes of the stream.

    Rejected: use outside a nest or `live`, a map whose rank is not the domain's or the tensor's,
    symbols that are not as many as lookups, a lookup that is not an `arith.index_cast` of a
    `neptune.read` beside it, other index expressions, a loop in two dimensions (but as different
    digits), a static extent that the map can leave, a result that is not the element type.
    """

    tensor: ext.Operand[Any]
    lookups: Sequence[ext.Operand[ir.IndexType]]
    map: ir.AffineMapAttr
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_read.read)


class OldOp(Neptune.Operation, name="old", traits=_PURE):
    """Inside `neptune.correct`: the element of a reference before it moved. As `neptune.read`."""

    tensor: ext.Operand[Any]
    map: ir.AffineMapAttr
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_read.reference)


class NewOp(Neptune.Operation, name="new", traits=_PURE):
    """Inside `neptune.correct`: the element of a reference after it moved. As `neptune.read`.

    The k-th `new` belongs to the k-th `old` of the same region.
    """

    tensor: ext.Operand[Any]
    map: ir.AffineMapAttr
    result: ext.Result[Any]

    verify_invariants = staticmethod(verify_read.reference)


class MapOp(Neptune.Operation, name="map", traits=_PURE):
    """Elementwise nest: `result[d] = body(d)` for every point d of the domain.

    Example (`y[i, j] = exp(x[i, j] - m[i])`):

        %y = "neptune.map"() ({
          %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
          %b = "neptune.read"(%m) {map = affine_map<(i, j) -> (i)>} : (tensor<4xf32>) -> f32
          %d = arith.subf %a, %b : f32
          %e = math.exp %d : f32
          "neptune.yield"(%e) : (f32) -> ()
        }) {domain = array<i64: 4, 8>, result_axes = array<i64: 0, 1>} : () -> tensor<4x8xf32>

    Rejected: `result_axes` that are not a permutation of the loops, a result type that does
    not fit them, a wrong number of extents, a yield of another type than the element type.
    """

    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Numbers
    result_axes: Numbers
    result: ext.Result[Any]
    body: ext.Region

    verify_invariants = staticmethod(verify.map_nest)
    verify_region_invariants = staticmethod(verify.nest_region)


class ReduceOp(Neptune.Operation, name="reduce", traits=_PURE):
    """Reduction nest: `result[p] = ⊕ over r of body(p, r)`.

    The loops that `result_axes` leaves out (r) are reduced with the commutative monoid
    `combiner`: `add`, `mul`, `max`, `min`, `and`, `or`, or `custom`, whose `combine` region
    takes two elements and yields one. `identity` is the monoid's neutral element (for the
    named ones it must be the right one: 0, 1, -inf, +inf, all ones, 0).

    Example (row maximum):

        %m = "neptune.reduce"() ({
          %a = "neptune.read"(%x) {map = affine_map<(i, j) -> (i, j)>} : (tensor<4x8xf32>) -> f32
          "neptune.yield"(%a) : (f32) -> ()
        }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
                result_axes = array<i64: 0>} : () -> tensor<4xf32>

    Rejected: everything `neptune.map` rejects but the permutation, an unknown combiner, an
    identity that is not the combiner's, no reduced loop, a `combine` region present without
    `custom` or absent with it.
    """

    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Numbers
    result_axes: Numbers
    combiner: ir.StringAttr
    identity: Any
    result: ext.Result[Any]
    body: ext.Region
    combine: ext.Region

    verify_invariants = staticmethod(verify.reduce_nest)
    verify_region_invariants = staticmethod(verify.reduce_region)


class AccumulateOp(Neptune.Operation, name="accumulate", traits=_PURE):
    """A running reduction: `result[p] = init[p] ⊕ (⊕ over r of body(p, r))`.

    As `neptune.reduce`, but continues from the running value `init`, of the result's type.
    Inside `neptune.stream` the streamed loop covers the tile at hand only.

    Rejected: everything `neptune.reduce` rejects, an `init` of another type than the result.
    """

    init: ext.Operand[Any]
    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Numbers
    result_axes: Numbers
    combiner: ir.StringAttr
    identity: Any
    result: ext.Result[Any]
    body: ext.Region
    combine: ext.Region

    verify_invariants = staticmethod(verify.accumulate_nest)
    verify_region_invariants = staticmethod(verify.reduce_region)


class CorrectOp(Neptune.Operation, name="correct", traits=_PURE):
    """Repairs accumulated values after their reference moved.

        result[p] = h(p)       where old != new for some reference
        result[p] = acc[p]     otherwise, acc being the first `neptune.read` of the region

    The region is the scalar h: `neptune.read` takes accumulators (the first is the one being
    repaired; an augmented correction also reads others; any other tensor is data),
    `neptune.old` and `neptune.new` the
    references before and after, in pairs. The second line is the numerical guard: where nothing
    moved nothing changes, so `-inf - -inf` never makes a NaN. `form` names how h was found:
    `multiplicative`, `exponential`, `additive`, `monotone`, `augmented`.

    Example (softmax's running sum, h(a, m, m') = a * exp(m - m')):

        %lc = "neptune.correct"() ({
          %a = "neptune.read"(%l0) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
          %o = "neptune.old"(%m0) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
          %n = "neptune.new"(%m) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
          %d = arith.subf %o, %n : f32
          %e = math.exp %d : f32
          %r = arith.mulf %a, %e : f32
          "neptune.yield"(%r) : (f32) -> ()
        }) {domain = array<i64: 4>, result_axes = array<i64: 0>, form = "exponential"}
           : () -> tensor<4xf32>

    Rejected: no accumulator, no reference, olds and news that do not pair (number, element type),
    and what `neptune.map` rejects.
    """

    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Numbers
    result_axes: Numbers
    form: ir.StringAttr
    result: ext.Result[Any]
    h: ext.Region

    verify_invariants = staticmethod(verify.map_nest)
    verify_region_invariants = staticmethod(verify.correct_region)


class StreamOp(Neptune.Operation, name="stream", traits=_PURE):
    """A fused loop nest: several reductions run in one pass over the axis `axis`.

    `domain` and `axis_names` describe one iteration domain shared by every nest in the
    regions (their `neptune.axes` say which of its axes each loop is). Semantics, for a tiling
    of `axis` into consecutive tiles, whatever the tile size:

        r_1..r_n := the identities of the reductions that `body` produces
        for each tile of `axis`:   r_1..r_n := body(r_1..r_n)     (nests see this tile only)
        results  := finish(r_1..r_n)

    `body` takes and produces the running values (`neptune.produce`); each one produced is a
    `neptune.accumulate` whose `init` is the region argument, or corrections of it. A tensor in
    `body` that carries the streamed axis holds that tile only. `finish` computes the results
    from the final values; its nests may run over the streamed axis again (a second sweep, as
    softmax's output needs). `live` (may be empty): takes one `index` per axis of the domain
    and yields an `i1`; where it is false the point contributes the identity to every running
    value, so tiles without a live point may be skipped.

    Attributes that a schedule may add: `neptune.tile = array<i64>` (tile size per axis, 0 =
    the whole axis).

    Rejected: running values, products and region arguments that do not agree in number and
    type, a produced value that no accumulation made, nests without `neptune.axes` or with
    ones that do not fit the domain, an `axis` out of range.
    """

    __annotations__ = {
        "extents": Sequence[ext.Operand[ir.IndexType]],
        "domain": Numbers,
        "axis_names": ir.ArrayAttr,
        "axis": ir.IntegerAttr,
        **_mixed("result", ext.Result[Any]),
        "body": ext.Region,
        "finish": ext.Region,
        "live": ext.Region,
    }

    verify_invariants = staticmethod(verify.stream)
    verify_region_invariants = staticmethod(verify.stream_region)


class PrivateOp(Neptune.Operation, name="private", traits=_PURE):
    """Runs one stream per chunk of its streamed axis, independently (in parallel).

    The axis is cut into `chunks` pieces of about the same length (some may be empty, then they
    hold the identities). The region holds one `neptune.stream` whose `finish` is the identity,
    and a `neptune.produce` of its results; the stream sees its own chunk only. Results have a
    leading dimension of extent `chunks`. Where that is known at run time only (as in a `domain`),
    `count` is the number.

    Rejected: a region that is not one stream and a `neptune.produce` of its results, `chunks`
    under 1 and no `count`, result types that are not `chunks` x the stream's.
    """

    __annotations__ = {
        "count": Sequence[ext.Operand[ir.IndexType]],
        "chunks": ir.IntegerAttr,
        **_mixed("result", ext.Result[Any]),
        "body": ext.Region,
    }

    verify_invariants = staticmethod(verify.private)
    verify_region_invariants = staticmethod(verify.private_region)


class GlobalOp(Neptune.Operation, name="global", traits=_PURE):
    """Joins private results into the global ones (split-k update).

    Its nests read the results of a `neptune.private`: they re-base each private value from its
    own reference to the global one with the same corrections as rolling update, join them over
    the chunk axis, and compute the results. They share the op's domain, whose axis 0 is the
    chunk axis. (`skip-dead-tiles` writes one with sizes of its own, without a private.)

    Attributes that `tile` may add: `neptune.tile` as in `neptune.stream`, and `neptune.tile_few`,
    sizes of further kernels for when there are no more chunks than the first size of each.

    Rejected: nests without a fitting `neptune.axes`, a region that does not end in a
    `neptune.produce` of the result types.
    """

    __annotations__ = {
        "extents": Sequence[ext.Operand[ir.IndexType]],
        "domain": Numbers,
        "axis_names": ir.ArrayAttr,
        **_mixed("result", ext.Result[Any]),
        "body": ext.Region,
    }

    verify_invariants = staticmethod(verify.global_)
    verify_region_invariants = staticmethod(verify.global_region)


NESTS = (MapOp, ReduceOp, AccumulateOp, CorrectOp)
FUSED = (StreamOp, PrivateOp, GlobalOp)


def _flat_accessors() -> None:
    """Accessors that need no segment attribute (one variadic group needs none in IRDL)."""
    for op in (MapOp, ReduceOp, CorrectOp, StreamOp, GlobalOp):
        op.extents = property(lambda self: list(self.operation.operands))
    PrivateOp.count = property(lambda self: next(iter(self.operation.operands), None))
    AccumulateOp.extents = property(lambda self: list(self.operation.operands)[1:])
    AccumulateOp.init = property(lambda self: self.operation.operands[0])
    ProduceOp.values = property(lambda self: list(self.operation.operands))


_flat_accessors()
