# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs as neptune nests, through `torch.export` and torch-mlir's FX importer."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import InputError, ToolError
from neptune_mlir.ir.bindings import PACKAGE


def from_torch(
    program: Callable[..., Any],
    example_args: Sequence[Any],
    dynamic_shapes: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    name: str = "main",
    raised: bool = True,
) -> Any:
    """Import a `torch.nn.Module` or a function on tensors.

    Args:
        program: what to import; parameters and buffers of a module become constants.
        example_args: tensors of the right shapes and dtypes; their values do not matter.
        dynamic_shapes: for each argument, `{dimension: torch.export.Dim(...)}` or None.
        name: of the function in the module.
        raised: run `raise-linalg`; without it the module is linalg on tensors.
    Raises:
        ToolError: torch or torch-mlir is not installed.
        InputError: torch cannot export the program, or torch-mlir cannot lower it.
    """
    torch, fx = _require("torch"), _require(f"{PACKAGE}.fx")
    wrapped = _as_module(torch, program)
    shapes = None if dynamic_shapes is None else _by_argument(dynamic_shapes, program)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's deprecations of its own code
            imported = fx.export_and_import(
                wrapped,
                *example_args,
                output_type="linalg-on-tensors",
                dynamic_shapes=None if shapes is None else (shapes,),
                func_name=name,
            )
    except Exception as error:  # torch raises many kinds; all mean "this program cannot be had"
        reason = str(error).strip().splitlines()
        raise InputError(
            f"cannot import the torch program: {type(error).__name__}: "
            f"{reason[0] if reason else 'no message'}"
        ) from error
    # The importer has a context of its own, maybe of another MLIR package: go through text.
    module = parse(imported.operation.get_asm(enable_debug_info=False), source="<torch>")
    if raised:
        from neptune_mlir import passes

        passes.run(module, "raise-linalg")
    return module


def _require(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ToolError(
            f"importing a torch program needs '{package.partition('.')[0]}'",
            hint="pip install neptune-mlir[torch]",
        ) from None


def _as_module(torch: Any, program: Callable[..., Any]) -> Any:
    """A module whose `forward` takes the tensors as `*args`."""

    class ExportedProgram(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.program = program

        def forward(self, *args: Any) -> Any:
            return self.program(*args)

    return ExportedProgram().eval()


def _by_argument(
    shapes: Sequence[Any] | Mapping[str, Any], program: Callable[..., Any]
) -> tuple[Any, ...]:
    if not isinstance(shapes, Mapping):
        return tuple(shapes)
    target = getattr(program, "forward", program)
    return tuple(shapes.get(p) for p in inspect.signature(target).parameters)
