# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`lower-to-tiles`: every kernel-level op becomes one `scf.forall` over static tiles.

Kernel-level ops are `neptune.stream`, `neptune.private`, `neptune.global` and lone maps and
reduces, with their `neptune.tile`. docs/architecture.md ("Tile IR") is the contract of what
comes out; `lower_to_tiles_kernel` says which role each axis plays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neptune_mlir.bindings import ir, passmanager, scf, tensor
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.scalars import mlir_type
from neptune_mlir.transforms import lower_to_tiles_index as ix
from neptune_mlir.transforms.lower_to_tiles_emit import (
    DYNAMIC,
    Frame,
    Program,
    Tile,
    extract_slice,
)
from neptune_mlir.transforms.lower_to_tiles_index import Index
from neptune_mlir.transforms.lower_to_tiles_kernel import Kernel, read_kernel
from neptune_mlir.transforms.program import functions
from neptune_mlir.transforms.registry import register

_KERNEL_OPS = ("stream", "private", "global", "map", "reduce", "accumulate")


@register("lower-to-tiles", "lower fused and lone nests to a grid of programs over static tiles")
def lower_to_tiles(module: Any) -> None:
    for function in functions(module):
        name = ir.StringAttr(function.operation.attributes["sym_name"]).value
        block = function.regions[0].blocks[0]
        values = nests.Values()
        ops = [o.operation for o in block.operations if _is_kernel(o)]
        for number, op in enumerate(ops):
            with ir.InsertionPoint(op), op.location:
                results = _lower(read_kernel(op, values), values, f"{name}_{number}")
            for old, new in zip(op.results, results, strict=True):
                old.replace_all_uses_with(new)
            _rebind(values, op, results)
            op.erase()
    passmanager.PassManager.parse("builtin.module(canonicalize,cse)").run(module.operation)


def _is_kernel(op: Any) -> bool:
    dialect, _, name = op.operation.name.partition(".")
    return dialect == "neptune" and name in _KERNEL_OPS


def _rebind(values: nests.Values, op: Any, results: Sequence[Any]) -> None:
    for old, new in zip(op.results, results, strict=True):
        values.rebind(values.key(old), new)


def _lower(kernel: Kernel, values: nests.Values, name: str) -> list[Any]:
    """Emit the forall of one kernel at the insertion point; returns its results."""
    grid = [k for k, axis in enumerate(kernel.axes) if axis.role == "grid"]
    bounds: list[Index] = [kernel.chunks] if kernel.chunks else []
    bounds += [ix.ceildiv(kernel.axes[k].extent, kernel.axes[k].size) for k in grid]
    shapes = [_result_shape(kernel, key) for key in kernel.results]
    empties = [
        tensor.empty(shape, ir.RankedTensorType(r.type).element_type)
        for shape, r in zip(shapes, kernel.op.operation.results, strict=True)
    ]
    bounds = bounds or [1]
    # The mapping keeps canonicalization from dropping grid dimensions that run once.
    mapping = [ir.Attribute.parse(f"#gpu.block<linear_dim_{k}>") for k in range(len(bounds))]
    forall = scf.ForallOp(
        [0] * len(bounds), bounds, [1] * len(bounds), empties, mapping=ir.ArrayAttr.get(mapping)
    )
    forall.operation.attributes["neptune.kernel"] = ir.StringAttr.get(name)
    with ir.InsertionPoint(forall.body):
        ids = list(forall.induction_variables)
        chunk = ids.pop(0) if kernel.chunks else None
        frame = Frame(forall.body, _grid_tiles(kernel, grid, ids))
        program = Program(kernel, values, frame)
        if kernel.stream is not None:
            _stream(program, chunk)
        stores = _finish(program, list(forall.inner_iter_args), chunk)
        parallel = scf.InParallelOp()
        with ir.InsertionPoint(parallel.block):
            for (value, offsets, sizes), out in zip(stores, forall.inner_iter_args, strict=True):
                _parallel_insert(value, out, offsets, sizes)
    return list(forall.results)


def _result_shape(kernel: Kernel, key: str) -> list[Index]:
    chunks = [kernel.chunks] if kernel.chunks else []
    return chunks + [kernel.axes[a].extent for a in kernel.result_axes(key)]


