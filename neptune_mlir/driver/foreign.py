# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs of other exporters as text of linalg on tensors: ONNX files, StableHLO, MLIR bytecode.

A file says what it is by its content, and ONNX by its suffix. The conversions are torch-mlir's.
"""

from __future__ import annotations

import importlib
import io
import re
from pathlib import Path
from typing import Any

from neptune_mlir.driver import torch_mlir_opt, torch_views
from neptune_mlir.errors import InputError, ToolError
from neptune_mlir.runtime.bundle import Bundle

BYTECODE = b"ML\xefR"  # the first bytes of MLIR bytecode
_PORTABLE = b"StableHLO_v"  # after a version byte: a portable artifact, as jax.export writes it

# Calls are inlined first: the conversion knows nothing of them.
STABLEHLO = (
    "inline,symbol-dce,canonicalize,stablehlo-legalize-to-linalg,stablehlo-convert-to-signless,"
    "canonicalize,cse"
)
ONNX = "torch-onnx-to-torch-backend-pipeline"
# control flow, what reads tensors of no element, and what has no conversion, are written in other
# ways first
_ODD = re.compile(
    r"\bstablehlo\.(while|case|if|scatter|select_and_scatter|sort|optimization_barrier|composite"
    r"|get_dimension_size|dynamic_update_slice|fft|complex)\b"
    r"|complex<"
    r"|\bchlo\.top_k\b"
    r"|across dimensions = \[\]"
    r"|\btensor<(\d+x)*0x"
)
# a function's line: its name, its results, what may follow them
_FUNCTION = re.compile(r"^ *func\.func .*?@([\w.$-]+)\(.* -> (.*?)( attributes \{.*\})? \{$", re.M)
_LENGTH = re.compile(r"vtensor<\[[\d,]*\?")
ONNX_TO_TORCH = "func.func(convert-torch-onnx-to-torch)"
DEPTH = 4  # how often operators may be replaced by their definitions, which have such, too


def program_text(path: str | Path) -> str:
    """The program in a file, as MLIR text.

    Raises:
        OSError: it cannot be read.
        InputError: it is no program, or cannot be converted.
        ToolError: a package that the conversion needs is not installed.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        return from_onnx(path)
    return text_of(path.read_bytes(), str(path))


def text_of(data: bytes, name: str) -> str:
    """The program in bytes of MLIR, as text. Raises as `program_text`."""
    if data.startswith(BYTECODE):
        return from_bytecode(data, name)
    return from_text(decoded(data, name), name)


def decoded(data: bytes, name: str) -> str:
    """The text in a file. Raises InputError for what is none."""
    if Bundle.begins(data):
        raise InputError(
            f"'{name}' is a compiled bundle, not a program",
            hint="neptune inspect shows it, neptune_mlir.Kernel.load makes a kernel of it",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"'{name}' is neither text nor MLIR bytecode") from None


def from_text(text: str, name: str) -> str:
    """A program in text, StableHLO converted."""
    if "hlo." in text and re.search(r"\b(stablehlo|chlo)\.\w", text):
        if _ODD.search(text):
            from neptune_mlir.driver.stablehlo.straight_code import straightened

            text = straightened(text, name, _register)
        given = text
        text = torch_mlir_opt.lower(text, STABLEHLO, name, located=True)
        if left := re.search(r"\bstablehlo\.\w+( @[\w.$-]+)?", text):  # patterns take CHLO
            raise InputError(
                f"'{left[0]}' has no lowering to linalg", loc=_place(text, left.end(), name),
                hint="keep it out of the program: compile what stands before and after it",
            )  # fmt: skip
        if '@"loop ' in text:
            text = _with_loops(text)
        text = _with_signs(text, given)
    return text


def _with_loops(text: str) -> str:
    """A program in linalg with loops in the place of the calls that stand for them."""
    from neptune_mlir.dialects.context import parse
    from neptune_mlir.driver.stablehlo import tensor_loops

    module = parse(text)
    tensor_loops.write_loops(module)
    return str(module.operation.get_asm(enable_debug_info=True))


def _with_signs(text: str, given: str) -> str:
    """A program in linalg that says which results were unsigned as it was `given`."""
    unsigned = {
        found[1]: [k for k, kind in enumerate(re.findall(r"tensor<([^>]*)>", found[2]))
                   if re.search(r"(^|[x,])ui\d+$", kind)]
        for found in _FUNCTION.finditer(given)
    }  # fmt: skip
    if not any(unsigned.values()):
        return text
    from neptune_mlir.dialects.attributes import UNSIGNED  # where kernels only run, no MLIR is

    def line(found: re.Match[str]) -> str:
        if not (of := unsigned.get(found[1])):
            return found[0]
        entry = f"{UNSIGNED} = array<i64: {', '.join(map(str, of))}>"
        if found[3]:
            return f"{found[0].removesuffix('} {')}, {entry}}} {{"
        return f"{found[0].removesuffix('{')}attributes {{{entry}}} {{"

    return _FUNCTION.sub(line, text)


