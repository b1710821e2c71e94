# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers of StableHLO as two tensors, real and imaginary parts, and Fourier transforms as
products with cosines and sines: no kernel has complex numbers. Arguments and results stay what they
are, so they are real. What has no form here stays, and is refused by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from neptune_mlir.driver.stablehlo.bodies import NoForm, element_of, made, shape_of, spread
from neptune_mlir.driver.stablehlo.ops import compared, filled, reshape, select_of, slice_of
from neptune_mlir.driver.stablehlo.ops import transpose as moved
from neptune_mlir.ir.bindings import ir

WHOLE = 128  # elements that a transform sums up at once; more are rows of rows, where they divide
MOST = 1024  # that are one sum where they do not
# what does the same with each part
_BY_PARTS = (
    "broadcast_in_dim", "reshape", "transpose", "slice", "concatenate", "reverse", "pad", "select",
    "add", "subtract", "negate", "dynamic_slice", "dynamic_update_slice", "gather",
)  # fmt: skip
Pair = tuple[Any, Any]


def take_apart(function: Any) -> bool:
    """Let a function compute without complex numbers; whether it had any."""
    (block,) = function.regions[0].blocks
    parts: dict[Any, Pair] = {}
    done = []
    for op in [op.operation for op in block.operations]:
        if not any(_is_complex(v) for v in (*op.operands, *op.results)):
            continue
        with ir.InsertionPoint(op), op.location:
            try:
                result = _part_of(op, parts)
            except NoForm:
                return bool(done)
        if isinstance(result, tuple):
            parts[op.results[0]] = result
        else:
            op.results[0].replace_all_uses_with(result)
        done.append(op)
    for op in reversed(done):
        op.erase()
    return bool(done)


def _is_complex(value: Any) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and isinstance(
        element_of(value), ir.ComplexType
    )


def _part_of(op: Any, parts: dict[Any, Pair]) -> Any:
    """The two parts of what an op makes, or what it makes of real numbers."""
    name = op.name.removeprefix("stablehlo.").removeprefix("chlo.")
    if len(op.results) != 1 or any(_is_complex(v) and v not in parts for v in op.operands):
        raise NoForm(op.name)
    given = [parts.get(v, v) for v in op.operands]
    if name in _BY_PARTS:
        attributes = {a: op.attributes[a] for a in op.attributes}
        shape, element = shape_of(op.results[0]), _real(op.results[0])
        halves = ([x[k] if isinstance(x, tuple) else x for x in given] for k in range(2))
        re_part, im_part = (made(name, half, shape, element, **attributes) for half in halves)
        return re_part, im_part
    rule = _RULES.get(name)
    if rule is None:
        raise NoForm(op.name)
    return rule(op, *given)


def _real(value: Any) -> Any:
    element = element_of(value)
    return ir.ComplexType(element).element_type if isinstance(element, ir.ComplexType) else element


def _of_two(name: str, x: Any, y: Any) -> Any:
    return made(name, [x, y], shape_of(x), element_of(x))


def _of_one(name: str, x: Any) -> Any:
    return made(name, [x], shape_of(x), element_of(x))


def _times(x: Pair, y: Pair, product: Callable[[Any, Any], Any]) -> Pair:
    (a, b), (c, d) = x, y
    real = _of_two("subtract", product(a, c), product(b, d))
    return real, _of_two("add", product(a, d), product(b, c))


def _multiply(op: Any, x: Pair, y: Pair) -> Pair:
    return _times(x, y, lambda a, b: _of_two("multiply", a, b))


def _divide(op: Any, x: Pair, y: Pair) -> Pair:
    c, d = y
    size = _of_two("add", _of_two("multiply", c, c), _of_two("multiply", d, d))
    inverse = _of_two("divide", c, size), _of_one("negate", _of_two("divide", d, size))
    return _multiply(op, x, inverse)


def _dot(op: Any, x: Pair, y: Pair) -> Pair:
    attributes = {a: op.attributes[a] for a in op.attributes}
    shape, element = shape_of(op.results[0]), _real(op.results[0])
    return _times(x, y, lambda a, b: made("dot_general", [a, b], shape, element, **attributes))


