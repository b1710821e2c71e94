# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Boxes of tensors that the copy engine brings or writes, and the tensor maps that describe them.

A tile lies in shared memory in panels of 64 columns, or 32 where these divide it and 64 do not.
Where it is whole panels of a tensor whose rows are whole panels, one box has them all. Elsewhere
each panel is a box of its own, which begins at any column: what its rows do not have comes as 0,
and is not written. So the last panel of a tile may be partly filled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from neptune_mlir.analysis.tiles import element_bytes, is_multiple
from neptune_mlir.codegen.nvidia import hopper
from neptune_mlir.ir.bindings import ir
from neptune_mlir.runtime.shards.gift import GIFT
from neptune_mlir.targets.warp_groups import PANEL

if TYPE_CHECKING:
    from neptune_mlir.codegen.nvidia.specialized import SpecializedWriter

MOST_AXES = 5  # of a tensor map


@dataclass(frozen=True)
class Box:
    """What a tensor map is for: the tensor's number, the dimension of rows (-1: none), rows and
    columns of a box, columns of a panel, and whether the copy engine rounds f32 to TF32. No
    columns: a panel that begins at any column. `behind`: of two arrays that the tensor lies in the
    second one (`in_two`)."""

    tensor: int
    down: int
    rows: int
    columns: int
    panel: int
    rounds: bool = False
    behind: bool = False


@dataclass(frozen=True)
class Copy:
    """One copy: the address of its tensor map (i64), the box's coordinates, and how many bytes
    behind the start of the tile it lies."""

    tensor_map: Any
    where: list[Any]
    behind: int


@dataclass(frozen=True)
class BoxTile:
    """A tile of a tensor: of which dimensions and at which offsets of all dimensions.

    Attributes:
        dims: of rows and columns, or of columns alone.
        panel: columns of its panels.
        apart: rows of a panel in shared memory, where they are more than those of the tile.
        rounds: whether f32 is rounded to TF32 on its way.
    """

    tensor: int
    offsets: Sequence[Any]
    dims: Sequence[int]
    rows: int
    columns: int
    panel: int = PANEL
    apart: int = 0
    rounds: bool = False


def in_one_box(kind: Any, offset: Any, columns: int, panel: int = PANEL) -> bool:
    """Whether one box has a tile of so many columns, at an offset along the last dimension of a
    tensor of type `kind`."""
    last = kind.rank - 1
    return (
        kind.rank < MOST_AXES  # panels take one
        and not kind.is_dynamic_dim(last)
        and kind.shape[last] % panel == 0
        and columns % panel == 0
        and is_multiple(offset, panel)
    )


class Boxes:
    """The boxes of one kernel, whose tensor maps are arguments behind all others."""

    def __init__(self, kernel: SpecializedWriter):
        self.kernel = kernel
        self.maps: dict[Box, Any] = {}
        self.gift: Any = None

    def copies(
        self, tile: BoxTile, kind: Any, together: bool, behind: Any = None
    ) -> Iterator[Copy]:
        """The copies that move a tile, in one box (`together`) or panel by panel; `behind`: whether
        it lies in the second array of two."""
        s, (*down, inner) = self.kernel.s, tile.dims
        rest = [tile.offsets[d] for d in reversed(range(kind.rank)) if d not in tile.dims]
        row, column = tile.offsets[down[0]] if down else 0, tile.offsets[inner]
        panel, width = tile.panel, tile.columns * together
        box = Box(tile.tensor, down[0] if down else -1, tile.rows, width, panel, tile.rounds)
        size = element_bytes(str(kind.element_type))
        starts = [[0, row, s.div(column, panel)]] if together else [
            [s.add(column, begin), row] for begin in range(0, tile.columns, panel)
        ]  # fmt: skip
        for k, start in enumerate(starts):
            where = [s.value(x, s.i32) for x in (*start, *rest)]
            tensor_map = self._map(box)
            if behind is not None:
                tensor_map = s.select(behind, self._map(replace(box, behind=True)), tensor_map)
            yield Copy(tensor_map, where, k * (tile.apart or tile.rows) * panel * size)

    def _map(self, box: Box) -> Any:
        if box not in self.maps:
            kind = ir.Type.parse("!llvm.ptr")
            self.maps[box] = self.kernel.entry.add_argument(kind, self.kernel.forall.location)
        return self.kernel.s.op("llvm.ptrtoint", [self.maps[box]], self.kernel.s.i64)

    def fetch(self, block: Any) -> None:
        """Fetch the tensor maps, at the start of a block: each is in memory, and the first copy by
        it would wait for that."""
        with ir.InsertionPoint.at_block_begin(block):
            for tensor_map in self.maps.values():
                hopper.fetch_map(tensor_map)

    def take_gift(self) -> Any:
        """The address of a record behind the maps that kernels have made by now (`in_two`)."""
        kind = ir.Type.parse("!llvm.ptr")
        self.gift = self.kernel.entry.add_argument(kind, self.kernel.forall.location)
        return self.kernel.s.op("llvm.ptrtoint", [self.gift], self.kernel.s.i64)

    def operands(self, places: Sequence[Any]) -> list[list[Any]]:
        """The tensor maps as operands of a launch; `places` of all tensors."""
        maps = [
            ["map behind" if b.behind else "map", *places[b.tensor], b.down, b.rows, b.columns,
             *([] if b.panel == PANEL and not b.rounds else [b.panel]),
             *([1] if b.rounds else [])]
            for b in self.maps
        ]  # fmt: skip
        return maps if self.gift is None else [*maps, [GIFT]]

    def pass_maps(self, function: Any, types: Sequence[Any]) -> None:
        """Tensor maps are arguments behind the others (`types`), in parameter space, where the copy
        engine reads them."""
        maps = [*self.maps.values(), *([] if self.gift is None else [self.gift])]
        everything = ir.FunctionType.get([*types, *(m.type for m in maps)], [])
        function.attributes["function_type"] = ir.TypeAttr.get(everything)
        plain = ir.DictAttr.get({})
        by_value = ir.Attribute.parse("{llvm.byval = !llvm.array<128 x i8>, llvm.align = 64 : i64}")
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [plain] * len(types) + [by_value] * len(maps)
        )