def _place(text: str, at: int, name: str) -> str:
    """Where the op in a line of printed MLIR stood in the program called `name`: the first place in
    a file that its location leads to."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start : text.index("\n", at)]
    if "loc(" not in line:  # it has regions, and its location stands behind them
        indent = re.match(r" *", line)[0]  # type: ignore[index]
        ends = re.compile(rf"^{indent}\}}.* loc\((#loc\d*)\)$", re.M).search(text, at)
        line = ends[1] if ends else ""
    left, seen = re.findall(r"#loc\d*", line)[-1:], set()
    while left:
        label = left.pop()
        found = re.search(rf"^{label} = loc\((.*)\)$", text, re.M)
        if label in seen or found is None:
            continue
        seen.add(label)
        if place := re.match(r'"([^"]*)":(\d+):(\d+)', found[1]):
            return ":".join((name if place[1] == "-" else place[1], place[2], place[3]))
        left += reversed(re.findall(r"#loc\d*", found[1]))
    return name


def from_bytecode(data: bytes, name: str) -> str:
    """A program in MLIR bytecode or a portable StableHLO artifact. Raises InputError."""
    from neptune_mlir.dialects.context import load_dialects_of, make_context
    from neptune_mlir.ir.bindings import diagnostic_lines, ir, lock

    with lock, make_context() as context:
        load_dialects_of(data, context)
        try:
            if data[5:].startswith(_PORTABLE):
                stablehlo = _stablehlo()
                stablehlo.register_dialect(context, True)
                module = stablehlo.deserialize_portable_artifact(context, data)
            else:
                module = ir.Module.parse(data)
        except ir.MLIRError as error:
            raise InputError("\n".join(diagnostic_lines(error, name))) from None
        except (ValueError, RuntimeError) as error:
            raise InputError(f"cannot read '{name}': {error}") from None
        return from_text(module.operation.get_asm(enable_debug_info=True), name)


def to_bytecode(text: str) -> bytes:
    """A module in MLIR text as bytecode, the same bytes for the same text. Raises InputError."""
    from neptune_mlir.dialects.context import parse

    stream = io.BytesIO()
    parse(text).operation.write_bytecode(stream)
    return stream.getvalue()


def from_onnx(path: Path) -> str:
    """An ONNX model; weights are constants, named dimensions run-time extents.

    Raises:
        OSError: the file cannot be read.
        InputError: it is no model, or has an operator that torch-mlir cannot lower.
        ToolError: the package `onnx`, or torch-mlir, is not installed.
    """

    with open(path, "rb"):
        pass
    onnx = _package("onnx", "pip install 'neptune-mlir[onnx]'")
    nodes = importlib.import_module("neptune_mlir.driver.onnx.nodes")
    structure = importlib.import_module("neptune_mlir.driver.onnx.structure")
    try:
        model = nodes.prepared(onnx.load(str(path)), str(path))
    except (OSError, InputError):
        raise
    except Exception as error:  # protobuf and onnx each raise kinds of their own
        raise _not_imported(path, error) from None
    problem: InputError | None = None
    for _ in range(DEPTH):
        text = _imported(model, path)
        try:
            given, lengths = text, bool(_LENGTH.search(text))
            text = torch_views.to_linalg(text, ONNX, str(path), lengths=lengths)
            return _with_signs(text, given)
        except InputError as error:
            # that of the model as it was given
            problem = problem or structure.with_reason(error, model)
        refused = torch_mlir_opt.refused_operators(text, ONNX_TO_TORCH, str(path))
        model = nodes.defined(model, refused)
        if model is None:
            break
    assert problem is not None
    raise problem


def _imported(model: Any, path: Path) -> str:
    """A model as a module of torch-mlir. Raises InputError, ToolError."""
    from neptune_mlir.ir.bindings import TORCH_MLIR

    importer = _package(f"{TORCH_MLIR}.extras.onnx_importer", "pip install torch-mlir")
    dialect = importlib.import_module(f"{TORCH_MLIR}.dialects.torch")
    bindings = importlib.import_module(f"{TORCH_MLIR}.ir")
    try:
        context = bindings.Context()
        dialect.register_dialect(context)
        info = importer.ModelInfo(model, config=importer.Config())
        module = info.create_module(context=context).operation
        importer.NodeImporter.define_function(info.main_graph, module).import_all()
        module.verify()
        return str(module.get_asm(enable_debug_info=True))
    except Exception as error:  # the importer raises kinds of its own
        raise _not_imported(path, error) from None


def _not_imported(path: Path, error: Exception) -> InputError:
    reason = str(error).strip().splitlines()
    return InputError(f"cannot import '{path}': {reason[0] if reason else type(error).__name__}")


def _package(name: str, hint: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        needed = name.partition(".")[0]
        raise ToolError(f"reading this program needs '{needed}'", hint=hint) from None


def _register(context: Any) -> None:
    _stablehlo().register_dialect(context, True)
    context.allow_unregistered_dialects = True  # what names devices, say, which nothing here reads


def _stablehlo() -> Any:
    from neptune_mlir.ir.bindings import module

    try:
        return module("_mlir_libs._stablehlo")
    except ImportError:
        raise ToolError(
            "reading a portable StableHLO artifact needs the bindings of torch-mlir",
            hint="pip install torch-mlir",
        ) from None
