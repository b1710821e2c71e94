# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fused program as a graph: what is in memory, what is not, and what a stream carries.

Ops stand in layers, each below what it reads; edges that span layers get places of their own in
those between, so that they run around the boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.dialects.nests import DYNAMIC, nest_axes
from neptune_mlir.dialects.op_names import (
    ACCUMULATE,
    CORRECT,
    GLOBAL,
    MAP,
    NESTS,
    PRIVATE,
    PRODUCE,
    STREAM,
)
from neptune_mlir.driver.explain import Listing
from neptune_mlir.driver.page.svg import Svg, number
from neptune_mlir.ir.bindings import ir

WIDTH, HEIGHT, GAP, DROP, MARGIN = 118.0, 40.0, 16.0, 34.0, 14.0
VIA = 10.0  # width of the place of an edge that passes a layer
_NOTHING = ("tensor.empty", "tensor.dim", "arith.constant")  # ops that compute no elements


@dataclass
class DataBox:
    """A node: `kind` is memory, carried (a running value), repair, step, or via (no box)."""

    kind: str
    name: str = ""
    what: str = ""
    inside: str = ""  # the stream that it is part of
    group: int = 0  # its number; 0: none
    above: list[DataBox] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0
    place: str = ""  # the line of the listing that says it

    @property
    def width(self) -> float:
        return VIA if self.kind == "via" else WIDTH


def figure(listing: Listing, stored: dict[str, str], lines: dict[Any, str]) -> str:
    """The graph of a function as SVG; `stored` says how large what is in memory is, `lines` where
    the page says each operation."""
    boxes = _Graph(listing, stored, lines).boxes
    if not boxes:
        return ""
    layers = _layers(boxes)
    _order(layers)
    return str(_drawn(layers))


class _Graph:
    """The boxes of a function and their edges."""

    def __init__(self, listing: Listing, stored: dict[str, str], lines: dict[Any, str]):
        self._listing, self._stored, self._lines = listing, stored, lines
        self._made: dict[Any, DataBox] = {}
        self._groups = 0
        self.boxes: list[DataBox] = []
        block = listing.function.regions[0].blocks[0]
        for argument in block.arguments:
            if isinstance(argument.type, ir.RankedTensorType):
                name = listing.values.key(argument)
                self._add(argument, DataBox("memory", name, stored.get(name, "argument")))
        self._block(block, "")
        used = {id(above) for box in self.boxes for above in box.above}
        self.boxes = [b for b in self.boxes if b.above or id(b) in used]

    def _add(self, value: Any, box: DataBox) -> None:
        self._made[value] = box
        self.boxes.append(box)

    def _block(self, block: Any, inside: str, group: int = 0) -> None:
        for op in block.operations:
            operation = op.operation
            if operation.name == STREAM:
                self._stream(operation, wrapped=block.owner.operation.name != "func.func")
            elif operation.name in (PRIVATE, GLOBAL):
                self._wrapped(operation)
            elif operation.name not in _NOTHING and any(
                isinstance(r.type, ir.RankedTensorType) for r in operation.results
            ):
                self._op(operation, inside, group)

    def _wrapped(self, operation: Any) -> None:
        """An op around streams or nests: its results are what it produces."""
        group = 0
        if operation.name == GLOBAL:
            self._groups += 1
            group = self._groups
        for region in operation.regions:
            for block in region.blocks:
                self._block(block, "join of the chunks" if group else "", group)
                last = list(block.operations)[-1].operation
                if last.name == PRODUCE:
                    self._results(operation, last.operands)

    def _results(self, operation: Any, produced: Sequence[Any]) -> None:
        """What an op gives to memory: a box of its own below what makes it."""
        for result, value in zip(operation.results, produced, strict=True):
            source = self._made.get(value)
            name = self._listing.values.key(result)
            size = self._stored.get(name, "result")
            if source is not None and source.kind == "step" and source.name == name:
                # the step is stored as it is
                source.kind, source.group, source.what = "memory", 0, f"{source.what}, {size}"
                self._made[result] = source
                continue
            self._add(result, DataBox("memory", name, size, above=[source] if source else []))

    def _stream(self, operation: Any, wrapped: bool) -> None:
        self._groups += 1
        group = self._groups
        body, finish = operation.regions[0].blocks[0], operation.regions[1].blocks[0]
        axis = self._listing.axes[operation][operation.attributes["axis"].value]
        produced = list(body.operations)[-1].operation.operands
        inside = f"stream over {axis}"
        self._block(body, inside, group)
        for argument, value in zip(finish.arguments, produced, strict=True):
            if value in self._made:
                self._made[argument] = self._made[value]
        self._block(finish, inside, group)
        given = list(finish.operations)[-1].operation.operands
        if not wrapped:
            self._results(operation, given)
            return
        for result, value in zip(operation.results, given, strict=True):
            if value in self._made:
                self._made[result] = self._made[value]

    def _op(self, operation: Any, inside: str, group: int) -> None:
        result = operation.results[0]
        box = DataBox("step", self._name(result), self._what(operation), inside, group)
        box.place = self._lines.get(operation, "")
        if operation.name == ACCUMULATE:
            box.kind = "carried"
        elif operation.name == CORRECT:
            box.kind = "repair"
        elif not inside:
            box.kind = "memory"
        read = [operand for op in _inside(operation) for operand in op.operands]
        for value in (*operation.operands, *read):
            above = self._made.get(value)
            if above is not None and above not in box.above:
                box.above.append(above)
        self._add(result, box)

    def _name(self, value: Any) -> str:
        return self._listing.called.get(value, "")

    def _what(self, operation: Any) -> str:
        if operation.name == CORRECT:
            return "repair"
        if operation.name not in NESTS:
            return operation.name
        if operation.name == MAP:
            return _function(operation)
        combiner = operation.attributes["combiner"].value
        word = {"add": "sum", "mul": "product"}.get(combiner, combiner)
        folded = [k for k in range(len(operation.attributes["domain"]))
                  if k not in list(operation.opview.result_axes)]  # fmt: skip
        around = operation.parent.operation
        own = nest_axes(operation.opview)
        if own is not None and around in self._listing.axes:
            names = self._listing.axes[around]
            return f"{word} over {', '.join(names[own[k]] for k in folded)}"
        sizes = [operation.attributes["domain"][k] for k in folded]
        return f"{word} of " + "×".join("?" if n == DYNAMIC else str(n) for n in sizes)


