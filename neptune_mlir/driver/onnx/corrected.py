# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX nodes that torch-mlir takes for others, or makes loops of, as plain nodes: blocks of images
as channels and back, integers with scales and shifted, sequences turned round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from neptune_mlir.driver.onnx.adjusted import ADJUSTED
from neptune_mlir.driver.onnx.placed import PLACED
from neptune_mlir.driver.onnx.sampling import grid, sampled
from neptune_mlir.driver.onnx.waves import WAVES
from neptune_mlir.errors import InputError

# what counts of a scale are held in
_COUNTS = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16,
           TensorProto.INT32)  # fmt: skip
_FLOATS = TensorProto.FLOAT, TensorProto.FLOAT16
_REALS = *_FLOATS, TensorProto.DOUBLE, TensorProto.BFLOAT16


def _depth_to_space(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Of channels that are the outer dimension (PixelShuffle), by the node of channels that are
    the inner one: torch-mlir takes each for the latter. None for these."""
    if given.get("mode") != b"CRD":
        return None
    size = given["blocksize"]
    channels = w.op("Reshape", _channels_last(w, inputs[0]), w.constant([0, 0, 0, -1, size**2]))
    whole = w.op(
        "Reshape", w.op("Transpose", channels, perm=[0, 1, 2, 4, 3]), w.constant([0, 0, 0, -1])
    )
    return [w.op("DepthToSpace", _channels_first(w, whole), blocksize=size, mode="DCR")]


def _space_to_depth(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str]:
    """Of images whose extents calls know, too, and of channels in either order."""
    size, outer = given["blocksize"], given.get("mode") == b"CRD"
    columns = w.op("Reshape", inputs[0], w.constant([0, 0, 0, -1, size]))
    across = w.op("Transpose", columns, perm=[0, 1, 3, 4, 2])
    blocks = w.op("Reshape", across, w.constant([0, 0, 0, 0, -1, size]))
    order = [0, 4, 2, 1, 5, 3] if outer else [0, 4, 2, 5, 3, 1]
    whole = w.op(
        "Reshape", w.op("Transpose", blocks, perm=order), w.constant([0, 0, 0, -1])
    )
    return [_channels_first(w, whole)]


def _channels_last(w: Any, name: str) -> str:
    return str(w.op("Transpose", name, perm=[0, 2, 3, 1]))


def _channels_first(w: Any, name: str) -> str:
    return str(w.op("Transpose", name, perm=[0, 3, 1, 2]))


def _normalised_by_channel(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Of an operator set before 15, which torch-mlir does not know: by what is given, no batch."""
    x, scale, bias, mean, variance = inputs[:5]
    if w.version >= 15 or given.get("training_mode") or x not in w.types:
        return None
    spread = w.op("Sqrt", w.op("Add", variance, w.number(given.get("epsilon", 1e-5), x)))
    axes = w.constant(range(1, len(w.shape(x)) - 1))
    factor, shift, middle = (
        w.op("Unsqueeze", name, axes) for name in (w.op("Div", scale, spread), bias, mean)
    )
    return [w.op("Add", w.op("Mul", w.op("Sub", x, middle), factor), shift)]


def _dequantised(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Integers less their zero, times a scale: torch-mlir takes unsigned zeros for signed ones, and
    refuses scales of blocks. None for what is no integer."""
    x, scale, zero = inputs[:3]
    if given.get("block_size"):
        (scale, zero), given = _of_blocks(w, x, (scale, zero), given), {}
    if not _is_plain(w, x, scale, given) or w.types[x][0] not in _COUNTS:
        return None
    kind = w.types[scale][0]
    count = w.op("Cast", x, to=TensorProto.INT32)
    if zero:
        zero = w.op("Cast", zero, to=TensorProto.INT32)
        count = w.op("Sub", count, _along(w, zero, x, scale, given))
    wide = _along(w, w.op("Cast", scale, to=TensorProto.FLOAT), x, scale, given)
    return [w.op("Cast", w.op("Mul", w.op("Cast", count, to=TensorProto.FLOAT), wide), to=kind)]


def _quantised(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Numbers over a scale as integers, from a zero on: torch-mlir refuses scales of rows, and of
    blocks. None for what becomes no integer of 8 bits."""
    x, scale, zero = inputs[:3]
    if zero and zero not in w.types:
        return None
    kind = w.types[zero][0] if zero else given.get("output_dtype") or TensorProto.UINT8
    if kind == TensorProto.UINT16:  # torch-mlir dies of it
        raise InputError("'QuantizeLinear' to 16 bits without a sign has no lowering", loc=w.place)
    if kind not in (TensorProto.INT8, TensorProto.UINT8):  # torch-mlir casts to no 16 bits
        return None
    if given.get("block_size"):
        (scale, zero), given = _of_blocks(w, x, (scale, zero), given), {}
    if not _is_plain(w, x, scale, {"axis": given.get("axis", 1)}):
        return None
    wide = _along(w, w.op("Cast", scale, to=TensorProto.FLOAT), x, scale, given)
    found = w.op("Div", w.op("Cast", x, to=TensorProto.FLOAT), wide)
    return [_rounded(w, found, _along(w, _count(w, zero), x, scale, given) if zero else "", kind)]


def _quantised_product(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Of integers with scales: torch-mlir has products of more than two dimensions wrong. None for
    scales of rows and columns."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs
    numbers = a_scale, a_zero, b_scale, b_zero, scale, zero
    known = all(name in w.types for name in inputs)
    if not known or any(prod(n or 0 for n in w.shape(name)) != 1 for name in numbers):
        return None
    parts = [w.op("Sub", _count(w, x), _count(w, z)) for x, z in ((a, a_zero), (b, b_zero))]
    own, other, made = (w.op("Cast", s, to=TensorProto.FLOAT) for s in (a_scale, b_scale, scale))
    ratio = w.op("Div", w.op("Mul", own, other), made)
    found = w.op("Mul", w.op("MatMul", *parts), ratio)
    return [_rounded(w, found, _count(w, zero), w.types[zero][0])]


def _quantised_convolution(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """As the product: torch-mlir scales a bias wrongly where weights have a scale for each row."""
    x, x_scale, x_zero, weights, scales, zeros, scale, zero = inputs[:8]
    bias = inputs[8] if len(inputs) > 8 else ""
    if not all(name in w.types for name in (*inputs[:8], *inputs[8:9])):
        return None
    rank = len(w.shape(weights))
    rows = w.constant([*range(1, rank)])
    parts = [w.op("Sub", _count(w, x), _count(w, x_zero))]
    shift, each = _count(w, zeros), w.op("Cast", scales, to=TensorProto.FLOAT)
    if w.shape(zeros):
        shift = w.op("Unsqueeze", shift, rows)
    parts.append(w.op("Sub", _count(w, weights), shift))
    found = w.op("Conv", *parts, **given)
    behind = w.constant([*range(1, rank - 1)])
    if bias:
        found = w.op("Add", found, w.op("Unsqueeze", _count(w, bias), behind))
    ratio = w.op("Div", w.op("Mul", w.op("Cast", x_scale, to=TensorProto.FLOAT), each),
                 w.op("Cast", scale, to=TensorProto.FLOAT))  # fmt: skip
    if w.shape(scales):
        ratio = w.op("Unsqueeze", ratio, behind)
    return [_rounded(w, w.op("Mul", found, ratio), _count(w, zero), w.types[zero][0])]


def _mean_of_windows(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Of windows that may reach beyond what is padded, or have gaps: sums over constant counts.
    torch-mlir counts what is beyond, has windows that begin there, and knows no gaps."""
    x, size = inputs[0], given["kernel_shape"]
    gaps = given.get("dilations", [1] * len(size))
    up = bool(given.get("ceil_mode"))
    if not up and set(gaps) == {1}:
        return None
    extents = w.types.get(x, (0, [None] * (2 + len(size))))[1][2:]
    plain = given.get("auto_pad", b"NOTSET") == b"NOTSET"
    if not plain or None in extents or w.shape(x)[1] is None:
        raise InputError(
            "'AveragePool' with gaps or a shape that is rounded up is written out for images of "
            "known extents, with pads in numbers", loc=w.place,
        )  # fmt: skip
    pads = given.get("pads", [0] * 2 * len(size))
    steps = given.get("strides", [1] * len(size))
    counts, beyond = np.ones([]), []
    for axis, n in enumerate(extents):
        first, last = pads[axis], pads[axis + len(size)]
        reach = (size[axis] - 1) * gaps[axis] + 1
        starts = _starts(w, n + first + last, reach, steps[axis], first + n, up)
        seen = starts[:, None] + np.arange(size[axis]) * gaps[axis]
        inside = (0, n + first + last) if given.get("count_include_pad") else (first, first + n)
        counts = counts[..., None] * ((seen >= inside[0]) & (seen < inside[1])).sum(1)
        beyond.append(max(0, int(starts[-1]) + reach - n - first))
    source = _padded(w, x, [*pads[: len(size)], *beyond], 0)
    one = np.ones([w.shape(x)[1], 1, *size], helper.tensor_dtype_to_np_dtype(w.types[x][0]))
    total = w.op("Conv", source, w.constant(one, one.dtype), group=w.shape(x)[1],
                 strides=steps, dilations=gaps)  # fmt: skip
    ends = [n for n in counts.shape]
    if beyond != [*pads[len(size) :]]:  # what is left behind the last window
        total = w.op("Slice", total, w.constant([0] * len(ends)), w.constant(ends),
                     w.constant([*range(2, 2 + len(ends))]))  # fmt: skip
    return [w.op("Div", total, w.constant(counts, one.dtype))]


def _ordered(test: str) -> Callable[..., Sequence[str] | None]:
    """The largest or the least of floats, NaN where one of them is: torch-mlir leaves that out."""

    def of_some(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
        found, *others = [name for name in inputs if name]
        if any(name not in w.types or w.types[name][0] not in _REALS for name in (found, *others)):
            return None
        for other in others:
            first = w.op("Or", w.op(test, found, other), w.op("IsNaN", found))
            found = w.op("Where", first, found, other)
        return [found] if others else [w.op("Identity", found)]

    return of_some


def _within(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """Floats within bounds, and NaN."""
    found, *ends = inputs[:3]
    if found not in w.types or w.types[found][0] not in _REALS:
        return None
    for test, end in zip(("Less", "Greater"), ends, strict=True):
        found = w.op("Where", w.op(test, found, end), end, found) if end else found
    return [w.op("Identity", found) if found == inputs[0] else found]


def _sign(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """NaN of NaN."""
    x = inputs[0]
    if x not in w.types or w.types[x][0] not in _REALS:
        return None
    return [w.op("Where", w.op("IsNaN", x), x, w.op("Sign", x))]


def _equal(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """Of a tensor and itself, which torch-mlir takes for everywhere."""
    x = inputs[0]
    if x != inputs[1] or x not in w.types or w.types[x][0] not in _REALS:
        return None
    return [w.op("Not", w.op("IsNaN", x))]


def _soft_sign(w: Any, inputs: Sequence[str], given: Mapping[str, Any]) -> Sequence[str] | None:
    """torch-mlir has none."""
    x = inputs[0]
    if x not in w.types:
        return None
    return [w.op("Div", x, w.op("Add", w.op("Abs", x), w.number(1.0, x)))]


def _norms_of_windows(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Roots of sums of powers, which are a convolution of ones: torch-mlir knows no such pool. None
    for a shape that is rounded up, and for channels of unknown number."""
    x, power = inputs[0], float(given.get("p", 2))
    if x not in w.types or w.shape(x)[1] is None or given.get("ceil_mode"):
        return None
    size, channels = given["kernel_shape"], w.shape(x)[1]
    alone, copied = len(size) > 2, [0] * len(size)
    kind = helper.tensor_dtype_to_np_dtype(w.types[x][0])
    one = np.ones([1 if alone else channels, 1, *size], kind)
    powers = w.op("Mul", x, x) if power == 2 else w.op("Pow", w.op("Abs", x), w.number(power, x))
    options = {n: given[n] for n in ("strides", "pads", "dilations", "auto_pad") if n in given}
    if alone:  # torch-mlir has groups of images alone
        powers = w.op("Reshape", powers, w.constant([-1, 1, *copied]))
    kernel = w.constant(one, kind)
    total = w.op("Conv", powers, kernel, group=len(one), **options)
    total = w.op("Reshape", total, w.constant([-1, channels, *copied])) if alone else total
    return [w.op("Sqrt", total) if power == 2 else w.op("Pow", total, w.number(1 / power, x))]


def _starts(w: Any, whole: int, reach: int, step: int, end: int, up: bool) -> Any:
    """Where windows begin. Raises InputError where one begins behind an image."""
    count = (-(-(whole - reach) // step) if up else (whole - reach) // step) + 1
    if up and (count - 1) * step >= end:
        raise InputError(
            "a window begins behind the image, as the shape is rounded up: runtimes drop it, and "
            "ONNX's shapes have it", loc=w.place, hint="leave out ceil_mode, and pad",
        )  # fmt: skip
    return np.arange(count) * step


def _check_windows(w: Any, extents: Sequence[int], given: Mapping[str, Any]) -> None:
    """Raises InputError where a window begins behind an image."""
    rank, size = len(extents), given["kernel_shape"]
    pads, steps, gaps = (
        given.get(name, [default] * count)
        for name, default, count in (("pads", 0, 2 * rank), ("strides", 1, rank),
                                     ("dilations", 1, rank))
    )  # fmt: skip
    for axis, n in enumerate(extents):
        reach = (size[axis] - 1) * gaps[axis] + 1
        whole = n + pads[axis] + pads[axis + rank]
        _starts(w, whole, reach, steps[axis], pads[axis] + n, True)


def _normalised_across(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Over an even number of channels: torch-mlir begins one too early. None for odd ones."""
    x, size = inputs[0], given["size"]
    channels = w.shape(x)[1] if x in w.types else None
    if size % 2 or not channels:
        return None
    apart = np.arange(channels) - np.arange(channels)[:, None]
    near = (apart >= -((size - 1) // 2)) & (apart <= size // 2)
    flat = w.op("Reshape", w.op("Mul", x, x), w.constant([0, channels, -1]))
    total = w.op("MatMul", w.constant(near, helper.tensor_dtype_to_np_dtype(w.types[x][0])), flat)
    scaled = w.op("Mul", total, w.number(given.get("alpha", 1e-4) / size, x))
    scaled = w.op("Add", scaled, w.number(given.get("bias", 1.0), x))
    power = w.op("Pow", scaled, w.number(given.get("beta", 0.75), x))
    return [w.op("Div", x, _as(w, power, x))]


def _as(w: Any, name: str, like: str) -> str:
    """In the shape of another value, one extent of which a call may know."""
    shape = [-1 if n is None else n for n in w.shape(like)]
    known = w.constant(shape) if shape.count(-1) < 2 else w.op("Shape", like)
    return str(w.op("Reshape", name, known))


def _padded(w: Any, x: str, pads: Sequence[int], value: float) -> str:
    """With elements around images, before and behind them in each dimension."""
    half = len(pads) // 2
    whole = [0, 0, *pads[:half], 0, 0, *pads[half:]]
    return str(w.op("Pad", x, w.constant(whole), w.number(value, x)))


def _largest_and_places(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """Places count over all images: torch-mlir's are those in one image, with what is padded. None
    where they are no result."""
    x, (kind, shape) = inputs[0], w.types.get(inputs[0], (0, [None]))
    if given.get("ceil_mode") and x in w.types and None not in shape[2:]:
        _check_windows(w, shape[2:], given)
    if w.results < 2:
        return None
    plain = given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
    if not plain or None in shape or kind not in _FLOATS:
        raise InputError(
            "the places of 'MaxPool' are written out for images of floats and known extents, with "
            "pads in numbers", loc=w.place,
        )  # fmt: skip
    extents = shape[2:]
    pads = given.get("pads", [0] * 2 * len(extents))
    if any(n != 1 for n in given.get("dilations", ())):
        return _largest_of_gaps(w, x, extents, pads, given)
    own = {k: v for k, v in given.items() if k not in ("pads", "auto_pad", "storage_order")}
    best, place = f"{w.place}:largest", f"{w.place}:place"
    source = _padded(w, x, pads, -np.inf)
    w.nodes.append(helper.make_node("MaxPool", [source], [best, place], w.place, **own))
    whole = w.constant(np.arange(prod(shape[:2])).reshape(*shape[:2], *[1] * len(extents)))
    steps = [*np.cumprod([1, *(extents[:0:-1])])[::-1]]
    if given.get("storage_order"):
        steps = [*np.cumprod([1, *extents[:-1]])]
    found = w.op("Mul", whole, w.constant(prod(extents)))
    for axis in reversed(range(len(extents))):
        wide = w.constant(extents[axis] + pads[axis] + pads[axis + len(extents)])
        rest = w.op("Div", place, wide)
        here = w.op("Sub", place, w.op("Add", w.op("Mul", rest, wide), w.constant(pads[axis])))
        found = w.op("Add", found, w.op("Mul", here, w.constant(steps[axis])))
        place = rest
    return [best, found]


def _largest_of_gaps(
    w: Any, x: str, extents: Sequence[int], pads: Sequence[int], given: Mapping[str, Any]
) -> Sequence[str]:
    """Of windows with gaps, one element of each window after the other: torch-mlir has no places
    of these."""
    rank = len(extents)
    sizes, gaps = given["kernel_shape"], given["dilations"]
    strides = given.get("strides", [1] * rank)
    before, up = pads[:rank], bool(given.get("ceil_mode"))
    counts, ends = [], []
    for k in range(rank):
        reach = gaps[k] * (sizes[k] - 1) + 1
        rest = extents[k] + pads[k] + pads[k + rank] - reach
        counts.append((rest + up * (strides[k] - 1)) // strides[k] + 1)
        whole = (counts[k] - 1) * strides[k] + reach
        ends.append(max(pads[k + rank], whole - extents[k] - pads[k]))
    wide, axes = _padded(w, x, [*before, *ends], -np.inf), w.constant([*range(2, rank + 2)])
    steps = [int(prod(extents[k + 1 :])) for k in range(rank)]
    if given.get("storage_order"):
        steps = [int(prod(extents[:k])) for k in range(rank)]
    best = found = ""
    for offset in product(*map(range, sizes)):
        first = [g * o for g, o in zip(gaps, offset, strict=True)]
        stop = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, strides, strict=True)]
        here = w.op("Slice", wide, w.constant(first), w.constant(stop), axes, w.constant(strides))
        at = [(f - p + s * np.arange(n)).clip(0, e - 1) * step for f, p, s, n, e, step in zip(
            first, before, strides, counts, extents, steps, strict=True)]  # fmt: skip
        place = w.constant(sum(np.ix_(*at)))
        if not best:
            best, found = here, place
            continue
        larger = w.op("Greater", here, best)
        best, found = w.op("Where", larger, here, best), w.op("Where", larger, place, found)
    images = np.arange(prod(w.shape(x)[:2])).reshape(*w.shape(x)[:2], *[1] * rank)
    return [best, w.op("Add", found, w.constant(images * prod(extents)))]


def _turned_sequences(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """The first elements of each sequence in reverse, as a lookup: torch-mlir makes a loop of it,
    whose tensors have lengths that no host knows. None where a call knows the longest length."""
    x, lengths = inputs[:2]
    time = given.get("time_axis", 0)
    steps = w.shape(x)[time] if x in w.types else None
    if not isinstance(steps, int):
        return None
    rank = len(w.shape(x))
    places = w.constant(np.arange(steps).reshape([-1] + [1] * (rank - 1 - time)))
    others = [axis for axis in range(rank) if axis != given.get("batch_axis", 1)]
    count = w.op("Unsqueeze", w.op("Cast", lengths, to=TensorProto.INT64), w.constant(others))
    back = w.op("Sub", w.op("Sub", count, w.constant(1)), places)
    at = w.op("Where", w.op("Less", places, count), back, places)
    return [w.op("GatherElements", x, w.op("Expand", at, w.op("Shape", x)), axis=time)]


def _shifted(
    w: Any, inputs: Sequence[str], given: Mapping[str, Any]
) -> Sequence[str] | None:  # fmt: skip
    """By any number of bits: those of no integer shift all bits out, and signs stay to the right.
    (torch-mlir leaves it to the processor, which takes numbers modulo some width.)"""
    x, by = inputs[:2]
    if x not in w.types:
        return None
    right = given["direction"] == b"RIGHT"
    ends = np.iinfo(helper.tensor_dtype_to_np_dtype(w.types[x][0]))
    count = w.op("Cast", by, to=TensorProto.INT64)
    beyond = w.op("Greater", count, w.constant(ends.bits - 1))
    outside = w.op("Or", w.op("Less", count, w.constant(0)), beyond)
    keeps_sign = right and ends.min < 0
    bits = w.op("Where", outside, w.number(ends.bits - 1 if keeps_sign else 0, x), by)
    moved = w.op("BitShift", x, bits, direction=given["direction"])
    return [moved if keeps_sign else w.op("Where", outside, w.number(0, x), moved)]


def _count(w: Any, name: str) -> str:
    """Integers as floats (of which torch-mlir makes unsigned ones signed, but for these)."""
    return str(w.op("Cast", w.op("Cast", name, to=TensorProto.INT32), to=TensorProto.FLOAT))


def _rounded(w: Any, name: str, zero: str, kind: int) -> str:
    """Floats as integers of a type, from a zero on."""
    found = w.op("Round", name)
    found = w.op("Add", found, zero) if zero else found
    ends = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    low, high = (w.constant(end, np.float32) for end in (ends.min, ends.max))
    found = w.op("Min", w.op("Max", found, low), high)
    return str(w.op("Cast", w.op("Cast", found, to=TensorProto.INT32), to=kind))


def _of_blocks(
    w: Any, x: str, names: Sequence[str], given: Mapping[str, Any]
) -> list[str]:  # fmt: skip
    """What belongs to blocks of elements along an axis, once for each element of x. "" where x is
    not known, and for what is left out."""
    shape = w.shape(x) if x in w.types else []
    axis = given.get("axis", 1) % max(len(shape), 1)
    if not shape or shape[axis] is None:
        return [""] * len(names)
    at = w.constant(np.arange(shape[axis]) // given["block_size"])
    found = []
    for name in names:
        made = w.op("Gather", name, at, axis=axis) if name else ""
        if name:
            w.types[made] = (w.types[name][0], shape)
        found.append(made)
    return found


def _is_plain(w: Any, x: str, scale: str, given: Mapping[str, Any]) -> bool:
    """Whether a scale is one number, or one for each position along an axis or each element, of its
    own type."""
    known = x in w.types and scale in w.types
    known = known and (len(w.shape(scale)) <= 1 or w.shape(scale) == w.shape(x))
    return known and given.get("output_dtype", w.types[scale][0]) == w.types[scale][0]


def _along(w: Any, name: str, x: str, scale: str, given: Mapping[str, Any]) -> str:
    """What belongs to a scale, with dimensions for those of x behind the axis."""
    rank = len(w.shape(x))
    if len(w.shape(scale)) == rank:
        return name
    behind = rank - 1 - given.get("axis", 1) % rank if w.shape(scale) else 0
    return str(w.op("Unsqueeze", name, w.constant([*range(1, 1 + behind)])) if behind else name)


CORRECTED: dict[
    str, Callable[[Any, Sequence[str], Mapping[str, Any]], Sequence[str] | None]
] = {
    "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
    "DequantizeLinear": _dequantised, "QuantizeLinear": _quantised,
    "QLinearMatMul": _quantised_product, "GridSample": sampled,
    "AffineGrid": grid,
    "LRN": _normalised_across, "QLinearConv": _quantised_convolution,
    "AveragePool": _mean_of_windows, "MaxPool": _largest_and_places,
    "LpPool": _norms_of_windows, "Max": _ordered("Greater"), "Min": _ordered("Less"),
    "Clip": _within, "Sign": _sign, "Equal": _equal,
    "Softsign": _soft_sign,
    "BatchNormalization": _normalised_by_channel,
    "ReverseSequence": _turned_sequences, "BitShift": _shifted,
    **PLACED, **WAVES, **ADJUSTED,
}  # fmt: skip