def _convert(op: Any, x: Any) -> Any:
    shape, element = shape_of(op.results[0]), _real(op.results[0])
    if isinstance(x, tuple):
        both = tuple(made("convert", [v], shape, element) for v in x)
        return both if _is_complex(op.results[0]) else both[0]
    return made("convert", [x], shape, element), filled(shape, element, 0.0)


def _exponential(op: Any, x: Pair) -> Pair:
    size = _of_one("exponential", x[0])
    cosine, sine = _of_one("cosine", x[1]), _of_one("sine", x[1])
    return _of_two("multiply", size, cosine), _of_two("multiply", size, sine)


def _size(op: Any, x: Pair) -> Any:
    """Of the larger one and the quotient, which does not overflow."""
    a, b = (_of_one("abs", v) for v in x)
    most, least = _of_two("maximum", a, b), _of_two("minimum", a, b)
    shape, element = shape_of(a), element_of(a)
    zero, one = (filled(shape, element, k) for k in (0.0, 1.0))
    ratio = _of_two("divide", least, most)
    same = compared("EQ", least, most)  # zeros, or infinities
    ratio = select_of(same, select_of(compared("EQ", most, zero), zero, one), ratio)
    root = _of_one("sqrt", _of_two("add", one, _of_two("multiply", ratio, ratio)))
    return _of_two("multiply", most, root)


def _constant(op: Any) -> Pair:
    """Of one number: the bindings read no others."""
    found = re.search(r"dense<\(([^,()]+),([^,()]+)\)>", str(op))
    if found is None:
        raise NoForm(op.name)
    shape, element = shape_of(op.results[0]), _real(op.results[0])
    real, imaginary = (filled(shape, element, float(found[k])) for k in (1, 2))
    return real, imaginary


# ---- transforms ----------------------------------------------------------------------------------


