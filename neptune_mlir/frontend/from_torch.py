# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs as neptune nests, through `torch.export` and torch-mlir's FX importer."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import traceback
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neptune_mlir.dialects.attributes import BUFFER, UNSIGNED
from neptune_mlir.dialects.context import parse
from neptune_mlir.dialects.program import functions
from neptune_mlir.driver import torch_mlir_opt, torch_views
from neptune_mlir.driver.stablehlo import tensor_loops
from neptune_mlir.errors import InputError, ToolError
from neptune_mlir.frontend import torch_functions, torch_graph, torch_loops
from neptune_mlir.ir.bindings import TORCH_MLIR, ir

TO_TORCH = (
    "func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline{extra-library=}"
)


def from_torch(
    program: Callable[..., Any],
    example_args: Sequence[Any],
    dynamic_shapes: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    name: str = "main",
    raised: bool = True,
) -> Any:
    """Import a `torch.nn.Module` or a function on tensors.

    What a program writes to its buffers comes before its results, as torch.export has it: these
    results of the function have the attribute `neptune.buffer`, the buffer's name, and a warning
    lists them. So do new values of arguments.

    Args:
        program: what to import; parameters and buffers of a module become constants. A module is
            imported in the mode that it is in, training or `eval()`, and keeps it.
        example_args: tensors of the right shapes and dtypes; their values do not matter.
        dynamic_shapes: for each argument, `{dimension: torch.export.Dim(...)}` or None.
        name: of the function in the module.
        raised: run `raise-linalg`; without it the module is linalg on tensors.
    Raises:
        ToolError: torch or torch-mlir is not installed.
        InputError: torch cannot export the program, it draws random numbers, or torch-mlir cannot
            lower it.
    """
    torch, _ = _require("torch"), _require(f"{TORCH_MLIR}.fx")
    wrapped = _as_module(torch, program)
    shapes = None if dynamic_shapes is None else _by_argument(dynamic_shapes, program)
    try:
        # of a program that branches on numbers torch prints the graph
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")  # torch's deprecations of its own code
            exported = torch.export.export(
                wrapped,
                tuple(example_args),
                dynamic_shapes=None if shapes is None else (shapes,),
                strict=False,
            )
            exported = torch_graph.prepare(torch, exported)
            has_loops = len(torch_graph.graphs(torch, exported)) > 1
            imported = _imported(exported, name, has_loops)
    except InputError:
        raise
    except Exception as error:  # torch raises many kinds; all mean "this program cannot be had"
        raise _refusal(torch, error) from error
    text = _lowered(torch, exported, imported, has_loops)
    module = parse(text, source="<torch>")
    if has_loops:
        tensor_loops.write_loops(module)
    _describe_results(module, exported, name)
    if raised:
        from neptune_mlir import passes

        passes.run(module, "raise-linalg")
    return module


def _imported(exported: Any, name: str, has_loops: bool) -> bytes:
    """An exported program as bytecode of the dialect `torch`."""
    imported = importlib.import_module(f"{TORCH_MLIR}.fx").export_and_import(
        exported, output_type="raw", func_name=name, decomposition_table={},
        fx_importer=torch_loops.importer() if has_loops else None,
    )  # fmt: skip
    _locate(imported)
    bytecode = io.BytesIO()
    imported.operation.write_bytecode(bytecode)
    return bytecode.getvalue()


def _locate(imported: Any) -> None:
    """Let a location say which operation of torch an op comes from, and its line: lowering keeps
    it, and a later refusal knows only what that made of the operation."""
    bindings = importlib.import_module(f"{TORCH_MLIR}.ir")

    def visit(op: Any) -> Any:
        called = op.attributes["name"].value if op.name == "torch.operator" else op.name
        location, line = bindings.Location.unknown(), op.location
        if op.name == "func.call":  # a loop
            location = line
        if called.startswith("torch.") and not torch_mlir_opt.GIVEN.match(called):
            known = isinstance(line, bindings.FileLineColLoc)
            place = f"{line.filename}:{line.start_line} " if known else ""
            location = bindings.Location.name(f"{place}('{called}')")
        op.location = location
        for block in (block for region in op.regions for block in region):
            for argument in block.arguments:
                argument.set_location(bindings.Location.unknown())
        return bindings.WalkResult.ADVANCE

    with imported.context:
        imported.operation.walk(visit)


