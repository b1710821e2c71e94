# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names for Python passes, and the remarks that passes leave for people.

A pass is a function `(module, **options) -> None` that changes an `ir.Module` in place and
leaves verified IR. MLIR gives Python passes no textual name, so this table maps names to
functions; `neptune-opt` and the pipelines look passes up here. Other packages add theirs by
`register`, and by an entry point of the group `neptune_mlir.passes` where they are to be found
without an import.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from neptune_mlir import plugins
from neptune_mlir.errors import UsageError, did_you_mean

# pass name -> module that defines it (imported on first use, so start-up stays fast)
_MODULES: dict[str, str] = {
    "apply-patterns": "neptune_mlir.transforms.patterns.apply_patterns",
    "apply-schedule": "neptune_mlir.transforms.schedule.apply_schedule",
    "lift-constants": "neptune_mlir.transforms.linalg.lift_constants",
    "expand-calls": "neptune_mlir.transforms.linalg.expand_calls",
    "raise-linalg": "neptune_mlir.transforms.linalg.raise_linalg",
    "split-concats": "neptune_mlir.transforms.linalg.split_concats",
    "write-out-loops": "neptune_mlir.transforms.linalg.write_out_loops",
    "lower-tm-tensor": "neptune_mlir.transforms.linalg.lower_tm_tensor",
    "lower-to-linalg": "neptune_mlir.transforms.linalg.lower_to_linalg",
    "equal-extents": "neptune_mlir.transforms.linalg.equal_extents",
    "unit-reductions": "neptune_mlir.transforms.fusion.unit_reductions",
    "inline-maps": "neptune_mlir.transforms.fusion.inline_maps",
    "merge-rows": "neptune_mlir.transforms.fusion.merge_rows",
    "defer": "neptune_mlir.transforms.fusion.defer",
    "scaled-factors": "neptune_mlir.transforms.scaled_factors",
    "rolling-update": "neptune_mlir.transforms.fusion.rolling_update",
    "privatize": "neptune_mlir.transforms.fusion.privatize",
    "verify-corrections": "neptune_mlir.transforms.fusion.verify_corrections",
    "check-bounds": "neptune_mlir.transforms.schedule.check_bounds",
    "widen-sums": "neptune_mlir.transforms.linalg.widen_sums",
    "free-references": "neptune_mlir.transforms.fusion.free_references",
    "prune-masks": "neptune_mlir.transforms.schedule.prune_masks",
    "split-streams": "neptune_mlir.transforms.schedule.split_streams",
    "join-streams": "neptune_mlir.transforms.schedule.join_streams",
    "assume-chunks": "neptune_mlir.transforms.schedule.assume_chunks",
    "tile": "neptune_mlir.transforms.schedule.tile",
    "cut-rows": "neptune_mlir.transforms.schedule.cut_rows",
    "set-choices": "neptune_mlir.transforms.schedule.set_choices",
    "final-counts": "neptune_mlir.transforms.final_counts",
    "lower-correct": "neptune_mlir.transforms.fusion.lower_correct",
    "skip-dead-tiles": "neptune_mlir.transforms.tiling.skip_dead_tiles",
    "widen-factors": "neptune_mlir.transforms.tiling.widen_factors",
    "float8-bits": "neptune_mlir.transforms.tiling.float8_bits",
    "lower-to-tiles": "neptune_mlir.transforms.tiling.lower_to_tiles",
    "fuse-tiles": "neptune_mlir.transforms.cpu.fuse_tiles",
    "add-in-order": "neptune_mlir.transforms.cpu.add_in_order",
    "place-tiles": "neptune_mlir.transforms.cpu.place_tiles",
    "rotate-loops": "neptune_mlir.transforms.cpu.rotate_loops",
    "merge-programs": "neptune_mlir.transforms.tiling.merge_programs",
    "longest-first": "neptune_mlir.transforms.gpu.longest_first",
    "turn-tiles": "neptune_mlir.transforms.tiling.turn_tiles",
    "outline-kernels": "neptune_mlir.transforms.cpu.outline_kernels",
    "tensor-to-generic": "neptune_mlir.transforms.gpu.tensor_to_generic",
    "sink-reads": "neptune_mlir.transforms.gpu.sink_reads",
    "points-to-kernels": "neptune_mlir.transforms.gpu.points_to_kernels",
    "assign-layouts": "neptune_mlir.transforms.gpu.assign_layouts",
    "positions-ahead": "neptune_mlir.transforms.hopper.positions_ahead",
    "specialize-warps": "neptune_mlir.transforms.hopper.specialize_warps",
    "interleave-factors": "neptune_mlir.transforms.hopper.interleave_factors",
    "partition-warps": "neptune_mlir.transforms.hopper.partition_warps",
    "form-clusters": "neptune_mlir.transforms.hopper.clusters",
    "sums-in-fragments": "neptune_mlir.transforms.hopper.sums_in_fragments",
    "hold-references": "neptune_mlir.transforms.hopper.hold_references",
    "lazy-rescaling": "neptune_mlir.transforms.hopper.lazy_rescaling",
    "split-matmuls": "neptune_mlir.transforms.hopper.split_matmuls",
    "run-on-products": "neptune_mlir.transforms.hopper.run_on_products",
    "schedule-loops": "neptune_mlir.transforms.hopper.schedule_loops",
    "make-once": "neptune_mlir.transforms.hopper.make_once",
    "pipeline-loops": "neptune_mlir.transforms.hopper.pipeline_loops",
    "picks-first": "neptune_mlir.transforms.gpu.picks_first",
    "keep-references": "neptune_mlir.transforms.gpu.keep_references",
    "defer-joins": "neptune_mlir.transforms.gpu.defer_joins",
    "pace-products": "neptune_mlir.transforms.gpu.pace_products",
    "distribute-tiles": "neptune_mlir.codegen.distribute_tiles",
    "math-to-gpu": "neptune_mlir.transforms.math.math_to_gpu",
    "vectorize-tiles": "neptune_mlir.codegen.cpu.vectorize_tiles",
    "expand-math": "neptune_mlir.transforms.math.expand_math",
    "bf16-bits": "neptune_mlir.transforms.cpu.bf16_bits",
    "copies-to-linalg": "neptune_mlir.transforms.cpu.copies_to_linalg",
    "hide-zeros": "neptune_mlir.transforms.cpu.hide_zeros",
    "interchange-reductions": "neptune_mlir.transforms.cpu.interchange_reductions",
    "reorder-sums": "neptune_mlir.transforms.cpu.reorder_sums",
    "round-floats": "neptune_mlir.transforms.cpu.round_floats",
    "widen-floats": "neptune_mlir.transforms.linalg.widen_floats",
}