def _transform(op: Any, x: Any) -> Any:
    kind = str(op.attributes["fft_type"]).partition(" ")[2].rstrip(">")
    lengths = list(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    rank, count = len(shape_of(op.results[0])), len(lengths)
    dims = list(range(rank - count, rank))
    if kind == "RFFT":
        real, imaginary = _along(x, None, dims[-1], -1)
        shape = [*shape_of(real)[:-1], lengths[-1] // 2 + 1]
        real, imaginary = (slice_of(v, [0] * rank, shape) for v in (real, imaginary))
        for dim in dims[:-1]:
            real, imaginary = _along(real, imaginary, dim, -1)
        return real, imaginary
    real, imaginary = x
    if kind == "IRFFT":
        for dim in dims[:-1]:
            real, imaginary = _along(real, imaginary, dim, 1)
        return _scaled(_from_half((real, imaginary), lengths[-1]), 1 / math.prod(lengths))
    for dim in dims:
        real, imaginary = _along(real, imaginary, dim, -1 if kind == "FFT" else 1)
    if kind == "FFT":
        return real, imaginary
    return tuple(_scaled(v, 1 / math.prod(lengths)) for v in (real, imaginary))


def _scaled(x: Any, factor: float) -> Any:
    return _of_two("multiply", x, filled(shape_of(x), element_of(x), factor))


def _from_half(x: Pair, n: int) -> Any:
    """Real numbers of the first half of their spectrum; what is imaginary of its ends does not
    count."""
    half = shape_of(x[0])[-1]
    if n <= MOST:
        k = np.arange(half)[:, None]
        twice = np.where((k == 0) | (2 * k == n), 1.0, 2.0)
        cosines, sines = _waves(half, n, n, 1)
        sines = np.where(twice == 1, 0.0, sines)
        real, imaginary = (_product(v, twice * m) for v, m in zip(x, (cosines, sines), strict=True))
        return _of_two("subtract", real, imaginary)
    raise NoForm("stablehlo.fft")


def _along(real: Any, imaginary: Any, dim: int, sign: int) -> Pair:
    """A transform along a dimension, with e^(sign 2πi jk/n)."""
    rank = len(shape_of(real))
    order = [*(k for k in range(rank) if k != dim), dim]
    back = [order.index(k) for k in range(rank)]
    given = (real, imaginary)
    first, second = (None if v is None else moved(v, order) for v in given)
    first, second = _of_rows(first, second, sign)
    return moved(first, back), moved(second, back)


def _of_rows(real: Any, imaginary: Any, sign: int) -> Pair:
    """By products, of sqrt(n) elements at a time where n has such a divisor and is large."""
    *outer, n = shape_of(real)
    first = next((d for d in range(math.isqrt(n), 1, -1) if n % d == 0), 1)
    if n <= WHOLE or first == 1:
        if n > MOST:
            raise NoForm("stablehlo.fft")
        return _multiplied(real, imaginary, *_waves(n, n, n, sign), _product)
    # j = j1 n2 + j2, k = k1 + n1 k2: over j1, then by e^(2πi j2 k1/n), then over j2
    second = n // first
    real, imaginary = (
        None if v is None else _turned(reshape(v, [*outer, first, second]))
        for v in (real, imaginary)
    )  # fmt: skip
    real, imaginary = _of_rows(real, imaginary, sign)
    waves = _waves(second, first, n, sign)
    real, imaginary = _multiplied(real, imaginary, *waves, _spread_product)
    real, imaginary = _of_rows(_turned(real), _turned(imaginary), sign)
    return reshape(_turned(real), [*outer, n]), reshape(_turned(imaginary), [*outer, n])


def _turned(x: Any) -> Any:
    rank = len(shape_of(x))
    return moved(x, [*range(rank - 2), rank - 1, rank - 2])


def _waves(rows: int, columns: int, n: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    turns = np.arange(rows)[:, None] * np.arange(columns) % n
    cosines, sines = np.cos(turns * (2 * math.pi / n)), np.sin(turns * (2 * math.pi / n))
    # 0 where that is exact, so that what has no imaginary part has an angle of 0 or pi
    cosines = np.where(4 * turns % n == 0, np.rint(cosines), cosines)
    sines = np.where(4 * turns % n == 0, np.rint(sines), sines)
    return cosines, sign * sines + 0.0


def _multiplied(
    real: Any, imaginary: Any, cosines: np.ndarray, sines: np.ndarray,
    times: Callable[[Any, np.ndarray], Any],
) -> Pair:  # fmt: skip
    if imaginary is None:
        return times(real, cosines), times(real, sines)
    first = _of_two("subtract", times(real, cosines), times(imaginary, sines))
    return first, _of_two("add", times(real, sines), times(imaginary, cosines))


def _table(numbers: np.ndarray, element: Any) -> Any:
    dtype = np.float64 if isinstance(element, ir.F64Type) else np.float32
    values = np.ascontiguousarray(numbers, dtype)
    held = ir.DenseElementsAttr.get(values, type=element, shape=values.shape)
    return made("constant", [], values.shape, element, value=held)


def _spread_product(x: Any, numbers: np.ndarray) -> Any:
    rank = len(shape_of(x))
    return _of_two("multiply", x, spread(
        _table(numbers, element_of(x)), shape_of(x), [rank - 2, rank - 1]))  # fmt: skip


def _product(x: Any, numbers: np.ndarray) -> Any:
    """x times a matrix, along its last dimension."""
    *outer, _ = shape_of(x)
    dims = ir.Attribute.parse(
        f"#stablehlo.dot<lhs_contracting_dimensions = [{len(outer)}], "
        "rhs_contracting_dimensions = [0]>"
    )
    return made("dot_general", [x, _table(numbers, element_of(x))],
                [*outer, numbers.shape[1]], element_of(x), dot_dimension_numbers=dims)  # fmt: skip


_RULES: dict[str, Callable[..., Any]] = {
    "complex": lambda op, x, y: (x, y), "real": lambda op, x: x[0], "imag": lambda op, x: x[1],
    "conj": lambda op, x: (x[0], _of_one("negate", x[1])), "abs": _size, "multiply": _multiply,
    "divide": _divide, "convert": _convert, "exponential": _exponential, "constant": _constant,
    "dot_general": _dot, "fft": _transform,
}  # fmt: skip
