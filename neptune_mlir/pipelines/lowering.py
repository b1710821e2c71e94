# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From program text down to tile IR, once for all the tile programs that one program has.

A target may want several: in ways of which the first that suits is taken (`pipelines/ways.py`),
as variants selected at launch (`pipelines/cases.py`), for chips that share no tile program.
They differ in the numbers that a schedule is bound to, so a program is parsed, raised and fused
once; what a number decides runs on a copy for each.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from neptune_mlir.dialects.attributes import CHIP, IN_TWO, MERGED_ROWS, MULTIPLES, SPREADS
from neptune_mlir.dialects.constants import take_data
from neptune_mlir.dialects.context import parse
from neptune_mlir.dialects.op_names import CORRECT, MAP, PRIVATE, REDUCE, STREAM
from neptune_mlir.dialects.program import functions, streams
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import common, legal
from neptune_mlir.pipelines.all_lengths import leave_none
from neptune_mlir.pipelines.callable_programs import check_operations, check_signatures
from neptune_mlir.pipelines.cases import (
    PLAIN_TILES,
    TALL,
    Case,
    aligned,
    cut_products,
    few_programs,
    few_rows,
    few_tiles,
    has_tall_tiles,
    is_alignable,
    known_chunks,
    least_rows,
    merged_rows,
    one_row,
    product_tiles,
    short_parts,
    short_streams,
    yielding,
)
from neptune_mlir.pipelines.grids import blocks_of
from neptune_mlir.pipelines.long_streams import (
    for_many,
    is_narrow,
    long_rows,
    longer,
    part_of_tile,
    short_and_few,
    shorter,
    smaller,
    tiles_of,
)
from neptune_mlir.pipelines.paired import in_pairs
from neptune_mlir.pipelines.product_cases import product_of
from neptune_mlir.pipelines.program_lengths import ProgramLengths, program_lengths
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.pipelines.short_calls import stream_length, visited
from neptune_mlir.pipelines.streamed_factors import streamed_row_bytes, streams_bytes
from neptune_mlir.pipelines.tile_programs import Form, TileProgram, form_of
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime import cache
from neptune_mlir.runtime.plan import Expression
from neptune_mlir.targets import tuned
from neptune_mlir.targets.chips import gpu_target, is_known
from neptune_mlir.targets.findings import ProgramFinding, program_digest, schedule_digest
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from neptune_mlir.targets.resources import scanned
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.schedule import library
from neptune_mlir.transforms.schedule import scripts as schedules
from neptune_mlir.transforms.schedule.tile import kernel_ops

# the levels of docs/architecture.md that are MLIR and the same for every target
COMMON_LEVELS = ("neptune", "fused", "tile")

_SMALL_DATA = 4096  # bytes of constants up to which a bundle quotes the program with them


