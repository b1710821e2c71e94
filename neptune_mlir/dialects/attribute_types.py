# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a discardable attribute is: a name, a type, and how the type is read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A type of attributes: `make(value, context)` gives the MLIR attribute, `read` the value."""

    text: str
    make: Callable[[T, Any], Any]
    read: Callable[[Any], T]


@dataclass(frozen=True)
class Attribute(Generic[T]):
    """One attribute: `holders` says which ops have it."""

    short: str
    kind: Kind[T]
    holders: str
    meaning: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return f"neptune.{self.short}"

    def on(self, op: Any) -> bool:
        """Whether an op has the attribute."""
        return str(self) in op.attributes

    def of(self, op: Any) -> T:
        """What an op has. Raises LoweringError where it has none."""
        if not self.on(op):
            raise LoweringError(
                f"'{op.operation.name}' has no {self}", loc=location_text(op.location),
                hint=f"it comes from {' or '.join(self.writers)}",
            )  # fmt: skip
        return self.kind.read(op.attributes[str(self)])

    def find(self, op: Any, otherwise: Any = None) -> Any:
        """What an op has, or `otherwise`."""
        return self.kind.read(op.attributes[str(self)]) if self.on(op) else otherwise

    def set(self, op: Any, value: T) -> None:
        op.attributes[str(self)] = self.kind.make(value, op.context)

    def drop(self, op: Any) -> None:
        """Take the attribute off an op that has it."""
        del op.attributes[str(self)]

    def entry(self, value: T) -> dict[str, Any]:
        """For the attributes of an op that is made (in the current context)."""
        return {str(self): self.kind.make(value, ir.Context.current)}


class Mark(Attribute[bool]):
    """An attribute without a value: `on` asks for it."""

    def set(self, op: Any, value: bool = True) -> None:
        assert value, "a mark is there or not"
        super().set(op, value)


def copy_attributes(source: Any, target: Any, leave: Sequence[Attribute[Any]] = ()) -> None:
    """Give `target` all attributes of another op but some."""
    left = set(map(str, leave))
    for name in source.attributes:
        if name not in left:
            target.attributes[name] = source.attributes[name]


def _i64(number: int, context: Any) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), number)


def _texts(texts: Sequence[str], context: Any) -> Any:
    return ir.ArrayAttr.get([ir.StringAttr.get(t, context) for t in texts], context)


def _numbers(numbers: Sequence[int], context: Any) -> Any:
    return ir.DenseI64ArrayAttr.get(list(numbers), context)


def _read_numbers(attribute: Any) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(attribute))


def _table(table: Mapping[str, int], context: Any) -> Any:
    return ir.DictAttr.get({k: _i64(n, context) for k, n in table.items()}, context)


def _data(data: Mapping[str, bytes], context: Any) -> Any:
    return ir.DictAttr.get({
        name: ir.DenseElementsAttr.get(np.frombuffer(raw, np.int8), context=context)
        for name, raw in sorted(data.items())
    }, context)  # fmt: skip


def _as_it_is(attribute: Any, context: Any = None) -> Any:
    return attribute


MARK = Kind[bool]("mark", lambda _, context: ir.UnitAttr.get(context), lambda _: True)
TEXT = Kind[str]("text", ir.StringAttr.get, lambda a: str(ir.StringAttr(a).value))
NUMBER = Kind[int]("number", _i64, lambda a: int(ir.IntegerAttr(a).value))
NUMBERS = Kind[Sequence[int]]("list of numbers", _numbers, _read_numbers)
TEXTS = Kind[Sequence[str]](
    "list of texts", _texts, lambda a: tuple(str(ir.StringAttr(x).value) for x in a)
)
LISTS = Kind[Sequence[Sequence[int]]](
    "lists of numbers",
    lambda lists, context: ir.ArrayAttr.get([_numbers(x, context) for x in lists], context),
    lambda a: tuple(map(_read_numbers, a)),
)
TABLE = Kind[Mapping[str, int]](
    "numbers by name", _table, lambda a: {x.name: int(x.attr.value) for x in ir.DictAttr(a)}
)
DATA = Kind[Mapping[str, bytes]](
    "bytes by name", _data, lambda a: {x.name: np.array(x.attr).tobytes() for x in ir.DictAttr(a)}
)
ELEMENT = Kind[Any]("scalar of the element type", _as_it_is, _as_it_is)
