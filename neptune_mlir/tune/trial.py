# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One program on one machine, for a search: compiles it with a point's knobs, judges the numbers,
and takes times in turns.

A point is compiled as users will get it: with a table that holds it as a finding. It is right where
it passes the rule of `neptune run --check` on small calls that take several tiles, and where its
results in the calls that are timed are those of the rule's kernel, within the tolerances of the
benchmark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neptune_mlir.bench.check import TOLERANCE
from neptune_mlir.driver.compiler import compile_text, compile_unfused, knobs_of_schedule
from neptune_mlir.driver.inputs import hostile_extents, random_inputs, result_dtype, to_float64
from neptune_mlir.driver.kernel import Kernel, Source
from neptune_mlir.driver.three_ways import judged, plain_values, three_ways
from neptune_mlir.errors import NeptuneError, ToolError, UsageError, did_you_mean
from neptune_mlir.targets import tuned
from neptune_mlir.targets.findings import ProgramFinding, program_digest, schedule_digest
from neptune_mlir.transforms.schedule import library
from neptune_mlir.tune.arguments import Arguments
from neptune_mlir.tune.search import Point

SIZES = ("rows", "stream", "columns", "chunks")  # knobs of shipped schedules that are searched
LENGTH = 1024
LEAST = 2e-2  # seconds of calls that one time is taken of

Call = Callable[[], Any]


def options_of(schedule: str, chosen: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """What a search may bind in a schedule: of a shipped one sizes, of another all knobs that list
    their options; and what was `chosen`.

    Raises:
        UsageError: there is no such schedule, knob or option; or nothing to search.
    """
    found: dict[str, Sequence[int]] = {}
    known = knobs_of_schedule(schedule)
    for name, listed in known.items():
        own = chosen.get(name)
        if own is not None:
            wrong = [n for n in own if listed and n not in listed]
            if wrong:
                raise UsageError(
                    f"knob '{name}' of '{schedule}' cannot be {wrong[0]}",
                    hint=f"options: {', '.join(map(str, listed))}",
                )
            found[name] = own
        elif listed and (schedule not in library.shipped() or name in SIZES):
            found[name] = listed
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known, f"knobs: {', '.join(known)}")
            raise UsageError(f"'{schedule}' has no knob '{name}'", hint=hint)
    if not found:
        raise UsageError(
            f"'{schedule}' has no knob that lists its options", hint="--knob NAME=8,16,32"
        )
    return found


@dataclass(frozen=True)
class Measured:
    """Times by length: of the point in rounds, and of the rule in the same."""

    own: Sequence[Sequence[float]]
    rule: Sequence[Sequence[float]]

    @property
    def cost(self) -> float:
        """The geometric mean over lengths of the median time over the rule's."""
        ratios = [
            float(np.median(a) / np.median(b)) for a, b in zip(self.own, self.rule, strict=True)
        ]
        return math.exp(sum(map(math.log, ratios)) / len(ratios))


