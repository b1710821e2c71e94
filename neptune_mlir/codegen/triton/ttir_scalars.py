# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar ops (`arith`, `math`, `affine`) as TTIR, on scalars and tiles alike.

Positions (`index`) are 32-bit. Triton knows few `math` ops; the others are functions of the
vendor's device library. Elementary functions of 16-bit floats are computed in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.codegen.triton.ttir_text import Text, Value
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.transforms.math.polynomials import TANH, TANH_NEAR

_SAME = {
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf",
    "arith.maxnumf", "arith.minnumf", "arith.addi", "arith.subi", "arith.muli", "arith.divsi",
    "arith.divui", "arith.remsi", "arith.remui", "arith.maxsi", "arith.minsi", "arith.maxui",
    "arith.minui", "arith.andi", "arith.ori", "arith.xori", "arith.shli", "arith.shrsi",
    "arith.shrui",
}  # fmt: skip
_CASTS = {
    "arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi",
    "arith.fptoui", "arith.extsi", "arith.extui", "arith.trunci",
}  # fmt: skip
_MATH = {"exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil",
         "absf", "fma"}  # fmt: skip
# math op -> its name in the device libraries (libdevice: __nv_tanhf, ocml: __ocml_tanh_f32)
_LIBRARY = {
    "tanh": "tanh", "expm1": "expm1", "log1p": "log1p", "log10": "log10", "powf": "pow",
    "atan": "atan", "atan2": "atan2", "tan": "tan", "sinh": "sinh", "cosh": "cosh",
    "acos": "acos", "asin": "asin", "cbrt": "cbrt", "round": "round", "roundeven": "rint",
    "trunc": "trunc", "copysign": "copysign", "erfc": "erfc", "acosh": "acosh",
    "asinh": "asinh", "atanh": "atanh",
}  # fmt: skip
_TWO_LOG2_E = 2.8853900817779268
_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_CMPF = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
         "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")  # fmt: skip


def element_type(dtype: str) -> str:
    """The element type that a value of a tile program has in TTIR."""
    return "i32" if dtype == "index" else dtype


