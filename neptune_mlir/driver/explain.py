# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs as pseudo-code: how people read the `neptune` dialect, which prints generically.

    stream over j, tile (i = 64, j = 64, d = all)
      axes   i < 512, j < 512, d < 64
      where  i >= j
      start  max0 = -inf, sum1 = 0
      t0[i, j] = sum over d: arg0[i, d] * arg1[j, d]
      max0[i] = max(max0'[i], max over j: t0[i, j])
      c0[i] = sum1'[i], repaired
          repair: sum1'[i] * exp(max0'[i] - max0[i])    as max0'[i] -> max0[i]    (exponential)
      sum1[i] = c0[i] + sum over j: exp(t0[i, j] - guard(max0[i]))
      finish
        t1[i] = log(sum1[i]) + max0[i]

A name with a prime is a running value as the tile at hand found it. `guard(x)` is x, or 0 where
x still is its identity (-inf): no element was seen there, and any finite reference will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.combiners import lookup
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import DERIVATION, DERIVED, PROOF, TILE
from neptune_mlir.dialects.nests import DYNAMIC, Nest, Values, read_access, read_nest, tensor_key
from neptune_mlir.dialects.op_names import ACCUMULATE, GLOBAL, NESTS, PRIVATE, PRODUCE, READ, STREAM
from neptune_mlir.dialects.program import functions
from neptune_mlir.dialects.scalars import NoTermForm, region_to_terms
from neptune_mlir.ir.bindings import ir

_QUIET = ("arith.constant", "tensor.dim", "tensor.empty", "func.return")
LEVELS = 256  # of a term that text spells out


@dataclass(frozen=True)
class Line:
    """A line of pseudo-code, and the operation that it says."""

    depth: int
    text: str
    op: Any = None

    def __str__(self) -> str:
        return "  " * self.depth + self.text


@dataclass(frozen=True)
class Listing:
    """A function as pseudo-code.

    Attributes:
        values: the names of its tensors.
        called: what the lines call each value that a nest makes (`values` forgets a name that
            another value takes over).
        axes, running: names of the axes of each fused op, and of each stream's running values.
        masks: where each stream with a mask is live, over its axes.
    """

    function: Any
    lines: list[Line]
    values: Values
    called: dict[Any, str]
    axes: dict[Any, list[str]]
    running: dict[Any, list[str]]
    masks: dict[Any, Term]


def listings(module: Any, text: str = "") -> list[Listing]:
    """The module's functions as pseudo-code, line by line.

    `text` is what the module was parsed from: arguments keep the names they have there.
    """
    found = []
    for op in module.body.operations:
        if op.operation.name == "func.func" and len(op.regions[0].blocks):
            writer = _Writer(text)
            lines = writer.function(op)
            found.append(
                Listing(
                    op,
                    lines,
                    writer.values,
                    writer.called,
                    writer.axes,
                    writer.running,
                    writer.masks,
                )
            )
    return found


def explain(module: Any, text: str = "") -> str:
    """The module's functions as pseudo-code; `text` as for `listings`."""
    return "\n\n".join("\n".join(map(str, x.lines)) for x in listings(module, text))


def derivations(module: Any) -> list[str]:
    """How gradients were derived, as `neptune.grad` recorded it, and how the corrections of each
    stream were found and proved, as `rolling-update` did."""
    lines: list[str] = []
    for function in functions(module):
        if DERIVED.on(function.operation):
            lines.append(f"derivation of {function.name.value}")
            lines.extend(f"  {line}" for line in DERIVED.of(function.operation))

    def visit(op: Any) -> Any:
        if DERIVATION.on(op):
            names = [name.value for name in op.attributes["axis_names"]]
            axis = names[op.attributes["axis"].value]
            lines.append(f"corrections of the stream over {axis}: {PROOF.of(op)}")
            lines.extend(f"  {line}" for line in DERIVATION.of(op))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return lines


def written_name(argument: Any, text: str) -> str | None:
    """What the text that a module was parsed from calls an argument: its location is where the
    name stands."""
    location = argument.location
    if isinstance(location, ir.NameLoc):
        return str(location.name_str)
    lines = text.splitlines() if isinstance(location, ir.FileLineColLoc) else []
    if not lines or location.start_line > len(lines):
        return None
    found = re.match(r"%([A-Za-z_]\w*)", lines[location.start_line - 1][location.start_col - 1 :])
    return found[1] if found else None


