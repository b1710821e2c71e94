# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles what the benchmark runs: one bundle serves every length of an operator."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from neptune_mlir.bench.draws import device_of, draws, path_of
from neptune_mlir.bench.problem import Problem, from_json
from neptune_mlir.bench.rows import Rows
from neptune_mlir.codegen import clock_samples
from neptune_mlir.errors import NeptuneError, UsageError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.transforms.schedule import library

SUITES = ("operators", "prefill", "fused", "zoo")
SWEEP = "sweep"
TOKENS = 16384  # of a batch in the prefill suite, whatever the length
LENGTHS = tuple(1 << k for k in range(9, 15))  # of the prefill suite
# programs beside attention: which, and their extents but the number of rows
FUSED: dict[str, tuple[str, dict[str, int]]] = {
    f"{program}_{'x'.join(map(str, extents.values()))}": (program, extents)
    for program, extents in (
        ("rms_norm_matmul", {"cols": 4096, "out": 4096}),
        ("rms_norm_matmul", {"cols": 4096, "out": 1024}),
        ("layer_norm_matmul", {"cols": 4096, "out": 4096}),
        ("layer_norm_matmul", {"cols": 4096, "out": 1024}),
        ("linear_cross_entropy", {"width": 4096, "classes": 32000}),
        ("linear_cross_entropy", {"width": 4096, "classes": 128256}),
        ("linear_cross_entropy", {"width": 1024, "classes": 32000}),
    )
}
ROWS = (4096, 8192)


def build(
    folder: Path, suites: Sequence[str], target: str, dtypes: Sequence[str],
    variants: Sequence[str] = (), only: str = "", say: Callable[[str], None] = print,
    profile: bool = False,
) -> int:  # fmt: skip
    """Write the bundles into a folder; returns how many could not be compiled.

    Args:
        variants: further candidates, `LABEL=NAME:NUMBER;...`: the product with one option or a
            few changed. Names are those of knobs (`neptune compile --knob`), and `schedule`.
        only: a part of the names of programs.
        profile: with clock samples, in files of their own.

    Raises:
        UsageError: no program has such a name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failed, chosen = 0, False
    codes: dict[str, bytes] = {}
    for label, settings in [("neptune", {}), *map(parse_variant, variants)]:
        for name, program, spec, save in programs(suites, dtypes, folder):
            if only not in name or (spec["kind"] == "zoo" and label != "neptune"):
                continue
            chosen = True
            stem = name if label == "neptune" else f"{name}-{label}"
            stem += "-profile" if profile else ""
            with clock_samples.recording() if profile else nullcontext():
                bundle = _compiled(stem, program, name, target, settings, say)
            if bundle is None:
                failed += 1
                continue
            if label != "neptune" and bundle.code == codes.get(name):
                say(f"{stem:44} the same code as without the variant's settings")
                continue
            codes.setdefault(name, bundle.code)
            bundle.facts["bench"] = {**spec, "label": label, "profile": profile}
            (folder / f"{stem}.bundle").write_bytes(bundle.to_bytes())
            save(folder / f"{stem}.npz")
    if not chosen:
        raise UsageError(f"no program of {', '.join(suites)} has '{only}' in its name")
    return failed


def build_sweep(
    folder: Path, target: str, seed: int, count: int, budget: float = math.inf,
    say: Callable[[str], None] = print,
) -> int:  # fmt: skip
    """Write the bundles of draws into a folder, but those that it has; returns how many could not
    be compiled. None is begun after `budget` seconds."""
    until = time.monotonic() + budget
    failed = 0
    for drawn in draws(seed, count, device_of(target)):
        path = path_of(folder, drawn)
        if path.exists() and Bundle.from_bytes(path.read_bytes()).target == target:
            continue
        if time.monotonic() > until:
            say(f"no time is left to compile {path.stem} and what follows")
            break
        failed += not build_draw(path, target, drawn.spec, say)
    return failed


def build_draw(path: Path, target: str, spec: dict[str, Any], say: Callable[[str], None]) -> bool:
    """Write the bundle of a draw (`Draw.spec`); whether there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    problem = from_json(spec["problem"])
    program = partial(drawn_program, problem, spec["fixed"])
    bundle = _compiled(f"{path.stem} {problem.title}", program, path.stem, target, {}, say)
    if bundle is None:
        return False
    bundle.facts["bench"] = {**spec, "label": "neptune", "profile": False}
    part = path.with_suffix(".part")  # a reader sees a whole file or none
    part.write_bytes(bundle.to_bytes())
    part.replace(path)
    return True


def drawn_program(p: Problem | Rows, fixed: bool = False) -> Any:
    """The program of a draw: lengths, rows and batches known at run time; heads compiled in, and
    where it is `fixed` what a row has."""
    from neptune_mlir import ops

    if isinstance(p, Rows):
        inner = {} if p.program != "linear_cross_entropy" else {"width": p.settings["width"]}
        names = {"cross_entropy": {"classes": p.settings.get("cols")}}
        extents = names.get(p.program, p.settings) if fixed else inner
        return getattr(ops, p.program)(dtype=p.dtype, **extents)
    options: dict[str, Any] = {k: v for k, v in p.settings.items() if k not in ("bias", "lse")}
    options["documents"] = bool(options.get("documents"))
    if p.settings.get("bias"):
        options["score_mod"] = _biased
        options["inputs"] = {"bias": ops.Extra("h q kv", p.dtype)}
    return ops.attention(
        head_dim=p.head_dim, dtype=p.dtype, name=p.operator.replace("-", "_"),
        return_lse=bool(p.settings.get("lse")), **options,
    )  # fmt: skip