def _grid_tiles(kernel: Kernel, grid: Sequence[int], ids: Sequence[Any]) -> dict[int, Tile]:
    tiles: dict[int, Tile] = {}
    for k, axis in enumerate(kernel.axes):
        if axis.role == "whole":
            tiles[k] = Tile(axis.size, 0, axis.size)
    for k, program_id in zip(grid, ids, strict=False):
        axis = kernel.axes[k]
        offset = ix.scale(program_id, axis.size)
        full = axis.divides or axis.size == 1
        valid = axis.size if full else ix.minimum(axis.size, ix.sub(axis.extent, offset))
        tiles[k] = Tile(axis.size, offset, valid)
    return tiles


def _stream(program: Program, chunk: Any) -> None:
    """The loops over the streamed axis; afterwards the final values are known to `program`."""
    kernel, root = program.kernel, program.root
    starts = []
    for running in kernel.running:
        if running.start is None:
            starts.append(program.identity(running.origin, root))
        else:
            starts.append(program._start(running, root))

    def step(frame: Frame, carried: Sequence[Any]) -> list[Any]:
        frame.made.update((r.key, v) for r, v in zip(kernel.running, carried, strict=True))
        return [program.tile_of(r.updated, frame) for r in kernel.running]

    ranges = program.whole_range(kernel.stream, split=True)
    finals = program.loop(root, kernel.stream, ranges, starts, step)
    root.made.update(zip(kernel.finish_keys, finals, strict=True))


Store = tuple[Any, list[Index], list[Index]]  # what, and where in the result: offsets, sizes


def _finish(program: Program, outs: Sequence[Any], chunk: Any) -> list[Store]:
    """Compute every result; those over a looped axis tile by tile, in a sweep."""
    kernel = program.kernel
    stores: dict[int, Store] = {}
    sweeps: dict[tuple[int, ...], list[int]] = {}
    for k, key in enumerate(kernel.results):
        swept = tuple(
            a for a in kernel.result_axes(key) if kernel.axes[a].role in ("loop", "stream")
        )
        if swept:
            sweeps.setdefault(tuple(sorted(swept)), []).append(k)
        else:
            value = program.tile_of(key, program.root)
            offsets, sizes = _window(program, key, program.root, chunk)
            kept = [d for d, a in enumerate(kernel.result_axes(key)) if kernel.axes[a].size > 1]
            with program.root.here():
                stores[k] = (_valid_part(value, [sizes[d] for d in kept]), offsets, sizes)
    for axes, members in sweeps.items():
        stores.update(_sweep(program, axes, members, outs))
    if chunk is not None:
        stores = {k: (v, [chunk, *offsets], [1, *sizes]) for k, (v, offsets, sizes) in stores.items()}
    return [stores[k] for k in range(len(kernel.results))]


def _window(program: Program, key: str, frame: Frame, chunk: Any) -> tuple[list[Index], list[Index]]:
    """Offsets and sizes of the valid part of a tile inside the result."""
    tiles = [frame.tile(a) for a in program.kernel.result_axes(key)]
    return [t.offset for t in tiles], [t.valid for t in tiles]


def _valid_part(value: Any, sizes: Sequence[Index]) -> Any:
    if list(ir.RankedTensorType(value.type).shape) == list(sizes):
        return value
    return extract_slice(value, [0] * len(sizes), sizes, range(len(sizes)))


def _parallel_insert(value: Any, out: Any, offsets: Sequence[Index], sizes: Sequence[Index]) -> None:
    tensor.ParallelInsertSliceOp(
        value, out,
        [o for o in offsets if not ix.is_static(o)],
        [s for s in sizes if not ix.is_static(s)],
        [],
        [o if ix.is_static(o) else DYNAMIC for o in offsets],
        [s if ix.is_static(s) else DYNAMIC for s in sizes],
        [1] * len(offsets),
    )  # fmt: skip


def _sweep(program: Program, axes: Sequence[int], members: Sequence[int], outs: Sequence[Any]) -> dict[int, Store]:
    raise NotImplementedError


__all__ = ["lower_to_tiles", "mlir_type"]
