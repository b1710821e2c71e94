# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules: transform-dialect scripts, the ones that ship, and the rule that chooses one.

A script is data: a `transform.named_sequence @__transform_main` over the module, with the ops of
`transform_neptune.py`, knobs (`transform.tune.knob`) and steps in place of others
(`transform.tune.alternatives`, a knob too: the number of a region). `apply` binds knobs by name and
interprets the script. `library.py` finds scripts by name. Shipped templates stand in `shipped/`:

* `streamed`: one program per tile of result rows runs the whole stream (prefill-like);
* `private`: the stream is cut into chunks that run in parallel and are joined (decode-like);
* `apart`: each tile of the stream is such a chunk (linear layer and loss);
* `ahead`: as `streamed`, factors that are sums of what is reduced first (layer norm, product);
* `scaled_ahead`: the same, with factors that what is reduced only scales (RMS norm, product);
* `unfused`: each reduction is a kernel of its own, to compare with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from neptune_mlir.dialects.op_names import INDEX, MAP, READ, REDUCE, VIEWS
from neptune_mlir.dialects.program import NestProgram, functions
from neptune_mlir.errors import InputError, NeptuneError, ScheduleError, did_you_mean
from neptune_mlir.ir.bindings import diagnostic_lines, ir, module, source_name
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.group_tiles import DEEP
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.fusion import factors_ahead
from neptune_mlir.transforms.fusion.axes.split_sums import COLUMNS
from neptune_mlir.transforms.fusion.inline_maps import inline_all
from neptune_mlir.transforms.fusion.plan import LONG_STREAM

ENTRY = "__transform_main"
KNOB, ALTERNATIVES = "transform.tune.knob", "transform.tune.alternatives"
SELECTED = {KNOB: "selected", ALTERNATIVES: "selected_region_attr"}  # the attribute that says what
CHOICES = "set-choices"  # the pass whose options are knobs of every schedule
DYNAMIC_EXTENT = ir.ShapedType.get_dynamic_size()


def parse(text: str, context: Any, source: str = "<schedule>") -> Any:
    """The script as an MLIR module. Raises InputError."""
    from neptune_mlir.transforms.schedule import transform_neptune

    transform_neptune.load(context)
    with context, source_name(source):
        try:
            # same length, so locations stay right (see transforms/schedule/transform_neptune.py)
            script = ir.Module.parse(text.replace("transform.neptune.", "transform_neptune."))
        except ir.MLIRError as error:
            raise InputError("\n".join(diagnostic_lines(error, source))) from None
    if _entry(script) is None:
        raise InputError(
            f"the schedule {source} has no transform.named_sequence @{ENTRY}",
            hint="put the steps in one, and 'transform.with_named_sequence' on the module",
        )
    return script


def _entry(script: Any) -> Any:
    for op in script.body.operations:
        attributes = op.operation.attributes
        if "sym_name" in attributes and attributes["sym_name"].value == ENTRY:
            return op
    return None


def knobs(script: Any) -> dict[str, Any]:
    """The ops of a script that choose, by name: knobs, and steps that stand for others."""
    found: dict[str, Any] = {}

    def visit(op: Any) -> Any:
        if op.name in (KNOB, ALTERNATIVES):
            found[op.attributes["name"].value] = op
        return ir.WalkResult.ADVANCE

    script.operation.walk(visit)
    return found


def options(knob: Any) -> list[int]:
    """The numbers that a knob may be; none where any will do. Alternatives are numbered."""
    if knob.name == ALTERNATIVES:
        return list(range(len(knob.regions)))
    listed = knob.attributes["options"]
    return [o.value for o in listed] if isinstance(listed, ir.ArrayAttr) else []


def bind(script: Any, values: Mapping[str, int]) -> None:
    """Set knobs by name.

    Raises:
        ScheduleError: no such knob, or a value that is not among its options.
    """
    known = knobs(script)
    for name, value in values.items():
        if name not in known:
            # (what `pipelines` hands to the pass of choices never comes here)
            names = [*known, *registry.lookup(CHOICES).options]
            listed = f"knobs: {', '.join(names)}"
            raise ScheduleError(
                f"the schedule has no knob '{name}'", hint=did_you_mean(name, names, listed)
            )
        allowed = options(known[name]) or [value]
        if value not in allowed:
            raise ScheduleError(
                f"knob '{name}' cannot be {value}", hint=f"options: {', '.join(map(str, allowed))}"
            )
        _select(known[name], value)
    for op in known.values():
        if op.name == ALTERNATIVES and SELECTED[ALTERNATIVES] not in op.attributes:
            _select(op, 0)


