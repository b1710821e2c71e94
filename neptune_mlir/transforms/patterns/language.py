# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Patterns over ops as data, and the table of those that are known.

    x, w = Given("x"), Given("w")
    distance = Op("math.absi", x)

    @register("near", OneOf(Op("arith.cmpi", distance, w, attributes={"predicate": "2 : i64"}),
                            Op("arith.cmpi", w, distance, attributes={"predicate": "4 : i64"})))
    def near(match):
        \"""|x| < w as two comparisons.\"""
        ...                               # builds ops from match["x"] and match["w"]
        return the value in place of the comparison

- A `Given` matches any value, an `Op` the op that makes a value, a `Named` any attribute. What has
  the same name twice is the same thing twice.
- `OneOf` matches what one of several patterns matches, `Repeat` a pattern wrapped a bounded number
  of times. Both may stand where a value may.
- `guard` is a condition on what was matched.

`to_pdl.py` compiles patterns to MLIR's own rewriter. Nothing here imports MLIR.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir import plugins
from neptune_mlir.errors import UsageError, did_you_mean

MOST = 50  # spellings of one pattern, alternatives and repetitions multiplied out
ANY = "*"  # at the end of an op's name: any op of these first letters


@dataclass(frozen=True)
class Given:
    """Any value.

    Attributes:
        name: what the rewrite calls it.
        type: that of the value, as MLIR text or as a condition on it; None for any.
    """

    name: str
    type: str | Callable[[Any], bool] | None = None


@dataclass(frozen=True)
class Named:
    """Any attribute, under a name for the rewrite."""

    name: str


@dataclass(frozen=True, init=False)
class Op:
    """An op; where a value stands, the op that makes it as its first result.

    Args:
        op: its name. "chlo.*" is any op whose name starts with "chlo.".
        operands: patterns of all its operands; None, alone, for any number of any values.
        attributes: patterns by name. A string is an attribute as MLIR text. Others may be there.
        name: what the rewrite calls the operation.
        results: how many it has; None for any number.
    """

    op: str
    operands: tuple[Term, ...] | None
    attributes: tuple[tuple[str, str | Named], ...]
    name: str
    results: int | None

    def __init__(
        self, op: str, *operands: Term | None, name: str = "", results: int | None = 1,
        attributes: Mapping[str, str | Named] | None = None,
    ):  # fmt: skip
        given: Any = None if operands == (None,) else operands
        for key, value in (
            ("op", op), ("operands", given), ("attributes", tuple((attributes or {}).items())),
            ("name", name), ("results", results),
        ):  # fmt: skip
            object.__setattr__(self, key, value)


@dataclass(frozen=True, init=False)
class OneOf:
    """What any of the patterns matches. Where several do, the first of them counts."""

    patterns: tuple[Term, ...]

    def __init__(self, *patterns: Term):
        object.__setattr__(self, "patterns", patterns)


@dataclass(frozen=True)
class Repeat:
    """`inner`, wrapped `least` to `most` times: `Repeat(lambda v: Op("arith.extf", v), x)`."""

    wrap: Callable[[Any], Op]
    inner: Term
    least: int = 0
    most: int = 3


Term = Given | Op | OneOf | Repeat


def constant(name: str) -> Op:
    """An `arith.constant` whose value the rewrite gets as an attribute."""
    return Op("arith.constant", attributes={"value": Named(name)})


def spellings(term: Term) -> list[Any]:
    """The patterns without alternatives that a pattern stands for, in order."""
    return [found for found, _ in itertools.islice(_spelled(term, {}), MOST + 1)]


_Names = dict[str, Op]  # how ops with a name are spelled: such an op is one op wherever it stands


def _spelled(term: Term, names: _Names) -> Iterator[tuple[Any, _Names]]:
    if isinstance(term, OneOf):
        for pattern in term.patterns:
            yield from _spelled(pattern, names)
    elif isinstance(term, Repeat):
        wrapped: Any = term.inner
        for count in range(term.most + 1):
            if count >= term.least:
                yield from _spelled(wrapped, names)
            wrapped = term.wrap(wrapped)
    elif isinstance(term, Given) or term.name in names:
        yield (term if isinstance(term, Given) else names[term.name]), names
    else:
        for operands, known in _all_spelled(term.operands or (), names):
            given = (None,) if term.operands is None else operands
            found = Op(term.op, *given, attributes=dict(term.attributes), name=term.name,
                       results=term.results)  # fmt: skip
            yield found, {**known, term.name: found} if term.name else known


def _all_spelled(terms: Sequence[Term], names: _Names) -> Iterator[tuple[list[Any], _Names]]:
    if not terms:
        yield [], names
        return
    for first, known in _spelled(terms[0], names):
        for others, all_known in _all_spelled(terms[1:], known):
            yield [first, *others], all_known


@dataclass(frozen=True)
class Pattern:
    """A registered pattern.

    Attributes:
        summary: the first line of the rewrite's docstring.
        roots: its spellings; the rewrite replaces the results of the root.
        rewrite: takes a `Match`; gives a value, a sequence of values or an operation in place of
            the root's results.
        guard: a condition on the match; a pattern without one always holds.
        benefit: where several patterns match an op, the one of the largest benefit is applied.
    """

    name: str
    summary: str
    roots: tuple[Op, ...]
    rewrite: Callable[[Any], Any] = field(repr=False)
    guard: Callable[[Any], bool] | None = field(default=None, repr=False)
    benefit: int = 1


_PATTERNS: dict[str, Pattern] = {}
_SHIPPED = "neptune_mlir.transforms.patterns.spellings"


def register(
    name: str, pattern: Term, *, guard: Callable[[Any], bool] | None = None, benefit: int = 1
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorator that makes a function the rewrite of a pattern.

    Raises:
        UsageError: another module has a pattern of that name, the root is no op, or the pattern
            has more than MOST spellings.
    """
    roots = spellings(pattern)
    if not all(isinstance(root, Op) for root in roots) or not roots:
        raise UsageError(f"pattern '{name}' has no op as its root", hint="begin with Op(...)")
    if len(roots) > MOST:
        raise UsageError(
            f"pattern '{name}' has more than {MOST} spellings",
            hint="repeat less often, or say alternatives in the guard",
        )

    def decorate(rewrite: Callable[[Any], Any]) -> Callable[[Any], Any]:
        other = _PATTERNS.get(name)
        if other is not None and other.rewrite.__module__ != rewrite.__module__:
            raise UsageError(
                f"{rewrite.__module__} registers pattern '{name}', which "
                f"{other.rewrite.__module__} has",
                hint="choose another name",
            )
        summary = (rewrite.__doc__ or "").strip().partition("\n")[0]
        ops: Any = tuple(roots)
        _PATTERNS[name] = Pattern(name, summary, ops, rewrite, guard, benefit)
        return rewrite

    return decorate


def names() -> list[str]:
    """Every pattern: built in, registered, or of an installed package."""
    importlib.import_module(_SHIPPED)
    return sorted({*_PATTERNS, *plugins.entries(plugins.PATTERNS)})


def lookup(name: str) -> Pattern:
    """The pattern called `name`. Raises UsageError when there is none, or its package is broken."""
    known = names()
    if name not in _PATTERNS and name in known:
        plugins.load(plugins.PATTERNS, name)
        if name not in _PATTERNS:
            raise UsageError(
                f"the entry point '{name}' of {plugins.PATTERNS} registers no pattern of that name",
                hint=f'@register("{name}", ...) in the module that it names',
            )
    if name not in _PATTERNS:
        raise UsageError(f"no pattern '{name}'", hint=did_you_mean(name, known))
    return _PATTERNS[name]


def chosen(only: Sequence[str] = ()) -> list[Pattern]:
    """The patterns of these names; all of them where no name is given."""
    return [lookup(name) for name in only or names()]