class _Writer:
    """Writes one function; names values as it meets them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values = Values()
        self.lines: list[Line] = []
        self.used: set[str] = set()
        self.called: dict[Any, str] = {}
        self.axes: dict[Any, list[str]] = {}
        self.running: dict[Any, list[str]] = {}
        self.masks: dict[Any, Term] = {}

    # ---- names

    def name(self, value: Any, stem: str, numbered: bool = True) -> str:
        """Give `value` a name that is free: `stem`, with a number where asked or needed."""
        number = 0
        numbered = numbered and not stem[-1].isdigit() and len(stem) < 2
        chosen = f"{stem}{number}" if numbered else stem
        while chosen in self.used:
            number += 1
            chosen = f"{stem}{number}"
        self.used.add(chosen)
        self.values.bind(chosen, value)
        self.called[value] = chosen
        return chosen

    def axis_names(self, operation: Any) -> list[str]:
        return self.distinct(name.value for name in operation.attributes["axis_names"])

    def loop_names(self, operation: Any, nest: Nest) -> list[str]:
        if nest.axes is not None and "axis_names" in operation.parent.attributes:
            shared = self.axis_names(operation.parent)
            return [shared[axis] for axis in nest.axes]
        if nest.names is not None:
            return self.distinct(nest.names)
        letters = "ijklmnpqrstuvw"
        rank = len(nest.domain)
        return self.distinct(letters[n] if n < len(letters) else f"i{n}" for n in range(rank))

    def distinct(self, names: Iterable[str]) -> list[str]:
        """Axis names; in capitals where the program has a value of that name."""
        return [name.upper() if name in self.used else name for name in names]

    def line(self, depth: int, text: str, op: Any = None) -> None:
        self.lines.append(Line(depth, text, op))

    # ---- levels

    def function(self, function: Any) -> list[Line]:
        block = function.regions[0].blocks[0]
        name = function.operation.attributes["sym_name"].value
        arguments = [
            self.name(a, written_name(a, self.text) or f"arg{k}", numbered=False)
            for k, a in enumerate(block.arguments)
        ]
        typed = [
            f"{n}: {_type_text(a.type)}" for n, a in zip(arguments, block.arguments, strict=True)
        ]
        self.line(0, f"function {name}({', '.join(typed)})")
        self.block(block, 1)
        return self.lines

    def block(self, block: Any, depth: int) -> None:
        for op in block.operations:
            operation = op.operation
            name = operation.name
            if name in NESTS:
                self.nest(operation, depth)
            elif name == STREAM:
                self.stream(operation, depth)
            elif name == PRIVATE:
                self.private(operation, depth)
            elif name == GLOBAL:
                self.join(operation, depth)
            elif name in ("func.return", PRODUCE):
                if len(operation.operands):
                    self.line(depth, "return " + self.keys(operation.operands))
            elif name == "tensor.dim":
                self.dim(operation)
            elif name not in _QUIET:
                results = ", ".join(self.name(r, "t") for r in operation.results)
                given = self.keys(operation.operands)
                text = f"{results} = {name}({given})" if results else f"{name}({given})"
                self.line(depth, text, operation)

    def keys(self, values: Iterable[Any]) -> str:
        return ", ".join(self.values.key(v, "t") for v in values)

    def dim(self, operation: Any) -> None:
        source, position = operation.operands
        owner = position.owner
        constant = getattr(owner, "name", None) == "arith.constant"
        index = owner.attributes["value"].value if constant else self.values.key(position)
        text = f"{self.values.key(source)}.shape[{index}]"
        self.values.bind(text, operation.results[0])

    # ---- fused ops

    def stream(self, operation: Any, depth: int, private: str = "") -> None:
        names = self.axis_names(operation)
        axis = operation.attributes["axis"].value
        self.axes[operation] = names
        head = f"stream over {names[axis]}{private}{_tile_text(operation, names)}"
        self.line(depth, head, operation)
        extents = _extents(operation, operation.operands, self.values)
        inner = depth + 1
        sizes = ", ".join(f"{n} < {e}" for n, e in zip(names, extents, strict=True))
        self.line(inner, f"axes   {sizes}")
        self.live(operation, names, inner)
        body = operation.regions[0].blocks[0]
        running = self.name_running(body)
        self.running[operation] = [name for name, _ in running]
        starts = [f"{name} = {start}" for name, start in running]
        self.line(inner, f"start  {', '.join(starts)}")
        self.block_without_terminator(body, inner)
        finish = operation.regions[1].blocks[0]
        for argument, (name, _) in zip(finish.arguments, running, strict=True):
            self.values.rebind(name, argument)
        if len(finish.operations) > 1:
            self.line(inner, "finish")
            self.block_without_terminator(finish, inner + 1)
        self.name_results(operation, finish)

    def name_running(self, body: Any) -> list[tuple[str, str]]:
        """Name the running values of a stream; their names and what they start from."""
        found: list[tuple[str, str]] = []
        produced = list(body.operations)[-1].operation.operands
        for argument, value in zip(body.arguments, produced, strict=True):
            maker = value.owner
            while maker.name != ACCUMULATE:  # a map that a correction became
                maker = _first_read(maker).owner
            combiner = maker.attributes["combiner"].value
            name = self.name(value, _word(combiner) + str(len(found)))
            self.values.bind(f"{name}'", argument)
            found.append((name, _number(maker.attributes["identity"].value)))
        return found

    def name_results(self, operation: Any, block: Any) -> None:
        """Results of a fused op take the names of what its last region produces."""
        produced = list(block.operations)[-1].operation.operands
        for result, value in zip(operation.results, produced, strict=True):
            self.values.rebind(self.values.key(value, "t"), result)

    def live(self, operation: Any, names: Sequence[str], depth: int) -> None:
        region = operation.regions[2]
        if not len(region.blocks):
            return
        block = region.blocks[0]
        axes = [T.index(k) for k in range(len(names))]
        special = {READ: lambda op, _: read_access(op, self.values)}
        (condition,) = region_to_terms(block, axes, self.capture, special=special)
        self.masks[operation] = condition
        self.line(depth, f"where  {_show(condition, names)}", operation)

    def capture(self, value: Any) -> Term:
        from neptune_mlir.dialects.scalars import constant_value

        owner = value.owner
        if getattr(owner, "name", None) == "arith.constant":
            return T.const(constant_value(owner.opview), str(value.type))
        return T.sym(self.values.key(value), str(value.type))

    def private(self, operation: Any, depth: int) -> None:
        chunks = operation.attributes["chunks"].value
        number = "a run-time number of" if chunks == DYNAMIC else chunks
        body = operation.regions[0].blocks[0]
        self.line(depth, f"private in {number} chunks, in parallel", operation)
        self.block_without_terminator(body, depth + 1)
        produced = list(body.operations)[-1].operation.operands
        for result, value in zip(operation.results, produced, strict=True):
            self.name(result, f"{self.values.key(value)}_part")

    def join(self, operation: Any, depth: int) -> None:
        names = self.axis_names(operation)
        self.axes[operation] = names
        head = f"global over {names[0]}: re-base the parts and join them"
        self.line(depth, head, operation)
        body = operation.regions[0].blocks[0]
        self.block_without_terminator(body, depth + 1)
        self.name_results(operation, body)

    def block_without_terminator(self, block: Any, depth: int) -> None:
        before = len(self.lines)
        self.block(block, depth)
        if len(self.lines) > before and self.lines[-1].text.startswith("return "):
            del self.lines[-1]

    # ---- nests

    def nest(self, operation: Any, depth: int) -> None:
        try:
            nest = read_nest(operation, self.values)
        except NoTermForm as error:
            name = self.name(operation.results[0], "t")
            text = f"{name} = {operation.name} that has no short form: {error.message}"
            self.line(depth, text, operation)
            return
        names = self.loop_names(operation, nest)
        key = self.values.key(nest.result) if self.known(nest.result) else None
        key = key or self.name(nest.result, "c" if nest.kind == "correct" else "t")
        self.called[nest.result] = key
        position = f"[{', '.join(names[k] for k in nest.result_axes)}]" if nest.result_axes else ""
        body = _show(nest.body, names)
        if nest.kind == "correct":
            repaired = f"{key}{position} = {_show(nest.accumulators[0], names)}, repaired"
            self.line(depth, repaired, operation)
            references = ", ".join(
                f"{_show(old, names)} -> {_show(new, names)}"
                for old, new in zip(nest.old, nest.new, strict=True)
            )
            repair = f"repair: {body}    as {references}    ({nest.form})"
            self.line(depth + 2, repair, operation)
            return
        if nest.kind == "map":
            self.line(depth, f"{key}{position} = {body}", operation)
            return
        over = ", ".join(names[k] for k in nest.reduced_axes)
        word = _word(nest.combiner)
        value = f"{word} over {over}: {body}"
        if nest.init is not None:
            started = f"{nest.init}{position}"
            joined = nest.combiner != "custom" and lookup(nest.combiner).infix
            value = joined.format(started, value) if joined else f"{word}({started}, {value})"
        self.line(depth, f"{key}{position} = {value}", operation)

    def known(self, value: Any) -> bool:
        return self.values.knows(value)


def _word(combiner: str) -> str:
    return combiner if combiner == "custom" else lookup(combiner).word or combiner


# ---- text of small things ---------------------------------------------------------------------


def _first_read(operation: Any) -> Any:
    """The tensor that a nest's region reads first."""
    for op in operation.regions[0].blocks[0].operations:
        if op.operation.name == READ:
            return op.operation.operands[0]
    raise NoTermForm(f"'{operation.name}' reads no running value")


