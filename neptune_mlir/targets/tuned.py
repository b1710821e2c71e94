# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was measured to be best on a chip, as data: the table that `neptune tune` fills.

An entry says, for streams of a `Shape` on a chip and from some length on, which tile sizes to
take and what else a schedule leaves open (`Choice`). `tuned.json` ships. A user's table, in the
file that NEPTUNE_TUNING names ("none" for no such table) or else in the user's data folder, speaks
for every shape that it knows instead. No MLIR here: the key of cached code depends on the table.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from neptune_mlir.errors import InputError
from neptune_mlir.targets.findings import ProgramFinding, program_digest

ENVIRONMENT = "NEPTUNE_TUNING"
_Item = TypeVar("_Item")
ALL_LATE = 6  # more products than a loop has
ALL_AHEAD = 8  # eighths of a product's instructions
IN_TURNS = 2  # of `adder`
ABOUT = "What was measured to be best for kernels of warp groups (docs/tuning.md). An entry holds" \
    " for streams of at least `from` points."  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What a stream is like, whatever it computes.

    Attributes:
        depth: points that the deepest product sums over, but for the streamed ones (1: no others).
        width: columns of the result; 0 where they are cut.
        triangle: whether a comparison of several axes masks points.
        light: whether exp is the only function of each point of the stream that takes registers.
        band: whether several such comparisons do, as a causal window has them: what is left of the
            stream need not grow with it.
        scores: products that make tiles for each step of the stream.
        results: products that sum over the stream, into accumulators of their own.
        loads: tiles of rows and streamed points that are loaded for anything but a product, by the
            threads that compute.
        boxes: those that the copy engine brings to shared memory.
        marks: numbers of a streamed point alone that comparisons take: its document, say.
        vectors: such numbers that arithmetic takes: a log-sum-exp.
        once, streamed: elements of a row that programs load once, and of a streamed point, where
            results are so wide that groups share rows; 0: as `depth` and `width` say.
        shared: products whose results programs add up (`join-streams`).
        size: bytes of an element of a factor.
    """

    depth: int
    width: int
    triangle: bool
    light: bool
    band: bool = False
    scores: int = 1
    results: int = 1
    loads: int = 0
    boxes: int = 0
    marks: int = 0
    vectors: int = 0
    once: int = 0
    streamed: int = 0
    shared: int = 0
    size: int = 2

    def __str__(self) -> str:
        marks = [name for name in ("triangle", "band", "light") if getattr(self, name)]
        if (self.scores, self.results) != (1, 1):
            marks.append(f"{self.scores} scores {self.results} results")
        counts = ((name, getattr(self, name))
                  for name in ("loads", "boxes", "marks", "vectors", "shared"))
        marks += [f"{n} {name}" for name, n in counts if n]
        marks += [f"{self.size} bytes"] if self.size != 2 else []
        return " ".join([f"{self.depth}x{self.width}", *marks])

    def as_json(self) -> dict[str, Any]:
        made = asdict(self)
        for name, usual in _COUNTS.items():  # of most streams
            if made[name] == usual:
                del made[name]
        return made


_COUNTS = {  # of a Shape, as they are of most streams
    "scores": 1, "results": 1, "loads": 0, "boxes": 0, "marks": 0, "vectors": 0, "once": 0,
    "streamed": 0, "shared": 0, "size": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What is to be chosen for a kernel of warp groups.

    Attributes:
        rows, stream: sizes of a tile: 64 rows a group, and points of the streamed axis.
        columns: of a tile, where columns of the result are cut; 0 for the rule's.
        slots: of the rings that streamed tiles go through; 0 for as many as the rule gives.
        turns: whether groups take turns at the matrix units.
        skew: whether loops are software-pipelined (`schedule-loops`).
        resident: whether blocks stay and take program after program.
        boxed: whether results may leave by the copy engine.
        keeps: whether iterations may keep their reference.
        blocks: that are to share a multiprocessor, where shared memory and registers allow.
        early: whether an iteration loads vectors in front of its products, not beside them.
        late: how many products may run an iteration late, at most (`schedule-loops`).
        lefts: whether left factors that a program loads once stay in registers.
        beside: how many eighths of a product's instructions are issued at its start, where others
            can be between the elements of arithmetic, or behind the stores of what groups exchange
            before another product starts; 0: all; 8: all, there behind.
        adder: 1: an idle warp adds what a group makes to sums that programs share; IN_TURNS: in
            the order of the programs.
        apart: whether programs that add to a result begin at tiles of their own.
    """

    rows: int
    stream: int
    columns: int = 0
    slots: int = 0
    turns: bool = False
    skew: bool = True
    resident: bool = True
    boxed: bool = True
    keeps: bool = True
    blocks: int = 1
    early: bool = False
    late: int = ALL_LATE
    lefts: bool = False
    beside: int = 0
    adder: int = 0
    apart: bool = False

    def _special(self) -> dict[str, int]:
        rule = Choice(self.rows, self.stream)
        return {f.name: int(getattr(self, f.name)) for f in fields(self)
                if getattr(self, f.name) != getattr(rule, f.name)}  # fmt: skip

    def beyond_sizes(self) -> dict[str, int]:
        """What differs from the rule, besides the sizes of the tile."""
        return {name: n for name, n in self._special().items() if name != "columns"}

    def as_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "stream": self.stream, **self._special()}

    def __str__(self) -> str:
        more = [f"{name} {value}" for name, value in self._special().items()]
        return ", ".join([f"{self.rows}x{self.stream}", *more])


