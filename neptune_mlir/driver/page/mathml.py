# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formulas (`page/formula.py`) as MathML, which browsers typeset by themselves."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from neptune_mlir.driver.page.formula import (
    CARRIED,
    MIDDLE,
    OLD,
    OTHER,
    Node,
    guarded,
    walk,
)

_SIGNS = {
    "+": ("+", 5), "-": ("−", 5), "*": ("⁢", 6), "/": ("/", 6), "%": ("mod", 6), "//": ("div", 6),
    "<<": ("≪", 6), ">>": ("≫", 6),
    "==": ("=", 4), "!=": ("≠", 4), "<": ("&lt;", 4), "<=": ("≤", 4), ">": ("&gt;", 4),
    ">=": ("≥", 4), "and": ("∧", 2), "&": ("∧", 2), "or": ("∨", 1), "|": ("∨", 1), "^": ("⊕", 3),
}  # fmt: skip
_BIG = {"sum": "∑", "prod": "∏", "product": "∏", "max": "max", "min": "min"}
_MARKS = {OLD: "′", CARRIED: "′", MIDDLE: "″", OTHER: "*"}
_CASTS = re.compile(r"(?:f|bf|i|u)\d+|index")
_ATOM = 9  # how tightly what needs no brackets binds


def math(node: Node, block: bool = False) -> str:
    """The `<math>` element of a formula."""
    kind = ' display="block"' if block else ""
    return f"<math{kind}>{_at(node, 0)}</math>"


def equation(parts: Sequence[Node | str], block: bool = True) -> str:
    """Formulas and the signs between them, in one `<math>` element."""
    inner = "".join(_operator(p) if isinstance(p, str) else _at(p, 0) for p in parts)
    kind = ' display="block"' if block else ' displaystyle="true"'
    return f"<math{kind}><mrow>{inner}</mrow></math>"


def _at(node: Node, outer: int) -> str:
    text, strength = _written(node)
    return f"<mrow><mo>(</mo>{text}<mo>)</mo></mrow>" if strength < outer else text


def _written(node: Node) -> tuple[str, int]:
    """The element of a node, and how tightly it binds."""
    if node.kind == "number":
        return _number(node.text), _ATOM
    if node.kind == "more":
        return "<mo>…</mo>", _ATOM
    if node.kind == "name":
        return name(node), _ATOM
    if node.kind == "over":
        sign = _BIG.get(node.text)
        mark = f"<mo>{sign}</mo>" if sign else f"<mi>{html.escape(node.text)}</mi>"
        below = "".join(f"<mi>{html.escape(a)}</mi>" for a in node.axes)
        big = f"<munder>{mark}<mrow>{below}</mrow></munder>" if below else mark
        return f"<mrow>{big}<mspace width='0.17em'/>{_at(node.args[0], 6)}</mrow>", 5
    if node.kind == "call":
        return _call(node)
    return _infix(node)


def _infix(node: Node) -> tuple[str, int]:
    if node.text == "neg":
        return f"<mrow><mo>−</mo>{_at(node.args[0], 6)}</mrow>", 5
    if node.text == "not":
        return f"<mrow><mo>¬</mo>{_at(node.args[0], 8)}</mrow>", 7
    left, right = node.args
    if node.text == "/":
        return f"<mfrac>{_row(left)}{_row(right)}</mfrac>", 8
    if node.text == "*":
        return _product(node)
    sign, strength = _SIGNS[node.text]
    text = f"<mrow>{_at(left, strength)}{_operator(sign)}{_at(right, strength + 1)}</mrow>"
    return text, strength


def _product(node: Node) -> tuple[str, int]:
    """A product: numbers first, equal factors as a power."""
    factors: dict[Node, int] = {}
    for factor in _factors(node):
        factors[factor] = factors.get(factor, 0) + 1
    order = sorted(factors, key=lambda f: f.kind != "number")
    parts = []
    for place, factor in enumerate(order):
        power = factors[factor]
        text = _at(factor, 7 if power == 1 else _ATOM)
        if power > 1:
            text = f"<msup><mrow>{text}</mrow><mn>{power}</mn></msup>"
        if place:
            parts.append(_operator("·" if _touches(order[place - 1], factor) else "⁢"))
        parts.append(text)
    if len(parts) == 1:
        return parts[0], 8
    return f"<mrow>{''.join(parts)}</mrow>", 6