def _select(op: Any, value: int) -> None:
    with op.context:
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    op.attributes[SELECTED[op.name]] = number


PARTS = ("", "fixed", "bound")  # of a script: all of it, or see `keep`


def keep(script: Any, part: str) -> set[str]:
    """Cut a script down to one of PARTS.

    "fixed": the steps of this project before the first that takes a number, as far
    as nothing else stands between them: what all bindings of the knobs have in common. "bound":
    the others. They run on what the first left and begin with the same functions, since a step
    hands on the functions that it is given.

    Returns:
        the passes that the module has been through already, where a part is left out.
    """
    from neptune_mlir.transforms.schedule.transform_neptune import pass_of

    had: set[str] = set()
    operations = list(_entry(script).regions[0].blocks[0].operations)
    *steps, end = operations
    fixed = 0
    while fixed < len(steps) and _is_settled(steps[fixed]) and not list(end.operands):
        fixed += 1
    if part == "fixed":
        for op in reversed(steps[fixed:]):
            op.operation.erase()
    elif part == "bound":
        for op in steps[:fixed]:
            if op.operation.name.startswith("transform_neptune."):
                name = pass_of(op)
                had |= {*registry.prerequisites(name, had), name}
                op.operation.results[0].replace_all_uses_with(op.operation.operands[0])
                op.operation.erase()
    return had


def _is_settled(op: Any) -> bool:
    """Whether an op does the same whatever the numbers are, and again behind such ops."""
    operation = op.operation
    if operation.name == "transform.structured.match":
        matched = operation.attributes["ops"] if "ops" in operation.attributes else ()
        return [name.value for name in matched] == ["func.func"]
    if operation.name.startswith("transform_neptune."):
        return len(operation.operands) == 1
    return operation.name in (KNOB, "transform.param.constant")


def apply(
    payload: Any, text: str, values: Mapping[str, int], source: str, part: str = ""
) -> None:
    """Run a script, or one of its PARTS, on a module, its knobs bound to `values`.

    Raises:
        ScheduleError: a step of the script failed on this program.
        NeptuneError: whatever a pass raised.
    """
    from neptune_mlir.transforms.schedule import transform_neptune

    script = parse(text, payload.context, source)
    bind(script, values)
    before = registry.done.set(registry.done.get() | keep(script, part))
    interpreter = module("dialects.transform.interpreter")
    token = transform_neptune.script_name.set(source)
    try:
        interpreter.apply_named_sequence(
            payload.operation, _entry(script).operation, script.operation
        )
    except NeptuneError:
        raise
    except ValueError as error:
        raise ScheduleError(_readable(str(error), source)) from None
    finally:
        transform_neptune.script_name.reset(token)
        registry.done.reset(before)


def _readable(message: str, source: str) -> str:
    """Upstream's message, with places in the script named as such."""
    found = re.findall(r'at loc\("-":(\d+):(\d+)\): (.*)', message)
    if not found:
        return f"{source}: {message.strip()}"
    line, column, text = found[0]
    return f"schedule {source}:{line}:{column}: {text}"


MINOR = 16  # times less work than another reduction does: such a one has no say
UNKNOWN = 1024  # what an extent counts that only a call knows


