# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of StableHLO that take a shape as a tensor, as ops on tensors whose extents are known.

    dynamic_broadcast_in_dim, dynamic_iota, reverse     `linalg.generic`
    dynamic_reshape                         dimensions merged and split
    dynamic_pad                             `tensor.pad`
    real_dynamic_slice, dynamic_update_slice    slices
    dynamic_gather                          a gather of windows of constant size, or a slice, or
                                            each element read
    convolution                             of images in the layout that has a conversion

Each form is given what is known of lengths (`Lengths`) and an op, makes ops in front of it, and
raises NoForm where a size is not known.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neptune_mlir.driver.stablehlo.bodies import NoForm, element_of, shape_of, signless
from neptune_mlir.driver.stablehlo.ops import transpose
from neptune_mlir.driver.stablehlo.polynomials import ONE, ZERO, Length
from neptune_mlir.ir.bindings import arith, ir, linalg

if TYPE_CHECKING:
    from neptune_mlir.driver.stablehlo.lengths import Lengths

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def _kind(sizes: Sequence[Length], element: Any) -> Any:
    numbers = [size.number for size in sizes]
    return ir.RankedTensorType.get([_DYNAMIC if n is None else n for n in numbers], element)


def _generic(
    lengths: Lengths, inputs: Sequence[tuple[Any, Any]], sizes: Sequence[Length], element: Any,
    body: Callable[..., Any],
) -> Any:  # fmt: skip
    """A map over all elements of a new tensor, of inputs with their affine maps."""
    kind = _kind(sizes, element)
    empty = ir.Operation.create("tensor.empty", [kind], lengths.dynamic(sizes, kind.shape))
    maps = [m for _, m in inputs] + [ir.AffineMap.get_identity(len(sizes))]
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    op = linalg.GenericOp(
        [kind], [value for value, _ in inputs], [empty.results[0]],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([parallel] * len(sizes)),
    )  # fmt: skip
    block = op.regions[0].blocks.append(*(element_of(value) for value, _ in inputs), element)
    with ir.InsertionPoint(block):
        linalg.YieldOp([body(*list(block.arguments)[:-1])])
    return lengths.know(op.operation.results[0], sizes)


def _broadcast(lengths: Lengths, op: Any) -> Any:
    value, sizes = op.operands[0], lengths.numbers(op.operands[1])
    dims = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    given = lengths.extents(value)
    at: list[Any] = []
    for extent, dim in zip(given, dims, strict=True):
        if lengths.equal(extent, sizes[dim]):
            at.append(ir.AffineExpr.get_dim(dim))
        elif extent == ONE:
            at.append(ir.AffineExpr.get_constant(0))
        else:
            raise NoForm("an extent that may be 1 or not")
    read = ir.AffineMap.get(len(sizes), 0, at)
    if read == ir.AffineMap.get_identity(len(sizes)):
        return value
    return _generic(lengths, [(value, read)], sizes, element_of(value), lambda x: x)


def _iota(lengths: Lengths, op: Any) -> Any:
    sizes, dim = lengths.numbers(op.operands[0]), op.attributes["iota_dimension"].value
    element = element_of(op.results[0])
    if signless(element) != element:
        raise NoForm("numbers without a sign")

    def position() -> Any:
        found = _position(dim)
        if isinstance(element, ir.IntegerType):
            return arith.index_cast(element, found)
        return arith.sitofp(element, arith.index_cast(ir.IntegerType.get_signless(64), found))

    return _generic(lengths, [], sizes, element, position)


def _reverse(lengths: Lengths, op: Any) -> Any:
    (value,) = op.operands
    turned = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    sizes = lengths.extents(value)
    if all(sizes[k].number is not None for k in turned):
        raise NoForm("it has a conversion")
    last = {k: lengths.index(sizes[k] - ONE) for k in turned}

    def element() -> Any:
        at = [
            arith.subi(last[k], _position(k)) if k in last else _position(k)
            for k in range(len(sizes))
        ]
        kind = element_of(value)
        return ir.Operation.create("tensor.extract", [kind], [value, *at]).results[0]

    return _generic(lengths, [], sizes, element_of(value), element)


# ---- reshapes ------------------------------------------------------------------------------------