class TritonScalars:
    """Emits scalar ops. `library` is "nv" or "ocml"."""

    def __init__(self, text: Text, library: str):
        self.text, self.library = text, library

    def op(self, op: Any, operands: Sequence[Value]) -> Value:
        """The value of one op with one result. Raises LoweringError."""
        name, t = op.name, self.text
        dtype = element_type(str(op.results[0].type)) if len(op.results) else ""
        if name == "arith.constant":
            return t.constant(_number(op), dtype)
        if name in _SAME:
            return t.same(name, *operands)
        if name == "arith.cmpi":
            return t.compare(name, _CMPI[_predicate(op)], *operands)
        if name == "arith.cmpf":
            return t.compare(name, _CMPF[_predicate(op)], *operands)
        if name == "arith.select":
            return t.select(*operands)
        if name in _CASTS:
            return self.convert(operands[0], dtype, name)
        if name in ("arith.index_cast", "arith.index_castui"):
            return self.resize(operands[0], dtype, signed=name == "arith.index_cast")
        if name in ("arith.bitcast",):
            head, value = "tt.bitcast", operands[0]
            made = Value("", dtype, value.shape)
            text = f"{head} {value.name} : {value.type} -> {made.type}"
            return t.op(text, dtype, value.shape)
        if name == "arith.negf":
            return t.same("arith.subf", t.number(-0.0, operands[0]), operands[0])
        if name in _DIVISIONS:
            return _DIVISIONS[name](self, *operands)
        if name == "arith.remf":
            return self._wide(operands, lambda *v: self._call("fmod", v))
        if name.startswith("affine."):
            return self.affine(op, operands)
        if name.startswith("math."):
            found = self._math(name.removeprefix("math."), operands)
            if found is not None:
                return found
        raise LoweringError(f"'{name}' has no form in Triton", loc=location_text(op.location))

    # ---- types

    def convert(self, value: Value, dtype: str, name: str) -> Value:
        if value.dtype == dtype:
            return value
        if name == "arith.truncf" and value.dtype == "f64" and dtype in ("f16", "bf16"):
            value = self.text.cast(name, value, "f32")  # Triton has no direct conversion
        if name == "arith.extf" and dtype == "f64" and value.dtype in ("f16", "bf16"):
            value = self.text.cast(name, value, "f32")
        return self.text.cast(name, value, dtype)

    def resize(self, value: Value, dtype: str, signed: bool = True) -> Value:
        """An integer in another width."""
        old, new = int(value.dtype[1:]), int(dtype[1:])
        if old == new:
            return value
        if new < old:
            return self.text.cast("arith.trunci", value, dtype)
        return self.text.cast("arith.extsi" if signed else "arith.extui", value, dtype)

    # ---- functions

    def _math(self, name: str, operands: Sequence[Value]) -> Value | None:
        t = self.text
        if name in _MATH:
            return self._wide(operands, lambda *v: t.same(f"math.{name}", *v))
        if name == "tanh" and operands[0].dtype != "f64":
            return self._wide(operands, self._tanh)
        if name in _LIBRARY:
            return self._wide(operands, lambda *v: self._call(_LIBRARY[name], v))
        if name == "absi":
            (x,) = operands
            negative = t.same("arith.subi", t.number(0, x), x)
            return t.same("arith.maxsi", x, negative)
        return None

    def _tanh(self, x: Value) -> Value:
        """1 - 2 / (1 + exp(2 x)) in f32, and a polynomial near 0, where that would cancel.

        Arithmetic, because the AMD and NVIDIA library names need their bitcode at hand; it is
        not faster than the library on an H200 (25.5 ms against 24.4 ms a softcap prefill).
        """
        t, one = self.text, self.text.number(1.0, x)
        growth = t.same("math.exp2", t.same("arith.mulf", x, t.number(_TWO_LOG2_E, x)))
        rest = t.same("arith.divf", t.number(2.0, x), t.same("arith.addf", one, growth))
        far = t.same("arith.subf", one, rest)
        square = t.same("arith.mulf", x, x)
        value = t.number(TANH[-1], x)
        for coefficient in (*reversed(TANH[:-1]), 1.0):
            value = t.same("math.fma", value, square, t.number(coefficient, x))
        near = t.compare("arith.cmpf", "olt", square, t.number(TANH_NEAR**2, x))
        return t.select(near, t.same("arith.mulf", x, value), far)

    def _wide(self, operands: Sequence[Value], compute: Callable[..., Value]) -> Value:
        """`compute` in f32 where the operands are narrower."""
        dtype = operands[0].dtype
        if dtype not in ("f16", "bf16"):
            return compute(*operands)
        wide = [self.text.cast("arith.extf", v, "f32") for v in operands]
        return self.text.cast("arith.truncf", compute(*wide), dtype)

    def _call(self, function: str, operands: Sequence[Value]) -> Value:
        values = self.text.alike(*operands)
        dtype, shape, kind = values[0].dtype, values[0].shape, values[0].type
        if self.library == "nv":
            symbol = f"__nv_{function}{'f' if dtype == 'f32' else ''}"
        else:
            symbol = f"__ocml_{function}_{dtype}"
        names, types = ", ".join(v.name for v in values), ", ".join(v.type for v in values)
        return self.text.op(
            f'tt.extern_elementwise {names} {{libname = "", libpath = "", pure = true, '
            f'symbol = "{symbol}"}} : ({types}) -> {kind}', dtype, shape,
        )  # fmt: skip

    # ---- integer division

    def floor_division(self, a: Value, b: Value) -> Value:
        """Rounds down; `arith.divsi` rounds to 0."""
        t, zero = self.text, self.text.number(0, b)
        quotient, rest = t.same("arith.divsi", a, b), t.same("arith.remsi", a, b)
        apart = t.compare("arith.cmpi", "slt", t.same("arith.xori", rest, b), zero)
        down = t.same("arith.andi", t.compare("arith.cmpi", "ne", rest, zero), apart)
        return t.same("arith.subi", quotient, t.cast("arith.extui", down, a.dtype))

    def ceil_division(self, a: Value, b: Value) -> Value:
        t, zero = self.text, self.text.number(0, a)
        down = self.floor_division(t.same("arith.subi", zero, a), b)
        return t.same("arith.subi", zero, down)

    def unsigned_ceil_division(self, a: Value, b: Value) -> Value:
        t = self.text
        quotient, rest = t.same("arith.divui", a, b), t.same("arith.remui", a, b)
        up = t.compare("arith.cmpi", "ne", rest, t.number(0, rest))
        return t.same("arith.addi", quotient, t.cast("arith.extui", up, a.dtype))

    # ---- affine maps

    def affine(self, op: Any, operands: Sequence[Value]) -> Value:
        found = ir.AffineMapAttr(op.attributes["map"]).value
        dims, symbols = operands[: found.n_dims], operands[found.n_dims :]
        values = [self._affine(e, dims, symbols) for e in found.results]
        head = "arith.minsi" if op.name == "affine.min" else "arith.maxsi"
        made = values[0]
        for other in values[1:]:
            made = self.text.same(head, made, other)
        return made

    def _affine(self, e: Any, dims: Sequence[Value], symbols: Sequence[Value]) -> Value:
        if isinstance(e, ir.AffineConstantExpr):
            return self.text.constant(e.value, "i32")
        if isinstance(e, ir.AffineDimExpr):
            return dims[e.position]
        if isinstance(e, ir.AffineSymbolExpr):
            return symbols[e.position]
        t = self.text
        a, b = (self._affine(x, dims, symbols) for x in (e.lhs, e.rhs))
        if isinstance(e, ir.AffineAddExpr):
            return t.same("arith.addi", a, b)
        if isinstance(e, ir.AffineMulExpr):
            return t.same("arith.muli", a, b)
        if isinstance(e, ir.AffineCeilDivExpr):
            return self.ceil_division(a, b)
        down = self.floor_division(a, b)
        if isinstance(e, ir.AffineFloorDivExpr):
            return down
        return t.same("arith.subi", a, t.same("arith.muli", down, b))


_DIVISIONS: dict[str, Any] = {
    "arith.floordivsi": TritonScalars.floor_division,
    "arith.ceildivsi": TritonScalars.ceil_division,
    "arith.ceildivui": TritonScalars.unsigned_ceil_division,
}


def _number(op: Any) -> Any:
    value = op.attributes["value"]
    return bool(value) if isinstance(value, ir.BoolAttr) else value.value


def _predicate(op: Any) -> int:
    return int(ir.IntegerAttr(op.attributes["predicate"]).value)