def _extents(operation: Any, operands: Iterable[Any], values: Values) -> list[str]:
    dynamic = iter(operands)
    return [
        values.key(next(dynamic)) if size == DYNAMIC else str(size)
        for size in operation.attributes["domain"]
    ]


def _tile_text(operation: Any, names: Sequence[str]) -> str:
    if not TILE.on(operation):
        return ""
    sizes = zip(names, TILE.of(operation), strict=True)
    pairs = ", ".join(f"{name} = {size or 'all'}" for name, size in sizes)
    return f", tile ({pairs})"


def _type_text(kind: Any) -> str:
    if isinstance(kind, ir.RankedTensorType):
        extents = ", ".join("?" if n == DYNAMIC else str(n) for n in kind.shape)
        return f"{kind.element_type}[{extents}]"
    return str(kind)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# operator -> (symbol, how tightly it binds)
_INFIX = {
    "or": ("or", 1), "and": ("and", 2), "xor": ("^", 3),
    "eq": ("==", 4), "ne": ("!=", 4), "lt": ("<", 4), "le": ("<=", 4), "gt": (">", 4),
    "ge": (">=", 4), "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6),
    "rem": ("%", 6), "floordiv": ("//", 6),
}  # fmt: skip


def _show(term: Term, names: Sequence[str]) -> str:
    """A term with the loops' names and no needless brackets; of a large one the first levels."""
    return _text(term, names, 0, min(len(T.first_levels(term)[0]), LEVELS))