def choose(
    payload: Any, parallel_programs: int, adapts: bool = False, apart: bool = False,
    ahead: bool = False,
) -> str:  # fmt: skip
    """The template for a program (at program level): one of those that ship.

    The rule: take the reduction with the fewest results that reduces at least LONG_STREAM
    elements (or a run-time number of them) into each, but for small ones that nothing else needs.
    With fewer results than the target runs programs at once, rows alone leave it idle, so the
    stream is cut: `private`. (Results that arrays lie along, sums over rows, count in COLUMNS.)
    Everything else, and whatever is known at run time only, is `streamed`.

    Where the number of chunks `adapts` to the extents, a run-time number of independent problems
    (a batch of contractions) counts as one: of many, each is cut into one chunk. Where the target
    knows how to take deep products `apart`, a program that reduces some goes by that, and where it
    prefers to have factors `ahead` of products that they cannot be fused with for nothing, one
    with such products by that instead of `streamed`.
    """
    if apart and _reduces_deep_products(payload):
        return "apart"
    problems = Problems()
    fewest = None
    counting = _counting(payload)
    for function in payload.body.operations:
        if function.operation.name != "func.func":
            continue
        for block in function.regions[0].blocks:
            for op in block.operations:
                if op.operation.name == REDUCE and op.operation in counting:
                    single = problems.axes(op.operation) if adapts else frozenset()
                    results, reduced = _extents(op.operation, single)
                    if not problems.contracts(op.operation):
                        results /= _columns(op.operation)
                    if reduced >= LONG_STREAM:
                        fewest = results if fewest is None else min(fewest, results)
    if fewest is not None and fewest < parallel_programs:
        return "private"
    return "ahead" if ahead and any(map(_computes_ahead, functions(payload))) else "streamed"


def _computes_ahead(function: Any) -> bool:
    """Whether some product has a factor that is worth computing ahead."""
    program = NestProgram(function)
    if all(nest.kind == "map" for nest in program.nests.values()):
        return False  # and nothing is inlined for the question
    inline_all(program)
    return bool(factors_ahead.found_in(program))


def _reduces_deep_products(payload: Any) -> bool:
    """Whether all reductions of products that sum over more than DEEP elements, and there
    are some, leave results of fewer axes. (The extent of the axes that they run over may be known
    at run time only.) No result is made of their elements: one would need each product again."""
    problems = Problems()
    axes: dict[Any, int] = {}  # what follows from a deep product, and how many axes that has
    found = []
    for op in _nests(payload):
        kept, domain = set(op.attributes["result_axes"]), list(op.attributes["domain"])
        reduced = [n for loop, n in enumerate(domain) if loop not in kept]
        deep = [axes[v] for v in _sources(op) if v in axes]
        if deep and op.name == REDUCE:
            found.append(len(kept) < max(deep))
        elif deep:
            axes[op.results[0]] = max(deep)
        elif op.name == REDUCE and problems.contracts(op):
            if DYNAMIC_EXTENT not in reduced and math.prod(reduced) > DEEP:
                axes[op.results[0]] = len(kept)
    return bool(found) and all(found) and not any(v in axes for v in _results(payload))


def _results(payload: Any) -> Iterator[Any]:
    """The results of a program, as they are before they get another shape."""
    for function in functions(payload):
        for value in list(function.regions[0].blocks[0].operations)[-1].operation.operands:
            while not isinstance(value.owner, ir.Block) and value.owner.name in VIEWS:
                value = value.owner.operands[0]
            yield value


def _counting(payload: Any) -> set[Any]:
    """The nests that do most of the work of a program, and those that such nests need."""
    nests = list(_nests(payload))
    work = [math.prod(UNKNOWN if n == DYNAMIC_EXTENT else n for n in op.attributes["domain"])
            for op in nests]  # fmt: skip
    found = set()
    for op, points in zip(reversed(nests), reversed(work), strict=True):
        if points * MINOR >= max(work):
            found.add(op)
        if op in found:
            found |= {v.owner for v in _sources(op) if not isinstance(v.owner, ir.Block)}
    return found


def _columns(reduce: Any) -> int:
    """How many results beside each other a program has of a reduction over what arrays do not lie
    along."""
    kept, domain = set(reduce.attributes["result_axes"]), list(reduce.attributes["domain"])
    reads = (op.operation for op in reduce.regions[0].blocks[0].operations)
    maps = [op.attributes["map"].value.results for op in reads if op.name == READ]
    most = max(map(len, maps), default=0)
    last = [_loops_of(places[-1]) for places in maps if places and len(places) == most]
    along = set().union(*last) & kept
    if not along or any(loops - kept for loops in last):
        return 1
    extent = max(domain[loop] for loop in along)
    return COLUMNS if extent == DYNAMIC_EXTENT else min(COLUMNS, extent)


