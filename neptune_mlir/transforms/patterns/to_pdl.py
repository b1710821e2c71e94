# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Patterns compiled to PDL, which MLIR's greedy rewriter runs.

Each spelling is one `pdl.pattern`. Types, guards and rewrites are native functions of it. What a
native function raises ends the rewriting: MLIR's callbacks cannot raise, so no guard holds from
then on, and the error is raised at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.errors import LoweringError, NeptuneError, ToolError, UsageError
from neptune_mlir.ir import bindings
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.transforms.patterns.language import ANY, MOST, Named, Op, Pattern

MOST_REWRITES = 100_000  # in one module; patterns that undo each other would go on


class Match:
    """What a pattern matched: values, operations and attributes by name."""

    def __init__(self, root: Any, found: dict[str, Any]):
        self.root = root
        self._found = found

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def number(self, name: str) -> Any:
        """The Python number of an attribute: one number, or one that a tensor is full of; None for
        others, and for a name that this spelling does not have."""
        attribute = self._found.get(name)
        if isinstance(attribute, ir.DenseElementsAttr):
            attribute = attribute.get_splat_value() if attribute.is_splat else None
        try:
            return attribute.value
        except AttributeError:
            return None


@dataclass
class _Spelling:
    """One pattern without alternatives as lines of PDL."""

    root: Op
    lines: list[str] = field(default_factory=list)
    handles: dict[str, str] = field(default_factory=dict)  # name -> SSA name and type
    types: dict[str, Any] = field(default_factory=dict)  # name -> condition on the value's type
    attributes: list[tuple[str, str, str]] = field(default_factory=list)  # name, op's handle, key
    count: int = 0

    def add(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def name(self, name: str, handle: str, kind: str) -> str:
        self.handles[name] = f"{handle} : !pdl.{kind}"
        return handle

    def value(self, term: Any) -> str:
        if isinstance(term, Op):
            return self.add(f"pdl.result 0 of {self.operation(term)}")
        if term.name in self.handles:
            return self.handles[term.name].partition(" ")[0]
        kind = ""
        if isinstance(term.type, str):
            kind = f" : {self.add(f'pdl.type : {term.type}')}"
        elif term.type is not None:
            self.types[term.name] = term.type
        return self.name(term.name, self.add(f"pdl.operand{kind}"), "value")

    def operation(self, op: Op) -> str:
        if op.name and op.name in self.handles:
            return self.handles[op.name].partition(" ")[0]
        if op.operands is None:
            operands = f"({self.add('pdl.operands')} : !pdl.range<value>)"
        else:
            values = [self.value(operand) for operand in op.operands]
            kinds = ", ".join(["!pdl.value"] * len(values))
            operands = f"({', '.join(values)} : {kinds})" if values else ""
        fixed_attributes = [
            f'"{key}" = {self.add(f"pdl.attribute = {value}")}'
            for key, value in op.attributes
            if isinstance(value, str)
        ]
        if op.results is None:
            results = f" -> ({self.add('pdl.types')} : !pdl.range<type>)"
        else:
            types = [self.add("pdl.type") for _ in range(op.results)]
            kinds = ", ".join(["!pdl.type"] * len(types))
            results = f" -> ({', '.join(types)} : {kinds})" if types else ""
        fixed = "" if op.op.endswith(ANY) else f' "{op.op}"'
        listed = f" {{{', '.join(fixed_attributes)}}}" if fixed_attributes else ""
        handle = self.add(f"pdl.operation{fixed}{operands}{listed}{results}")
        named = [(v.name, key) for key, v in op.attributes if isinstance(v, Named)]
        if op.name or named:
            self.name(op.name or handle, handle, "operation")
        # read from the op: MLIR calls guards before it looks whether an op has an attribute
        self.attributes += [(name, op.name or handle, key) for name, key in named]
        return handle


def ops_of(term: Any) -> Iterator[str]:
    """The names of the ops of a spelling."""
    if isinstance(term, Op):
        yield term.op
        for operand in term.operands or ():
            yield from ops_of(operand)


def _is_op(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith(ANY) else name == pattern


class Rewriting:
    """Patterns on their way through one module."""

    def __init__(self, patterns: Sequence[Pattern]):
        self.patterns = patterns
        self.error: BaseException | None = None
        self.count = 0

    def run(self, module: Any) -> None:
        """Apply the patterns in the functions of a module until none matches.

        Raises:
            NeptuneError: what a rewrite raises.
            UsageError: a pattern does not parse, fails, or gives what cannot stand for the root.
        """
        tried: set[tuple[str, Op]] = set()
        roots = [op.operation for op in module.body.operations]
        while True:  # a rewrite may make ops that other patterns start from
            fitting = self._fitting(names_in(roots))
            if fitting.keys() <= tried:
                return
            tried |= fitting.keys()
            with roots[0].context:  # a schedule's step runs outside of any
                self._apply(roots, fitting)

    def _fitting(self, names: Collection[str]) -> dict[tuple[str, Op], Pattern]:
        """The spellings whose ops all occur: the others need not be compiled."""
        return {
            (pattern.name, root): pattern
            for pattern in self.patterns
            for root in pattern.roots
            if all(any(_is_op(op, name) for name in names) for op in ops_of(root))
        }

    def _apply(self, roots: Sequence[Any], fitting: dict[tuple[str, Op], Pattern]) -> None:
        rewrite = bindings.rewrite
        if not hasattr(rewrite, "PDLModule"):
            raise ToolError(f"{bindings.PACKAGE} has no PDL", hint="pip install torch-mlir")
        texts, functions = [], []
        for k, ((_, root), pattern) in enumerate(fitting.items()):
            spelling = _Spelling(root)
            texts.append(_pattern_text(k, pattern, spelling))
            functions.append((pattern, spelling))
        try:
            # `compiled` does not keep it alive
            declared = ir.Module.parse("\n".join(texts))
        except ir.MLIRError:
            raise _unreadable(texts, [pattern for pattern, _ in functions]) from None
        compiled = rewrite.PDLModule(declared)
        for k, (pattern, spelling) in enumerate(functions):
            compiled.register_constraint_function(f"guard{k}", self._guard(pattern, spelling))
            compiled.register_rewrite_function(f"rewrite{k}", self._rewrite(pattern, spelling))
        config = rewrite.GreedyRewriteConfig()
        config.max_iterations = -1  # no limit but MOST_REWRITES
        config.use_top_down_traversal = True
        config.enable_folding = False
        config.enable_constant_cse = False
        config.region_simplification_level = rewrite.GreedySimplifyRegionLevel.DISABLED
        frozen = compiled.freeze()
        try:
            for root in roots:
                rewrite.apply_patterns_and_fold_greedily(root, frozen, config)
        except RuntimeError as error:  # MLIR gives up where functions fail, too
            if self.error is None:
                raise LoweringError(f"patterns cannot be applied: {error}") from None
        if self.error is not None:
            raise self.error

    def _guard(self, pattern: Pattern, spelling: _Spelling) -> Any:
        def refuses(_rewriter: Any, _results: Any, values: Sequence[Any]) -> bool:
            if self.error is not None:
                return True
            match = _match(spelling, values)
            if match is None:
                return True
            try:
                return not (
                    _is_op(spelling.root.op, match.root.name)
                    and all(test(match[name].type) for name, test in spelling.types.items())
                    and (pattern.guard is None or pattern.guard(match))
                )
            except BaseException as error:  # not through MLIR's frames, which expect none
                self._fail(pattern, match, error)
                return True

        return refuses

    def _rewrite(self, pattern: Pattern, spelling: _Spelling) -> Any:
        def rewrite(rewriter: Any, _results: Any, values: Sequence[Any]) -> None:
            if self.error is not None:
                return
            match = _match(spelling, values)
            assert match is not None  # the guard holds
            try:
                self._count(pattern, match)
                with rewriter.ip, match.root.location:
                    made = pattern.rewrite(match)
                rewriter.replace_op(match.root, _results_of(pattern, match, made))
            except BaseException as error:
                self._fail(pattern, match, error)

        return rewrite

    def _count(self, pattern: Pattern, match: Match) -> None:
        self.count += 1
        if self.count > MOST_REWRITES:
            raise UsageError(
                f"patterns do not come to an end; the last one is '{pattern.name}'",
                loc=location_text(match.root.location),
                hint="a rewrite makes what it or another one matches",
            )

    def _fail(self, pattern: Pattern, match: Match, error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(error, NeptuneError):
            failed = UsageError(
                f"pattern '{pattern.name}' fails: {type(error).__name__}: {error}",
                loc=location_text(match.root.location),
                hint=f"its functions are in {pattern.rewrite.__module__}",
            )
            failed.__cause__ = error
            error = failed
        self.error = error


def names_in(roots: Iterable[Any]) -> set[str]:
    """The names of all ops in some."""
    found: set[str] = set()

    def visit(op: Any) -> Any:
        found.add(op.name)
        return ir.WalkResult.ADVANCE

    for root in roots:
        root.walk(visit)
    return found


def _pattern_text(k: int, pattern: Pattern, spelling: _Spelling) -> str:
    root = spelling.operation(spelling.root)
    names, kinds = [root], ["!pdl.operation"]
    for handle in spelling.handles.values():
        value, _, kind = handle.partition(" : ")
        names.append(value)
        kinds.append(kind)
    given, more = (f"({', '.join(names[k:])} : {', '.join(kinds[k:])})" for k in (0, 1))
    lines = [
        *spelling.lines,
        f'pdl.apply_native_constraint "guard{k}"{given}',
        f'pdl.rewrite {root} with "rewrite{k}"{more if names[1:] else ""}',
    ]
    benefit = pattern.benefit * MOST + MOST - 1 - pattern.roots.index(spelling.root)
    head = f"pdl.pattern : benefit({benefit}) {{"
    return "\n".join([head, *(f"  {line}" for line in lines), "}"])


def _unreadable(texts: Sequence[str], patterns: Sequence[Pattern]) -> UsageError:
    """The error for the first pattern that is no MLIR."""
    for text, pattern in zip(texts, patterns, strict=True):
        try:
            ir.Module.parse(text)
        except ir.MLIRError as error:
            return UsageError(
                f"pattern '{pattern.name}' cannot be said in MLIR: {error}",
                hint=f"types and attributes are MLIR text; it is in {pattern.rewrite.__module__}",
            )
    raise AssertionError("each pattern alone can be read")


def _match(spelling: _Spelling, values: Sequence[Any]) -> Match | None:
    """What a spelling found; None where an op has no attribute of a name, or has another one."""
    root, *rest = values
    found = dict(zip(spelling.handles, rest, strict=True))
    for name, holder, key in spelling.attributes:
        attributes = found[holder].attributes
        if key not in attributes or found.setdefault(name, attributes[key]) != attributes[key]:
            return None
    return Match(root, found)


def _results_of(pattern: Pattern, match: Match, made: Any) -> list[Any]:
    """What a rewrite gives, checked, in place of the root's results."""
    if isinstance(made, ir.Value):
        found = [made]
    elif isinstance(made, ir.Operation | ir.OpView):
        found = list(made.operation.results)
    else:
        found = list(made)
    kinds = [[str(v.type) for v in values] for values in (found, match.root.results)]
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"pattern '{pattern.name}' gives {', '.join(kinds[0]) or 'nothing'} for "
            f"{', '.join(kinds[1]) or 'nothing'}",
            loc=location_text(match.root.location),
            hint="give a value of the same type for each result of the root",
        )
    return found
