# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar code of one thread: every distinct value once, a few rewrites on the way.

A tile op becomes the same scalar code for each element that a thread holds. Values that do not
depend on the element (a row's maximum, a scaled constant) come out equal, so they are made
once: `Scalars` keeps a table of what it has made, per block.

Rewrites, all of them properties of the operators:

* `exp(x - g)` is `ex2((x - g) * log2 e)`, or another power of 2 where a loop knows more of g
  (`distribute_exponentials`);
* `a / b` is a product with a reciprocal, and a correction of it unless few digits will do, so that
  a divisor shared by a row is inverted once (`quotients`); constant factors of a product are
  multiplied now;
* other `exp x` are `ex2(x log2 e)`, times what the product lost unless few digits will do;
* `tanh x` is `1 - 2 / (exp(2x) + 1)`, and a polynomial near 0 unless few digits will do; of
  `log(1 + p)` it is a quotient;
* `where(c, a, a * e)` is `a * where(c, 1, e)`, and `where(c, k x, -inf)` with a constant k > 0 is
  `k where(c, x, -inf)`, so that k is a factor of what reads it as well;
* `max(k x, k y, ...)` with a constant k > 0 is `k max(x, y, ...)` (rounding is monotone);
* a value rounded and widened again is used unrounded (`contract`);
* what is made of such values in 16 bits is made in f32 of them unrounded, and rounded once; so is a
  quotient or a function of 16-bit floats, for which no chip has instructions;
* the product of two widened 16-bit floats, which f32 holds exactly, is one product in 16 bits where
  it is rounded to their type; a sum of products is a chain of fused multiply-adds;
* a comparison of positions has all that the elements of a thread share on one side and a number on
  the other, and two such conditions of one choice are one: a mask costs an element a comparison
  and a choice;
* a position as a number is one conversion a thread, and an addition: `float(i + 8)` is
  `float(i) + 8.0`, and k times that is `fma(k, 8.0, k * float(i))` in scores of which few digits
  will do (at position 0 it is what rounding `k * float(i)` lost, not 0);
* a product plus something is one fused multiply-add.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.exponentials import (
    FMA,
    exact_exponential,
    exponential,
    precise_exponential,
    unguarded,
)
from neptune_mlir.codegen.gpu.functions import (
    erf,
    rough_inverse_root,
    rough_log,
    rough_log1p,
    rough_tanh,
    tanh,
)
from neptune_mlir.codegen.gpu.quotients import LEAST_NORMAL, quotient, rough_quotient
from neptune_mlir.dialects.gpu_attributes import PRECISE, ROUGH
from neptune_mlir.ir.bindings import ir

CHAINS = 4  # of additions that one sum is
_EXTREMA = ("arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf")
_NOTHING = {"arith.maximumf": -math.inf, "arith.minimumf": math.inf}
Index = Any  # an int, or a value of index type
_INDEX = 0  # the number of that type
_EQUAL, _LESS = 0, 2  # predicates of `arith.cmpi`
# a pure op: name, operands, the number of its type, attributes
_Key = tuple[str, tuple[Any, ...], int, tuple[tuple[str, Any], ...]]


@dataclass(frozen=True)
class ScalarOp:
    """A scalar op of the tile program, read once for all that it is copied for."""

    name: str
    type: Any
    attributes: dict[str, Any]
    rounds: bool = False  # as the program says: nothing more exact may take its place
    narrow: bool = False  # arithmetic on 16-bit floats

    @staticmethod
    def of(op: Any) -> ScalarOp:
        attributes = {key: op.attributes[key] for key in op.attributes}
        kind = op.results[0].type
        narrow = _has_16_bits(kind) and (op.name.startswith("math.") or op.name in _ARITHMETIC)
        rounds = narrow or op.name == "arith.extf"
        rounds = rounds and any(map(_is_beside_unrounded, op.operands))
        return ScalarOp(op.name, kind, attributes, rounds, narrow)

    @functools.cached_property
    def rewrite(self) -> Callable[..., Any] | None:
        """What makes it of other ops, where that pays."""
        if self.rounds:
            return None
        if PRECISE.on(self):
            return precise_exponential
        found = _REWRITES.get(self.name)
        return found if ROUGH.on(self) else _EXACT.get(self.name, found)


def _has_16_bits(kind: Any) -> bool:
    return isinstance(kind, (ir.F16Type, ir.BF16Type))


def _is_beside_unrounded(value: Any) -> bool:
    """Whether a value was rounded, and something else reads it before rounding: then the difference
    may be what is wanted."""
    inner = value.owner
    if not isinstance(inner, ir.OpView) or inner.operation.name != "arith.truncf":
        return False
    return len(list(inner.operation.operands[0].uses)) > 1


class Scalars:
    """Emits scalar ops at the current insertion point."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self._known: dict[Any, Any] = {}  # what was made in this block or one around it
        self._scopes: list[list[Any]] = [[]]  # keys of `_known`, of this block last
        self._made: dict[Any, _Key] = {}
        self._numbers: dict[Any, Any] = {}
        self._sums: dict[Any, tuple[dict[Any, int], int]] = {}
        self._uniform: set[Any] = set()
        self.powers: set[Any] = set()
        self.factors: dict[Any, tuple[Any, Any]] = {}  # of extrema (`rescaled`)
        self._references: frozenset[Any] = frozenset()
        self.small_references = False
        self.index = ir.IndexType.get()
        self.i1, self.i32, self.i64 = (ir.IntegerType.get_signless(w) for w in (1, 32, 64))
        self.f32 = ir.F32Type.get()
        self._types: dict[Any, int] = {}  # numbers of types, that of positions first
        usual = self.index, self.i1, self.i32, self.i64, self.f32
        self._usual = {id(kind): self._types.setdefault(kind, k) for k, kind in enumerate(usual)}
        self._predicates = {n: ir.IntegerAttr.get(self.i64, n) for n in (_EQUAL, _LESS)}

    @contextmanager
    def scope(self, block: Any) -> Iterator[None]:
        """Emit at the end of `block`; what is made there is forgotten afterwards."""
        self._scopes.append([])
        try:
            with ir.InsertionPoint(block):
                yield
        finally:
            for key in self._scopes.pop():
                del self._known[key]

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` emitted for `key` before in this block or one around it, or emits now."""
        made = self._known.get(key)
        if made is None:
            self._known[key] = made = make()
            self._scopes[-1].append(key)
        return made

    def mark_uniform(self, value: Any) -> None:
        """`value` is the same in all threads (a kernel argument): worth multiplying up."""
        self._uniform.add(value)

    def is_uniform(self, value: Any) -> bool:
        return value in self._uniform

    @contextmanager
    def measured_from(self, references: Iterable[Any], *, small: bool) -> Iterator[None]:
        """Exponentials of differences from these values take what rounding makes of them for the
        reference (`distribute_exponentials`), all being `small` or not."""
        self._references, self.small_references = frozenset(references), small
        try:
            yield
        finally:
            self._references = frozenset()

    def is_reference(self, value: Any) -> bool:
        """Whether a value is one of those, behind a guard or not."""
        return unguarded(self, value) in self._references

    # ---- creation

    def op(self, name: str, operands: Sequence[Any], result: Any, **attributes: Any) -> Any:
        """The result of a pure op, made before or now."""
        key = (name, tuple(operands), self._number(result), tuple(attributes.items()))
        made = self._known.get(key)
        if made is None:
            made = ir.Operation.create(name, [result], key[1], attributes or None).result
            self._known[key] = made
            self._scopes[-1].append(key)
            self._made[made] = key
        return made

    def _number(self, kind: Any) -> int:
        """Of a type: MLIR takes half a microsecond for the hash of one."""
        found = self._usual.get(id(kind))
        return self._types.setdefault(kind, len(self._types)) if found is None else found

    def constant(self, value: Any, kind: Any) -> Any:
        of = self._number(kind)
        if of == _INDEX or isinstance(kind, ir.IntegerType):
            number = int(value)  # one op in three: an attribute's hash takes longer than the rest
            key = number if of == _INDEX else (number, of)
            return self.remember(key, lambda: self._constant(number, kind))
        return self._constant(value, kind)

    def _constant(self, value: Any, kind: Any) -> Any:
        whole = isinstance(kind, (ir.IntegerType, ir.IndexType))
        attribute = ir.IntegerAttr.get(kind, value) if whole else ir.FloatAttr.get(kind, value)
        made = self.op("arith.constant", [], kind, value=attribute)
        self._uniform.add(made)
        return made

    def constant_of(self, value: Any) -> Any:
        """The number that a value is, or None."""
        if value not in self._numbers:
            made = self._made.get(value)
            known = made is not None and made[0] == "arith.constant"
            self._numbers[value] = dict(made[3])["value"].value if made and known else None
        return self._numbers[value]

    # ---- index arithmetic on ints and index values

    def value(self, i: Index, kind: Any = None) -> Any:
        kind = kind or self.index
        if isinstance(i, int):
            known = self._known.get(i) if kind is self.index else None  # as `constant` keeps it
            return self.constant(i, kind) if known is None else known
        same = self._is_position(i) if kind is self.index else i.type == kind
        return i if same else self.op("arith.index_cast", [i], kind)

    def _is_position(self, value: Any) -> bool:
        """Whether a value is of index type. (Of one that was made here, without asking MLIR.)"""
        made = self._made.get(value)
        return made[2] == _INDEX if made else isinstance(value.type, ir.IndexType)

    def _fold(self, name: str, a: Index, b: Index, fold: Callable[[int, int], int]) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return self.op(name, [self.value(a), self.value(b)], self.index)

    def add(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and not isinstance(b, int):
            a, b = b, a  # constants last, so that they end up as immediate offsets
        if isinstance(b, int) and b == 0:
            return a
        return self._fold("arith.addi", a, b, lambda x, y: x + y)

    def sub(self, a: Index, b: Index) -> Index:
        return a if isinstance(b, int) and b == 0 else self._fold("arith.subi", a, b, int.__sub__)

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int) and b in (0, 1):
            return a if b else 0
        return self._fold("arith.muli", a, b, int.__mul__)

    def div(self, a: Index, b: int) -> Index:
        """Quotient of a number that is not negative."""
        if b == 1:
            return a
        if not isinstance(a, int) and not b & (b - 1):
            return self._fold("arith.shrui", a, b.bit_length() - 1, int.__rshift__)
        return self._fold("arith.divui", a, b, int.__floordiv__)

    def mod(self, a: Index, b: int) -> Index:
        """Remainder of a number that is not negative."""
        if b == 1:
            return 0
        if not isinstance(a, int) and not b & (b - 1):
            return self._fold("arith.andi", a, b - 1, int.__and__)
        return self._fold("arith.remui", a, b, int.__mod__)

    def xor(self, a: Index, b: Index) -> Index:
        if isinstance(b, int) and b == 0:
            return a
        return self._fold("arith.xori", a, b, int.__xor__)

    def linear(self, value: Any) -> tuple[dict[Any, int], int]:
        """A position as a sum: how often it has each value that is no sum itself, and a number."""
        if value not in self._sums:
            self._sums[value] = self._linear(value)
        return self._sums[value]

    def _linear(self, value: Any) -> tuple[dict[Any, int], int]:
        number = self.constant_of(value)
        if number is not None:
            return {}, int(number)
        name, operands, of, _ = self._made.get(value, ("", (), _INDEX, ()))
        if name == "arith.index_cast":
            return self.linear(operands[0])
        if name not in ("arith.addi", "arith.subi") or of != _INDEX:
            return {value: 1}, 0
        terms, constant = self.linear(operands[0])
        sign = 1 if name == "arith.addi" else -1
        more, other = self.linear(operands[1])
        return _plus(terms, more, sign), constant + sign * other

    def minimum(self, a: Index, b: Index) -> Index:
        return self._fold("arith.minsi", a, b, min)

    def maximum(self, a: Index, b: Index) -> Index:
        return self._fold("arith.maxsi", a, b, max)

    def less(self, a: Index, b: Index) -> Any:
        predicate = self._predicates[_LESS]
        return self.op("arith.cmpi", [self.value(a), self.value(b)], self.i1, predicate=predicate)

    def equal(self, a: Index, b: Index) -> Any:
        predicate = self._predicates[_EQUAL]
        return self.op("arith.cmpi", [self.value(a), self.value(b)], self.i1, predicate=predicate)

    def compare(self, predicate: int, a: Any, b: Any) -> Any:
        """`a < b` (2), `a <= b` (3), `a > b` (4) or `a >= b` (5) of positions, with what is no
        number on the left and the numbers on the right; None for other comparisons."""
        if predicate not in (2, 3, 4, 5) or not isinstance(a.type, ir.IndexType):
            return None
        if predicate > 3:
            a, b = b, a
        terms, constant = self.linear(a)
        more, other = self.linear(b)
        terms = _plus(terms, more, -1)
        if not terms or any(abs(times) != 1 for times in terms.values()):
            return None
        total: Index = 0
        for value, times in sorted(terms.items(), key=lambda item: -item[1]):
            here = self.value(value)
            total = self.add(total, here) if times > 0 else self.sub(total, here)
        return self.less(total, other - constant + (predicate in (3, 5)))

    def conjunction(self, a: Any, b: Any) -> Any:
        """Both conditions; of two positions under numbers, the larger under one of them."""
        first, second = self._bound(a), self._bound(b)
        if first is None or second is None:
            return self.both(a, b)
        moved = self.add(first[0], second[1] - first[1])
        return self.less(self._fold("arith.maxsi", moved, second[0], max), second[1])

    def _bound(self, condition: Any) -> tuple[Any, int] | None:
        """`condition` as a position and the number that it is under."""
        operands = self.parts(condition, "arith.cmpi")
        if operands is None or not self._is_position(operands[0]):
            return None
        number = self.constant_of(operands[1])
        signed = dict(self._made[condition][3])["predicate"] == self._predicates[_LESS]
        return (operands[0], int(number)) if signed and number is not None else None

    def both(self, a: Any, b: Any) -> Any:
        """Conjunction of conditions; None stands for true."""
        if a is None or b is None or a == b:
            return b if a is None else a
        return self.op("arith.andi", [a, b], self.i1)

    def select(self, c: Any, a: Any, b: Any) -> Any:
        """a where c (None: always), else b; a constant factor of a moves out of a mask."""
        x, k = self.unscaled(_EXTREMA[0], a)
        if c is not None and k is not None and abs(self.constant_of(b) or 0) == math.inf:
            return self.multiply(_choose(self, c, x, b) or self.select(c, x, b), k)
        return a if c is None else self.op("arith.select", [c, a, b], a.type)

    # ---- element arithmetic

    def clone(self, op: ScalarOp, operands: Sequence[Any]) -> Any:
        """The result of a scalar op of the tile program on `operands`, rewritten where it pays."""
        if op.name == "arith.cmpi":
            predicate = ir.IntegerAttr(op.attributes["predicate"]).value
            made = self.compare(predicate, *operands)
            if made is not None:
                return made
        if op.rewrite is not None:
            made = op.rewrite(self, *operands)
            if made is not None and made.type == op.type:
                if op.name in ("math.exp", "math.exp2"):
                    self.powers.add(made)
                return made
        if op.narrow and not op.rounds and self._gains_in_f32(op, operands):
            wide = replace(op, type=self.f32, narrow=False)
            made = self.clone(wide, [self.widened(v) for v in operands])
            return self.op("arith.truncf", [made], op.type)
        made = self.op(op.name, operands, op.type, **op.attributes)
        if op.name == "arith.constant":
            self._uniform.add(made)
        return made

    def _gains_in_f32(self, op: ScalarOp, operands: Sequence[Any]) -> bool:
        """Whether arithmetic on 16-bit floats is better done in f32: no instruction does it, or an
        operand is there in f32."""
        return op.name not in _IN_16_BITS or any(self._unrounded(v) for v in operands)

    def _unrounded(self, value: Any) -> Any:
        """The f32 that a 16-bit float was rounded from, or None."""
        rounded = self.parts(value, "arith.truncf")
        return rounded[0] if rounded and rounded[0].type == self.f32 else None

    def widened(self, value: Any) -> Any:
        """A 16-bit float as f32, unrounded if that is known; other values as they are."""
        if not _has_16_bits(value.type):
            return value
        number = self.constant_of(value)
        if number is not None:
            return self.constant(number, self.f32)
        chosen = self.parts(value, "arith.select")
        if chosen:
            return self.select(chosen[0], *map(self.widened, chosen[1:]))
        return self._unrounded(value) or self.op("arith.extf", [value], self.f32)

    def parts(self, value: Any, name: str) -> tuple[Any, ...] | None:
        """The operands of `value` if it was made by an op called `name`."""
        made = self._made.get(value)
        return made[1] if made and made[0] == name else None

    def scaled(self, value: Any) -> tuple[Any, Any]:
        """`value` as x * k with a uniform k (None: 1)."""
        factors = self.parts(value, "arith.mulf")
        for k in (1, 0):
            if factors and factors[k] in self._uniform:
                return factors[1 - k], factors[k]
        return value, None

    def is_at_least_one(self, value: Any) -> bool:
        """Whether a value (if no NaN) is known to be 1 or more: a power, and 1 or more."""
        terms = self.parts(value, "arith.addf") or ()
        numbers = [n for n in map(self.constant_of, terms) if n is not None]
        return bool(numbers) and numbers[0] >= 1.0 and any(t in self.powers for t in terms)

    def multiply(self, a: Any, b: Any) -> Any:
        x, y = self.constant_of(a), self.constant_of(b)
        if x is not None and y is not None:
            return self.constant(x * y, a.type)
        if x is not None or y is not None:  # (z * k) * l is z * (k * l)
            inner = self.parts(b if y is None else a, "arith.mulf")
            for k in (0, 1):
                if inner and self.constant_of(inner[k]) is not None:
                    outer = self.constant_of(inner[k]) * (x if y is None else y)
                    return self.multiply(inner[1 - k], self.constant(outer, a.type))
        made = self.op("arith.mulf", [a, b], a.type)
        if a in self._uniform and b in self._uniform:
            self._uniform.add(made)
        return made

    def negate(self, a: Any) -> Any:
        x = self.constant_of(a)
        return self.op("arith.negf", [a], a.type) if x is None else self.constant(-x, a.type)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.op(FMA, [a, b, c], a.type)

    def ex2(self, a: Any) -> Any:
        return self.chip.exp2(self, a)

    def combine(self, name: str, a: Any, b: Any) -> Any:
        nothing = _NOTHING.get(name, math.nan) == self.constant_of(a)  # also beside NaN
        return b if nothing else self.op(name, [a, b], a.type)

    def unscaled(self, name: str, value: Any) -> tuple[Any, Any]:
        """An extremum's value as x and k > 0, which moves in and out of it; else k is None."""
        x, k = self.scaled(value)
        moves = k is not None and 0 < (self.constant_of(k) or 0) < math.inf and name in _EXTREMA
        return (x, k) if moves else (value, None)

    def rescaled(self, x: Any, k: Any) -> Any:
        """x k, of which `factors` knows x; no rewrite takes it apart, as its last place counts."""
        made = self.op("arith.mulf", [x, k], x.type)
        self._made.pop(made, None)
        self.factors[made] = x, k
        return made

    def reduce(self, name: str, values: Sequence[Any]) -> Any:
        """Combine values pairwise; a common positive factor of extrema moves out."""
        split = [self.unscaled(name, v) for v in values]
        factor = split[0][1]
        if factor is not None and all(k is not None and k == factor for _, k in split):
            return self.multiply(self.reduce(name, [x for x, _ in split]), factor)
        values = list(values)
        products = [p for p in (self.parts(v, "arith.mulf") for v in values) if p]
        if name == "arith.addf" and values[0].type == self.f32 and len(products) == len(values):
            values = values[:CHAINS]
            for k, (a, b) in enumerate(products[CHAINS:]):
                values[k % CHAINS] = self.fma(a, b, values[k % CHAINS])
        while len(values) > 1:
            paired = [
                self.combine(name, values[i], values[i + 1]) for i in range(0, len(values) - 1, 2)
            ]
            values = paired + values[len(paired) * 2 :]
        return values[0]


def _plus(terms: dict[Any, int], more: dict[Any, int], sign: int) -> dict[Any, int]:
    """One sum and `sign` times another."""
    total = dict(terms)
    for value, times in more.items():
        total[value] = total.get(value, 0) + sign * times
    return {value: times for value, times in total.items() if times}


def _quotient_by(s: Scalars, a: Any, b: Any, make: Callable[..., Any]) -> Any:
    inverse = s.constant_of(a) == 1.0 and make is quotient  # is an instruction, and a branch
    if a.type != s.f32 or (inverse and not s.is_at_least_one(b)):
        return None
    divisor = s.constant_of(b)
    if divisor and LEAST_NORMAL <= 1 / abs(divisor) <= 1 / LEAST_NORMAL:
        return s.multiply(a, s.constant(1.0 / divisor, s.f32))
    return make(s, a, b)


def _rough_multiply(s: Scalars, a: Any, b: Any) -> Any:
    if a.type != s.f32:
        return None
    for position, k in ((a, b), (b, a)):
        start, offset = s.parts(position, "arith.addf") or (None, None)
        if start is not None and s.parts(start, "arith.sitofp") and s.constant_of(offset):
            return s.fma(k, offset, s.multiply(k, start))
    return s.multiply(a, b)


def _add(s: Scalars, a: Any, b: Any) -> Any:
    products = [pair for pair in ((a, b), (b, a)) if s.parts(pair[0], "arith.mulf")]
    if not products or a.type != s.f32:
        return None
    # prefer the scaled operand: it has one use, the other may be shared by a column
    product, rest = max(products, key=lambda pair: s.scaled(pair[0])[1] is not None)
    x, y = s.parts(product, "arith.mulf") or ()
    return s.fma(x, y, rest)


def _choose(s: Scalars, c: Any, a: Any, b: Any) -> Any:
    inner = s.parts(a, "arith.select")
    if inner and inner[2] == b:
        return s.op("arith.select", [s.conjunction(c, inner[0]), inner[1], b], a.type)
    factors = s.parts(b, "arith.mulf")
    if factors and a in factors and a.type == s.f32:
        other = factors[1] if factors[0] == a else factors[0]
        return s.multiply(a, s.select(c, s.constant(1.0, s.f32), other))
    return s.select(c, a, b)


def _to_float(s: Scalars, x: Any) -> Any:
    terms, constant = s.linear(x)
    if not terms or not constant or any(v.type not in (s.index, s.i32) for v in terms):
        return None
    base: Index = 0
    for value, times in terms.items():
        part = s.mul(s.value(value), abs(times))
        base = s.add(base, part) if times > 0 else s.sub(base, part)
    start = s.op("arith.sitofp", [s.value(base, s.i32)], s.f32)
    return s.op("arith.addf", [start, s.constant(float(constant), s.f32)], s.f32)


def _round(s: Scalars, x: Any) -> Any:
    factors = s.parts(x, "arith.mulf") or ()
    narrow = [a for f in factors for a in s.parts(f, "arith.extf") or ()]
    if len(narrow) < 2 or narrow[0].type != narrow[1].type:
        return None
    return s.op("arith.mulf", narrow, narrow[0].type)


def _square_root(s: Scalars, x: Any) -> Any:
    number = s.constant_of(x)  # of 16 bits: MLIR folds none
    return None if number is None or number < 0 else s.constant(math.sqrt(number), x.type)


# arithmetic on floats, beside functions (`math`)
_ARITHMETIC = (
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.negf", "arith.maximumf",
    "arith.minimumf", "arith.maxnumf", "arith.minnumf",
)  # fmt: skip
# what chips do with 16 bits, beside moving bits
_IN_16_BITS = {*_ARITHMETIC, "math.absf", "math.copysign", "math.fma"} - {"arith.divf"}
_REWRITES: dict[str, Callable[..., Any]] = {
    "math.exp": exponential, "math.tanh": rough_tanh, "math.erf": erf, "math.sqrt": _square_root,
    "math.exp2": lambda s, x: s.ex2(x) if x.type == s.f32 else None,
    "math.log": rough_log, "math.log1p": rough_log1p, "math.rsqrt": rough_inverse_root,
    "arith.addf": _add, "arith.mulf": _rough_multiply, "arith.select": _choose,
    "arith.divf": functools.partial(_quotient_by, make=rough_quotient),
    "arith.extf": lambda s, x: s.widened(x) if _has_16_bits(x.type) else None,
    "arith.truncf": _round, "arith.sitofp": _to_float,
}  # fmt: skip
# what takes their place where a program needs all digits
_EXACT: dict[str, Callable[..., Any]] = {
    "math.exp": exact_exponential, "math.tanh": tanh,
    "math.log": lambda s, x: None, "math.log1p": lambda s, x: None,
    "math.rsqrt": lambda s, x: None,
    "arith.mulf": lambda s, a, b: s.multiply(a, b) if a.type == s.f32 else None,
    "arith.divf": functools.partial(_quotient_by, make=quotient),
}  # fmt: skip


def on_one_die(s: Scalars, number: Any, bounds: Sequence[Any], dies: int) -> Any:
    """The number of a program in a grid, so that those of one die are neighbours: what they share,
    keys and values of a head, say, then comes to one cache. Blocks go to the dies in turns: die d
    has the blocks d, d + `dies`, and so on, and here the d-th section of the programs."""
    programs = functools.reduce(lambda a, b: s.op("arith.muli", [a, b], s.index), bounds)
    each, rest = s.div(programs, dies), s.mod(programs, dies)
    die, place = s.mod(number, dies), s.div(number, dies)
    return s.value(s.add(s.add(s.mul(die, each), s.minimum(die, rest)), place))