@dataclass(frozen=True)
class Pass:
    """A registered pass.

    Attributes:
        name, summary: what lists and messages call it, and say of it.
        run: the function.
        options: types by name.
        after: passes that put a module into the form that this one starts from. Each changes
            nothing in a module that has it. Whoever runs passes runs them first, unless the
            module has been through them (`prerequisites`): a pass never runs a pass.
    """

    name: str
    summary: str
    run: Callable[..., None]
    options: dict[str, type] = field(default_factory=dict)
    after: tuple[str, ...] = ()


_PASSES: dict[str, Pass] = {}


def register(
    name: str, summary: str, *, after: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that names a pass. Keyword-only parameters become its options; the type of an
    option (bool, int, float or str) is that of its default. `after`: see `Pass`.

    Raises:
        UsageError: another module has a pass of that name.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        owner = _MODULES.get(name, function.__module__)
        if name in _PASSES:
            owner = _PASSES[name].run.__module__
        if owner != function.__module__:
            raise UsageError(
                f"{function.__module__} registers pass '{name}', which {owner} has",
                hint="choose another name",
            )
        kinds = {
            p.name: type(p.default)
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        _PASSES[name] = Pass(name, summary, function, kinds, after)
        return function

    return decorate


# the passes that the module at hand has been through, for a pass that interprets a script
done: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("done", default=frozenset())


def prerequisites(name: str, had: Collection[str]) -> list[str]:
    """The passes to run before our pass `name` on a module that has been through `had`."""
    found: list[str] = []
    for needed in lookup(name).after:
        if needed not in had and needed not in found:
            if is_loaded(needed):  # else upstream's
                found += [n for n in prerequisites(needed, had) if n not in found]
            found.append(needed)
    return found


def built_in() -> list[str]:
    """The passes of this project."""
    return sorted(_MODULES)


def is_loaded(name: str) -> bool:
    """Whether a pass is built in, or was registered by an import."""
    return name in _MODULES or name in _PASSES


def names() -> list[str]:
    """Every pass: built in, registered, or of an installed package."""
    return sorted({*_MODULES, *_PASSES, *plugins.entries(plugins.PASSES)})


def lookup(name: str) -> Pass:
    """The pass called `name`. Raises UsageError when there is none, or its package is broken."""
    if name in _PASSES:
        return _PASSES[name]
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    elif name in plugins.entries(plugins.PASSES):
        plugins.load(plugins.PASSES, name)
        if name not in _PASSES:
            raise UsageError(
                f"the entry point '{name}' of {plugins.PASSES} registers no pass of that name",
                hint=f'@register("{name}", "...") in the module that it names',
            )
    else:
        raise UsageError(
            f"unknown pass '{name}'", hint=did_you_mean(name, names(), "neptune-opt --list-passes")
        )
    return _PASSES[name]


def parse_options(spec: Pass, text: str) -> dict[str, Any]:
    """`key=value,key=value` as keyword arguments of the pass. Raises UsageError."""
    options: dict[str, Any] = {}
    for item in filter(None, text.replace(" ", ",").split(",")):
        key, equals, value = item.partition("=")
        name = key.replace("-", "_")
        if name not in spec.options or not equals:
            raise _no_option(spec, item, key)
        kind = spec.options[name]
        try:
            if kind is bool:
                options[name] = {"true": True, "1": True, "false": False, "0": False}[value.lower()]
            else:
                options[name] = kind(value) if kind in (int, float) else value
        except (KeyError, ValueError):
            raise UsageError(
                f"option '{key}' of pass '{spec.name}' takes a {kind.__name__}, not '{value}'"
            ) from None
    return options


def checked(spec: Pass, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as keyword arguments of the pass. Raises UsageError: an unknown one, or a value of
    another type."""
    for name, value in options.items():
        if name not in spec.options:
            raise _no_option(spec, name, name)
        kind = spec.options[name]
        if not isinstance(value, (int, float) if kind is float else kind):
            raise UsageError(
                f"option '{name}' of pass '{spec.name}' takes a {kind.__name__}, not {value!r}"
            )
    return dict(options)


def _no_option(spec: Pass, item: str, key: str) -> UsageError:
    known = [name.replace("_", "-") for name in spec.options]
    listed = f"options: {', '.join(f'{k}=' for k in known) or 'none'}"
    return UsageError(
        f"pass '{spec.name}' has no option '{item}'",
        hint=f"{key}=VALUE" if key in known else did_you_mean(key, known, listed),
    )


@dataclass(frozen=True)
class Miss:
    """A fast path that a program does not take (`transforms/fast_paths.py`): which, the condition
    that failed, and what would change it."""

    path: str
    condition: str
    change: str


@dataclass(frozen=True)
class Remark:
    """What a pass tells people: `kind` is "remark" or "warning"; `loc` is `file:line:col`.
    `missed`: the fast path that it is about, if it is about one."""

    kind: str
    loc: str
    message: str
    missed: Miss | None = None

    def __str__(self) -> str:
        return f"{self.loc}: {self.kind}: {self.message}"


_sink: contextvars.ContextVar[list[Remark] | None] = contextvars.ContextVar("remarks", default=None)


@contextlib.contextmanager
def collect_remarks() -> Iterator[list[Remark]]:
    """Collects the remarks of every pass that runs inside the `with` block."""
    found: list[Remark] = []
    token = _sink.set(found)
    try:
        yield found
    finally:
        _sink.reset(token)


def misses(remarks: Iterable[Remark]) -> list[dict[str, str]]:
    """The fast paths that remarks are about, each once, as JSON data."""
    found = [asdict(r.missed) for r in remarks if r.missed]
    return [miss for k, miss in enumerate(found) if miss not in found[:k]]


def remark(
    location: Any, message: str, kind: str = "remark", missed: Miss | None = None
) -> None:
    """Leave a remark at an MLIR location (dropped when nobody collects)."""
    from neptune_mlir.ir.bindings import location_text

    sink = _sink.get()
    if sink is not None:
        sink.append(Remark(kind, location_text(location), message, missed))
