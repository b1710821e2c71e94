# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Our passes inside another compiler: on its modules, and in its pass managers (docs/embedding.md).

    import neptune_mlir
    from neptune_mlir import passes

    neptune_mlir.register(context)                      # the dialects, into a context of yours
    passes.rolling_update(module, rescale_bound=4.0)    # every pass is a function
    passes.run(module, "raise-linalg,func.func(canonicalize),rolling-update")

    manager = PassManager("builtin.module", context)    # upstream's own
    manager.add("canonicalize")
    passes.add(manager, "rolling-update", rescale_bound=4.0)
    manager.run(module.operation)

Contexts and modules have to be those of the bindings that this package uses
(`neptune_mlir.ir.bindings.PACKAGE`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.dialects.context import load_dialects
from neptune_mlir.errors import UsageError
from neptune_mlir.ir import bindings
from neptune_mlir.ir.bindings import ir, passmanager
from neptune_mlir.pipelines import runner
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.transforms import registry


def register(context: Any) -> None:
    """Load the dialects of this project into a context; a second call does nothing.

    Args:
        context: an `ir.Context` of the bindings that this package uses.

    Raises:
        UsageError: a context of other bindings, or no context.
    """
    from neptune_mlir.transforms.schedule import transform_neptune

    _ours(context, ir.Context, "register")
    load_dialects(context)
    transform_neptune.load(context)


def names() -> list[str]:
    """Every pass of this project and of installed packages, as pipelines name it."""
    return registry.names()


def run(module: Any, pipeline: str) -> None:
    """Run a textual pipeline on a module, in place; passes of ours and of upstream may alternate.

    Args:
        module: an `ir.Module`, or an operation where only upstream's passes run.
        pipeline: `raise-linalg,func.func(canonicalize),tile{rows=64}`; `builtin.module(...)` around
            it is optional.

    Raises:
        UsageError: an unknown pass or option; nothing has run then.
        NeptuneError: a pass failed.
    """
    runner.run(_registered(module, "run"), runner.parse_pipeline(pipeline))


def parse(pipeline: str, context: Any) -> Any:
    """An upstream `PassManager` for a textual pipeline in which passes of ours may stand.

    (Upstream's own `PassManager.parse` knows no Python pass by name.) Where one of them fails,
    `PassManager.run` raises an `MLIRError` that says what it raised.

    Raises:
        UsageError: an unknown pass or option.
    """
    register(context)
    manager = passmanager.PassManager(runner.TOP, context)
    _fill(manager, runner.parse_pipeline(pipeline))
    return manager


def add(manager: Any, name: str, **options: Any) -> None:
    """Add a pass of ours to an upstream `PassManager` that runs on `builtin.module`, behind those
    that it starts from (they change nothing where a module has been through them).

    Raises:
        UsageError: an unknown pass or option.
    """
    _ours(manager, passmanager.PassManager, "add")
    registry.lookup(name)
    _fill(manager, [Step(name, options)])


def _fill(manager: Any, steps: Sequence[Step]) -> None:
    """Add steps, each behind those that it starts from."""
    had: frozenset[str] = frozenset()
    for step in runner.complete(steps):
        runner.add(manager, step, had=had)
        had |= {step.name}


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("_") or name.replace("_", "-") not in registry.names():
        raise AttributeError(f"module 'neptune_mlir.passes' has no pass '{name}'")
    return _function(registry.lookup(name.replace("_", "-")))


def __dir__() -> list[str]:
    return sorted([*globals(), *(name.replace("-", "_") for name in registry.names())])


def _function(spec: registry.Pass) -> Callable[..., None]:
    """A pass as a function of a module and of its options."""

    def apply(module: Any, **options: Any) -> None:
        runner.run(_registered(module, apply.__name__), (Step(spec.name, options),))

    apply.__name__ = apply.__qualname__ = spec.name.replace("-", "_")
    apply.__signature__ = inspect.signature(spec.run)  # type: ignore[attr-defined]
    about = inspect.getdoc(sys.modules[spec.run.__module__]) or ""
    apply.__doc__ = f"{spec.summary[0].upper()}{spec.summary[1:]}, in place.\n\n{about}"
    return apply


def _registered(module: Any, caller: str) -> Any:
    """A module whose context knows our dialects."""
    _ours(module, (ir.Module, ir.Operation, ir.OpView), caller)
    register(module.context)
    return module


def _ours(value: Any, kind: Any, caller: str) -> None:
    if not isinstance(value, kind):
        raise UsageError(
            f"{caller} does not take a {type(value).__module__}.{type(value).__qualname__}",
            hint=f"use the bindings in {bindings.PACKAGE}, as this package does",
        )
