# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scalar expression terms: what the body of a nest computes, as data.

A term is immutable, hashable and interned, so equal terms are the same object and
`a is b` decides syntactic equality. Leaves:

    const(v)            a literal
    index(k)            the position along axis k of the surrounding iteration domain
    read(key, *idx)     element of a tensor; idx are terms over `index` (an axis, an axis
                        floordiv a constant, or a constant). `key` is any hashable name
    ref(key, *idx)      like read, but of an *earlier reduction over the same stream axis*:
                        the values that rolling update breaks and repairs
    sym(key)            a run-time scalar that no axis changes (a function argument)

Everything else is an operator from `OPS`. `dtype` is an MLIR scalar type name
("f32", "f16", "bf16", "f64", "f8E4M3FN", "i1", "i8", "i32", "i64", "index").

A term shares what it repeats, so it may stand for a tree that is exponentially larger. Whatever
goes over a term goes over its distinct nodes (`walk`), and whatever is asked of a term often
stands in the node (`axes`, `has_ref`, `size`, `memo`). The table of terms keeps none alive
(but the few `index` terms).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary
from weakref import ref as weak

from neptune_mlir.algebra.operators import COMPARISONS, OPERATORS, evaluate

Number = int | float | bool

OPS: dict[str, int] = {row.name: row.arity for row in OPERATORS.values()}
LEAVES = ("const", "index", "read", "ref", "sym")

SHOWN = 500  # nodes of a tree that text for people spells out
MOST_FACTORS = 256  # of a product, one by one
KEPT = 64  # nodes below one, in their order, that it remembers
LONG = 64  # the last terms of more nodes, which remember them all the same
SPELLED = 500  # nodes of a tree whose text is its own key

# The operands in a key are given by their ids; a term holds its operands, so while it lives no
# other term has these.
_interned: WeakValueDictionary[tuple[Any, ...], Term] = WeakValueDictionary()
_interning = threading.Lock()


