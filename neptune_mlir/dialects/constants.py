# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Array constants of a program: which arguments they are, and their data.

Once `lift-constants` has run, the last arguments of a function are its constants: its attribute
`neptune.constants` lists the SHA-256 of the data of each, and the module's attribute of that name
is a dictionary of the data. Data is the elements as memory holds them, little-endian.
"""

from __future__ import annotations

import functools
import re
from math import prod
from typing import Any

import numpy as np

from neptune_mlir.dialects.attributes import CONSTANT_DATA, CONSTANTS
from neptune_mlir.dialects.context import parse
from neptune_mlir.dialects.regions import operations_named
from neptune_mlir.errors import InputError
from neptune_mlir.ir.bindings import ir, location_text, passmanager
from neptune_mlir.runtime.arrays import storage_dtype


def take_data(module: Any) -> dict[str, bytes]:
    """The data of a module's constants by their SHA-256, which leaves the module."""
    if not CONSTANT_DATA.on(module.operation):
        return {}
    found = dict(CONSTANT_DATA.of(module.operation))
    CONSTANT_DATA.drop(module.operation)
    return found


def constants_of(function: Any) -> dict[Any, str]:
    """The last arguments of a function, those that are constants, and the SHA-256 of their data."""
    digests = CONSTANTS.find(function.operation, ())
    arguments = list(function.regions[0].blocks[0].arguments)
    return dict(zip(arguments[len(arguments) - len(digests) :], digests, strict=True))


class Elements:
    """The elements of a module's constants, whichever attribute holds them."""

    def __init__(self, module: Any):
        self.module = module

    def of(self, op: Any) -> bytes | None:
        """The elements of an array constant as memory holds them; None for another constant.

        Raises:
            InputError: the text that the program was read from left the data out; complex numbers.
        """
        kind = op.results[0].type
        if not isinstance(kind, ir.RankedTensorType):
            return None
        if isinstance(kind.element_type, ir.ComplexType):  # whose elements no binding reads
            raise InputError(
                f"a constant of {kind.element_type}: kernels take no complex numbers",
                loc=location_text(op.location),
                hint="compute with real and imaginary parts",
            )
        try:
            size = storage_dtype(str(kind.element_type)).itemsize
        except KeyError:
            return None  # no kernel takes such elements
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            return None if attribute.is_splat else _dense(attribute)
        text = str(attribute)
        if not text.startswith("dense_resource<"):
            return None
        key = text.removeprefix("dense_resource<").partition("> :")[0]
        found, count = self._blobs.get(key), prod(kind.shape)
        if found is None:
            raise InputError(
                f"the data of the constant '{key}' is not in the program",
                loc=location_text(op.location),
                hint="write the program without leaving large constants out",
            )
        if str(kind.element_type) == "i1" and len(found) < count:  # eight to a byte
            bits = np.unpackbits(np.frombuffer(found, np.uint8), bitorder="little")
            found = bits[:count].tobytes()
        if len(found) != size * count:
            raise InputError(
                f"the constant '{key}' has {len(found)} bytes for {kind}",
                loc=location_text(op.location),
            )
        return found

    @functools.cached_property
    def _blobs(self) -> dict[str, bytes]:
        """Resources by key. The bindings read none, but print them: four bytes that say how they
        are aligned, then the data."""
        text = self.module.operation.get_asm(large_elements_limit=0)
        entries = re.findall(r'^\s+(\S+): "0x([0-9A-Fa-f]*)"', text[text.rfind("{-#") :], re.M)
        return {key: bytes.fromhex(digits)[4:] for key, digits in entries}


def _dense(attribute: Any) -> bytes:
    try:
        return np.array(attribute).tobytes()
    except (TypeError, BufferError):  # a type that NumPy lacks: its bits, as integers
        kind = attribute.type
        bits = 8 * storage_dtype(str(kind.element_type)).itemsize
        alike = f"tensor<{'x'.join(map(str, kind.shape))}xi{bits}>"
        text = f"func.func @f() -> {alike} {{ %0 = arith.constant {attribute} "
        text += f"%1 = arith.bitcast %0 : {kind} to {alike} return %1 : {alike} }}"
        scratch = parse(text)
        with scratch.context:
            passmanager.PassManager.parse("builtin.module(canonicalize)").run(scratch.operation)
            (found,) = operations_named(scratch.operation, "arith.constant")
            return np.array(found.attributes["value"]).tobytes()


def repeated(raw: bytes, kind: Any) -> Any | None:
    """The attribute of a constant whose elements are all one number; None for another."""
    name = str(kind.element_type)
    size = storage_dtype(name).itemsize
    if not raw or raw != raw[:size] * (len(raw) // size):
        return None
    element = kind.element_type
    if isinstance(element, ir.FloatType):
        if name == "bf16":
            value = np.frombuffer(b"\0\0" + raw[:2], np.float32)[0]
        else:
            value = np.frombuffer(raw[:size], f"f{size}")[0]
        number = ir.FloatAttr.get(element, float(value))
    else:
        number = ir.IntegerAttr.get(element, int(np.frombuffer(raw[:size], f"i{size}")[0]))
    return ir.DenseElementsAttr.get_splat(kind, number)
