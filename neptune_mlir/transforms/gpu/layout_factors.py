# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `assign-layouts` changes in a tile program before it assigns anything: loads are ops, and
factors of products have the type that they are multiplied in."""

from __future__ import annotations

import math
from typing import Any

from neptune_mlir.analysis.layouts import CHUNK
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    element_bytes,
    element_of,
    is_blank,
    is_inside,
    is_tensor,
    nested,
    read_contraction,
    read_generic,
    rounding_of,
    shape_of,
)
from neptune_mlir.dialects.attributes import WIDENS
from neptune_mlir.ir.bindings import arith, ir, linalg, tensor
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.gpu import GpuTarget, MatrixInstruction
from neptune_mlir.transforms.registry import remark
from neptune_mlir.transforms.tiling.elementwise import elementwise


def slice_whole_arrays(forall: Any) -> None:
    """Give whole arrays that tile ops read, or that are stored as they are, the slice that
    folding took away: a load is an op."""
    body = forall.regions[0].blocks[0]
    made: dict[Any, Any] = {}
    for op in list(nested(body)):
        stores = op.name in ("tensor.insert_slice", "tensor.parallel_insert_slice")
        if not (stores or op.name.startswith("linalg.")):
            continue
        for k, value in enumerate(list(op.operands)[: 1 if stores else None]):
            if not is_tensor(value) or is_inside(value, forall) or is_blank(value):
                continue
            if value not in made:
                shape = shape_of(value)
                zeros, ones = [0] * len(shape), [1] * len(shape)
                with ir.InsertionPoint.at_block_begin(body), forall.location:
                    made[value] = tensor.ExtractSliceOp(
                        value.type, value, [], [], [], zeros, list(shape), ones
                    ).result
            op.operands[k] = made[value]


def round_factors(forall: Any, narrow: bool) -> None:
    """Give factors of contractions the 16-bit type that they are multiplied in.

    A product that rounds a factor in its body takes the rounded tile instead. With `narrow`, an
    f32 factor whose partner is f16 (bf16) is rounded too: a matrix instruction takes both in 16
    bits; the accumulator stays f32.
    """
    for op in list(nested(forall.regions[0].blocks[0])):
        if op.name != "linalg.generic":
            continue
        g = read_generic(op)
        if read_contraction(g) is None:
            continue
        types = [element_of(v) for v in g.inputs]
        wanted: dict[int, str] = {}
        for k in (0, 1):
            other = types[1 - k]
            rounded = rounding_of(g, k)
            if rounded is not None:
                wanted[k] = rounded
            elif narrow and types[k] == "f32" and other in ("f16", "bf16"):
                wanted[k] = other
                remark(op.location, f"an f32 factor is rounded to {other}, the other's type")
        if wanted:
            _round_inputs(g, wanted)


def _round_inputs(g: Generic, wanted: dict[int, str]) -> None:
    with ir.InsertionPoint(g.op), g.op.location:
        inputs = [
            _rounded(v, ir.Type.parse(wanted[k])) if k in wanted else v
            for k, v in enumerate(g.inputs)
        ]
        product = linalg.GenericOp(
            [g.result.type], inputs, [g.init], g.op.attributes["indexing_maps"],
            g.op.attributes["iterator_types"],
        )  # fmt: skip
        types = [ir.RankedTensorType(v.type).element_type for v in [*inputs, g.init]]
        here = product.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * 3)
        with ir.InsertionPoint(here):
            a, b, c = here.arguments
            a, b = (v if v.type == c.type else arith.ExtFOp(c.type, v).result for v in (a, b))
            linalg.YieldOp([arith.AddFOp(c, arith.MulFOp(a, b).result).result])
    g.result.replace_all_uses_with(product.results[0])
    g.op.erase()


def _rounded(value: Any, kind: Any) -> Any:
    """An elementwise op that rounds a tile."""
    return elementwise(value, kind, lambda x: arith.TruncFOp(kind, x).result)


def add_up_products(forall: Any) -> None:
    """Have products that are only added to each other share an accumulator: the second one begins
    with what the first one made."""
    for op in list(nested(forall.regions[0].blocks[0])):
        if op.name != "linalg.generic" or read_generic(op).reduced:
            continue
        block = op.regions[0].blocks[0]
        for add in list(block.operations):
            if add.operation.name != "arith.addf":
                continue
            terms = list(add.operation.operands)
            places = [v.arg_number if isinstance(v.owner, ir.Block) else len(op.operands)
                      for v in terms]  # fmt: skip
            last = len(op.operands) - 1
            made = [defining_op(op.operands[k]) if k < last else None for k in places]
            once = all(sum(1 for _ in v.uses) == 1 for v in terms)
            if not once or not all(_is_lone_product(x, op) for x in made):
                continue
            if not made[0].is_before_in_block(made[1]):
                made, places, terms = made[::-1], places[::-1], terms[::-1]
            made[1].operands[2] = made[0].results[0]
            op.operands[places[0]] = made[1].results[0]
            add.operation.results[0].replace_all_uses_with(terms[1])
            add.operation.erase()


def _is_lone_product(op: Any, reader: Any) -> bool:
    """Whether an op is a contraction that begins with nothing, and that one other op reads."""
    if op is None or op.name != "linalg.generic" or op.block != reader.block:
        return False
    g = read_generic(op)
    uses = [use.owner.operation for use in g.result.uses]
    return read_contraction(g) is not None and is_blank(g.init) and uses == [reader]


def unwidened(value: Any) -> Any:
    """What a tile was before it was widened from 8 bits."""
    op = defining_op(value)
    return op.operands[0] if op is not None and WIDENS.on(op) else value


def byte_rows(value: Any) -> int | None:
    """Of a tile made of one of 8 bits, element by element: the dimension that the rows of that run
    along."""
    op = defining_op(value)
    if op is None or op.name != "linalg.generic":
        return None
    g = read_generic(op)
    if g.reduced:
        return None
    for k, source in enumerate(g.inputs):
        along = len(g.maps[k]) - 1 if WIDENS.on(op) else byte_rows(source)
        if along is not None and g.maps[k][along] in g.maps[-1]:
            return g.maps[-1].index(g.maps[k][along])
    return None


def in_one_run(g: Generic, p: Contraction, i: MatrixInstruction) -> int:
    """How many pieces along k are neighbours in a thread: of rows of bytes along the sum it reads
    16 at once, twice (so that lanes of two rows meet other banks). The left factor, a load, comes
    in the same order. (A tile that is made for another product, too, goes through shared memory.)
    """
    alone = i.chain == "a" and sum(1 for _ in g.inputs[p.b].uses) == 1
    along = byte_rows(g.inputs[p.b]) == g.maps[p.b].index(p.k) and g.maps[p.a].index(p.k) == 1
    return math.gcd(g.extents[p.k] // i.k, 2 * CHUNK // i.run) if alone and along else 1


def room(target: GpuTarget, i: MatrixInstruction) -> int:
    """Registers of a thread that a factor which a loop multiplies each time may take. One in runs
    would come from shared memory in other words than the instruction takes."""
    return max(target.resident, target.thread_registers // 4 if i.runs > 1 else 0)


def through_registers(g: Generic, p: Contraction) -> bool:
    """Whether warp groups bring a left factor from shared memory to registers: one of 32 bits whose
    rows do not run along the sum, for their instructions transpose 16 bits alone."""
    return g.maps[p.a].index(p.k) == 0 and element_bytes(element_of(g.inputs[p.a])) > 2


def lies_across(g: Generic, p: Contraction) -> bool:
    """Whether factors of 32 bits are better exchanged for warp groups: the right one would have to
    be transposed, and the left one as the right one not."""
    exchanged = p.swapped()
    return through_registers(g, exchanged) and not through_registers(g, p)
