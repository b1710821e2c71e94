# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tile IR on the CPU by a slow generic route, to test that it means the right thing.

No vectorisation and no tricks: bufferize, turn linalg into loops, loops into branches, JIT.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from neptune_mlir.ir.bindings import execution_engine, ir, linalg, passmanager

_BUFFERIZE = """builtin.module(
  one-shot-bufferize{bufferize-function-boundaries=1 allow-return-allocs-from-loops=1
                     function-boundary-type-conversion=identity-layout-map},
  buffer-deallocation-pipeline, canonicalize, cse, canonicalize)"""
_TO_LLVM = """builtin.module(
  convert-linalg-to-loops, scf-forall-to-for, canonicalize, cse, canonicalize,
  expand-strided-metadata, lower-affine, arith-expand, convert-scf-to-cf, convert-math-to-llvm,
  expand-strided-metadata, finalize-memref-to-llvm, convert-math-to-libm, convert-arith-to-llvm,
  convert-index-to-llvm, convert-func-to-llvm, convert-cf-to-llvm, reconcile-unrealized-casts)"""

_CODES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i1": np.bool_,
          "i8": np.int8, "i32": np.int32, "i64": np.int64, "index": np.int64}  # fmt: skip


def _bf16_bits(a: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16, as its bits."""
    bits = a.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(a: np.ndarray, dtype: str) -> np.ndarray:
    """`a` as float64 after rounding to `dtype`: what a kernel sees of it."""
    if dtype == "bf16":
        return (_bf16_bits(a).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return a.astype(_CODES[dtype]).astype(np.float64)


def _descriptor(rank: int) -> type[ctypes.Structure]:
    fields: list[tuple[str, Any]] = [
        ("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64)
    ]  # fmt: skip
    if rank:
        fields += [("shape", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)]
    return type(f"Memref{rank}", (ctypes.Structure,), {"_fields_": fields})


def run(module: Any, name: str, arguments: Sequence[Any]) -> list[np.ndarray]:
    """Call function `name` of a tile-level module; the module is consumed.

    Arguments are arrays (converted to the element type of the parameter) or numbers.
    """
    function = ir.SymbolTable(module.operation)[name]
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    inputs, results = list(kind.inputs), list(kind.results)
    result_kinds = [
        (ir.RankedTensorType(t).rank, str(ir.RankedTensorType(t).element_type)) for t in results
    ]
    packed, keep = [], []
    for argument, want in zip(arguments, inputs, strict=True):
        pointer, owner = _pass(argument, want)
        packed.append(pointer)
        keep.append(owner)
    with module.context:
        function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        passmanager.PassManager.parse(_BUFFERIZE).run(module.operation)
        _spell_out_copies(module)
        passmanager.PassManager.parse(_TO_LLVM).run(module.operation)
        engine = execution_engine.ExecutionEngine(module, opt_level=0)
    fields = [(f"r{k}", _descriptor(rank)) for k, (rank, _) in enumerate(result_kinds)]
    returned = type("Results", (ctypes.Structure,), {"_fields_": fields})()
    engine.invoke(name, ctypes.pointer(ctypes.pointer(returned)), *packed)
    return [
        _copy(getattr(returned, f"r{k}"), rank, dtype)
        for k, (rank, dtype) in enumerate(result_kinds)
    ]


def _spell_out_copies(module: Any) -> None:
    """`memref.copy` of a strided buffer would become a call into a runtime library."""
    found = []

    def collect(operation: Any) -> Any:
        if operation.name == "memref.copy":
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for operation in found:
        with ir.InsertionPoint(operation), operation.location:
            linalg.copy(operation.operands[0], outs=[operation.operands[1]])
        operation.erase()


def _pass(argument: Any, want: Any) -> tuple[Any, Any]:
    """A pointer to a pointer to the descriptor (tensors) or to the value (scalars)."""
    if not isinstance(want, ir.RankedTensorType):
        dtype = _CODES[str(want)]
        value = np.ctypeslib.as_ctypes_type(np.dtype(dtype))(dtype(argument))
        return ctypes.pointer(value), value
    dtype = str(ir.RankedTensorType(want).element_type)
    source = np.asarray(argument)
    array = _bf16_bits(source) if dtype == "bf16" else source.astype(_CODES[dtype])
    array = np.ascontiguousarray(array).reshape(source.shape)
    descriptor = _descriptor(array.ndim)()
    descriptor.allocated = descriptor.aligned = array.ctypes.data
    descriptor.offset = 0
    for d in range(array.ndim):
        descriptor.shape[d] = array.shape[d]
        descriptor.strides[d] = array.strides[d] // array.itemsize
    return ctypes.pointer(ctypes.pointer(descriptor)), (descriptor, array)


def _copy(descriptor: Any, rank: int, dtype: str) -> np.ndarray:
    shape = tuple(descriptor.shape) if rank else ()
    count = int(np.prod(shape, dtype=np.int64))
    code = np.uint16 if dtype == "bf16" else np.dtype(_CODES[dtype])
    if count == 0:
        return np.zeros(shape, code)
    buffer = (ctypes.c_char * (count * np.dtype(code).itemsize)).from_address(descriptor.aligned)
    array = np.frombuffer(buffer, dtype=code).reshape(shape).copy()
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array
