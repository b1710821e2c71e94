# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of arrays, and arrays of another shape, in the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.codegen.cpu.emit import Index, MemoryView, VectorEmitter
from neptune_mlir.ir.bindings import ir

RESHAPES = ("memref.expand_shape", "memref.collapse_shape")
_DYNAMIC = ir.ShapedType.get_dynamic_size()


def part(em: VectorEmitter, source: MemoryView, op: Any) -> MemoryView:
    """What a `memref.subview` is."""
    dynamic = iter(list(op.operands)[1:])
    groups: list[list[Index]] = []
    for name in ("static_offsets", "static_sizes", "static_strides"):
        static = [int(x) for x in ir.DenseI64ArrayAttr(op.attributes[name])]
        groups.append([next(dynamic) if x == _DYNAMIC else x for x in static])
    offsets, sizes, steps = groups
    wanted = list(op.results[0].type.shape)
    keep: list[int] = []
    for d, size in enumerate(sizes):
        left = len(wanted) - len(keep)
        droppable = isinstance(size, int) and size == 1 and len(sizes) - d > left
        if not (droppable and (left == 0 or wanted[len(keep)] != 1)):
            keep.append(d)
    strides = [em.mul(a, b) for a, b in zip(source.strides, steps, strict=True)]
    whole = all(
        isinstance(o, int) and o == 0 and isinstance(n, int) and n == m
        for o, n, m in zip(offsets, sizes, source.sizes, strict=True)
    )
    return MemoryView(
        source.base,
        source.kind,
        em.address(source, offsets),
        tuple(sizes[d] for d in keep),
        tuple(strides[d] for d in keep),
        source.slot,
        source.padded if whole and len(keep) == len(sizes) else None,
    )


def reshaped(em: VectorEmitter, source: MemoryView, op: Any) -> MemoryView | None:
    """What an op of RESHAPES is; None where dimensions become one between which memory has gaps."""
    groups = [[int(d) for d in group] for group in op.attributes["reassociation"]]
    sizes: list[Index] = []
    strides: list[Index] = []
    if op.name == "memref.expand_shape":
        shape = list(op.results[0].type.shape)
        given = iter(list(op.operands)[1:])
        sizes = [next(given) if n == _DYNAMIC else n for n in shape]
        strides = [1] * len(shape)
        for group, stride in zip(groups, source.strides, strict=False):
            for d in reversed(group):
                strides[d] = stride
                stride = em.mul(stride, sizes[d])
    else:
        for group in groups:
            merged = _merged(em, [(source.sizes[d], source.strides[d]) for d in group])
            if merged is None:
                return None
            sizes.append(merged[0])
            strides.append(merged[1])
    return replace(source, sizes=tuple(sizes), strides=tuple(strides), padded=None, within=())


def _merged(em: VectorEmitter, dims: Sequence[tuple[Index, Index]]) -> tuple[Index, Index] | None:
    """The extent and the stride of dimensions, each with these, as one."""
    size: Index = 1
    stride: Index = 1
    for n, s in reversed([(n, s) for n, s in dims if not isinstance(n, int) or n != 1]):
        if isinstance(size, int) and size == 1:
            size, stride = n, s
        elif isinstance(s, int) and isinstance(stride, int) and s == em.mul(stride, size):
            size = em.mul(size, n)
        else:
            return None
    return size, stride