class Trial:
    """See the module's text.

    Args:
        schedule: what the user asks for (None: the rule's choice).
        lengths: of calls (None: LENGTH, where a call decides one).
        fixed: run-time extents by ARGUMENT.DIMENSION; the others are each of `lengths`.

    Raises:
        UsageError: lengths are given, and no extent is left that they decide.
        NeptuneError: the program does not compile by the rule.
    """

    def __init__(
        self, source: Source, target: str, schedule: str | None,
        lengths: Sequence[int] | None, fixed: Mapping[str, int], machine: Any,
    ):  # fmt: skip
        self._source, self.target, self.schedule = source, target, schedule
        self._machine = machine
        self.rule = self._compile(None)
        plan = self.rule.bundle.plan
        asked = [Arguments(plan, fixed, length) for length in lengths or (LENGTH,)]
        if lengths and not asked[0].has_length:
            raise UsageError("no extent of the program is left for --lengths to decide",
                             hint="leave it out: every call has the same extents")  # fmt: skip
        for arguments in asked:
            arguments.check_size()
        self._given = [machine.arguments(a) for a in asked]
        self._calls = self._calls_of(self.rule)
        self._wanted = [self._results(self.rule, given) for given in self._given]
        self._judge = self._make_judge(plan)

    def finding(self, point: Point, measured: Mapping[str, Any] | None = None) -> ProgramFinding:
        """A point as the table has it."""
        asked = "" if self.schedule is None else schedule_digest(library.read(self.schedule))
        return ProgramFinding(
            self.target, program_digest(self._source.text), asked, point.script,
            library.knob_text(dict(point.knobs)), dict(measured or {}),
        )  # fmt: skip

    def try_point(self, point: Point, limit: float, rounds: int = 3) -> tuple[float | None, str]:
        """The cost of a point, as a share of the rule's time, and "" or why it has none.

        Args:
            limit: a cost at which the first round is enough.
        """
        try:
            kernel = self._compile(point)
            why = self._judge(kernel) or self._differs(kernel)
            if why:
                return None, why
            calls = self._calls_of(kernel)
            first = self.take_turns([calls], 1)[0].cost
            return (first if first > limit else self.take_turns([calls], rounds)[0].cost), ""
        except NeptuneError as error:
            return None, error.message

    def finals(self, points: Sequence[Point], rounds: int) -> list[Measured]:
        """Times of several points and of the rule, in the same rounds."""
        return self.take_turns([self._calls_of(self._compile(p)) for p in points], rounds)

    def take_turns(self, every: Sequence[Sequence[Call]], rounds: int) -> list[Measured]:
        seconds = self._machine.seconds
        rule: list[list[float]] = [[] for _ in self._calls]
        own: list[list[list[float]]] = [[[] for _ in self._calls] for _ in every]
        for _ in range(rounds):
            for k, call in enumerate(self._calls):
                rule[k].append(seconds(call))
                for times, calls in zip(own, every, strict=True):
                    times[k].append(seconds(calls[k]))
        return [Measured(times, rule) for times in own]

    # ---- a point

    def _compile(self, point: Point | None) -> Kernel:
        table = tuned.current()
        if point is not None:
            table = table.with_finding(self.finding(point))
        else:  # the rule, whatever was found before
            name = program_digest(self._source.text)
            table = replace(table, findings=tuple(f for f in table.findings if f.program != name))
        with tuned.using(table):
            bundle = compile_text(
                self._source.text, self._source.name, self.target, self.schedule, None
            )
        return Kernel(self._source, self.target, self.schedule, bundle)

    def _calls_of(self, kernel: Kernel) -> list[Call]:
        return [self._machine.call(kernel, given) for given in self._given]

    def _results(self, kernel: Kernel, given: Sequence[Any]) -> list[Any]:
        found = self._machine.results(kernel, given)
        plan = kernel.plan
        return [to_float64(r, result_dtype(plan, k)) for k, r in enumerate(found)]

    def _differs(self, kernel: Kernel) -> str:
        """Why results in timed calls are not those of the rule's kernel; "" where they are."""
        for given, wanted in zip(self._given, self._wanted, strict=True):
            for k, (a, b) in enumerate(zip(self._results(kernel, given), wanted, strict=True)):
                finite = np.isfinite(b)
                if not np.array_equal(np.where(finite, 0, b), np.where(finite, 0, a), True):
                    return f"result {k} has other infinities or NaNs than the rule's"
                scale = np.linalg.norm(b[finite]) or 1.0
                error = np.linalg.norm(a[finite] - b[finite]) / scale
                if error > TOLERANCE.get(result_dtype(kernel.plan, k), 0.0):
                    return f"result {k} differs from the rule's by {error:.1e}"
        return ""

    def _make_judge(self, plan: Any) -> Callable[[Kernel], str]:
        """Judges a kernel in small calls, beside the unfused program and float64."""
        unfused = compile_unfused(self._source.text, self._source.name, None, vectorize=False)
        run: list[Kernel] = []

        def fused(*arguments: Any) -> Any:
            found = self._machine.results(run[0], self._machine.moved(run[0], arguments))
            return tuple(found) if len(found) != 1 else found[0]

        programs, exact = three_ways(self._source, None, fused, unfused, plan)
        known, size = hostile_extents(plan)
        small = random_inputs(plan, size, 0, known)
        values = [plain_values(a, d) for a, d in zip(small, programs.arguments, strict=True)]

        def judge(kernel: Kernel) -> str:
            run[:] = [kernel]
            wrong = [c for c in judged(programs, values, exact, 0) if not c.ok]
            if not wrong:
                return ""
            return f"wrong: {wrong[0].fused:.2g} ulps where {wrong[0].bound:.2g} are allowed"

        return judge


class Host:
    """Calls on the CPU."""

    def arguments(self, arguments: Arguments) -> list[Any]:
        return random_inputs(arguments.plan, arguments.length, 0, arguments.known)

    def moved(self, kernel: Kernel, given: Sequence[Any]) -> Sequence[Any]:
        return given

    def results(self, kernel: Kernel, given: Sequence[Any]) -> list[Any]:
        found = kernel(*given)
        return list(found) if isinstance(found, tuple) else [found]

    def call(self, kernel: Kernel, given: Sequence[Any]) -> Call:
        found = self.results(kernel, given)
        prepared: Call = kernel.prepare(*given, out=found)
        return prepared

    def seconds(self, call: Call) -> float:
        """The least time of a call, of calls of LEAST seconds together."""
        times = []
        end = time.perf_counter() + LEAST
        while not times or time.perf_counter() < end:
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return min(times)


class Gpu:
    """Calls on the GPU that torch works with."""

    def __init__(self) -> None:
        """Raises ToolError where torch has no GPU to work with."""
        try:
            import torch
        except ImportError:
            raise ToolError("a search on a GPU takes torch to move arrays",
                            hint="pip install 'neptune-mlir[torch]'") from None  # fmt: skip
        if not torch.cuda.is_available():
            raise ToolError(
                f"torch {torch.__version__} finds no GPU to search on",
                hint="neptune tune build compiles candidates here, neptune tune run measures them "
                "where the GPU is",
            )
        self._torch = torch

    def arguments(self, arguments: Arguments) -> list[Any]:
        return arguments.on_gpu()

    def moved(self, kernel: Kernel, given: Sequence[Any]) -> Sequence[Any]:
        from neptune_mlir.runtime.libraries import tensor_over

        dtypes = [a.dtype for a in kernel.plan.arguments]
        return [
            tensor_over(np.ascontiguousarray(v), d).cuda() if isinstance(v, np.ndarray) else v
            for v, d in zip(given, dtypes, strict=True)
        ]

    def results(self, kernel: Kernel, given: Sequence[Any]) -> list[Any]:
        from neptune_mlir.runtime.libraries import array_of

        found = kernel(*given)
        listed = found if isinstance(found, tuple) else (found,)
        return [array_of(x.cpu()) for x in listed]

    def call(self, kernel: Kernel, given: Sequence[Any]) -> Call:
        prepared: Call = kernel.prepare(*given)
        return prepared

    def seconds(self, call: Call) -> float:
        """The time of a call in a row of calls that takes about LEAST seconds."""
        call()
        started = time.perf_counter()
        call()
        self._torch.cuda.synchronize()
        count = max(1, min(1000, int(LEAST / (time.perf_counter() - started))))
        first, last = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / count
