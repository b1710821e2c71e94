# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How much of a tile is live: the points that a kernel at the edge of a tensor has to compute.

Tiles are static. Where one hangs over the edge of a tensor, the part of it that is loaded and
stored has a run-time size, and loops need not go further. Loops and dimensions of tiles that index
each other are one *class*. A class has a bound where every load and store of it says the same size:

* if nothing reduces along the class, no point past the bound reaches one before it, so every loop
  of the class ends there;
* if something does, what is past the bound is neutral there, or results would be wrong. So
  reductions end at the bound, and whatever writes points that a reduction may read at the end of
  the vector that it is in, since reductions read whole vectors: all other loops, and those of
  reductions that are written along, too. Of tiles without a whole number of vectors all is read,
  so all is written.

Contractions read blocks, whatever is live, so what they touch has no bound, but for the rows of a
block where nothing reduces along them: those end at the block that the bound is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neptune_mlir.codegen.cpu.emit import VectorEmitter
from neptune_mlir.codegen.cpu.tile_ops import DIVISIONS
from neptune_mlir.ir.bindings import arith, ir

Node = tuple[Any, int]


class LiveSizes:
    """The bounds of the loops of a kernel's ops.

    Args:
        rows_of: the loops over rows of a `linalg.generic` that reads its operands in blocks; None
            for others.
    """

    def __init__(
        self, em: VectorEmitter, function: Any, rows_of: Callable[[Any], list[int] | None]
    ) -> None:
        self._em = em
        self._rounded: dict[Any, Any] = {}  # bounds -> the ends of the vectors that they are in
        self._parent: dict[Node, Node] = {}
        self._sizes: dict[Node, set[Any]] = {}  # of loads and stores; None: one that is no bound
        self._reduced: set[Node] = set()
        self._partial: set[Node] = set()  # dimensions of tiles that are no whole vectors
        self._rows: set[Node] = set()  # of contractions
        self._tiles: dict[Any, Any] = {}  # a tile, or another name of it -> the tile
        self._generics: list[Any] = []
        self._order: dict[Any, dict[Any, int]] = {}  # of the ops of a block
        self._collect(function)
        for op in self._generics:
            self._index(op, rows_of(op))
        self._bounds = {
            root: next(iter(found)) for root, found in self._by_class(self._sizes).items()
            if len(found) == 1 and None not in found
        }  # fmt: skip
        self._reducing = {self._find(node) for node in self._reduced}
        self._ragged = {self._find(node) for node in self._partial}
        for root in self._reducing & {self._find(node) for node in self._rows}:
            self._bounds.pop(root, None)
        for op in self._generics:
            for root in {self._find((op, d)) for d in range(_loops(op))} & self._bounds.keys():
                if not self._dominates(self._bounds[root], op):
                    del self._bounds[root]

    def of(self, op: Any) -> list[Any]:
        """Where each loop of a `linalg.generic` may end; None: nowhere before its extent."""
        found = []
        for d, exact in enumerate(self.exact(op)):
            root = self._find((op, d))
            bound = self._bounds.get(root)
            if bound is not None and not exact:
                bound = None if root in self._ragged else self._whole_vectors(bound)
            found.append(bound)
        return found

    def exact(self, op: Any) -> list[bool]:
        """Whether each loop of a `linalg.generic` ends at its bound, and not behind it."""
        roots = [self._find((op, d)) for d in range(_loops(op))]
        along = _written_along(op)
        return [
            root in self._bounds and (root not in self._reducing or (reduced and d not in along))
            for d, (root, reduced) in enumerate(zip(roots, _reduced(op), strict=True))
        ]

    def _whole_vectors(self, bound: Any) -> Any:
        if bound not in self._rounded:
            made = bound.owner
            begin = ir.InsertionPoint.at_block_begin
            with (begin(made) if isinstance(made, ir.Block) else _behind(made.operation)):
                more = self._em.add(bound, self._em.lanes - 1)
                self._rounded[bound] = arith.andi(more, self._em.constant(-self._em.lanes))
        return self._rounded[bound]

    # --- what a kernel says

    def _collect(self, function: Any) -> None:
        def visit(op: Any) -> Any:
            if op.name == "memref.alloc":
                self._tiles[op.results[0]] = op.results[0]
                for d, size in enumerate(op.results[0].type.shape):
                    if size % self._em.lanes:
                        self._partial.add((op.results[0], d))
            elif op.name == "memref.cast" and op.operands[0] in self._tiles:
                self._tiles[op.results[0]] = self._tiles[op.operands[0]]
            elif op.name == "linalg.generic":
                self._generics.append(op)
            elif op.name == "memref.subview" and op.operands[0] in self._tiles:
                self._part(op)
            elif op.name == "memref.copy" and all(v in self._tiles for v in op.operands):
                source, target = (self._tiles[v] for v in op.operands)
                for d in range(op.operands[0].type.rank):
                    self._join((source, d), (target, d))
            elif op.name not in ("memref.dim", "memref.dealloc"):
                for value in (v for v in op.operands if v in self._tiles):
                    self._no_bound((self._tiles[value], d) for d in range(value.type.rank))
            return ir.WalkResult.ADVANCE

        function.walk(visit)

    def _part(self, op: Any) -> None:
        """The part of a tile that is loaded or stored."""
        tile = self._tiles[op.operands[0]]
        marker = ir.ShapedType.get_dynamic_size()
        offsets, sizes, strides = (
            [int(x) for x in ir.DenseI64ArrayAttr(op.attributes[name])]
            for name in ("static_offsets", "static_sizes", "static_strides")
        )
        dynamic = iter(list(op.operands)[1 + offsets.count(marker) :])
        for d, size in enumerate(sizes):
            known = next(dynamic) if size == marker else None
            plain = offsets[d] == 0 and strides[d] == 1
            self._sizes.setdefault((tile, d), set()).add(known if plain else None)

    def _index(self, op: Any, rows: list[int] | None) -> None:
        """Loops of an op and the dimensions that they index."""
        maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
        inputs = _inputs(op)
        loops = [(op, d) for d in range(maps[0].n_dims)]
        divides = any(o.operation.name in DIVISIONS for o in op.regions[0].blocks[0].operations)
        if divides:
            self._no_bound(loops)
        elif rows is not None:
            self._no_bound(loop for loop in loops if loop[1] not in rows)
            self._rows.update(loops[d] for d in rows)
        self._reduced.update(loop for loop, is_reduced in zip(loops, _reduced(op), strict=True)
                             if is_reduced)  # fmt: skip
        for k, (value, indexing) in enumerate(zip(op.operands, maps, strict=True)):
            if not isinstance(value.type, ir.MemRefType):
                continue
            tile = self._tiles.get(value)
            if tile is None and k >= inputs:  # writes somewhere else
                self._no_bound(loops)
            for place, expression in enumerate(indexing.results):
                if tile is None:
                    continue
                if isinstance(expression, ir.AffineDimExpr):
                    self._join((tile, place), loops[ir.AffineDimExpr(expression).position])
                else:
                    self._no_bound([(tile, place), *loops])

    def _dominates(self, value: Any, op: Any) -> bool:
        """Whether `value` is made before `op` in a block around it."""
        made = value.owner
        block = made if isinstance(made, ir.Block) else made.operation.block
        while op.block != block:
            op = op.parent.operation if op.parent is not None else None
            if op is None or op.name == "builtin.module":
                return False
        if isinstance(made, ir.Block):
            return True
        if block not in self._order:
            self._order[block] = {o.operation: k for k, o in enumerate(block.operations)}
        return self._order[block][made.operation] < self._order[block][op]

    # --- classes

    def _no_bound(self, nodes: Any) -> None:
        for node in nodes:
            self._sizes.setdefault(node, set()).add(None)

    def _find(self, node: Node) -> Node:
        while (parent := self._parent.setdefault(node, node)) != node:
            self._parent[node] = self._parent[parent]
            node = parent
        return node

    def _join(self, a: Node, b: Node) -> None:
        self._parent[self._find(a)] = self._find(b)

    def _by_class(self, sizes: dict[Node, set[Any]]) -> dict[Node, set[Any]]:
        found: dict[Node, set[Any]] = {}
        for node, own in sizes.items():
            found.setdefault(self._find(node), set()).update(own)
        return found


def _behind(op: Any) -> Any:
    """Where an op may use what `op` makes."""
    operations = list(op.block.operations)
    after = next(k for k, o in enumerate(operations) if o.operation == op) + 1
    return ir.InsertionPoint(operations[after])


def _loops(op: Any) -> int:
    return len(list(op.attributes["iterator_types"]))


def _inputs(op: Any) -> int:
    return int(next(iter(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))))


def _written_along(op: Any) -> set[int]:
    """The loops along which an op writes tiles."""
    maps = [ir.AffineMapAttr(a).value for a in op.attributes["indexing_maps"]]
    return {
        ir.AffineDimExpr(e).position
        for m in maps[_inputs(op) :] for e in m.results
        if isinstance(e, ir.AffineDimExpr)
    }  # fmt: skip


def _reduced(op: Any) -> list[bool]:
    return ["reduction" in str(kind) for kind in op.attributes["iterator_types"]]