def _lowered(torch: Any, exported: Any, program: bytes, calls: bool) -> str:
    """A program after torch-mlir. What that refuses is an error at the line that asked for it."""
    graph = exported.graph
    try:
        lengths = bool(exported.range_constraints)
        return torch_views.to_linalg(
            program, TO_TORCH, "<torch>", lengths=lengths, calls=calls
        )
    except InputError as error:
        place, says, said = error.message.partition(": error: ")
        if not says:  # it died
            place, said = error.loc or "<torch>", error.message
        if named := torch_mlir_opt.NAMED.search(said):
            place = place.removesuffix(f" ('{named[1]}')")
            if place == "<torch>":
                place = torch_graph.line_of(graph, named[1]) or place
        elif found := torch_graph.complex_numbers(torch, graph):
            said = f"complex numbers have no lowering ('{found[0]}'): {said}"
            place = found[1] or place
        raise InputError(said, loc=place, hint=error.hint) from None


def _describe_results(module: Any, exported: Any, name: str) -> None:
    """Say which results are unsigned, and which are new values of buffers."""
    signature = exported.graph_signature
    given = exported.graph.output_node().args[0]
    types = [v.meta["val"].dtype if hasattr(v, "meta") else None for v in given]
    unsigned = [k for k, t in enumerate(types) if str(t).startswith("torch.uint")]
    (function,) = (f for f in functions(module) if f.sym_name.value == name)
    if unsigned:
        UNSIGNED.set(function.operation, unsigned)
    buffers = [_written(spec.arg.name, signature) for spec in signature.output_specs]
    if not any(buffers):
        return
    with module.context:
        named = [ir.DictAttr.get(BUFFER.entry(b) if b else {}) for b in buffers]
        function.operation.attributes["res_attrs"] = ir.ArrayAttr.get(named)
    listed = ", ".join(f"result {k} is buffer '{b}'" for k, b in enumerate(buffers) if b)
    warnings.warn(f"the program writes to buffers, and a kernel does not: {listed}", stacklevel=3)


def _refusal(torch: Any, error: Exception) -> InputError:
    if isinstance(error, torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode):
        return InputError(
            "the program branches on the numbers of a tensor, and a kernel computes the same for "
            "all numbers", loc=_place(error),
            hint="compute both and choose by torch.where; or branch outside of the program",
        )  # fmt: skip
    reason = str(error).strip().splitlines()
    operation = _operation(torch, error)
    return InputError(
        f"cannot import the torch program: {type(error).__name__}: "
        f"{reason[0] if reason else 'no message'}" + (f" (at '{operation}')" if operation else ""),
        loc=_place(error) or _line(torch, error),
    )


def _place(error: BaseException) -> str | None:
    """The innermost line that an exception passed and that a user can know: of the program, or of
    torch's functions and modules."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        public = module.startswith(("torch.nn.functional", "torch.nn.modules", "torch.functional"))
        ours = module.startswith((__package__, TORCH_MLIR))
        if public or not (ours or module.partition(".")[0] in ("torch", "contextlib", "functools")):
            found = f"{frame.f_code.co_filename}:{line} ({frame.f_code.co_name})"
    return found


def _line(torch: Any, error: BaseException) -> str | None:
    """The line of the operation that was being written as others."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if isinstance(node := frame.f_locals.get("n"), torch.fx.Node):
            return torch_graph.line_of_node(node)
    return None


def _operation(torch: Any, error: BaseException) -> str:
    """The outermost operation of torch that an exception passed, "" where it passed none."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("func")
        if isinstance(found, torch._ops.OpOverload):
            return str(found)
    return ""


def _written(result: str, signature: Any) -> str | None:
    """The buffer, or the argument, of which a result is the new value."""
    buffer = signature.buffers_to_mutate.get(result)
    if buffer:
        return str(buffer).removeprefix("program.")
    return signature.user_inputs_to_mutate.get(result)


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

    if isinstance(program, types.FunctionType):
        program = _as_forward(program)

    class ExportedProgram(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.program = program

        def forward(self, *args: Any) -> Any:
            with (
                torch_functions.instead(torch), torch_functions.unchecked(torch),
                torch_functions.unswapped(torch), torch_functions.unlooked(torch),
            ):  # fmt: skip
                return self.program(*args)

    return ExportedProgram()


def _as_forward(program: types.FunctionType) -> Any:
    """A function under the only name of which torch notes lines."""
    named = types.FunctionType(
        program.__code__.replace(co_name="forward"), program.__globals__, program.__name__,
        program.__defaults__, program.__closure__,
    )  # fmt: skip
    named.__kwdefaults__ = program.__kwdefaults__
    return named


def _by_argument(
    shapes: Sequence[Any] | Mapping[str, Any], program: Callable[..., Any]
) -> tuple[Any, ...]:
    if not isinstance(shapes, Mapping):
        return tuple(shapes)
    target = getattr(program, "forward", program)
    return tuple(shapes.get(p) for p in inspect.signature(target).parameters)