def _factors(node: Node) -> list[Node]:
    if node.kind == "op" and node.text == "*":
        return [f for a in node.args for f in _factors(a)]
    return [node]


def _touches(left: Node, right: Node) -> bool:
    """Whether two factors need a dot between them: side by side they would read as one."""
    plain = ("name", "number", "call")
    return left.kind in plain and right.kind in plain


def _row(node: Node, outer: int = 0) -> str:
    return f"<mrow>{_at(node, outer)}</mrow>"


def _operator(sign: str) -> str:
    return f"<mo>{sign}</mo>"


def _call(node: Node) -> tuple[str, int]:
    args = node.args
    never_zero = guarded(node)
    if never_zero is not None:
        text = f"<msub>{_row(never_zero, _ATOM)}<mrow><mo>≠</mo><mn>0</mn></mrow></msub>"
        return text, _ATOM
    if node.text == "exp" and len(args) == 1 and not _is_tall(args[0]):
        return f"<msup><mi>e</mi>{_row(args[0])}</msup>", 8
    if node.text == "sqrt" and len(args) == 1:
        return f"<msqrt>{_at(args[0], 0)}</msqrt>", _ATOM
    if node.text == "rsqrt" and len(args) == 1:
        return f"<mfrac><mn>1</mn><msqrt>{_at(args[0], 0)}</msqrt></mfrac>", 8
    if node.text == "abs" and len(args) == 1:
        return f"<mrow><mo>|</mo>{_at(args[0], 0)}<mo>|</mo></mrow>", _ATOM
    if node.text == "pow" and len(args) == 2:
        return f"<msup>{_row(args[0], _ATOM)}{_row(args[1])}</msup>", 8
    if node.text == "where" and len(args) == 3:
        return _cases(args), _ATOM
    if _CASTS.fullmatch(node.text) and len(args) == 1:
        return _written(args[0])  # over the reals a conversion is nothing
    inside = "<mo>,</mo>".join(_at(a, 0) for a in args)
    called = f"<mi>{html.escape(node.text)}</mi>"
    return f"<mrow>{called}<mo>⁡</mo><mo>(</mo>{inside}<mo>)</mo></mrow>", _ATOM


def _is_tall(node: Node) -> bool:
    """Whether a formula takes several lines, and would be unreadable as an exponent."""
    return any(n.text in ("where", "/") or n.kind == "over" for n in walk(node))


def _cases(args: Sequence[Node]) -> str:
    condition, then, other = args
    rows = (
        f"<mtr><mtd>{_at(then, 0)}</mtd><mtd>{_at(condition, 0)}</mtd></mtr>"
        f"<mtr><mtd>{_at(other, 0)}</mtd><mtd><mtext>else</mtext></mtd></mtr>"
    )
    return f'<mtable class="cases" columnalign="left">{rows}</mtable>'


def _number(text: str) -> str:
    if "e" not in text:
        return f"<mn>{text}</mn>"
    digits, _, power = text.partition("e")
    ten = f"<msup><mn>10</mn><mn>{int(power)}</mn></msup>".replace("<mn>-", "<mn>−")
    return ten if digits == "1" else f"<mrow><mn>{digits}</mn><mo>·</mo>{ten}</mrow>"


def name(node: Node) -> str:
    """A value: its letters, its number and position below, the time it is taken at above."""
    if node.text in ("inf", "nan"):
        return "<mi>∞</mi>" if node.text == "inf" else "<mi>NaN</mi>"
    stem, _, part = node.text.partition(".")
    found = re.fullmatch(r"(.*?[A-Za-z_%])(\d+)", stem)
    letters, number = (found[1], found[2]) if found else (stem, "")
    base = f"<mi>{html.escape(letters.strip('_') if letters != '%' else 'v')}</mi>"
    below = [f"<mn>{number}</mn>"] if number else []
    below += [f"<mtext>{html.escape(part)}</mtext>"] if part else []
    below += [_at(a, 0) for a in node.args]
    if mark := _MARKS.get(node.side):  # as text: a prime that is set as an exponent is a dot
        base = f"<mrow>{base}<mtext>{mark}</mtext></mrow>"
    return f"<msub>{base}<mrow>{'<mo>,</mo>'.join(below)}</mrow></msub>" if below else base
