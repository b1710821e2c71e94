# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar expressions over named axes: what index notation is made of.

An `Expr` is the value at one point of the program's axes. Python numbers take the type of
the other operand; 16-bit floats compute in f32 (use `cast` to say otherwise). Comparisons give
booleans, combined with `&`, `|`, `~`.
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

_RANK = ["i1", "i32", "i64", "index", "f16", "bf16", "f32", "f64"]


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
    def __mod__(self, o: Any) -> Expr: return _modulo(self, o)
    def __pow__(self, o: Any) -> Expr: return _power(self, o)
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
    def __neg__(self) -> Expr: return unary("neg", self)
    def __abs__(self) -> Expr: return unary("abs", self)

    def __invert__(self) -> Expr:
        if self.dtype != "i1":
            raise input_error(f"~ takes a condition, not {self.dtype}")
        return unary("not", self)  # fmt: skip


def lift(value: Any, like: Expr | None = None) -> Expr:
    """A Python number as an expression of the type of `like`; an Expr as it is."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | float) or hasattr(value, "item"):
        value = value if isinstance(value, bool | int | float) else value.item()
        if like is None:
            raise input_error("at least one operand must be an expression of the program")
        dtype = like.dtype
        if isinstance(value, float) and not T.is_float(dtype):
            dtype = "f32"
        elif dtype == "i1" and not isinstance(value, bool):
            dtype = "i64"
        return Expr(T.const(value, dtype), like.program)
    raise input_error(f"cannot use a {type(value).__name__} in an expression")


def joined(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands in their common type; 16-bit floats become f32."""
    like = a if isinstance(a, Expr) else b
    a, b = lift(a, like), lift(b, like)
    if a.program is not b.program:
        raise input_error("the operands belong to different programs")
    dtype = max(_computing(a.dtype), _computing(b.dtype), key=_RANK.index)
    return convert(a, dtype), convert(b, dtype)


def _computing(dtype: str) -> str:
    return "f32" if dtype in ("f16", "bf16") else dtype


def convert(x: Expr, dtype: str) -> Expr:
    if x.dtype == dtype:
        return x
    if x.term.is_const:
        return Expr(T.const(x.term.value, dtype), x.program)
    return Expr(T.make("cast", x.term, dtype=dtype), x.program)


def binary(op: str, a: Any, b: Any) -> Expr:
    a, b = joined(a, b)
    if op in ("and", "or") and a.dtype != "i1":
        raise input_error(f"& and | combine conditions, not {a.dtype} values")
    if op == "div" and not T.is_float(a.dtype):
        a, b = convert(a, "f32"), convert(b, "f32")
    if op == "floordiv" and T.is_float(a.dtype):
        raise input_error("// takes integers", "use floor(a / b)")
    return Expr(T.make(op, a.term, b.term), a.program)


def unary(op: str, a: Expr) -> Expr:
    if a.dtype in ("f16", "bf16"):
        a = convert(a, "f32")
    return Expr(T.make(op, a.term), a.program)


def _modulo(a: Expr, b: Any) -> Expr:
    x, y = joined(a, b)
    return x - (x // y) * y


def _power(a: Expr, b: Any) -> Expr:
    if b == 2 and isinstance(b, int):
        a = convert(a, _computing(a.dtype))
        return a * a
    return binary("pow", convert(a, "f32") if not T.is_float(a.dtype) else a, b)


def floating(name: str) -> Callable[[Any], Expr]:
    """The elementwise function `name` on floats; integers become f32."""

    def function(x: Expr) -> Expr:
        if not isinstance(x, Expr):
            raise input_error(f"{name} takes an expression of the program")
        return unary(name, x if T.is_float(x.dtype) else convert(x, "f32"))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise `{name}` (floats; integers become f32)."
    return function
