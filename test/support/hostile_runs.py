# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges programs on hostile inputs, on the CPU and on the GPU simulators; keeps what fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.algebra.numerics.at_once import excess_at_once, stacked
from neptune_mlir.algebra.numerics.comparison import Comparison
from neptune_mlir.algebra.numerics.judge import judge
from neptune_mlir.algebra.numerics.programs import Programs, Run
from neptune_mlir.driver.compiler import compile_text, compile_unfused, lower_text
from neptune_mlir.driver.inputs import stored
from neptune_mlir.driver.kernel import Kernel, Source
from neptune_mlir.driver.three_ways import three_ways
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Argument
from support.hostile_programs import Choices, Grammar, shapes

CPU = "cpu"


@dataclass
class Failure:
    """Arguments on which a program is wrong."""

    case: hostile.HostileCall
    dtypes: Sequence[str]
    found: Sequence[Comparison]

    def __str__(self) -> str:
        texts = []
        for k, c in enumerate(self.found):
            if not c.ok:
                wrong = c.example or f"{c.fused:.3g} ulps, unfused {c.unfused:.3g}"
                texts.append(f"result {k}: {wrong}")
        return f"{self.case.name}: {'; '.join(texts)}"


@dataclass
class Attempt:
    """One program, what the compiler did not fuse and why, and what is wrong with it."""

    text: str
    unfused: list[str]
    found: list[Failure]


def compiled(text: str) -> Bundle:
    return compile_text(text, "program", CPU, None, None)


def programs_of(
    text: str, target: str = CPU, bundle: Bundle | None = None, rounded: str | None = None
) -> Programs:
    """A program three ways; on a simulator where the target is a GPU.

    There factors of products are rounded to the 16 bits of their partners, as numerics.md says of
    matrix instructions: `rounded` is the program that does so itself, and nobody fused. (Where
    there is none, factors stay f32.)
    """
    bundle = bundle or compiled(text)
    unfused = compile_unfused(text, "program", None, vectorize=False)
    wide = rounded is None
    run = Kernel.of_bundle(bundle, "program") if target == CPU else simulated(text, target, wide)
    found, missing = three_ways(Source(text, "program"), None, run, unfused, bundle.plan)
    assert not missing, missing
    if target == CPU:
        return found
    text = as_gpus_have(rounded or text)
    unfused = compile_unfused(text, "program", None, vectorize=False)
    there, _ = three_ways(Source(text, "program"), None, run, unfused, bundle.plan)
    found = replace(found, fused=once(found.fused))
    assert found.hiding and there.hiding
    hiding = _with_those(found.hiding(), there.hiding())
    return replace(_with_those(found, there), hiding=lambda: hiding)


def once(run: Run) -> Run:
    """Runs once for all inputs of the same content: simulators are slow."""
    known: dict[bytes, Any] = {}

    def call(values: Sequence[Any]) -> Any:
        content = sha256(b"".join(np.asarray(v).tobytes() for v in values)).digest()
        if content not in known:
            known[content] = run(values)
        return known[content]

    return call


def _with_those(found: Programs, there: Programs) -> Programs:
    return replace(found, most=256, unfused=there.unfused, reordered=there.reordered)


def as_gpus_have(text: str) -> str:
    """The program with exponentials as GPUs have them (numerics.md): those of a difference are
    powers of 2 whose exponent is rounded where there are floats of 16 bits, and what is denormal
    may be 0."""
    if re.search(r"\bb?f16\b", text):
        text = re.sub(
            r"%(\w+)( = arith\.subf [^\n]*\n *)%(\w+) = math\.exp %\1 : f32",
            r"""%\1\2%log2e_\3 = arith.constant 1.44269502 : f32
    %power_\3 = arith.mulf %\1, %log2e_\3 : f32
    %\3 = math.exp2 %power_\3 : f32""", text,
        )  # fmt: skip
    return re.sub(
        r"(%\w+) = (math\.exp2?) (%\w+) : f32",
        lambda m: flushed(m[1], m[2], m[3], f"%flushed_{m[1][1:]}"), text,
    )  # fmt: skip


def flushed(result: str, op: str, operand: str, name: str) -> str:
    return f"""{name} = {op} {operand} : f32
    {name}_least = arith.constant 1.17549435e-38 : f32
    {name}_less = arith.cmpf olt, {name}, {name}_least : f32
    {name}_zero = arith.constant 0.0 : f32
    {result} = arith.select {name}_less, {name}_zero, {name} : f32"""


