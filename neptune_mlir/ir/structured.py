# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bindings' linalg dialect without their language of named ops.

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
    sys.modules[name] = found  # where the bindings look for the classes of its ops, once
    try:
        ir._globals._check_dialect_module_loaded("linalg")
    finally:
        del sys.modules[name]
    return found