def _text(term: Term, names: Sequence[str], outer: int, levels: int) -> str:
    if term.op == "index":
        return names[term.attr]
    if term.op in ("read", "ref"):
        position = ", ".join(_show(a, names) for a in term.args)
        return f"{tensor_key(term)}[{position}]" if term.args else str(tensor_key(term))
    if term.is_leaf:
        return T.show(term)
    if not levels:
        return "..."
    left = levels - 1
    if term.op == "ge" and (text := _inequality(term, names, left)):
        return text if outer < 4 else f"({text})"
    if term.op in _INFIX:
        symbol, strength = _INFIX[term.op]
        sides = [_text(a, names, strength + k, left) for k, a in enumerate(term.args)]
        text = f"{sides[0]} {symbol} {sides[1]}"
        return f"({text})" if strength < outer else text
    if (guarded := _guarded(term)) is not None:
        return f"guard({_text(guarded, names, 0, left)})"
    words = {"select": "where", "neg": "-", "not": "not "}
    word = term.dtype if term.op in ("cast", "quantize") else words.get(term.op, term.op)
    return f"{word}({', '.join(_text(a, names, 0, left) for a in term.args)})"


def _guarded(term: Term) -> Term | None:
    """x of `where(x == its identity, 0, x)`: a reference that is finite even where nothing was
    seen (docs/architecture.md)."""
    if term.op != "select" or term.args[0].op != "eq" or not term.args[1].is_const:
        return None
    compared, identity = term.args[0].args
    infinite = identity.is_const and abs(identity.value) == float("inf")
    return compared if infinite and term.args[1].value == 0 and term.args[2] is compared else None


def _inequality(term: Term, names: Sequence[str], levels: int) -> str | None:
    """`i + j * -1 >= 0`, as passes write affine conditions, as `i >= j`."""
    if not (term.args[1].is_const and term.args[1].value == 0 and term.args[0].op == "add"):
        return None
    sides: tuple[list[str], list[str]] = ([], [])
    parts = [term.args[0]]
    while parts:
        part = parts.pop()
        if part.op == "add":
            parts += reversed(part.args)
            continue
        negative = False
        if part.is_const:
            negative, part = part.value < 0, T.const(abs(part.value), part.dtype)
        elif part.op == "mul" and part.args[1].is_const and part.args[1].value < 0:
            factor = T.const(-part.args[1].value, part.dtype)
            negative, part = True, T.make("mul", part.args[0], factor)
        sides[negative].append(_text(part, names, 5, levels))
    return " >= ".join(" + ".join(side) or "0" for side in sides)