def simulated(text: str, target: str, wide: bool) -> Callable[..., Any]:
    """`wide`: factors of products stay f32."""
    from support.chips.run_kernels import Simulated

    knobs = "narrow:0" if wide else ""
    module, _ = lower_text(text, "program", target, None, "tile", knobs)
    run = Simulated(module, target=target)

    def call(*arguments: Any) -> Any:
        found = run(*arguments)
        return tuple(found) if isinstance(found, list) else found

    return call


def failures(
    programs: Programs, cases: Sequence[hostile.HostileCall], most: int = 1000
) -> list[Failure]:
    """The first `most` cases that a program fails. Those that are right by their first run, which
    is most of them, are settled together."""
    found: list[Failure] = []
    if not cases:
        return found
    ways = programs.fused, programs.unfused, programs.exact
    runs = [[way(case.arguments) for case in cases] for way in ways]
    asked = stacked([case.arguments for case in cases]), programs.arguments
    excess = excess_at_once(*asked, [stacked(of_way) for of_way in runs], programs.results)
    for case in compress(cases, excess > programs.within):
        comparisons = judge(programs, case.arguments)
        if not all(c.ok for c in comparisons):
            found.append(Failure(case, programs.arguments, comparisons))
            if len(found) >= most:
                break
    return found


def cases_of(
    programs: Programs, sizes: Sequence[tuple[int, ...]], names: Sequence[str] = ()
) -> list[hostile.HostileCall]:
    """What `--check=hostile` tries."""
    generator, dtypes = np.random.default_rng(7), programs.arguments
    given = [hostile.plain(generator, s, d) for s, d in zip(sizes, dtypes, strict=True)]
    return list(hostile.cases(given, dtypes, names, programs.roles))


def attempt(choices: Choices, target: str = CPU, most: int | None = None) -> Attempt:
    """The program that these choices make, and the first thing that is wrong with it.

    Args:
        most: how many cases are tried, spread over all of them.
    """
    program = Grammar(choices).build()
    text = Source.of(program).text
    bundle = compiled(text)
    rounded = None
    if target != CPU:
        rounded = Source.of(Grammar(Choices(given=choices.taken), rounds=True).build()).text
    programs = programs_of(text, target, bundle, rounded)
    cases = cases_of(programs, shapes(program), list(program.inputs))
    if most is not None and len(cases) > most:
        cases = [cases[k * len(cases) // most] for k in range(most)]
    unfused = [r for r in bundle.facts["remarks"] if "not fused" in r]
    return Attempt(text, unfused, failures(programs, cases, 1))


def shrunk(choices: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int = 60):
    """Choices that still fail, shorter and with smaller numbers."""
    best = list(choices)
    changed = True
    while changed and tries > 0:
        changed = False
        for k in range(len(best)):
            for smaller in ([*best[:k], *best[k + 1 :]], [*best[:k], 0, *best[k + 1 :]]):
                if smaller == best or tries <= 0 or (not best[k] and len(smaller) == len(best)):
                    continue
                tries -= 1
                if fails(smaller):
                    best, changed = smaller, True
                    break
            if k >= len(best) - 1:
                break
    return best


def described(choices: Sequence[int]) -> str:
    """A program in index notation."""
    program = Grammar(Choices(given=choices)).build()
    inputs = (f"{n}: {t.dtype} {[a.name for a in t.shape]}" for n, t in program.inputs.items())
    lines = [", ".join(inputs)]
    for s in program.steps:
        names = ", ".join(program.axis_list[k].name for k in s.removed)
        lines.append(f"{s.key} = {s.combiner} over {names} of {program.show(s.body)}")
    return "\n".join([*lines, *(f"return {program.show(o.term)}" for o in program.outputs)])


def keep(folder: Path, name: str, text: str, failure: Failure, verdict: str) -> None:
    """Write a failing program, its inputs and the verdict."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.mlir").write_text(text)
    arrays = {}
    for k, (a, dtype) in enumerate(zip(failure.case.arguments, failure.dtypes, strict=True)):
        array = stored(a, Argument("tensor", dtype, np.shape(a)))
        arrays[f"arg{k}"] = array.view(np.uint16) if dtype == "bf16" else array
    np.savez(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.txt").write_text(verdict + "\n")