@dataclass(frozen=True)
class Entry:
    """`choice` for streams of `shape` with at least `start` points, on `chip` (a target's name).
    `measured` says where that is from (JSON data)."""

    chip: str
    shape: Shape
    start: int
    choice: Choice
    measured: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def as_json(self) -> dict[str, Any]:
        made = {"chip": self.chip, **self.shape.as_json(), "from": self.start,
                **self.choice.as_json()}  # fmt: skip
        return made | ({"measured": dict(self.measured)} if self.measured else {})

    @staticmethod
    def from_json(data: Any) -> Entry:
        """Raises ValueError for anything that `as_json` does not make."""
        if not isinstance(data, dict):
            raise ValueError("an entry is an object")
        left = dict(data)
        chip, measured = left.pop("chip", None), left.pop("measured", {})
        if not isinstance(chip, str) or not isinstance(measured, dict):
            raise ValueError("'chip' is a string, 'measured' an object")
        start = _number(left, "from", 0)
        given = {f.name: left.pop(f.name) for f in fields(Shape) if f.name in left}
        counts = {name: _number(given, name, min(usual, 1))
                  for name, usual in _COUNTS.items() if name in given}  # fmt: skip
        shape = Shape(_number(given, "depth", 0), _number(given, "width", 0),
                      _truth(given, "triangle"), _truth(given, "light"),
                      _truth(given, "band") if "band" in given else False, **counts)  # fmt: skip
        numbers: dict[str, Any] = {name: _number(left, name, least, unit)
                   for name, least, unit in _NUMBERS if name in left}  # fmt: skip
        truths = {name: _truth(left, name) for name in _TRUTHS if name in left}
        choice = Choice(
            _number(left, "rows", 64, 64), _number(left, "stream", 16, 16), **numbers, **truths
        )  # fmt: skip
        if left:
            raise ValueError(f"an entry has no '{next(iter(left))}'")
        return Entry(chip, shape, start, choice, measured)


# what a choice may say beside its sizes: the least number and what it is a multiple of
_NUMBERS = [("columns", 0, 16), ("slots", 0, 1), ("blocks", 1, 1), ("late", 0, 1),
            ("beside", 0, 1), ("adder", 0, 1)]  # fmt: skip
_TRUTHS = [f.name for f in fields(Choice) if isinstance(f.default, bool)]


def _number(data: dict[str, Any], name: str, least: int, unit: int = 1) -> int:
    found = data.pop(name, None)
    if not isinstance(found, int) or isinstance(found, bool) or found < least or found % unit:
        of = f"a multiple of {unit}" if unit > 1 else f"a number from {least} on"
        raise ValueError(f"'{name}' is {of}, not {found!r}")
    return found


def _truth(data: dict[str, Any], name: str) -> bool:
    found = data.pop(name, None)
    if found not in (0, 1):  # JSON's false and true are 0 and 1 too
        raise ValueError(f"'{name}' is true or false, not {found!r}")
    return bool(found)