def _biased(score: Any, b: Any, h: Any, q: Any, kv: Any, bias: Any) -> Any:
    return score + bias[h, q, kv]


def _compiled(
    stem: str, program: Callable[[], Any], name: str, target: str, settings: Mapping[str, str],
    say: Callable[[str], None],
) -> Bundle | None:  # fmt: skip
    """A bundle, or None where there is none, which is said."""
    started = time.perf_counter()
    try:
        bundle = compile_variant(program().to_mlir(), name, target, settings)
    except UsageError:
        raise
    except NeptuneError as error:
        say(f"{stem:44} FAILED {error}")
        return None
    say(f"{stem:44} {time.perf_counter() - started:4.1f} s  {_kernels(bundle)}")
    return bundle


def parse_variant(text: str) -> tuple[str, dict[str, str]]:
    """Raises UsageError."""
    label, equals, rest = text.partition("=")
    settings = dict(item.partition(":")[::2] for item in rest.split(";") if item)
    numbers = [value for name, value in settings.items() if name != "schedule"]
    if not label or not equals or not all(x.isdigit() for x in numbers):
        raise UsageError(f"a variant is LABEL=NAME:NUMBER;..., not '{text}'")
    return label, settings


def compile_variant(text: str, name: str, target: str, settings: Mapping[str, str]) -> Bundle:
    """The bundle of a program as the product makes it, but for the settings of a variant.

    Raises:
        NeptuneError: the program cannot be compiled, or there is no such setting.
    """
    from neptune_mlir.driver import compiler

    knobs = {key: int(value) for key, value in settings.items() if key != "schedule"}
    made: Bundle = compiler.compile_text(
        text, name, target, settings.get("schedule"), None, knobs=library.knob_text(knobs)
    )
    return made


def programs(
    suites: Sequence[str], dtypes: Sequence[str], folder: Path
) -> Iterator[tuple[str, Callable[[], Any], dict[str, Any], Callable[[Path], None]]]:
    """Name, how to build it, what the bundle says of it, and what to store beside it."""
    from neptune_mlir import ops

    unknown = [s for s in suites if s not in SUITES]
    if unknown:
        raise UsageError(f"no suite '{unknown[0]}'", hint=", ".join(SUITES))

    def nothing(path: Path) -> None: ...

    for dtype in dtypes:
        if "operators" in suites:
            for name, settings in ops.OPERATORS.items():
                spec = {"kind": "operator", "suite": "operators", "operator": name,
                        "dtype": dtype, "head_dim": 128, "settings": settings}  # fmt: skip
                program = partial(ops.operator, name, dtype=dtype, batch=None)  # for the sweep
                yield f"{name}-{dtype}", program, spec, nothing
        if "prefill" in suites:
            for head in (64, 128, 256):
                for causal in (False, True):
                    yield _prefill(head, causal, dtype, nothing)
        if "fused" in suites:
            for name, (program, extents) in FUSED.items():
                spec = {"kind": "rows", "suite": "fused", "operator": name, "program": program,
                        "dtype": dtype, "settings": extents, "lengths": ROWS}  # fmt: skip
                made = partial(getattr(ops, program), dtype=dtype, **extents)
                yield f"{name}-{dtype}", made, spec, nothing
    if "zoo" in suites:
        from neptune_mlir.zoo import ZOO

        for example in ZOO:
            spec = {"kind": "zoo", "suite": "zoo", "operator": example.name, "dtype": "f32"}
            yield f"zoo-{example.name}", example.build, spec, partial(_store, example)


def _prefill(head: int, causal: bool, dtype: str, nothing: Any) -> Any:
    """The shapes on which attention kernels are compared with each other."""
    from neptune_mlir import ops

    name = f"{'causal' if causal else 'global'}_d{head}"
    heads = 2048 // head
    settings: dict[str, Any] = {"heads": heads, "kv_heads": heads, "causal": causal}
    spec = {"kind": "operator", "suite": "prefill", "operator": name, "dtype": dtype,
            "head_dim": head, "settings": settings, "tokens": TOKENS,
            "lengths": LENGTHS}  # fmt: skip

    def program() -> Any:
        return ops.attention(head_dim=head, dtype=dtype, name=name, **settings)

    return f"{name}-{dtype}", program, spec, nothing


def _store(example: Any, path: Path) -> None:
    """Inputs and the definition's results in float64."""
    import numpy as np

    arrays = list(example.inputs(np.random.default_rng(0)))
    results = example.build().reference(*arrays)
    results = results if isinstance(results, tuple) else (results,)
    data = {f"arg{k}": a for k, a in enumerate(arrays)} | {
        f"out{k}": r for k, r in enumerate(results)
    }
    np.savez_compressed(path, **data)


def _kernels(bundle: Any) -> str:
    images = [image["kernels"].values() for image in bundle.facts.get("images", ())]
    spills = sum(k["spills"] for kernels in images for k in kernels)
    registers = ", ".join("/".join(str(k["registers"]) for k in kernels) for kernels in images)
    schedule = bundle.facts.get("schedule", "")
    return f"{schedule}, {registers} registers" + (f", SPILLS {spills} bytes" if spills else "")
