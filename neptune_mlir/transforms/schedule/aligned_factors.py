# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factors of products whose rows are not aligned: copied to where they are.

The copy engine brings rows that begin at multiples of 16 bytes, so a product of a tensor of other
rows (an odd number of elements) would take programs whose threads load element by element. Moving a
tensor once costs what its bytes do; each element is multiplied hundreds of times:

    o[i, n] = Σ_j x[i, j] * w[j, n]          ->      z[i, j] = x[i, j], its rows apart
                                                     o[i, n] = Σ_j z[i, j] * w[j, n]

`z` has the shape of `x`; its rows begin at multiples of 128 bytes (choice `pitched`), so that those
of a box lie in one line of the cache each, and the copy engine fills with zeros what is behind
their ends. A tensor that another kernel of the program makes for kernels alone is written so, and
not copied, also where only a call knows how long its rows are.

Part of `tile` (option `warp_groups`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.analysis.fused_nests import contractions, nests_of
from neptune_mlir.analysis.layouts import CHUNK
from neptune_mlir.analysis.tiles import note_choices
from neptune_mlir.dialects import neptune as N
from neptune_mlir.dialects.nests import DYNAMIC, Values, build_map
from neptune_mlir.dialects.op_names import READ
from neptune_mlir.dialects.program import precision_of, top_level_op
from neptune_mlir.ir.bindings import ir
from neptune_mlir.transforms.registry import remark

# Products of each element of a factor from which on a copy pays (72 TFLOP/s of programs that load
# by elements, 700 of warp groups, 4.4 TB/s: 36), and of a kernel (a launch takes microseconds).
WORTH = 64
LEAST_WORK = 1 << 28
UNKNOWN = 1024  # an extent that only a call knows
SIZES = {"f16": 2, "bf16": 2, T.FLOAT8: 1}


def align_factors(function: Any, kernels: list[Any]) -> None:
    """Copy such factors of the kernels of a function, or have them written so."""
    copies: dict[Any, Any] = {}
    rounds = bool(precision_of(function))
    for op in kernels:
        wanted = list(dict.fromkeys(_unaligned(op, {**SIZES, "f32": 4} if rounds else SIZES)))
        if any(tensor is None for tensor in wanted):
            continue
        for tensor in wanted:
            if _is_made_for_kernels(tensor):
                note_choices(tensor.owner.operation, {"pitched": 1})
                continue
            if tensor not in copies:
                copies[tensor] = _copied(function, tensor)
                remark(op.operation.location, "a factor is copied, for its rows are not aligned")
            _read_instead(op.operation, tensor, copies[tensor])


def _unaligned(op: Any, sizes: dict[str, int]) -> Iterator[Any]:
    """The tensors that are factors of products of a kernel, with rows that are not aligned; None
    for what stays so."""
    values = Values()
    nests = nests_of(op, values)
    made = {nest.key for nest in nests}
    for nest, *factors in contractions(nests):
        extents = [op.domain[a] for a in nest.loops]
        work = prod(UNKNOWN if n == DYNAMIC else n for n in extents)
        for read in factors:
            if read.attr in made or not isinstance(values[read.attr].type, ir.RankedTensorType):
                continue
            tensor = values[read.attr]
            kind = ir.RankedTensorType(tensor.type)
            size = sizes.get(str(kind.element_type), 0)
            if not size:
                yield None
            elif kind.is_dynamic_dim(kind.rank - 1) or kind.shape[-1] * size % CHUNK:
                made_so = _is_made_for_kernels(tensor) and _is_plain(read)
                yield tensor if made_so or _may_move(read, kind, work) else None


def _may_move(read: Term, kind: Any, work: int) -> bool:
    if not _is_plain(read) or not kind.has_static_shape or kind.rank < 2:
        return False
    return work >= max(LEAST_WORK, WORTH * prod(kind.shape))


def _is_plain(read: Term) -> bool:
    return all(index.op == "index" for index in read.args)


def _is_made_for_kernels(tensor: Any) -> bool:
    """Whether a kernel makes a tensor, and nothing else, that nests alone read."""
    if isinstance(tensor.owner, ir.Block):
        return False
    made = tensor.owner.operation
    kernel = isinstance(made.opview, N.StreamOp | N.GlobalOp | N.MapOp | N.ReduceOp)
    alone = kernel and len(made.results) == 1
    return alone and all(use.owner.name == READ for use in tensor.uses)


def _copied(function: Any, tensor: Any) -> Any:
    """A map, right behind what makes a tensor, that copies it."""
    block = function.regions[0].blocks[0]
    kind, values = ir.RankedTensorType(tensor.type), Values()
    if isinstance(tensor.owner, ir.Block):
        point = ir.InsertionPoint.at_block_begin(block)
    else:
        point = ir.InsertionPoint.after(top_level_op(tensor.owner, block))
    axes = map(T.index, range(kind.rank))
    body = T.read(values.key(tensor), *axes, dtype=str(kind.element_type))
    with point, function.operation.location:
        made = build_map(values, body, list(kind.shape), [])
    note_choices(made.owner.operation, {"pitched": 1})
    return made


def _read_instead(op: Any, old: Any, new: Any) -> None:
    def visit(inner: Any) -> Any:
        if inner.name == READ and inner.operands[0] == old:
            inner.operands[0] = new
        return ir.WalkResult.ADVANCE

    op.walk(visit)
