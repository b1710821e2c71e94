# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `neptune` dialect: reduction loop nests on ranked tensors, and their fused forms.

Two levels share these ops:

* **program**: `neptune.map` and `neptune.reduce` nests, each over an iteration domain of
  its own, no schedule;
* **fused**: `neptune.stream`, `neptune.private` and `neptune.global` hold nests that share
  one iteration domain (the region's `axes`), with `neptune.correct` repairing what was
  accumulated under an old reference.

Common vocabulary of the nests:

* `domain`: the extent of every loop, `-9223372036854775808` (`?`) where it is known at run
  time only; the `extents` operands give those, in order.
* `indexing_maps`: one affine map from the domain to each input, then one to the result.
  A map result is an axis `d0`, an axis divided by a constant `d0 floordiv 4` (several query
  heads share one key head; inputs only) or a constant (inputs only).
* the region holds scalar code (`arith`, `math`, `neptune.index`), takes one element of each
  input, and ends in `neptune.yield`. It may use scalars defined above (function arguments of
  scalar type, `tensor.dim`, constants), never tensors.
* `neptune.axes` (attribute, only inside a fused op): which axis of the fused op's domain each
  loop of this nest is.
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
from collections.abc import Sequence
from typing import Any

from neptune_mlir.bindings import ext, ir
from neptune_mlir.dialects import verify


class Neptune(ext.Dialect, name="neptune"):
    pass




# Every op is a value computation: CSE and dead-code elimination may act on it.
_PURE = [ext.Pure]


class YieldOp(Neptune.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """Ends every region of this dialect and gives the region's values.

    Example: `"neptune.yield"(%x) : (f32) -> ()`
    """

    values: Sequence[ext.Operand[Any]]


class IndexOp(Neptune.Operation, name="index", traits=_PURE):
    """The position along loop `dim` of the enclosing nest.

    Inside a fused op the position is global (not relative to the tile at hand).

    Rejected: `dim` outside the enclosing nest's domain; use outside a nest.
    """

    dim: Any
    result: ext.Result[ir.IndexType] = ext.result(default_factory=lambda: ir.IndexType.get())

    verify_invariants = staticmethod(verify.index)


class MapOp(Neptune.Operation, name="map", traits=_PURE):
    """Elementwise nest: `result[map_r(d)] = body(inputs[map_i(d)]...)` for every d in the domain.

    The result map is a permutation of all axes.

    Example (`y[i, j] = exp(x[i, j] - m[i])`):

        %y = "neptune.map"(%x, %m) <{...}> ({
        ^bb0(%a: f32, %b: f32):
          %d = arith.subf %a, %b : f32
          %e = math.exp %d : f32
          "neptune.yield"(%e) : (f32) -> ()
        }) {domain = array<i64: 4, 8>,
            indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                             affine_map<(i, j) -> (i, j)>],
            operandSegmentSizes = array<i32: 2, 0>}
           : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>

    Rejected: a map that does not fit its tensor (rank, static extent), a result map that is
    not a permutation, a wrong number of extents, body arguments that are not the element
    types, a yield that is not the result's element type, tensors captured by the body.
    """

    inputs: Sequence[ext.Operand[Any]]
    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Any
    indexing_maps: Any
    result: ext.Result[Any]
    body: ext.Region

    verify_invariants = staticmethod(verify.map_nest)
    verify_region_invariants = staticmethod(verify.map_region)


class ReduceOp(Neptune.Operation, name="reduce", traits=_PURE):
    """Reduction nest: `result[p] = init[p] ⊕ (⊕ over r of body(inputs[map_i(p, r)]...))`.

    The loops that the result map leaves out are reduced with the commutative monoid
    `combiner`: `add`, `mul`, `max`, `min`, `and`, `or`, or `custom`, whose `combine` region
    takes two elements and yields one. `identity` is the monoid's neutral element (for the
    named ones it must be the right one: 0, 1, -inf, +inf, all ones, 0).
    `init` (at most one operand) is a running value to accumulate into; without it the
    reduction starts from `identity`.

    Example (row maximum):

        %m = "neptune.reduce"(%x) ({
        ^bb0(%a: f32):
          "neptune.yield"(%a) : (f32) -> ()
        }, {}) {combiner = "max", identity = 0xFF800000 : f32, domain = array<i64: 4, 8>,
            indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
            operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x8xf32>) -> tensor<4xf32>

    Rejected: everything `neptune.map` rejects, an unknown combiner, an identity that is not
    the combiner's, a result map that drops no axis or repeats one, an `init` of another type,
    a `combine` region present without `custom` or absent with it.
    """

    inputs: Sequence[ext.Operand[Any]]
    init: Sequence[ext.Operand[Any]]
    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Any
    indexing_maps: Any
    combiner: Any
    identity: Any
    result: ext.Result[Any]
    body: ext.Region
    combine: ext.Region

    verify_invariants = staticmethod(verify.reduce_nest)
    verify_region_invariants = staticmethod(verify.reduce_region)


class CorrectOp(Neptune.Operation, name="correct", traits=_PURE):
    """Repairs accumulated values after their reference moved.

        result[p] = h(values[p]..., old[p]..., new[p]...)   where old[p] != new[p] for some reference
        result[p] = values[0][p]                            otherwise

    `values[0]` is the accumulator being repaired; an augmented correction also reads the
    others. `old` and `new` are the references before and after, in pairs. The region is the
    scalar h. The second line is the numerical guard: where nothing moved, nothing changes, so
    `-inf - -inf` never makes a NaN. `form` names how h was found: `multiplicative`,
    `exponential`, `additive`, `monotone`, `augmented`.

    Example (softmax's running sum): h(a, m, m') = a * exp(m - m')

    Rejected: differing numbers or types of old and new references, no reference, a region
    that does not yield the type of `values[0]`, maps that do not fit.
    """

    values: Sequence[ext.Operand[Any]]
    old: Sequence[ext.Operand[Any]]
    new: Sequence[ext.Operand[Any]]
    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Any
    indexing_maps: Any
    form: Any
    result: ext.Result[Any]
    h: ext.Region

    verify_invariants = staticmethod(verify.correct)
    verify_region_invariants = staticmethod(verify.correct_region)


class StreamOp(Neptune.Operation, name="stream", traits=_PURE):
    """A fused loop nest: several reductions run in one pass over the axis `axis`.

    `domain` and `axis_names` describe one iteration domain shared by every nest in the
    regions (their `neptune.axes` say which of its axes each loop is). Semantics, for a tiling
    of `axis` into consecutive tiles, whatever the tile size:

        r_1..r_n := the identities of the reductions that `body` yields
        for each tile of `axis`:   r_1..r_n := body(r_1..r_n)     (nests see this tile only)
        results  := finish(r_1..r_n)

    `body` takes and yields the running values; each yielded value is a `neptune.reduce` with
    an `init`, or one plus corrections. A tensor in `body` that carries the streamed axis
    holds that tile only. `finish` computes the results from the final values; its nests may
    run over the streamed axis again (a second sweep, as softmax's output needs).
    `live` (may be empty): takes one `index` per axis of the domain and yields an `i1`; where
    it is false the point contributes the identity to every running value, so tiles without a
    live point may be skipped.

    Attributes that a schedule may add: `neptune.tile = array<i64>` (tile size per axis, 0 =
    the whole axis).

    Rejected: running values, yields and region arguments that do not agree in number and
    type, a yielded value that no running reduction made, nests without `neptune.axes` or with
    one that does not fit the domain, an `axis` out of range.
    """

    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Any
    axis_names: Any
    axis: Any
    results_: Sequence[ext.Result[Any]]
    body: ext.Region
    finish: ext.Region
    live: ext.Region

    verify_invariants = staticmethod(verify.stream)
    verify_region_invariants = staticmethod(verify.stream_region)


class PrivateOp(Neptune.Operation, name="private", traits=_PURE):
    """Runs one stream per chunk of its streamed axis, independently (in parallel).

    The axis is cut into `chunks` equal pieces (the last ones may be short or empty, then they
    hold the identities). The region holds one `neptune.stream` whose `finish` is the identity;
    it sees its own chunk only. Results have a leading axis of extent `chunks`.

    Rejected: a region that is not one stream and a yield of its results, `chunks` < 1, result
    types that are not `chunks` x the stream's.
    """

    chunks: Any
    results_: Sequence[ext.Result[Any]]
    body: ext.Region

    verify_invariants = staticmethod(verify.private)
    verify_region_invariants = staticmethod(verify.private_region)


class GlobalOp(Neptune.Operation, name="global", traits=_PURE):
    """Joins private results into the global ones (split-k update).

    Takes the results of a `neptune.private`; the region re-bases each private value from its
    own reference to the global one with the same corrections as rolling update, joins them
    over the chunk axis, and computes the results. Its nests share the op's domain, whose
    axis 0 is the chunk axis.

    Rejected: operands that are not the results of one `neptune.private`, region arguments or
    yields that do not agree, nests without a fitting `neptune.axes`.
    """

    privates: Sequence[ext.Operand[Any]]
    extents: Sequence[ext.Operand[ir.IndexType]]
    domain: Any
    axis_names: Any
    results_: Sequence[ext.Result[Any]]
    body: ext.Region

    verify_invariants = staticmethod(verify.global_)
    verify_region_invariants = staticmethod(verify.global_region)


NESTS = (MapOp, ReduceOp, CorrectOp)