@dataclass
class Lowering:
    """A program on its way down. `facts` is JSON data for the bundle."""

    module: Any
    facts: dict[str, Any] = field(default_factory=dict)
    way: Way = field(default_factory=Way)
    cases: tuple[Case, ...] = ()
    cut_cases: tuple[Case, ...] = ()  # those whose stream is cut
    one_row: tuple[Case, ...] = ()  # calls with one row
    known_chunks: tuple[Case, ...] = ()  # calls whose stream is cut into a known number
    length: Any = None  # of its stream, in terms of the launch plan
    few_tiles: tuple[Case, ...] = ()  # calls whose masks are not looked at before
    few_sizes: Any = ()  # tiles for few programs, and for any
    each: ProgramLengths | None = None  # how long programs are, where `few_sizes` are known
    visited: Any = None  # how many tiles a program visits at most
    alignable: bool = False  # whether it has kernels for aligned rows
    alone: bool = False  # whether it is one kernel, but for those that look at masks
    row_bytes: Collection[int] = ()  # of the rows that its products stream
    in_chunks: bool = False  # whether it has a stream that is cut
    is_product: bool = False  # whether its tiles are chosen by how many there are
    done: tuple[str, ...] = ()  # the passes that the module has been through
    constants: dict[str, bytes] = field(default_factory=dict)  # by SHA-256; copies share it
    scan: int = 0  # elements of a scan that a program of the target computes in one pass
    loops: bool = True  # whether the target runs loops over tensors

    @classmethod
    def of_text(cls, text: str, source: str) -> Lowering:
        """Parse a program. Raises InputError."""
        with bindings.source_name(source):
            module = parse(text, source=source)
        if not list(functions(module)):
            hint = "a program is a func.func on ranked tensors (docs/tutorial.md)"
            raise InputError("the program has no function with a body", loc=source, hint=hint)
        with bindings.source_name(source):
            check_signatures(module)
            check_operations(module)
        return cls(module, {"provenance": provenance(text, source)})

    @property
    def has_variants(self) -> bool:
        """Whether some calls may have kernels of their own."""
        return bool(self.cases or self.alignable or self.way.few or self.way.cut)

    def copy(self) -> Lowering:
        """The same, to go on from in another way."""
        return replace(self, module=self.module.operation.clone(), facts=copy.deepcopy(self.facts))

    def run(self, steps: Sequence[Step]) -> Sequence[registry.Remark]:
        """Run steps; what they remark is kept, and returned."""
        with registry.collect_remarks() as remarks:
            common.run(self.module, tuple(steps), self.done)
        self.done = (*self.done, *(step.name for step in steps))
        self.keep(remarks)
        return remarks

    def keep(self, remarks: Sequence[registry.Remark]) -> None:
        """Add remarks to the facts, each once, and the fast paths that they are about."""
        texts: list[str] = self.facts.setdefault("remarks", [])
        said = dict.fromkeys(cache.without_lines(str(remark)) for remark in remarks)
        texts += [text for text in said if text not in texts]
        found = self.facts.setdefault("missed", [])
        found += [miss for miss in registry.misses(remarks) if miss not in found]

    def lift_constants(self) -> None:
        """Take the data of array constants out of the module (`lift-constants`)."""
        self.run(common.LIFT)
        self.constants |= take_data(self.module)

    def to_program(self) -> None:
        self.lift_constants()
        if sum(map(len, self.constants.values())) > _SMALL_DATA:  # a bundle holds data once
            text = cache.without_lines(self.module.operation.get_asm(enable_debug_info=True))
            self.facts["provenance"]["source"]["text"] = text
        self.run(common.import_steps(self.scan, self.loops))
        self.constants |= take_data(self.module)
        self.facts["nests"] = count(self.module, MAP, REDUCE)
        legal.check_when_asked(self.module, "neptune")

    def fuse(self, schedule: str) -> None:
        """What a schedule does whatever its numbers are."""
        self.facts["schedule"] = schedule
        self.run([fixed(schedule)])

    def to_fused(self, knobs: str) -> None:
        """The rest of the schedule, its numbers bound (`name:value;...`), and what was chosen
        otherwise than by the rules of later passes."""
        schedule = self.facts["schedule"]
        self.run(bound(schedule, knobs))
        self.facts["provenance"]["schedule"] = {
            "name": os.path.basename(schedule), "text": library.read(schedule), "knobs": knobs
        }  # fmt: skip
        self.facts["corrections"] = count(self.module, CORRECT)
        self.facts["fused"] = count(self.module, STREAM)
        self.in_chunks = count(self.module, PRIVATE) > 0
        legal.check_when_asked(self.module, "fused")

    def find_cases(self) -> None:
        """Which calls may have tile programs of their own, of a fused program that is for any. (A
        program that is for some has none, and most programs are.)"""
        schedule = self.facts["schedule"]
        short = for_many(self.module, [case for case in self.short() if case.condition])
        some = bool(self.way.few or self.way.cut)  # the target has kernels for some calls
        product = product_of(self.module) if self.way.few else None
        self.is_product = product is not None
        self.length = stream_length(self.module)
        self.alone = sum(len(kernel_ops(f)) for f in functions(self.module)) == 1
        whole = self.alone and not self.is_product and self.length is not None
        # of a device's rows, how long programs are is no matter of their number: those that end a
        # triangle are all long
        whole = whole and not any(IN_TWO.on(f.operation) for f in functions(self.module))
        self.cases = (
            *longer(self.module), *(smaller(self.module) if self.way.few else ()),
            *(in_pairs(self.module, whole) if self.way.few and schedule == "streamed" else ()),
            *shorter(self.module, self.way, schedule),
            *least_rows(self.module, self.way.rows), *short, *short_and_few(self.module, short),
            *(short_parts(self.module) if some else ()),
            *(part_of_tile(self.module, whole) if self.way.few and schedule == "streamed" else ()),
        )  # fmt: skip
        self.cut_cases = ()
        if self.way.cut:
            self.cut_cases = few_rows(self.module, schedule) or long_rows(self.module)
        if product is not None:
            self.cases = (*self.cases, *product_tiles(product, schedule))
            self.cut_cases = cut_products(product, schedule, self.cut_cases)
        self.one_row = one_row(self.module) if self.way.cut else ()
        self.alignable = is_alignable(self.module)
        few, *_ = self.way.few.get(schedule, ("",))
        self.few_sizes = tiles_of(*streams(self.module), few=1) if few and whole else ()
        self.each = program_lengths(self.module, *streams(self.module)) if self.few_sizes else None
        shape = self.few_sizes[1][0] if self.few_sizes else None
        self.cut_cases = few_programs(self.module, self.cut_cases, shape)
        knobs = self.way.few.get(schedule, ())
        self.few_tiles = few_tiles(self.module, knobs) if some and self.alone else ()
        self.visited = visited(self.module) if some and self.alone else None
        # (of 8 bits, rows that are no lines were not measured)
        self.row_bytes = () if streams_bytes(self.module) else streamed_row_bytes(self.module)
        self.known_chunks = known_chunks(self.module) if self.way.cut else ()

    def short(self) -> tuple[Case, ...]:
        """Calls with short streams (`short_streams`) whose tiles are those of this way."""
        return short_streams(self.module, self.way.lengths.get(self.facts["schedule"], ()))

    def to_tiles(self, known: dict[Form, TileProgram]) -> TileProgram:
        """Lower the fused program by its way, where what becomes of it is not `known` yet."""
        form = form_of(self.module, self.way)
        if form in known:
            self.module = known[form].module.operation.clone()
            self.keep(known[form].said)
        else:
            said = self.run(common.to_tiles(self.way.multiplies_bytes))
            legal.check_when_asked(self.module, "tile")
            with registry.collect_remarks() as remarks:
                common.run(self.module, self.way.steps)
                taken = self.way.suits(self.module)
            known[form] = TileProgram(self.module.operation.clone(), said, remarks, taken)
        self.facts["kernels"] = count(self.module, "scf.forall")
        return known[form]