@dataclass(frozen=True)
class Table:
    """Entries, at most one for a chip, a shape and a length to begin at, and findings, at most one
    for a chip, a program and the schedule that is asked for."""

    entries: tuple[Entry, ...] = ()
    findings: tuple[ProgramFinding, ...] = ()

    def finding(self, chip: str, program: str, asked: str) -> ProgramFinding | None:
        """What a search found for a program (see `ProgramFinding`)."""
        return next((f for f in self.findings if f.key == (chip, program, asked)), None)

    def with_finding(self, finding: ProgramFinding) -> Table:
        """This table with a finding in place of what it has for that program."""
        kept = (f for f in self.findings if f.key != finding.key)
        return Table(self.entries, (*kept, finding))

    def of(self, chip: str, shape: Shape) -> list[Entry]:
        """The entries for a stream, the shortest length first."""
        found = [e for e in self.entries if e.chip == chip and e.shape == shape]
        return sorted(found, key=lambda e: e.start)

    def of_chip(self, chip: str) -> list[Any]:
        """What it says of a chip: equal for chips that share code."""
        own = [f for f in self.findings if f.chip == chip]
        return [(e.shape, e.start, e.choice) for e in self.entries if e.chip == chip] + [
            (f.program, f.asked, f.schedule, f.knobs) for f in own
        ]

    def over(self, other: Table) -> Table:
        """This table; of another one what is about other shapes or chips."""
        known = {(e.chip, e.shape) for e in self.entries}
        rest = [e for e in other.entries if (e.chip, e.shape) not in known]
        found = {f.key for f in self.findings}
        more = [f for f in other.findings if f.key not in found]
        return Table((*self.entries, *rest), (*self.findings, *more))

    def digest(self, text: str, target: str) -> str:
        """A hash of all that decides the code of a program (its text) for a target."""
        lines = sorted(
            json.dumps([e.chip, asdict(e.shape), e.start, asdict(e.choice)], sort_keys=True)
            for e in self.entries if target != "cpu"
        )  # fmt: skip
        if self.findings:  # else nothing asks what the program is
            program = program_digest(text)
            lines += sorted(repr(f) for f in self.findings if f.program == program)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def to_json(self) -> str:
        """An entry a line, in a fixed order."""
        order = sorted(self.entries, key=lambda e: (e.chip, str(e.shape), e.start))
        lists = {"entries": [e.as_json() for e in order]}
        if self.findings:
            lists["findings"] = [f.as_json() for f in sorted(self.findings, key=lambda f: f.key)]
        parts = [f'"about": {json.dumps(ABOUT)}']
        for name, items in lists.items():
            lines = ",\n".join(map(json.dumps, items))
            parts.append(f'"{name}": [\n{lines}\n]')
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> Table:
        """Raises ValueError for anything that `to_json` does not make."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("entries"), list):
            raise ValueError("it has no list of 'entries'")
        found = _items("entry", data["entries"], Entry.from_json)
        keys = [(e.chip, e.shape, e.start) for e in found]
        twice = next((k for k in keys if keys.count(k) > 1), None)
        if twice:
            raise ValueError(f"two entries for {twice[0]}, {twice[1]}, from {twice[2]}")
        findings = _items("finding", data.get("findings", []), ProgramFinding.from_json)
        if len({f.key for f in findings}) < len(findings):
            raise ValueError("two findings for one program, chip and schedule")
        return Table(tuple(found), tuple(findings))


def _items(name: str, listed: Any, read: Callable[[Any], _Item]) -> list[_Item]:
    if not isinstance(listed, list):
        raise ValueError(f"there is no list of each {name}")
    found = []
    for number, item in enumerate(listed):
        try:
            found.append(read(item))
        except ValueError as error:
            raise ValueError(f"{name} {number}: {error}") from None
    return found


# ---- the tables that there are


def read(path: str | os.PathLike[str]) -> Table:
    """A table from a file. Raises InputError for one that is damaged, or none."""
    try:
        return Table.from_json(Path(path).read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"the tuning table '{os.fspath(path)}' cannot be read: {reason}",
            hint="correct or remove it ('neptune tune record' writes one); "
            f"{ENVIRONMENT}=none does without",
        ) from None


@functools.cache
def shipped() -> Table:
    """The table of this package."""
    return Table.from_json(resources.files(__package__).joinpath("tuned.json").read_text())


def user_path() -> Path | None:
    """Where the user's table is, or would be; None for no such table."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return None if chosen == "none" else Path(chosen)
    import platformdirs

    return Path(platformdirs.user_data_dir("neptune-mlir")) / "tuned.json"


_chosen: contextvars.ContextVar[Table | None] = contextvars.ContextVar("tuned", default=None)


def current() -> Table:
    """The table that counts: the one in `using`, else the user's over the shipped one.

    Raises:
        InputError: the user's table is damaged, or is named and not there.
    """
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    path = user_path()
    if path is None or not (os.environ.get(ENVIRONMENT) or path.exists()):
        return shipped()
    return read(path).over(shipped())


@contextlib.contextmanager
def using(table: Table | str | os.PathLike[str] | None) -> Iterator[None]:
    """Within it, a table is the current one, or that of a file over the shipped one ("none": the
    shipped one alone, as in the environment); None changes nothing.

    Raises:
        InputError: the file holds no table.
    """
    if table is None:
        yield
        return
    if not isinstance(table, Table):
        table = shipped() if table == "none" else read(table).over(shipped())
    token = _chosen.set(table)
    try:
        yield
    finally:
        _chosen.reset(token)


@dataclass(frozen=True)
class Question:
    """What a compilation asked of the table, and what it took: `entry` is None where that is
    the rule's. `few`: for launches of few programs."""

    chip: str
    shape: Shape
    length: int
    few: bool
    choice: Choice
    entry: Entry | None


_asked: contextvars.ContextVar[list[Question] | None] = contextvars.ContextVar(
    "asked", default=None
)


@contextlib.contextmanager
def questions() -> Iterator[list[Question]]:
    """The questions asked within it, each once; who listens outside of it hears them too."""
    found: list[Question] = []
    token = _asked.set(found)
    try:
        yield found
    finally:
        _asked.reset(token)
        for question in found:
            note(question)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Nobody hears the questions asked within it: they only compare choices."""
    token = _asked.set(None)
    try:
        yield
    finally:
        _asked.reset(token)


def note(question: Question) -> None:
    """Hand a question to whoever listens."""
    listening = _asked.get()
    if listening is not None and question not in listening:
        listening.append(question)