def _inside(operation: Any) -> list[Any]:
    return [op.operation for region in operation.regions for b in region.blocks
            for op in b.operations]  # fmt: skip


def _function(operation: Any) -> str:
    """What a map computes, in a word: its costliest operator."""
    names = [op.name.partition(".")[2] for op in _inside(operation)]
    for known in ("exp", "exp2", "log", "tanh", "erf", "rsqrt", "sqrt", "divf", "select"):
        if known in names:
            return {"divf": "quotient", "select": "mask"}.get(known, known)
    return "map"


# ---- layout


def _layers(boxes: list[DataBox]) -> list[list[DataBox]]:
    """Boxes by layer, with a place for each edge in each layer that it passes."""
    last = [0] * (max(b.group for b in boxes) + 1)  # of each group: its lowest layer
    for box in boxes:  # in order: what a box reads comes before it, and so do earlier groups
        above = [a.layer + 1 + (0 < a.group != box.group) * (last[a.group] - a.layer)
                 for a in box.above]  # fmt: skip
        if box.group:
            above.append(max([n + 2 for n in last[: box.group] if n], default=1))
        box.layer = max(above, default=0)
        last[box.group] = max(last[box.group], box.layer)
    for box in boxes:  # what nothing here makes stands above the first group that reads it
        if not box.above and not box.group:
            users = [b for b in boxes if box in b.above]
            first = min(users, key=lambda b: b.layer, default=None)
            own = [b.layer for b in boxes if first is not None and 0 < b.group == first.group]
            box.layer = max(0, min([*own, *(u.layer for u in users)], default=1) - 1)
            for group in range(len(last) - 1, 0, -1):  # not beside a group, but above it
                layers_of = [b.layer for b in boxes if b.group == group]
                if layers_of and min(layers_of) <= box.layer <= max(layers_of):
                    box.layer = max(0, min(layers_of) - 1)
    layers: list[list[DataBox]] = [[] for _ in range(max(b.layer for b in boxes) + 1)]
    passing: dict[tuple[int, int], DataBox] = {}
    for box in boxes:
        layers[box.layer].append(box)
    for box in boxes:
        for k, above in enumerate(box.above):
            for layer in range(above.layer + 1, box.layer):
                key = (id(above), layer)
                if key not in passing:
                    via = DataBox("via", above=[above], layer=layer)
                    passing[key] = via
                    layers[layer].append(via)
                above = passing[key]
            box.above[k] = above
    return layers