class RaisedProgram:
    """A program, parsed and raised; `lowerings` are what becomes of it.

    Args:
        schedule: a script, or one by name; None: the rule's (`scripts.choose`).
        knobs: numbers (`rows:64;keeps:0`) that hold whatever a target would bind or a later pass
            would choose: knobs of the schedule, and options of the pass `set-choices`.
        target: what it is compiled for, or several; "": any.

    Raises:
        InputError: no program.
    """

    def __init__(
        self, text: str, source: str, schedule: str | None = None, knobs: str = "",
        target: str = "",
    ) -> None:  # fmt: skip
        self.schedule, self.knobs = schedule, knobs
        self._text = text
        self._asked = schedule_digest(library.read(schedule)) if schedule else ""
        self._raised = Lowering.of_text(text, source)
        self._raised.scan, self._raised.loops = scan_of(target), has_loops(target)
        self._raised.to_program()
        # by schedule, and whether rows are merged
        self._fused: dict[tuple[str, bool, str], Lowering] = {}
        self._tiled: dict[Form, TileProgram] = {}
        self._whole: list[tuple[Any, Lowering]] = []  # for any call, by what was asked for

    @property
    def constants(self) -> dict[str, bytes]:
        """The data of its array constants by their SHA-256."""
        return self._raised.constants

    @property
    def _stays_wide(self) -> bool:
        """Whether a factor that is computed may not be rounded to the type of its partner, as what
        is computed ahead is."""
        return library.knob_values(self.knobs).get("narrow", 1) == 0

    def finding(self, target: str) -> ProgramFinding | None:
        """What a search found best for this program."""
        table = tuned.current()
        if not table.findings:
            return None
        chip = target.partition(",")[0]
        return table.finding(chip, program_digest(self._text), self._asked)

    def ways(self, target: str, ways: Sequence[Way]) -> list[Way]:
        """The ways of a target with what a search found; variants bind theirs over it."""
        found = self.finding(target)
        if found is None or self.schedule:
            return list(ways)
        return [way.bound(found.schedule, found.knobs) for way in ways]

    def of_chunks(self) -> tuple[RaisedProgram, Expression] | None:
        """The program for calls whose rows have whole chunks of 16 bytes (`assume-chunks`), and
        which calls these are; None, where no call decides how long rows are."""
        raised = self._raised.copy()
        raised.run([Step("assume-chunks")])
        found = [MULTIPLES.find(f.operation, ()) for f in functions(raised.module)]
        if len(found) != 1 or not found[0]:
            return None
        whole = [["eq", ["mod", ["dim", a, d], n], 0] for a, d, n in found[0]]
        made = copy.copy(self)
        made.__dict__.pop("_merged", None)
        made._raised, made._fused, made._tiled, made._whole = raised, {}, {}, []
        return made, functools.reduce(lambda a, b: ["and", a, b], whole)

    @functools.cached_property
    def _merged(self) -> tuple[Lowering, tuple[Case, ...]]:
        """The program with two axes of rows as one, and the calls that it is for: none, where it
        has no such axes."""
        merged = self._raised.copy()
        merged.run([Step("merge-rows")])
        rows = [MERGED_ROWS.find(f.operation, None) for f in functions(merged.module)]
        known = [n for n in rows if n is not None]
        found = merged_rows(merged.module, known[0]) if len(rows) == len(known) == 1 else ()
        return merged, found

    def lowerings(
        self, target: str, ways: Sequence[Way], level: str = "tile", schedule: str = "",
        merged: bool = False, some_calls: bool = False,
    ) -> Iterator[Lowering]:  # fmt: skip
        """The program at one of COMMON_LEVELS, by each of the ways that takes it (`schedule`,
        `merged` and `some_calls` as of `by`).

        Raises:
            UsageError: no such level.
        """
        if level not in COMMON_LEVELS:
            raise UsageError(f"no level '{level}'", hint=", ".join(COMMON_LEVELS))
        refused: list[registry.Remark] = []
        own = library.knob_values(self.knobs)
        for way in ways:
            if own.get(way.needs, 1) == 0 or (way.schedule and (schedule or self.schedule)):
                continue
            if way.applies is not None and not self._applies(way, target, schedule, merged):
                continue
            lowering = self.by(target, way, level, schedule or way.schedule, merged, some_calls)
            if level != "tile":
                yield lowering
                continue
            tiled = lowering.to_tiles(self._tiled)
            if tiled.taken:
                lowering.keep([*refused, *tiled.of_steps])
                yield lowering
            else:
                refused += tiled.of_steps

    def images(
        self, base: Lowering, tiles: str, target: str
    ) -> tuple[Lowering, Iterator[tuple[Case, Lowering]]]:
        """The tile program for any call, and `variants`. Where these take all calls, the first of
        them takes the place of `base`, and so on."""
        variants = self.variants(base, tiles, target)
        if not leave_none(base.cases):  # which variants have code of their own is not known yet
            return base, variants
        made = list(variants)
        while leave_none([case for case, _ in made]):
            (_, base), *made = made
        return base, iter(made)

    def cases(self, base: Lowering) -> tuple[Case, ...]:
        """Calls that may have tile programs of their own, in the order of `variants`."""
        name = base.facts["schedule"]
        last = base.alone or bool(base.cut_cases)  # its stream is the last kernel
        knobs = base.way.few.get(name, ()) if last and not base.is_product else ()
        # few programs have few parts of rows: tiles of these save less than finding them costs
        plain = f";{PLAIN_TILES}" if any(c.knob == PLAIN_TILES for c in base.cases) else ""
        some = [
            Case(knob + plain, None, k > 0, base.length, tiles=() if k else base.few_sizes,
                 each=base.each)
            for k, knob in enumerate(knobs)
        ]
        of_base: dict[str, Any] = {"tiles": base.few_sizes, "each": base.each}
        cut = base.cut_cases if not self.schedule else ()
        if any(c.by_model for c in cut):
            cut = tuple(replace(c, **of_base) for c in cut)
        if base.way.cut and not self.schedule:
            merged, cases = self._merged
            spread = any(SPREADS.on(f.operation) for f in functions(merged.module))
            visited = base.visited if spread else None
            tall = base.few_sizes and has_tall_tiles(base.few_sizes[1][0])
            cases = tuple(c for c in cases if c.rows != TALL or tall)
            cases = tuple(replace(c, visited=visited, **of_base) for c in cases)
            cases = (*cases, *(base.one_row if spread else ()))
            # (merged rows share what programs of one chunk load for each)
            cut = (*base.known_chunks, *cases) if cases else (*cut, *base.known_chunks)
        cut = tuple(replace(c, length=base.length) for c in cut)
        stays = self.schedule or self._stays_wide
        own = (case for case in base.cases if not (stays and case.schedule))
        whole = (*own, *some)
        cut = yielding(cut, base.row_bytes) if base.way.needs == "warp_groups" else cut
        also = aligned(whole) if base.alignable and base.alone and not self.schedule else ()
        short = base.few_tiles if not self.schedule else ()
        return (*whole, *also, *cut, *short)

    def variants(self, base: Lowering, tiles: str, target: str) -> Iterator[tuple[Case, Lowering]]:
        """The tile programs of the variants that are selected at launch.

        Args:
            base: that for any, and `tiles` its text.
        """
        seen = {tiles}
        widest = False
        for case in self.cases(base):
            if widest and case.is_for_portable:
                continue
            variant = next(self.variant(base, target, case), None)
            text = "" if variant is None else str(variant.module)
            if variant is not None and text not in seen:
                seen.add(text)
                widest |= case.merged
                yield replace(case, blocks=blocks_of(variant.module)), variant

    def variant(
        self, base: Lowering, target: str, case: Case, knob: str = ""
    ) -> Iterator[Lowering]:
        """The tile programs for some calls, with one more knob, by each way that suits."""
        ways = (base.way,)
        if case.schedule and not case.is_ahead:
            taken = (way for way in base.way.cut if way.takes(case.schedule, case.rows))
            ways = tuple(way for way in taken if way.spare == case.spare)
        schedule = case.schedule or base.facts["schedule"]
        bound = [way.bound(schedule, case.knob) for way in ways]
        bound = [way.bound(schedule, knob) if knob else way for way in bound]
        made_by = self.lowerings(
            target, bound, schedule=case.schedule, merged=case.merged, some_calls=True
        )
        for made in made_by:
            if case.cuts and not made.in_chunks:
                break  # what is reduced is so short that nothing is streamed
            yield made

    def by(
        self, target: str, way: Way, level: str, schedule: str = "", merged: bool = False,
        some_calls: bool = False,
    ) -> Lowering:  # fmt: skip
        """The program at a level by one way, whether or not that takes it (before its tiles); by a
        shipped schedule of this name, if one is named; `merged`: with two axes of rows as one;
        `some_calls`: it is for some alone."""
        if level == "neptune":
            return self._raised.copy()
        asked = target, way, schedule, merged
        known = next((made for before, made in self._whole if before == asked), None)
        if known is not None and not some_calls:  # it was looked at before (`chunks_of`)
            return known.copy()
        rule, chosen, fused = self._begun(target, way, schedule, merged)
        # a schedule that somebody chose keeps its own tile sizes
        knobs, found = {} if self.schedule else way.knobs, self.finding(target)
        lowering = fused.copy()
        lowering.way = way
        values = knobs.get(chosen, "")
        if found and self.schedule:
            values = found.knobs
        elif not found and not self.schedule:
            short = lowering.short()
            always = [case.knob for case in short if not case.condition]
            long = not always and (short or isinstance(stream_length(lowering.module), int))
            long = long and chosen in way.lengths
            values = ";".join(filter(None, [values, *always, way.longer if long else ""]))
            if is_narrow(lowering.module, way, chosen):
                values = f"{values};{way.narrow[chosen]}"
        if self.knobs:
            own = library.knob_values(self.knobs)
            if chosen != rule:  # what was said of the program's own schedule is not for this one
                choices = registry.lookup(schedules.CHOICES).options
                own = {name: value for name, value in own.items() if name in choices}
            values = library.knob_text(library.knob_values(values) | own)
        lowering.to_fused(values)
        if not some_calls:
            lowering.find_cases()
            self._whole.append((asked, lowering.copy()))
        return lowering

    def _applies(self, way: Way, target: str, schedule: str, merged: bool) -> bool:
        """Whether a way is for the program: a schedule that somebody chose has ways for all."""
        if self.schedule or way.applies is None:
            return way.applies is None
        _, chosen, fused = self._begun(target, way, schedule or way.schedule, merged)
        return chosen in way.knobs and way.applies(fused.module)

    def _begun(
        self, target: str, way: Way, schedule: str, merged: bool
    ) -> tuple[str, str, Lowering]:
        """The schedule by the rule, the one that is taken (as of `by`), and what this makes of the
        program whatever its numbers are."""
        knobs = {} if self.schedule else way.knobs
        adapts = "programs:" in knobs.get("private", "")
        found = self.finding(target)
        ahead = "ahead" in knobs and not self._stays_wide
        rule = self.schedule or (found.schedule if found else "") or schedules.choose(
            self._raised.module, parallelism(target), adapts, "apart" in knobs, ahead,
        )  # fmt: skip
        chosen = schedule or rule
        key = chosen, merged, target
        if key not in self._fused:
            raised = self._merged[0] if merged else self._raised
            self._fused[key] = raised.copy()
            name_chip(self._fused[key].module, target)
            self._fused[key].fuse(chosen)
        return rule, chosen, self._fused[key]