def _reshape(lengths: Lengths, op: Any) -> Any:
    return _reshaped(lengths, op.operands[0], lengths.numbers(op.operands[1]))


def _reshaped(lengths: Lengths, value: Any, sizes: Sequence[Length]) -> Any:
    given = lengths.extents(value)
    groups = _groups(given, sizes)
    element = element_of(value)
    merged = [functools.reduce(Length.__mul__, (given[k] for k in a), ONE) for a, _ in groups]
    if any(len(a) != 1 for a, _ in groups):
        kind = _kind(merged, element)
        reassociation = _indices([a for a, _ in groups])
        collapse = ir.Operation.create(
            "tensor.collapse_shape", [kind], [value], {"reassociation": reassociation}
        )
        value = collapse.results[0]
    elif value.type != _kind(merged, element):
        value = ir.Operation.create("tensor.cast", [_kind(merged, element)], [value]).results[0]
    if any(len(b) != 1 for _, b in groups):
        kind = _kind(sizes, element)
        attributes = {
            "reassociation": _indices([b for _, b in groups]),
            "static_output_shape": ir.DenseI64ArrayAttr.get(list(kind.shape)),
        }
        dynamic = lengths.dynamic(sizes, kind.shape)
        expand = ir.Operation.create("tensor.expand_shape", [kind], [value, *dynamic], attributes)
        value = expand.results[0]
    return lengths.know(value, sizes)


