# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formulas as pseudo-code and proofs write them, read back into trees.

    max(max0'[i], max over j: x[i, j])          pseudo-code (`driver/explain.py`)
    (acc(sum1) * exp((max0_old - max0_new)))    obligations (`algebra/proofs/proof.py`)

Both notations are read by one grammar: names with positions, calls, infix operators, and
`WORD over AXES: BODY`. What is no formula gives None, and is shown as it stands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

# sides of a name: at which time its value is taken, or whose accumulator it is
PLAIN, OLD, NEW, MIDDLE, CARRIED, OTHER = "", "old", "new", "mid", "acc", "other"


@dataclass(frozen=True)
class Node:
    """A part of a formula.

    Attributes:
        kind: number, name (`args` are its position), op, call, over (`axes`), more (left out).
        text: the number, name, operator or function.
        side: of a name, one of those above.
    """

    kind: str
    text: str = ""
    args: tuple[Node, ...] = ()
    side: str = PLAIN
    axes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return 1 + sum(a.size for a in self.args)


MORE = Node("more", "...")
_TOKEN = re.compile(
    r"\s*(?:(?P<acc>acc\((?P<whose>[^()]+)\))"
    r"|(?P<mid>@?\('(?P<time>\w+)', '(?P<of>[^']+)'\))"
    r"|(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])"
    r"|(?P<more>\.\.\.)"
    r"|(?P<name>[@%]?[A-Za-z_%][\w.]*'*|%\d+)"
    r"|(?P<sign>//|<<|>>|==|!=|<=|>=|->|[-+*/%^&|<>()\[\],:=Σ]))"
)
_STRENGTH = {
    "or": 1, "|": 1, "and": 2, "&": 2, "^": 3,
    "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "//": 6, "<<": 6, ">>": 6,
}  # fmt: skip
_SIDES = {"_old": OLD, "_new": NEW, "_mid": MIDDLE}


class _NoFormula(Exception):
    """The text is something else."""


def parse(text: str) -> Node | None:
    """The formula that a text is; None where it is something else."""
    try:
        reader = _FormulaReader(text)
        found = reader.expression(0)
    except (_NoFormula, RecursionError):
        return None
    return found if reader.done else None


def _tokens(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, text and side of each token."""
    place = 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _NoFormula(text)
        place = found.end()
        if found["acc"]:
            whose = found["whose"]
            yield ("name", whose.rstrip("*"), OTHER if whose.endswith("*") else CARRIED)
        elif found["mid"]:
            yield "name", found["of"], found["time"]
        elif found["name"]:
            yield ("name", *_named(found["name"]))
        elif found["more"]:
            yield "more", "...", PLAIN
        elif found["number"]:
            yield "number", found["number"], PLAIN
        else:
            yield "sign", found["sign"], PLAIN


def _named(name: str) -> tuple[str, str]:
    """A name without its marks, and which time they say."""
    name = name.lstrip("@")
    if name.endswith("'"):
        return name.rstrip("'"), OLD
    for ending, side in _SIDES.items():
        if name.endswith(ending):
            return name.removesuffix(ending), side
    return name, PLAIN


class _FormulaReader:
    """Operator precedence over a list of tokens."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._place = 0

    @property
    def done(self) -> bool:
        return self._place == len(self._tokens)

    def _peek(self, ahead: int = 0) -> tuple[str, str, str]:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ("end", "", "")

    def _take(self, sign: str) -> None:
        if self._peek()[1] != sign:
            raise _NoFormula(sign)
        self._place += 1

    def expression(self, least: int) -> Node:
        left = self._prefix()
        while True:
            operator = self._peek()[1]
            strength = _STRENGTH.get(operator, 0)
            if self._peek()[0] == "end" or strength == 0 or strength < least:
                return left
            self._place += 1
            right = self.expression(strength + 1)
            left = Node("op", operator, (left, right))

    def _prefix(self) -> Node:
        kind, text, side = self._peek()
        if text == "-":
            self._place += 1
            return Node("op", "neg", (self.expression(6),))
        if text == "not":
            self._place += 1
            return Node("op", "not", (self.expression(4),))
        if text == "Σ":
            self._place += 1
            return Node("over", "sum", (self.expression(0),))
        if text == "(":
            self._place += 1
            inner = self.expression(0)
            self._take(")")
            return inner
        self._place += 1
        if kind in ("number", "more"):
            return Node(kind, text)
        if kind != "name":
            raise _NoFormula(text)
        return self._after_name(text, side)

    def _after_name(self, text: str, side: str) -> Node:
        following = self._peek()[1]
        if following == "over" and self._peek()[0] == "name":
            return self._reduction(text)
        if following == "(":
            return Node("call", text, self._list("(", ")"))
        if following == "[":
            return Node("name", text, self._list("[", "]"), side)
        return Node("name", text, (), side)

    def _reduction(self, word: str) -> Node:
        self._place += 1
        axes = []
        while self._peek()[1] != ":":
            kind, text, _ = self._peek()
            if kind != "name" and text != ",":
                raise _NoFormula(text)
            if kind == "name":
                axes.append(text)
            self._place += 1
        self._take(":")
        return Node("over", word, (self.expression(0),), axes=tuple(axes))

    def _list(self, first: str, last: str) -> tuple[Node, ...]:
        self._take(first)
        found = []
        while self._peek()[1] != last:
            found.append(self.expression(0))
            if self._peek()[1] == ",":
                self._place += 1
            elif self._peek()[1] != last:
                raise _NoFormula(last)
        self._take(last)
        return tuple(found)


# ---- trees


def rebuilt(node: Node, rule: Callable[[Node], Node | None]) -> Node:
    """The tree with what `rule` gives for a node (first asked of the whole) in its place."""
    found = rule(node)
    if found is not None:
        return found
    if not node.args:
        return node
    return replace(node, args=tuple(rebuilt(a, rule) for a in node.args))


def walk(node: Node) -> Iterator[Node]:
    yield node
    for inner in node.args:
        yield from walk(inner)


def renamed(node: Node, names: dict[str, str]) -> Node:
    """The tree with other names for some values."""

    def rule(found: Node) -> Node | None:
        if found.kind != "name" or found.text not in names:
            return None
        return replace(
            found, text=names[found.text], args=tuple(renamed(a, names) for a in found.args)
        )

    return rebuilt(node, rule)


def without_position(node: Node, position: Sequence[str]) -> Node:
    """The tree in which values at this position of the program are written without it."""

    def rule(found: Node) -> Node | None:
        if found.kind == "name" and found.args and set(map(_axis, found.args)) <= set(position):
            return replace(found, args=())
        return None

    return rebuilt(node, rule)


def _axis(node: Node) -> str:
    return node.text if node.kind == "name" and not node.args else ""


def guarded(node: Node) -> Node | None:
    """x of `where(x == 0, 1, x)`: a divisor that is never 0."""
    if node.kind != "call" or node.text != "where" or len(node.args) != 3:
        return None
    condition, then, other = node.args
    zero = condition.kind == "op" and condition.text == "==" and condition.args[1].text == "0"
    if zero and condition.args[0] == other and then.kind == "number" and then.text == "1":
        return other
    return None


# ---- what is written once

_LETTERS = "μκλξηρτφψω"
_LEAST = 3  # nodes of what gets a letter of its own


@dataclass(frozen=True)
class Letters:
    """Parts that formulas repeat, each with a letter: `shown(node)` has letters in it, and
    `defined` says what they stand for (values with no time)."""

    table: dict[Node, str]

    @property
    def defined(self) -> list[tuple[Node, Node]]:
        """Each letter and what it stands for, what others rest on first."""
        shapes = list(self.table)
        found = []
        for number, (shape, letter) in enumerate(self.table.items()):
            inner = shape
            for other in shapes[number + 1 :]:
                inner = _lettered(inner, other, self.table[other])
            found.append((Node("name", letter), inner))
        return sorted(found, key=lambda pair: sum(n.text in _LETTERS for n in walk(pair[1])))

    def shown(self, node: Node) -> Node:
        for shape, letter in self.table.items():
            node = _lettered(node, shape, letter)
        return node


def _lettered(node: Node, shape: Node, letter: str) -> Node:
    """The tree with a letter, at the right time, for every part that has a shape."""

    def rule(found: Node) -> Node | None:
        if found.size != shape.size or _timeless(found) != shape:
            return None
        side = _one_side(found)
        return None if side is None else Node("name", letter, (), side)

    return rebuilt(node, rule)


def letters_of(formulas: Iterable[Node]) -> Letters:
    """Letters for the parts that these formulas repeat, whatever time their values are taken at.

    The largest such parts count: what only repeats because they do gets no letter.
    """
    table: dict[Node, str] = {}
    formulas = list(formulas)
    for letter in _LETTERS:
        known = Letters(table)
        counts: Counter[Node] = Counter()
        for formula in formulas:
            for node in walk(known.shown(formula)):
                if node.kind in ("op", "call") and node.size >= _LEAST and _worth(node):
                    counts[_timeless(node)] += 1
        often = {n: times for n, times in counts.items() if times > 2}
        if not often:
            break
        best = max(often, key=lambda n: (n.size * (often[n] - 1), -list(often).index(n)))
        table = {**table, best: letter}
    return Letters(table)


def _worth(node: Node) -> bool:
    """Whether a letter says more than what it stands for: a quotient, or several operators, of
    values of one time, and of no accumulator."""
    if any(n.side in (CARRIED, OTHER) for n in walk(node)) or _one_side(node) is None:
        return False
    known = any(n.text in _LETTERS for n in walk(node))
    operators = sum(n.kind in ("op", "call") for n in walk(node))
    return operators > 1 + known and any(n.kind == "name" and n.side for n in walk(node))


def _one_side(node: Node) -> str | None:
    sides = {n.side for n in walk(node) if n.kind == "name" and n.side}
    return None if len(sides) > 1 else next(iter(sides), PLAIN)


def _timeless(node: Node) -> Node:
    def rule(found: Node) -> Node | None:
        return replace(found, side=PLAIN) if found.kind == "name" and found.side else None

    return rebuilt(node, rule)
