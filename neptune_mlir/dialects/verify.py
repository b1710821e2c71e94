# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifiers of the `neptune` dialect: what an op's docstring says is rejected, is rejected here.

MLIR calls `<op>_nest` style functions before the op's regions are verified and the
`..._region` ones after, so a region check may rely on verified ops inside. A check emits its
diagnostic at the op that must change, says what is wrong and what would be right, and stops at
the first finding: the rest often follows from it. They run after every pass, so they read each
attribute once and build no MLIR objects. They run before IRDL's own checks of an op, so they
take neither an attribute nor an operand for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra import combiners
from neptune_mlir.dialects.attributes import AXES, TILE
from neptune_mlir.dialects.op_names import (
    ACCUMULATE,
    CORRECT,
    GLOBAL,
    INDEX,
    MAP,
    PRODUCE,
    READ,
    READS,
    STREAM,
    YIELD,
)
from neptune_mlir.dialects.scalars import identity_value
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir

DYNAMIC = ir.ShapedType.get_dynamic_size()
FORMS = ("multiplicative", "exponential", "additive", "monotone", "augmented")
INSIDE = (*READS, INDEX)  # of a nest
LIVE = (READ,)  # of the `live` region of a stream, beside its arguments
# fused ops whose regions hold nests over a shared domain
SHARED_DOMAIN = (STREAM, GLOBAL)


class Rejected(Exception):
    """Ends a check; the diagnostic is emitted at `op`."""

    def __init__(self, op: Any, message: str):
        self.op, self.message = op, message


def checked(function: Callable[[Any], None]) -> Callable[[Any], bool]:
    """Turn a function that raises `_Rejected` into an MLIR verifier."""

    def verifier(op: Any) -> bool:
        operation = op.operation
        try:
            function(operation)
        except Rejected as rejected:
            name = rejected.op.name
            rejected.op.location.emit_error(f"'{name}' op {rejected.message}")
            return False
        return True

    verifier.__name__ = function.__name__
    verifier.__doc__ = function.__doc__
    return verifier


# ---- attributes and types -------------------------------------------------------------------


def needed(op: Any, name: str, kind: Any, wanted: str) -> Any:
    if name not in op.attributes:
        raise Rejected(op, f"needs the attribute '{name}', {wanted}")
    attribute = op.attributes[name]
    if not isinstance(attribute, kind):
        raise Rejected(op, f"attribute '{name}' must be {wanted}, got {attribute}")
    return attribute


def numbers_of(op: Any, name: str) -> list[int]:
    return list(needed(op, name, ir.DenseI64ArrayAttr, "an 'array<i64: ...>'"))


def integer_of(op: Any, name: str) -> int:
    return int(needed(op, name, ir.IntegerAttr, "an integer").value)


def _string(op: Any, name: str, known: Sequence[str]) -> str:
    value = str(needed(op, name, ir.StringAttr, "a string").value)
    if value not in known:
        raise Rejected(op, f"{name} '{value}' is unknown; known are {', '.join(known)}")
    return value


def check_counts(op: Any, operands: int | None = None, results: int = 1) -> None:
    """Check the number of operands and results before anything looks at them."""
    if operands is not None and len(op.operands) != operands:
        raise Rejected(op, f"takes {operands} operands, got {len(op.operands)}")
    if len(op.results) != results:
        raise Rejected(op, f"gives {results} results, not {len(op.results)}")