def _groups(given: Sequence[Length], made: Sequence[Length]) -> list[tuple[list[int], list[int]]]:
    """Dimensions that are merged, and those that the result of it is split into. Raises NoForm."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(given) and j < len(made):
        left, right, a, b = [i], [j], given[i], made[j]
        i, j = i + 1, j + 1
        while a != b:
            if i < len(given) and (b.over(a) is not None or j == len(made)):
                left.append(i)
                a, i = a * given[i], i + 1
            elif j < len(made):
                right.append(j)
                b, j = b * made[j], j + 1
            else:
                raise NoForm("shapes whose numbers of elements are not known to be equal")
        groups.append((left, right))
    ones = [*given[i:], *made[j:]]
    if any(size != ONE for size in ones):
        raise NoForm("shapes whose numbers of elements are not known to be equal")
    if groups:
        groups[-1][0].extend(range(i, len(given)))
        groups[-1][1].extend(range(j, len(made)))
    return groups


def _indices(groups: Sequence[Sequence[int]]) -> Any:
    kind = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get(
        [ir.ArrayAttr.get([ir.IntegerAttr.get(kind, k) for k in group]) for group in groups]
    )


# ---- convolutions --------------------------------------------------------------------------------

_ROWS = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"  # what has a conversion for any batch


def _convolution(lengths: Lengths, op: Any) -> Any:
    """Of images in another layout."""
    numbers = op.attributes["dimension_numbers"]
    words = re.search(r"<(\[.*\])>", str(numbers))
    layouts = [re.findall(r"\w+", part) for part in re.split("x|->", words[1])] if words else []
    static = all(size.number is not None for size in lengths.extents(op.operands[0]))
    if static or [len(layout) for layout in layouts] != [4, 4, 4] or (words and words[1] == _ROWS):
        raise NoForm("it has a conversion, or none")
    wanted = [re.findall(r"\w+", part) for part in re.split("x|->", _ROWS)]
    given = [
        transpose(value, [layout.index(dim) for dim in order])
        for value, layout, order in zip(op.operands, layouts, wanted, strict=False)
    ]
    order = [layouts[2].index(dim) for dim in wanted[2]]
    shape = [shape_of(op.results[0])[k] for k in order]
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["dimension_numbers"] = ir.Attribute.parse(f"#stablehlo.conv<{_ROWS}>")
    kind = ir.RankedTensorType.get(shape, element_of(op.results[0]))
    made = ir.Operation.create("stablehlo.convolution", [kind], given, attributes)
    return transpose(made.results[0], [order.index(k) for k in range(len(order))])


# ---- parts ---------------------------------------------------------------------------------------


def _pad(lengths: Lengths, op: Any) -> Any:
    value, filler, *numbers = op.operands
    low, high, inner = (lengths.numbers(v) for v in numbers)
    if any(size != ZERO for size in inner):
        raise NoForm("space between elements")
    if any(lengths.sizes.are("LT", size, ZERO) is not False for size in (*low, *high)):
        raise NoForm("less than nothing at an end")
    given = lengths.extents(value)
    sizes = [a + n + b for a, n, b in zip(low, given, high, strict=True)]
    kind = _kind(sizes, element_of(value))
    number = ir.Operation.create("tensor.extract", [element_of(filler)], [filler]).results[0]
    ends = [_mixed(lengths, low), _mixed(lengths, high)]
    attributes = {
        "static_low": ends[0][1], "static_high": ends[1][1],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(ends[0][0]), len(ends[1][0])]),
    }  # fmt: skip
    made = ir.Operation.create(
        "tensor.pad", [kind], [value, *ends[0][0], *ends[1][0]], attributes, regions=1
    )
    block = made.regions[0].blocks.append(*[ir.IndexType.get()] * len(sizes))
    with ir.InsertionPoint(block):
        ir.Operation.create("tensor.yield", operands=[number])
    return lengths.know(made.results[0], sizes)


def _mixed(lengths: Lengths, sizes: Sequence[Length]) -> tuple[list[Any], Any]:
    """Values of what only calls know, and the attribute of the numbers."""
    static = [_DYNAMIC if size.number is None else size.number for size in sizes]
    return lengths.dynamic(sizes, static), ir.DenseI64ArrayAttr.get(static)


def _slice(lengths: Lengths, op: Any) -> Any:
    value, *bounds = op.operands
    start, end, step = (lengths.numbers(v) for v in bounds)
    given = lengths.extents(value)
    if any(size.number is None or size.number < 1 for size in step):
        raise NoForm("a step that only calls know")
    sizes = []
    for a, b, s in zip(start, end, step, strict=True):
        count = lengths.sizes.result("divide", b - a + s - ONE, s)
        if count is None:
            raise NoForm("a length that may be less than nothing")
        sizes.append(count)
    return _part(lengths, value, start, sizes, step, given)


def _part(
    lengths: Lengths, value: Any, start: Sequence[Length], sizes: Sequence[Length],
    step: Sequence[Length], given: Sequence[Length],
) -> Any:  # fmt: skip
    """A slice that is known to lie inside of a tensor."""
    kind = _kind(sizes, element_of(value))
    operands, attributes = _place(lengths, [value], start, sizes, step, given)
    made = ir.Operation.create("tensor.extract_slice", [kind], operands, attributes)
    return lengths.know(made.results[0], sizes)


def _update(lengths: Lengths, op: Any) -> Any:
    value, part, *starts = op.operands
    start = [lengths.numbers(s)[0] for s in starts]
    given, sizes = lengths.extents(value), lengths.extents(part)
    if all(size.number is not None for size in (*given, *sizes)):
        raise NoForm("it has a conversion")
    steps = [ONE] * len(sizes)
    operands, attributes = _place(lengths, [part, value], start, sizes, steps, given)
    made = ir.Operation.create("tensor.insert_slice", [value.type], operands, attributes)
    return lengths.know(made.results[0], given)


def _place(
    lengths: Lengths, values: Sequence[Any], start: Sequence[Length], sizes: Sequence[Length],
    step: Sequence[Length], given: Sequence[Length],
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """Operands and attributes of an op on a slice. Raises NoForm unless it is known to lie inside
    of a tensor."""
    for a, n, s, extent in zip(start, sizes, step, given, strict=True):
        last = a + (n - ONE) * s
        if lengths.sizes.are("GE", a, ZERO) is not True:
            raise NoForm("a start that may be less than nothing")
        if not lengths.sizes.are("LT", last, extent):
            raise NoForm("a slice that may end behind a tensor")
    parts = [_mixed(lengths, numbers) for numbers in (start, sizes, step)]
    segments = [1] * len(values) + [len(p[0]) for p in parts]
    names = ("static_offsets", "static_sizes", "static_strides")
    attributes = {name: p[1] for name, p in zip(names, parts, strict=True)}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
    return [*values, *(v for p in parts for v in p[0])], attributes


def _gather(lengths: Lengths, op: Any) -> Any:
    value, starts, window = op.operands
    sizes = lengths.numbers(window)
    numbers = str(op.attributes["dimension_numbers"])
    if all(size.number is not None for size in sizes):
        attributes = {name: op.attributes[name] for name in op.attributes}
        attributes["slice_sizes"] = ir.DenseI64ArrayAttr.get([s.number or 0 for s in sizes])
        made = ir.Operation.create(
            "stablehlo.gather", [op.results[0].type], [value, starts], attributes
        )
        return made.results[0]
    if len(shape_of(starts)) == 1 and starts in lengths.known:
        first = [ZERO] * len(sizes)
        places = zip(dims("start_index_map", numbers), lengths.numbers(starts), strict=True)
        for dim, start in places:
            first[dim] = start
        part = _part(lengths, value, first, sizes, [ONE] * len(sizes), lengths.extents(value))
        gone = dims("collapsed_slice_dims", numbers)
        return _reshaped(lengths, part, [size for k, size in enumerate(sizes) if k not in gone])
    return _windows(lengths, value, starts, sizes, numbers)


def _windows(
    lengths: Lengths, value: Any, starts: Any, sizes: Sequence[Length], numbers: str
) -> Any:  # fmt: skip
    """Elements of a tensor, each read where its window stands."""
    word = re.search(r"index_vector_dim = (\d+)", numbers)
    vector = int(word[1]) if word else 0
    given = lengths.extents(starts)
    behind = [k for k in range(len(given)) if k != vector]  # dimensions of the starts
    mapped, paired = dims("start_index_map", numbers), dims("operand_batching_dims", numbers)
    gone = [*dims("collapsed_slice_dims", numbers), *paired]
    inner = [k for k in range(len(sizes)) if k not in gone]
    offsets = dims("offset_dims", numbers)
    outer = [k for k in range(len(behind) + len(inner)) if k not in offsets]
    place = dict(zip(inner, offsets, strict=True))  # in the result, of a dimension in a window
    batch = dict(zip(behind, outer, strict=True))  # and of one of the starts
    pairs = dict(zip(paired, dims("start_indices_batching_dims", numbers), strict=True))
    made = dict(zip(outer, (given[k] for k in behind), strict=True))
    made.update({place[k]: sizes[k] for k in inner})
    result = [made[k] for k in range(len(made))]
    extents = lengths.extents(value)

    def read(j: int) -> tuple[Any, Any]:
        at = [
            ir.AffineExpr.get_constant(j) if k == vector else ir.AffineExpr.get_dim(batch[k])
            for k in range(len(given))
        ]
        return starts, ir.AffineMap.get(len(result), 0, at)

    most = [lengths.index(extent - size) for extent, size in zip(extents, sizes, strict=True)]
    zero = lengths.index(ZERO)

    def element(*found: Any) -> Any:
        at = []
        for k in range(len(sizes)):
            dim = batch[pairs[k]] if k in pairs else place.get(k)
            position = zero if dim is None else _position(dim)
            if k in mapped and extents[k] != sizes[k]:
                start = arith.index_cast(ir.IndexType.get(), found[mapped.index(k)])
                start = arith.minsi(arith.maxsi(start, zero), most[k])
                position = start if dim is None else arith.addi(start, position)
            at.append(position)
        kind = element_of(value)
        return ir.Operation.create("tensor.extract", [kind], [value, *at]).results[0]

    inputs = [read(j) for j in range(len(mapped))]
    return _generic(lengths, inputs, result, element_of(value), element)


def _position(dim: int) -> Any:
    return linalg.IndexOp(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)).result


def dims(key: str, text: str) -> list[int]:
    """The list behind a word in the text of an attribute."""
    found = re.search(rf"\b{key} = \[([^\]]*)\]", text)
    return [int(n) for n in found[1].split(",") if n.strip()] if found else []


FORMS: Mapping[str, Callable[[Any, Any], Any]] = {
    "stablehlo.dynamic_broadcast_in_dim": _broadcast,
    "stablehlo.dynamic_iota": _iota,
    "stablehlo.reverse": _reverse,
    "stablehlo.dynamic_reshape": _reshape,
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_pad": _pad,
    "stablehlo.real_dynamic_slice": _slice,
    "stablehlo.dynamic_update_slice": _update,
    "stablehlo.dynamic_gather": _gather,
}