def _order(layers: list[list[DataBox]]) -> None:
    """Few crossings: boxes stand near the mean of their neighbours, down and up in turns."""
    below: dict[int, list[DataBox]] = {}
    for layer in layers:
        for box in layer:
            for above in box.above:
                below.setdefault(id(above), []).append(box)
    for layer in layers:
        _spread(layer, [float(k) for k in range(len(layer))])
    for turn in range(8):
        for layer in layers if turn % 2 == 0 else reversed(layers):
            wanted = []
            for box in layer:
                near = box.above if turn % 2 == 0 else below.get(id(box), [])
                wanted.append(sum(b.x for b in near) / len(near) if near else box.x)
            _spread(layer, wanted)
    left = min(box.x - box.width / 2 for layer in layers for box in layer)
    for layer in layers:
        for box in layer:
            box.x += MARGIN - left


def _spread(layer: list[DataBox], wanted: list[float]) -> None:
    """Put boxes where they are wanted, but apart."""
    order = sorted(range(len(layer)), key=lambda k: (wanted[k], k))
    layer[:] = [layer[k] for k in order]
    places = [wanted[k] for k in order]
    edge = float("-inf")
    for k, box in enumerate(layer):
        places[k] = max(places[k], edge + box.width / 2)
        edge = places[k] + box.width / 2 + GAP
    shift = sum(places) / len(places) - sum(wanted) / len(wanted)
    for box, at in zip(layer, places, strict=True):
        box.x = at - shift


def _drawn(layers: list[list[DataBox]]) -> Svg:
    boxes = [box for layer in layers for box in layer]
    width = max(b.x + b.width / 2 for b in boxes) + MARGIN
    memory = sum(b.kind == "memory" for b in boxes)
    carried = [b.name for b in boxes if b.kind == "carried"]
    svg = Svg(
        width, "Dataflow of the fused program",
        f"{memory} tensors in memory; carried through the stream: {', '.join(carried) or 'none'}.",
    )  # fmt: skip

    def top(box: DataBox) -> float:
        return 22 + box.layer * (HEIGHT + DROP)

    for group in sorted({b.group for b in boxes if b.group}):
        own = [b for b in boxes if b.group == group]
        left = min(b.x - b.width / 2 for b in own) - 10
        right = max(b.x + b.width / 2 for b in own) + 10
        first, last = min(map(top, own)) - 20, max(map(top, own)) + HEIGHT + 10
        svg.rect(left, first, right - left, last - first, "stream", radius=8)
        svg.text(left + 8, first + 13, own[0].inside, "small")
    for box in boxes:
        for above in box.above:
            _edge(svg, above, box, top)
    for box in boxes:
        if box.kind != "via":
            _box(svg, box, top(box))
    return svg


def _edge(svg: Svg, above: DataBox, box: DataBox, top: Any) -> None:
    start, end = top(above) + HEIGHT, top(box) - (0 if box.kind == "via" else 2)
    way = (
        f"M{number(above.x)} {number(start)}C{number(above.x)} {number(start + DROP / 2)} "
        f"{number(box.x)} {number(end - DROP / 2)} {number(box.x)} {number(end)}"
    )
    if box.kind == "via":
        way += f"V{number(top(box) + HEIGHT)}"
    svg.path(way, "edge", arrow=box.kind != "via")


def _box(svg: Svg, box: DataBox, top: float) -> None:
    if box.place:
        svg.link(box.place)
    left = box.x - box.width / 2
    corner = 3 if box.kind == "memory" else 12
    svg.rect(left, top, box.width, HEIGHT, f"box {box.kind}", radius=corner)
    middle = top + HEIGHT / 2
    lines = [t for t in (box.name, box.what) if t]
    if len(lines) == 1:
        svg.text(box.x, middle + 4, _short(lines[0]), "name", "middle")
    else:
        svg.text(box.x, middle - 3, _short(box.name), "name", "middle")
        svg.text(box.x, middle + 12, _short(box.what), "small", "middle")
    if box.place:
        svg.end_link()


def _short(text: str) -> str:
    return text if len(text) <= 19 else text[:18] + "…"
