# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar expressions over named axes: what index notation is made of.

An `Expr` is the value at one point of the program's axes. Python numbers take the type of
the other operand; 16-bit floats compute in f32 and i8 in i32 (use `cast` to say otherwise).
Comparisons give conditions (i1), combined with `&`, `|`, `~`; in arithmetic they count as the
integers 0 and 1. Of integers `&` and `|` go bit by bit; `<<` and `>>` shift by 0 up to their bits
less one (`>>` keeps the sign).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.errors import InputError

if TYPE_CHECKING:
    from neptune_mlir.frontend.program import Axis, Program

_RANK = ["i1", "i32", "i64", "index", "f32", "f64"]  # the types that operators compute in
_COMPUTING = {"f16": "f32", "bf16": "f32", "f8E4M3FN": "f32", "i8": "i32"}
_BITS = {"and": "&", "or": "|", "shl": "<<", "shr": ">>"}
_LOGICAL = ("and", "or", "eq", "ne")  # defined on conditions as they are


def caller_location() -> tuple[str, int]:
    """File and line of the user's code: the nearest frame outside this package's front end."""
    frame = sys._getframe(1)
    package = __name__.rpartition(".")[0]
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(
        (package, "neptune_mlir.ops")
    ):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def input_error(message: str, hint: str | None = None) -> InputError:
    file, line = caller_location()
    return InputError(message, loc=f"{file}:{line}:1", hint=hint)


class Expr:
    """A scalar expression; build it with operators and the functions of `notation`."""

    __slots__ = ("program", "term")
    __array_ufunc__ = None  # NumPy scalars on the left leave the operator to this class
    __hash__ = object.__hash__

    def __init__(self, term: Term, program: Program):
        self.term = term
        self.program = program

    @property
    def dtype(self) -> str:
        return self.term.dtype

    @property
    def axes(self) -> list[Axis]:
        """The axes that the value varies along, in the program's order."""
        return [self.program.axis_list[k] for k in sorted(T.axes_of(self.term))]

    def __repr__(self) -> str:
        return self.program.show(self.term)

    def __bool__(self) -> bool:
        raise input_error(
            "an expression over axes has no truth value while the program is built",
            "use where(condition, a, b); combine conditions with &, | and ~",
        )

    def __add__(self, o: Any) -> Expr: return binary("add", self, o)
    def __radd__(self, o: Any) -> Expr: return binary("add", o, self)
    def __sub__(self, o: Any) -> Expr: return binary("sub", self, o)
    def __rsub__(self, o: Any) -> Expr: return binary("sub", o, self)
    def __mul__(self, o: Any) -> Expr: return binary("mul", self, o)
    def __rmul__(self, o: Any) -> Expr: return binary("mul", o, self)
    def __truediv__(self, o: Any) -> Expr: return binary("div", self, o)
    def __rtruediv__(self, o: Any) -> Expr: return binary("div", o, self)
    def __floordiv__(self, o: Any) -> Expr: return binary("floordiv", self, o)
    def __rfloordiv__(self, o: Any) -> Expr: return binary("floordiv", o, self)
    def __mod__(self, o: Any) -> Expr: return _modulo(self, o)
    def __rmod__(self, o: Any) -> Expr: return _modulo(o, self)
    def __pow__(self, o: Any) -> Expr: return _power(self, o)
    def __rpow__(self, o: Any) -> Expr: return _power(o, self)
    def __lt__(self, o: Any) -> Expr: return binary("lt", self, o)
    def __le__(self, o: Any) -> Expr: return binary("le", self, o)
    def __gt__(self, o: Any) -> Expr: return binary("gt", self, o)
    def __ge__(self, o: Any) -> Expr: return binary("ge", self, o)
    def __eq__(self, o: Any) -> Expr: return binary("eq", self, o)  # type: ignore[override]
    def __ne__(self, o: Any) -> Expr: return binary("ne", self, o)  # type: ignore[override]
    def __and__(self, o: Any) -> Expr: return binary("and", self, o)
    def __rand__(self, o: Any) -> Expr: return binary("and", o, self)
    def __or__(self, o: Any) -> Expr: return binary("or", self, o)
    def __ror__(self, o: Any) -> Expr: return binary("or", o, self)
    def __lshift__(self, o: Any) -> Expr: return binary("shl", self, o)
    def __rlshift__(self, o: Any) -> Expr: return binary("shl", o, self)
    def __rshift__(self, o: Any) -> Expr: return binary("shr", self, o)
    def __rrshift__(self, o: Any) -> Expr: return binary("shr", o, self)
    def __neg__(self) -> Expr: return unary("neg", self)
    def __abs__(self) -> Expr: return unary("abs", self)

    def __invert__(self) -> Expr:
        if self.dtype != "i1":
            raise input_error(f"~ takes a condition, not {self.dtype}")
        return unary("not", self)  # fmt: skip


