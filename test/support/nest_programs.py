# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small programs of maps and reductions, built from terms, lowered to tiles and executed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.context import make_context, parse
from neptune_mlir.dialects.nests import DYNAMIC, build_map, build_reduce
from neptune_mlir.dialects.scalars import constant, mlir_type
from neptune_mlir.ir.bindings import func, ir, tensor
from neptune_mlir.pipelines import runner
from support.chips.tile_exec import run

LOWER = "prune-masks,lower-correct,tile,lower-to-tiles"
FUSE = "inline-maps,defer,rolling-update"
Shape = Sequence[int]


class Builder:
    """Nests over loops 0, 1, ... of given sizes; run-time sizes come from tensor dimensions."""

    def __init__(self) -> None:
        self.values = nests.Values()

    def at(self, value: Any, *loops: int | T.Term) -> T.Term:
        """The element of `value` at these loops."""
        idx = [T.index(k) if isinstance(k, int) else k for k in loops]
        return T.read(self.values.key(value), *idx, dtype=nests.element_type(value))

    def scalar(self, value: Any) -> T.Term:
        return T.sym(self.values.key(value), str(value.type))

    def dim(self, value: Any, k: int) -> Any:
        return tensor.DimOp(value, constant(k, "index")).result

    def sizes(self, *dims: tuple[Any, int]) -> tuple[list[int], list[Any]]:
        """Domain and extents of loops that run over these tensor dimensions."""
        domain = [ir.RankedTensorType(t.type).shape[k] for t, k in dims]
        extents = [self.dim(t, k) for (t, k), s in zip(dims, domain, strict=True) if s == DYNAMIC]
        return domain, extents

    def map(self, body: T.Term, *dims: tuple[Any, int], result: Shape | None = None) -> Any:
        return build_map(self.values, body, *self.sizes(*dims), result_axes=result)

    def reduce(self, op: str, body: T.Term, *dims: tuple[Any, int], result: Shape) -> Any:
        return build_reduce(self.values, op, body, *self.sizes(*dims), result)


Body = Callable[..., list[Any]]


def module_of(body: Body, arguments: Sequence[Any], results: Sequence[Any]) -> ir.Module:
    """A module with `f` made by `body(builder, *arguments)`.

    Types are (shape, dtype) pairs, or dtypes of scalars.
    """
    context = make_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", (list(map(_type, arguments)), list(map(_type, results))))
            block = function.add_entry_block()
            with ir.InsertionPoint(block):
                func.ReturnOp(body(Builder(), *block.arguments))
        module.operation.verify()
    return module


def _type(spec: Any) -> Any:
    if isinstance(spec, str):
        return mlir_type(spec)
    shape, dtype = spec
    return ir.RankedTensorType.get(list(shape), mlir_type(dtype))


def execute(program: ir.Module | str, inputs: Sequence[Any], passes: str = "") -> list[np.ndarray]:
    """Run `f` of a module, or of its text, through `passes` and the lowering to tiles."""
    module = parse(program) if isinstance(program, str) else program
    with module.context, ir.Location.unknown():
        runner.run(module, runner.parse_pipeline(",".join(filter(None, [passes, LOWER]))))
        return run(module, "f", inputs)