def fixed(schedule: str) -> Step:
    """What a schedule does whatever its numbers are."""
    return Step("apply-schedule", {"file": schedule, "part": "fixed"})


def bound(schedule: str, knobs: str) -> list[Step]:
    """The rest of the schedule, its numbers bound. Of the knobs, those that the pass `set-choices`
    knows go to it, whatever the schedule."""
    values = library.knob_values(knobs)
    names = [name for name in registry.lookup(schedules.CHOICES).options if name in values]
    choices = {name: values.pop(name) for name in names}
    file = {"file": schedule, "knobs": library.knob_text(values), "part": "bound"}
    return [Step("apply-schedule", file), *([Step(schedules.CHOICES, choices)] if choices else [])]


def name_chip(module: Any, target: str) -> None:
    """Say in the module which GPU it is for: of a family, what they share is the same for all."""
    if target != "cpu":
        CHIP.set(module.operation, target.partition(",")[0])


def steps_to_tiles(lowering: Lowering) -> list[Step]:
    """All passes that a program in tile IR has been through."""
    schedule = lowering.facts["schedule"]
    knobs = lowering.facts["provenance"]["schedule"]["knobs"]
    return [
        *common.import_steps(lowering.scan, lowering.loops),
        fixed(schedule),
        *bound(schedule, knobs),
        *common.to_tiles(lowering.way.multiplies_bytes),
        *lowering.way.steps,
    ]  # fmt: skip


def provenance(text: str, source: str) -> dict[str, Any]:
    """What a bundle says of its origin: the program. (`driver.compiler.finished` adds this compiler
    and the packages it uses.)"""
    return {"source": {"name": os.path.basename(source), "text": cache.without_lines(text)}}


def scan_of(target: str) -> int:
    """Elements of a scan that the programs of all these targets compute in one pass; 0: none."""
    names = [name for name in map(str.strip, target.split(",")) if name]
    chips = [gpu_target(name) for name in names if is_known(name)]
    return min(map(scanned, chips), default=0) if len(chips) == len(names) else 0


def has_loops(target: str) -> bool:
    """Whether these targets run loops over tensors."""
    names = [name for name in map(str.strip, target.split(",")) if name]
    return "cpu" in names or not names


def parallelism(target: str) -> int:
    """How many programs the target runs at once (the schedule rule asks)."""
    if target == "cpu":
        from neptune_mlir.runtime import workers

        return workers.count()
    return MULTIPROCESSORS


def count(module: Any, *names: str) -> int:
    """How many ops of these names a module holds."""
    found = 0

    def visit(op: Any) -> Any:
        nonlocal found
        found += op.name in names
        return bindings.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found
