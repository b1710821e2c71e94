# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the bindings import for a dialect, where passes need less of it.

Their linalg dialect, without its language of named ops:

`dialects.linalg` of the bindings describes every named op in that language when it is imported,
which takes 0.07 s of every process, and builds each op by inference over its description. Passes
build two of them, so here is a module of the generated classes and of these two.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any


@functools.cache
def dialect_of(package: str) -> ModuleType:
    """The module, for the bindings of a package. It is the one that they find for the dialect;
    who imports theirs gets it as it is."""
    name = f"{package}.dialects.linalg"
    if name in sys.modules:
        return sys.modules[name]
    generated = importlib.import_module(f"{package}.dialects._linalg_ops_gen")
    native = importlib.import_module(f"{package}._mlir_libs._mlirDialectsLinalg")
    ir: Any = importlib.import_module(f"{package}.ir")
    found = ModuleType(name, __doc__)
    for source in (generated, native):
        found.__dict__.update({k: v for k, v in vars(source).items() if not k.startswith("__")})

    def named(build: Any) -> Any:
        def make(value: Any, *, outs: Sequence[Any]) -> Any:
            types = [out.type for out in outs if isinstance(out.type, ir.RankedTensorType)]
            op = build(types, [value], outs)
            native.fill_builtin_region(op.operation)
            return op.results[0] if types else op

        return make

    found.__dict__.update(fill=named(generated.FillOp), copy=named(generated.CopyOp))
    _stand_in(package, "linalg", found)
    return found


# Dialects whose ops are met by their names alone, and what their generated classes take to import,
# in ms: `llvm` 66, `nvvm` 42, `rocdl` 38, `gpu` 21. Who wants the classes imports the module.
BY_NAME = ("llvm", "nvvm", "rocdl", "gpu", "nvgpu", "amdgpu")


def meet_by_name(package: str) -> None:
    """Keep the bindings from importing these dialects as soon as they meet one of their ops,
    attributes or types."""
    for dialect in BY_NAME:
        if f"{package}.dialects.{dialect}" not in sys.modules:
            _stand_in(package, dialect, ModuleType(dialect))


def _stand_in(package: str, dialect: str, module: ModuleType) -> None:
    """Let the bindings find a module where they look for the classes of a dialect, once."""
    name = f"{package}.dialects.{dialect}"
    sys.modules[name] = module
    try:
        importlib.import_module(f"{package}.ir")._globals._check_dialect_module_loaded(dialect)
    finally:
        del sys.modules[name]