def _sources(nest: Any) -> list[Any]:
    """What a nest reads."""
    return [read.operation.operands[0] for read in nest.regions[0].blocks[0].operations
            if read.operation.name == READ]  # fmt: skip


def _nests(payload: Any) -> Iterator[Any]:
    """The maps and reductions of a program."""
    for function in payload.body.operations:
        for block in function.regions[0].blocks if function.regions else ():
            for op in block.operations:
                if op.operation.name in (MAP, REDUCE):
                    yield op.operation


def _extents(reduce: Any, single: frozenset[int]) -> tuple[float, float]:
    """Numbers of results and of elements in each, infinite where known at run time only.

    Run-time extents of the loops `single` count as 1.
    """
    dynamic = ir.ShapedType.get_dynamic_size()
    results = reduced = 1.0
    kept = set(reduce.attributes["result_axes"])
    for loop, extent in enumerate(reduce.attributes["domain"]):
        size = float(extent)
        if extent == dynamic:
            size = 1.0 if loop in single else float("inf")
        if loop in kept:
            results *= size
        else:
            reduced *= size
    return results, reduced


class Problems:
    """Which loops of a nest number independent problems: contractions that share no operand."""

    def __init__(self) -> None:
        self._found: dict[Any, tuple[frozenset[int], bool]] = {}

    def axes(self, nest: Any) -> frozenset[int]:
        """The loops along which every factor varies of each contraction that the nest is or
        follows from; none where there is no contraction."""
        axes, contracts = self._of(nest)
        return axes if contracts else frozenset()

    def contracts(self, nest: Any) -> bool:
        """Whether a nest is a contraction, or follows from one."""
        return self._of(nest)[1]

    def _of(self, nest: Any) -> tuple[frozenset[int], bool]:
        todo = [] if nest in self._found else [nest]
        while todo:  # first what it is computed from, without recursion: programs are long
            makers = map(_nest_of, _sources(todo[-1]))
            before = [n for n in makers if n and n not in self._found]
            todo += before
            if not before:
                last = todo.pop()
                self._found[last] = self._find(last)
        return self._found[nest]

    def _find(self, nest: Any) -> tuple[frozenset[int], bool]:
        axes = kept = frozenset(nest.attributes["result_axes"])
        followed, factors = False, []
        for op in nest.regions[0].blocks[0].operations:
            if op.operation.name != READ:
                continue
            tensor = op.operation.operands[0]
            places = [_loops_of(e) for e in op.operation.attributes["map"].value.results]
            varies = frozenset().union(*places, *_looked_up(op.operation))
            if varies - kept:
                factors.append(varies & kept)
            source = _nest_of(tensor)
            if source is None:
                continue
            inner, contracts = self._found[source]
            if contracts:
                followed = True
                made = zip(places, source.attributes["result_axes"], strict=True)
                axes &= frozenset().union(*(place for place, loop in made if loop in inner))
        contracts = any(a - b and b - a for a in factors for b in factors)
        if contracts:
            axes = axes.intersection(*factors)
        return axes, followed or contracts


def _nest_of(tensor: Any) -> Any:
    """The map or reduction that makes a tensor, None where there is none."""
    maker = defining_op(tensor)
    return maker if maker and maker.name in (MAP, REDUCE) else None


def _looked_up(read: Any) -> Iterator[frozenset[int]]:
    """The loops that the lookups of a read depend on: those of the reads that they are made of."""
    for operand in list(read.operands)[1:]:
        todo = [operand]
        while todo:
            maker = todo.pop().owner
            if isinstance(maker, ir.Block):
                continue
            if maker.name == READ:
                yield from map(_loops_of, maker.attributes["map"].value.results)
                todo += list(maker.operands)[1:]
            elif maker.name == INDEX:
                yield frozenset([maker.attributes["dim"].value])
            else:
                todo += list(maker.operands)


def _loops_of(expression: Any) -> frozenset[int]:
    """The loops that an affine expression depends on."""
    if isinstance(expression, ir.AffineDimExpr):
        return frozenset([ir.AffineDimExpr(expression).position])
    if isinstance(expression, ir.AffineBinaryExpr):
        binary = ir.AffineBinaryExpr(expression)
        return _loops_of(binary.lhs) | _loops_of(binary.rhs)
    return frozenset()