def tensor_of(op: Any, value: Any, what: str) -> tuple[list[int], Any]:
    """Shape and element type of a ranked tensor."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        raise Rejected(op, f"{what} must be a ranked tensor, got {kind}")
    return list(kind.shape), kind.element_type


def _extent_text(extent: int) -> str:
    return "?" if extent == DYNAMIC else str(extent)


def _shape_text(extents: Sequence[int], element: Any) -> str:
    return f"tensor<{''.join(f'{_extent_text(e)}x' for e in extents)}{element}>"


def _domain(op: Any, extents: int) -> list[int]:
    """The loop extents, checked against the number of `extents` operands."""
    domain = numbers_of(op, "domain")
    for loop, extent in enumerate(domain):
        if extent < 0 and extent != DYNAMIC:
            raise Rejected(op, f"loop {loop} has the negative extent {extent}")
    dynamic = domain.count(DYNAMIC)
    if dynamic != extents:
        raise Rejected(
            op,
            f"has {dynamic} loops of run-time extent but {extents} 'extents' operands; "
            "give one index value for each such loop, in order",
        )
    return domain


# ---- nests ----------------------------------------------------------------------------------


def _nest(op: Any, extents: int) -> tuple[list[int], list[int], Any]:
    """What all nests share; returns domain, result axes and element type."""
    check_counts(op)
    domain = _domain(op, extents)
    result_axes = numbers_of(op, "result_axes")
    for axis in result_axes:
        if not 0 <= axis < len(domain):
            raise Rejected(op, f"result axis {axis} is not one of the {len(domain)} loops")
    if len(set(result_axes)) != len(result_axes):
        raise Rejected(op, f"result_axes {result_axes} repeat a loop")
    shape, element = tensor_of(op, op.results[0], "the result")
    wanted = [domain[axis] for axis in result_axes]
    if shape != wanted:
        raise Rejected(
            op,
            f"result type {op.results[0].type} does not fit its loops; "
            f"result_axes {result_axes} make it {_shape_text(wanted, element)}",
        )
    _axes(op, domain)
    return domain, result_axes, element


def _axes(op: Any, domain: list[int]) -> None:
    """`neptune.axes` places a nest in the domain of the fused op around it."""
    parent = op.parent
    inside = parent is not None and parent.name in SHARED_DOMAIN
    present = AXES.on(op)
    if not inside:
        if present:
            raise Rejected(op, f"has '{AXES}' but stands in no fused op; remove it")
        return
    if not present:
        raise Rejected(
            op, f"needs '{AXES}' (the axis of each loop), because it is in a '{parent.name}'"
        )
    axes = numbers_of(op, str(AXES))
    shared = numbers_of(parent, "domain")
    if len(axes) != len(domain):
        raise Rejected(op, f"'{AXES}' names {len(axes)} axes for {len(domain)} loops")
    if len(set(axes)) != len(axes):
        raise Rejected(op, f"'{AXES}' {axes} repeat an axis")
    for loop, axis in enumerate(axes):
        if not 0 <= axis < len(shared):
            raise Rejected(op, f"axis {axis} is not one of the {len(shared)} of '{parent.name}'")
        pair = (domain[loop], shared[axis])
        if DYNAMIC not in pair and pair[0] != pair[1]:
            raise Rejected(op, f"loop {loop} has extent {pair[0]}, but axis {axis} has {pair[1]}")


@checked
def map_nest(op: Any) -> None:
    """neptune.map and neptune.correct: every loop makes a dimension of the result."""
    domain, result_axes, _ = _nest(op, len(op.operands))
    if len(result_axes) != len(domain):
        left_out = sorted(set(range(len(domain))) - set(result_axes))
        raise Rejected(
            op,
            f"result_axes {result_axes} are not a permutation of the loops: loops {left_out} are "
            "left out; only neptune.reduce may do that",
        )
    if op.name == CORRECT:
        _string(op, "form", FORMS)


def _reduction(op: Any, extents: int) -> None:
    domain, result_axes, element = _nest(op, extents)
    if len(result_axes) == len(domain):
        raise Rejected(op, "reduces no loop; leave one out of result_axes, or use neptune.map")
    combiner = str(needed(op, "combiner", ir.StringAttr, "a string").value)
    if combiner != "custom" and not combiners.is_known(combiner):
        _string(op, "combiner", (*combiners.names(), "custom"))
    identity = needed(op, "identity", ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr, "a number")
    if identity.type != element:
        raise Rejected(op, f"identity {identity} is not of the element type {element}")
    if combiner != "custom":
        _named_identity(op, combiner, identity, str(element))


def _named_identity(op: Any, combiner: str, identity: Any, dtype: str) -> None:

    try:
        wanted = identity_value(combiner, dtype)
    except LoweringError as error:
        raise Rejected(op, error.message) from None
    if isinstance(identity, ir.FloatAttr):
        same = identity.value == wanted
    else:  # an i1 or a negative number may be read signed or unsigned: compare the bits
        bits = 64 if dtype == "index" else int(dtype[1:])
        same = (int(identity.value) - int(wanted)) % 2**bits == 0
    if not same:
        raise Rejected(op, f"identity of '{combiner}' on {dtype} is {wanted}, got {identity}")


@checked
def reduce_nest(op: Any) -> None:
    _reduction(op, len(op.operands))


@checked
def accumulate_nest(op: Any) -> None:
    if not len(op.operands):
        raise Rejected(op, "needs a running value to continue")
    _reduction(op, len(op.operands) - 1)
    init, result = op.operands[0].type, op.results[0].type
    if init != result:
        raise Rejected(op, f"continues a running value of type {init} as {result}")


# ---- scalar regions -------------------------------------------------------------------------


def _single_block(op: Any, region: int, name: str, arguments: Sequence[Any]) -> Any:
    """The one block of a region, its arguments checked to be of these types."""
    blocks = list(op.regions[region].blocks)
    if len(blocks) != 1:
        raise Rejected(op, f"region '{name}' must be one block, has {len(blocks)}")
    found = [a.type for a in blocks[0].arguments]
    if found != list(arguments):
        raise Rejected(
            op,
            f"region '{name}' takes ({_types_text(found)}) where "
            f"({_types_text(arguments)}) is given",
        )
    return blocks[0]


def _types_text(types: Sequence[Any]) -> str:
    return ", ".join(map(str, types))


def _scalar_code(op: Any, block: Any, yields: Any, *, allowed: Sequence[str]) -> list[Any]:
    """Check a region of scalar code that yields one value; returns its reads in order.

    `allowed`: what the region may look at beside its arguments.
    """
    found = []
    *code, last = (o.operation for o in block.operations)
    for inner in code:
        name = inner.name
        if name in INSIDE:
            if name not in allowed:
                raise Rejected(inner, "stands in a region that sees its arguments only")
            if name in READS:
                found.append(inner)
        elif not name.startswith(("arith.", "math.")):
            raise Rejected(
                inner,
                "is not scalar code; the region of a nest holds arith, math and neptune.read, "
                "index, old and new",
            )
        elif any(isinstance(r.type, ir.ShapedType) for r in inner.results):
            raise Rejected(inner, "computes a tensor or vector inside a nest; a nest is scalar")
    _ends_in(op, last, YIELD)
    if last.operands[0].type != yields:
        raise Rejected(last, f"yields {last.operands[0].type} where {yields} is needed")
    return found


def _ends_in(op: Any, last: Any, terminator: str) -> None:
    if last.name != terminator:
        raise Rejected(last, f"ends a region of '{op.name}', which must end in {terminator}")


def _element(op: Any) -> Any:
    return op.results[0].type.element_type


@checked
def nest_region(op: Any) -> None:
    block = _single_block(op, 0, "body", [])
    _scalar_code(op, block, _element(op), allowed=INSIDE)


@checked
def reduce_region(op: Any) -> None:
    element = _element(op)
    _scalar_code(op, _single_block(op, 0, "body", []), element, allowed=INSIDE)
    combiner = op.attributes["combiner"].value
    if combiner == "custom":
        if not len(op.regions[1].blocks):
            raise Rejected(op, "has the combiner 'custom' but no 'combine' region")
        block = _single_block(op, 1, "combine", [element, element])
        _scalar_code(op, block, element, allowed=())
    elif len(op.regions[1].blocks):
        raise Rejected(op, f"has a 'combine' region, but its combiner is '{combiner}'")


@checked
def correct_region(op: Any) -> None:
    block = _single_block(op, 0, "h", [])
    by_role: dict[str, list[Any]] = {name: [] for name in READS}
    for read in _scalar_code(op, block, _element(op), allowed=INSIDE):
        by_role[read.name].append(read)
    accumulators, old, new = (by_role[name] for name in READS)
    if not accumulators:
        raise Rejected(op, "repairs nothing: read the accumulator with neptune.read")
    if accumulators[0].results[0].type != _element(op):
        raise Rejected(
            accumulators[0],
            f"is the value under repair, of type {accumulators[0].results[0].type}, "
            f"but the result holds {_element(op)}",
        )
    if not old and not new:
        raise Rejected(op, "has no reference: read them with neptune.old and neptune.new")
    if len(old) != len(new):
        raise Rejected(op, f"has {len(old)} neptune.old and {len(new)} neptune.new; pair them")
    for before, after in zip(old, new, strict=True):
        if before.results[0].type != after.results[0].type:
            raise Rejected(
                after, f"is {after.results[0].type}, its neptune.old is {before.results[0].type}"
            )


# ---- fused ops ------------------------------------------------------------------------------


def _shared_domain(op: Any) -> list[int]:
    domain = _domain(op, len(op.operands))
    names = list(needed(op, "axis_names", ir.ArrayAttr, "an array of strings"))
    if not all(isinstance(name, ir.StringAttr) for name in names):
        raise Rejected(op, "axis_names must be strings")
    if len(names) != len(domain):
        raise Rejected(op, f"names {len(names)} axes of {len(domain)}")
    if len({name.value for name in names}) != len(names):
        raise Rejected(op, "axis_names repeat a name")
    if TILE.on(op):
        tile = numbers_of(op, str(TILE))
        if len(tile) != len(domain) or min(tile, default=0) < 0:
            raise Rejected(
                op, f"'{TILE}' {tile} must give one size, 0 or more, for each of "
                f"{len(domain)} axes",
            )  # fmt: skip
    return domain


def _products(op: Any, block: Any, types: Sequence[Any], what: str) -> list[Any]:
    """The values that a region of a fused op produces, checked to be of these types."""
    last = block.operations[len(block.operations) - 1].operation
    _ends_in(op, last, PRODUCE)
    found = [v.type for v in last.operands]
    if found != list(types):
        raise Rejected(
            last, f"produces ({_types_text(found)}) where {what} are ({_types_text(types)})"
        )
    return list(last.operands)


@checked
def stream(op: Any) -> None:
    domain = _shared_domain(op)
    axis = integer_of(op, "axis")
    if not 0 <= axis < len(domain):
        raise Rejected(op, f"streams axis {axis} of {len(domain)}")


@checked
def stream_region(op: Any) -> None:
    body = op.regions[0].blocks[0] if len(op.regions[0].blocks) == 1 else None
    if body is None:
        raise Rejected(op, "region 'body' must be one block")
    running = [a.type for a in body.arguments]
    for position, value in enumerate(_products(op, body, running, "the running values")):
        if not _accumulates(value, body, position):
            raise Rejected(
                op,
                f"running value {position} is not made by a neptune.accumulate that continues "
                f"argument {position} of 'body'",
            )
    finish = _single_block(op, 1, "finish", running)
    _products(op, finish, [r.type for r in op.results], "the results")
    if len(op.regions[2].blocks):
        axes = len(op.attributes["domain"])
        live = _single_block(op, 2, "live", [ir.IndexType.get(op.context)] * axes)
        _scalar_code(op, live, ir.IntegerType.get_signless(1, op.context), allowed=LIVE)


def _accumulates(value: Any, body: Any, position: int) -> bool:
    """Whether `value` continues the body's argument `position` through an accumulation.

    Corrections, and maps that corrections became, may stand between.
    """
    stack, seen = [(value, False)], set()
    while stack:
        current, accumulated = stack.pop()
        owner = current.owner
        if isinstance(owner, ir.Block):
            if owner == body and accumulated and current.arg_number == position:
                return True
            continue
        if (owner, accumulated) in seen:
            continue
        seen.add((owner, accumulated))
        if owner.name == ACCUMULATE:
            stack.append((owner.operands[0], True))
        elif owner.name in (CORRECT, MAP):
            inside = owner.regions[0].blocks[0].operations
            stack += [
                (o.operation.operands[0], accumulated) for o in inside if o.operation.name == READ
            ]
    return False


@checked
def private(op: Any) -> None:
    chunks, counts = integer_of(op, "chunks"), len(op.operands)
    if chunks < 1 and chunks != DYNAMIC:
        raise Rejected(op, f"cuts its axis into {chunks} chunks")
    if counts != (chunks == DYNAMIC):
        raise Rejected(op, f"has {counts} counts for {_extent_text(chunks)} chunks")


@checked
def private_region(op: Any) -> None:
    block = _single_block(op, 0, "body", [])
    operations = [o.operation for o in block.operations]
    names = [o.name for o in operations]
    if names != [STREAM, PRODUCE]:
        raise Rejected(
            op, "must hold one neptune.stream and a neptune.produce of its results, holds "
            + ", ".join(names),
        )  # fmt: skip
    inner, produce = operations
    if list(produce.operands) != list(inner.results):
        raise Rejected(produce, "must produce the results of the stream, in order")
    finish = inner.regions[1].blocks[0]
    if list(finish.operations[0].operation.operands) != list(finish.arguments):
        raise Rejected(
            inner, "stands in a neptune.private: its 'finish' must give the running values as "
            "they are",
        )  # fmt: skip
    chunks = op.attributes["chunks"].value
    found = [r.type for r in op.results]
    kinds = [r.type for r in inner.results]
    wanted = [_shape_text([chunks, *kind.shape], kind.element_type) for kind in kinds]
    if [str(kind) for kind in found] != wanted:
        raise Rejected(
            op, f"has results ({_types_text(found)}), {_extent_text(chunks)} chunks of the "
            f"stream's make ({', '.join(wanted)})",
        )  # fmt: skip


@checked
def global_(op: Any) -> None:
    _shared_domain(op)


@checked
def global_region(op: Any) -> None:
    block = _single_block(op, 0, "body", [])
    _products(op, block, [r.type for r in op.results], "the results")