class _Weak:
    """What may be in a weak table (`weakref_slot` of Python 3.11)."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, eq=False, slots=True)
class Term(_Weak):
    """One node of an interned expression DAG; build it with the functions below.

    Attributes:
        axes: those that the value may vary along.
        has_ref: whether a `ref` is in it.
        size: nodes of the tree that it stands for, shared ones as often as they are used.
        memo: what was worked out of the term; it goes with the term.
    """

    op: str
    args: tuple[Term, ...]
    attr: Any
    dtype: str
    axes: frozenset[int]
    has_ref: bool
    size: int
    memo: dict[Any, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return show(self)

    @property
    def is_leaf(self) -> bool:
        return self.op in LEAVES

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    @property
    def value(self) -> Number:
        assert self.op == "const"
        return self.attr


_NO_AXES: frozenset[int] = frozenset()


def _attr_key(attr: Any) -> Any:
    # 0.0 == -0.0 == False and nan != nan: tell literals apart by type and spelling.
    kind = type(attr)
    if kind is int or kind is bool:
        return kind, attr
    return (kind.__name__, repr(attr)) if isinstance(attr, int | float) else attr


def term(op: str, args: Iterable[Term] = (), attr: Any = None, dtype: str = "f32") -> Term:
    """The interned term with these fields (no simplification)."""
    args = tuple(args)
    key = (op, tuple(map(id, args)), _attr_key(attr), dtype)
    found = _interned.get(key)
    if found is not None:
        return found
    axes = frozenset([attr]) if op == "index" else _NO_AXES
    for a in args:
        axes = axes if a.axes <= axes else a.axes if axes <= a.axes else axes | a.axes
    made = Term(
        op, args, attr, dtype, axes,
        op == "ref" or any(a.has_ref for a in args), 1 + sum(a.size for a in args),
    )  # fmt: skip
    with _interning:  # one winner when two threads build the same term at once
        return _interned.setdefault(key, made)


FLOAT8 = "f8E4M3FN"  # what is read or stored: nothing computes in it


def is_float(dtype: str) -> bool:
    return dtype in ("f16", "bf16", "f32", "f64", FLOAT8)


def const(value: Number, dtype: str = "f32") -> Term:
    if dtype == "i1":
        value = bool(value)
    elif is_float(dtype):
        value = float(value)
    else:
        value = int(value)
    return term("const", (), value, dtype)


@functools.cache  # as many as the widest nest has loops
def index(axis: int) -> Term:
    return term("index", (), axis, "index")


def read(key: Any, *idx: Term, dtype: str = "f32") -> Term:
    return term("read", idx, key, dtype)


def ref(key: Any, *idx: Term, dtype: str = "f32") -> Term:
    return term("ref", idx, key, dtype)


def sym(key: Any, dtype: str = "f32") -> Term:
    return term("sym", (), key, dtype)


def make(op: str, *args: Term, dtype: str | None = None) -> Term:
    """`op(*args)` with literal folding and the neutral-element rules that hold for floats too.

    Raises:
        ValueError: unknown operator or wrong arity.
    """
    if OPS.get(op) != len(args):
        raise ValueError(f"operator '{op}' does not take {len(args)} operands")
    if dtype is None:
        dtype = "i1" if op in COMPARISONS else args[op == "select"].dtype
    if op == "cast" and args[0].dtype == dtype:
        return args[0]
    if op in ("select", "and", "or"):
        known = _chosen(op, args)
        if known is not None:
            return known
    literals = [a.op == "const" for a in args]
    if all(literals):
        folded = _fold(op, [a.value for a in args], dtype)
        if folded is not None:
            return folded
    known = _without_neutral(op, args, dtype) if any(literals) else None
    return term(op, args, None, dtype) if known is None else known


def _chosen(op: str, args: Sequence[Term]) -> Term | None:
    """The operand that a select, an and or an or is, where that is known."""
    if op == "select":
        condition, then, other = args
        if condition.is_const:
            return then if condition.value else other
        return then if then is other else None
    for a, b in (args, args[::-1]):
        if a.is_const and a.dtype == "i1":
            return b if bool(a.value) == (op == "and") else a
    return args[0] if args[0] is args[1] else None


# The elements that change nothing: of the second operand, of the first. 0 only for integers:
# x + 0.0 changes the sign of -0.0.
_NEUTRAL_SECOND = {"mul": 1, "div": 1}
_NEUTRAL_FIRST = {"mul": 1}
_WHOLE_SECOND = {"add": 0, "sub": 0, "floordiv": 1}
_WHOLE_FIRST = {"add": 0}


def _without_neutral(op: str, args: Sequence[Term], dtype: str) -> Term | None:
    """The other operand where one is a neutral element."""
    if len(args) != 2:
        return None
    whole = not is_float(dtype)
    second = _NEUTRAL_SECOND.get(op, _WHOLE_SECOND.get(op) if whole else None)
    if second is not None and args[1].is_const and args[1].value == second:
        return args[0]
    first = _NEUTRAL_FIRST.get(op, _WHOLE_FIRST.get(op) if whole else None)
    if first is not None and args[0].is_const and args[0].value == first:
        return args[1]
    return None


def _fold(op: str, values: list[Any], dtype: str) -> Term | None:
    """Fold exactly representable results only: narrow floats are left to the target."""
    if is_float(dtype) and dtype not in ("f32", "f64") and op not in ("neg", "cast"):
        return None
    try:
        value = evaluate(op, values, is_float(dtype))
    except (ArithmeticError, ValueError):
        return None
    return const(value, dtype)


def walk(root: Term) -> Iterator[Term]:
    """Every distinct subterm, operands before users."""
    if not root.args:
        return iter((root,))
    below = root.memo.get("below")
    if below is None:
        below = root.memo["below"] = _below(root)
        if len(below) > KEPT:
            _forget_longest_ago(root)
    return itertools.chain(below, (root,))  # no term holds itself


_long: deque[weak[Term]] = deque()


def _forget_longest_ago(root: Term) -> None:
    """Kept for each node of a chain, long walks would be quadratic."""
    _long.append(weak(root))
    if len(_long) > LONG:
        oldest = _long.popleft()()
        if oldest is not None:
            oldest.memo.pop("below", None)


def factors(root: Term) -> list[Term]:
    """The factors of a product, looking through nothing but multiplication. Products that share
    their parts may have 2^n; behind MOST_FACTORS a product is a factor itself."""
    found: list[Term] = []
    todo = [root]
    while todo:
        n = todo.pop()
        if n.op == "mul" and len(found) + len(todo) < MOST_FACTORS:
            todo += n.args[::-1]
        else:
            found.append(n)
    return found


def walk_outside(root: Term, ops: Collection[str]) -> Iterator[Term]:
    """Every distinct subterm but for what stands only inside of one of these ops, users before
    operands."""
    seen, pending = {root}, [root]
    while pending:
        n = pending.pop()
        yield n
        for a in n.args if n.op not in ops else ():
            if a not in seen:
                seen.add(a)
                pending.append(a)


def _below(root: Term) -> tuple[Term, ...]:
    seen: set[Term] = set()
    found: list[Term] = []
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            if node.args:
                stack.append((node, True))
                stack += [(a, False) for a in reversed(node.args)]
            else:
                found.append(node)
    return tuple(found[:-1])


def rewrite(root: Term, rule: Callable[[Term], Term | None]) -> Term:
    """Rebuild bottom-up; `rule(node)` returns a replacement or None to keep the node."""
    done: dict[Term, Term] = {}
    for node in walk(root):
        args = tuple(done[a] for a in node.args)
        new = node
        if any(x is not y for x, y in zip(args, node.args, strict=True)):
            if node.op in OPS:
                new = make(node.op, *args, dtype=node.dtype)
            else:
                new = term(node.op, args, node.attr, node.dtype)
        replaced = rule(new)
        done[node] = new if replaced is None else replaced
    return done[root]


def substitute(root: Term, table: dict[Term, Term]) -> Term:
    """Replace whole subterms (matched after their operands were rewritten)."""
    return rewrite(root, table.get)


def rename_axes(root: Term, axes: dict[int, Term]) -> Term:
    """Replace `index(k)` by `axes[k]`, in index uses and in accesses alike."""
    if all(axes.get(k, index(k)) is index(k) for k in root.axes):
        return root
    return rewrite(root, lambda n: axes.get(n.attr) if n.op == "index" else None)


def axes_of(root: Term) -> frozenset[int]:
    """The axes that the value of `root` may vary along."""
    return root.axes


def conjunction(conditions: Iterable[Term]) -> Term:
    """The conjunction of conditions; true of none."""
    result = const(True, "i1")
    for condition in conditions:
        result = make("and", result, condition)
    return result


def leaves(root: Term, op: str) -> list[Term]:
    if op == "ref" and not root.has_ref:
        return []
    return [n for n in walk(root) if n.op == op]


def reads(root: Term) -> tuple[Term, ...]:
    """The distinct reads of a term, in order of appearance; worked out once."""
    if not root.args:
        return (root,) if root.op == "read" else ()
    if root.op == "read":  # no term holds itself
        return tuple(leaves(root, "read"))
    found = root.memo.get("reads")
    if found is None:
        found = root.memo["reads"] = tuple(leaves(root, "read"))
    return found


def reached(roots: Iterable[Term], bodies: Mapping[str, Term]) -> set[str]:
    """The names of `bodies` that the roots read, directly or through such a body."""
    found: set[str] = set()
    pending = [*roots]
    while pending:
        for read in reads(pending.pop()):
            if read.attr in bodies and read.attr not in found:
                found.add(read.attr)
                pending.append(bodies[read.attr])
    return found


def show(
    root: Term, name: Callable[[Term], str | None] | None = None, limit: int = SHOWN
) -> str:
    """Readable text; `name(leaf)` may override how a leaf is written.

    Of a tree of more than `limit` nodes, the levels below those that fit are written `...`.
    """
    levels, rest = first_levels(root, limit)
    texts = {n: _text(n, name, None if n.args else ()) for n in rest}
    for level in reversed(levels):  # from the last one up, for trees are deep
        texts = {n: _text(n, name, [texts[a] for a in n.args]) for n in level}
    return texts[root]


def first_levels(root: Term, limit: int = SHOWN) -> tuple[list[Counter[Term]], Counter[Term]]:
    """The first levels of a tree that have no more than `limit` nodes together, one at least, and
    the level behind them."""
    level, levels, total = Counter([root]), [], 0
    while level and (not levels or total + level.total() <= limit):
        levels.append(level)
        total += level.total()
        below: Counter[Term] = Counter()
        for node, times in level.items():
            for a in node.args:
                below[a] += times
        level = below
    return levels, level


def _text(
    root: Term, name: Callable[[Term], str | None] | None, args: Sequence[str] | None
) -> str:
    """The text of a node, of the texts of its operands; without these `...`."""
    custom = name(root) if name and root.is_leaf else None
    if custom is not None:
        return custom
    if args is None:
        return "..."
    match root.op:
        case "const":
            return f"{root.attr:g}" if isinstance(root.attr, float) else str(root.attr).lower()
        case "index":
            return f"i{root.attr}"
        case "sym":
            return str(root.attr)
        case "read" | "ref":
            mark = "" if root.op == "read" else "@"
            return f"{mark}{root.attr}[{', '.join(args)}]" if args else f"{mark}{root.attr}"
        case "select":
            return f"where({', '.join(args)})"
        case "cast" | "quantize":
            return f"{root.dtype}({args[0]})"
        case "neg":
            return f"-({args[0]})"
    if infix := OPERATORS[root.op].infix:
        return f"({args[0]} {infix} {args[1]})"
    return f"{root.op}({', '.join(args)})"


def key(root: Term) -> str:
    """Text that only this term has, the same in every process: terms are sorted by it."""
    found: str | None = root.memo.get("key")
    if found is None:
        if root.size <= SPELLED:
            # `show` rounds literals; two terms that differ must not share a key.
            text = show(root, lambda n: repr(n.attr) if n.is_const else None)
        else:
            text = digest(root)
        found = root.memo["key"] = f"{root.dtype}:{text}"
    return found


def digest(root: Term) -> str:
    """What stands for the text of a large tree: its distinct nodes, operands by number."""
    made = hashlib.sha256()
    number: dict[Term, int] = {}
    for node in walk(root):
        operands = [number[a] for a in node.args]
        made.update(f"{node.op} {operands} {node.attr!r} {node.dtype};".encode())
        number[node] = len(number)
    return made.hexdigest()