def plain(value: Any) -> Any:
    """A NumPy scalar as the Python number that it is; anything else unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def lift(value: Any, like: Any = None) -> Expr:
    """A Python number as an expression of the type of `like`; an Expr as it is."""
    value = plain(value)
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | float):
        if not isinstance(like, Expr):
            raise input_error("at least one operand must be an expression of the program")
        dtype = like.dtype
        if isinstance(value, float) and not T.is_float(dtype):
            dtype = "f32"
        elif dtype == "i1" and not isinstance(value, bool):
            dtype = "i64"
        return Expr(T.const(value, dtype), like.program)
    return expression(value, "arithmetic")


def expression(value: Any, what: str) -> Expr:
    """`value`, which has to be an expression; `what` says whose operand it is."""
    if isinstance(value, Expr):
        return value
    hint = "read an element of it, e.g. x[i, j]" if hasattr(value, "shape") else None
    raise input_error(
        f"{what} takes an expression of the program, not a {type(value).__name__}", hint
    )


def joined(a: Any, b: Any, op: str = "eq") -> tuple[Expr, Expr]:
    """Both operands in the common type in which `op` computes."""
    x, y = lift(a, b), lift(b, a)
    if x.program is not y.program:
        raise input_error("the operands belong to different programs")
    dtype = max(_computing(x.dtype, op), _computing(y.dtype, op), key=_RANK.index)
    return convert(x, dtype), convert(y, dtype)


def _computing(dtype: str, op: str) -> str:
    if dtype == "i1" and op not in _LOGICAL:
        return "i64"
    return _COMPUTING.get(dtype, dtype)


def computing(x: Expr, op: str) -> Expr:
    """`x` in the type in which `op` computes on it."""
    return convert(x, _computing(x.dtype, op))


def convert(x: Expr, dtype: str, op: str = "cast") -> Expr:
    """`x` in another type; `op` "quantize": as a program wrote it, of floats to 8 bits. ("cast"
    may be rounded before it is scaled.)"""
    if x.dtype == dtype:
        return x
    if x.term.is_const:
        return Expr(T.const(x.term.value, dtype), x.program)
    return Expr(T.make(op, x.term, dtype=dtype), x.program)


def binary(op: str, a: Any, b: Any) -> Expr:
    x, y = joined(a, b, op)
    if op in _BITS and T.is_float(x.dtype):
        raise input_error(f"{_BITS[op]} takes conditions or integers, not {x.dtype} values")
    if op == "div" and not T.is_float(x.dtype):
        x, y = convert(x, "f32"), convert(y, "f32")
    if op == "floordiv":
        if T.is_float(x.dtype):
            raise input_error("// and % take integers", "use floor(a / b)")
        if y.term.is_const and y.term.value == 0:
            raise input_error("integer division by 0")
    return Expr(T.make(op, x.term, y.term), x.program)


def unary(op: str, a: Expr) -> Expr:
    if op == "abs" and not T.is_float(a.dtype):
        return binary("max", a, -a)
    return Expr(T.make(op, computing(a, "eq" if op == "not" else op).term), a.program)


def _modulo(a: Any, b: Any) -> Expr:
    x, y = joined(a, b, "floordiv")
    return x - binary("floordiv", x, y) * y


def _power(a: Any, b: Any) -> Expr:
    b = plain(b)
    if isinstance(b, int) and b == 2:
        x = computing(a, "mul")
        return x * x
    x, y = joined(a, b, "pow")
    if not T.is_float(x.dtype):
        x, y = convert(x, "f32"), convert(y, "f32")
    return binary("pow", x, y)


def floating(name: str) -> Callable[[Any], Expr]:
    """The elementwise function `name` on floats; integers become f32."""

    def function(x: Expr) -> Expr:
        x = expression(x, name)
        return unary(name, x if T.is_float(x.dtype) else convert(x, "f32"))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise `{name}` (floats; integers become f32)."
    return function
