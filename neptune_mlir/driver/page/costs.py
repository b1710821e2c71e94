# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program costs, counted from its nests: operations, and bytes to and from memory.

A kernel reads every element that it needs at least once and writes its results: this is the
traffic that no cache can avoid. The program as written is counted with a kernel for each nest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.dialects.attributes import TILE
from neptune_mlir.dialects.nests import DYNAMIC, element_type, nest_axes, read_nest, tensor_key
from neptune_mlir.dialects.op_names import CORRECT, GLOBAL, NESTS, PRIVATE, STREAM
from neptune_mlir.dialects.scalars import NoTermForm
from neptune_mlir.driver.explain import Listing
from neptune_mlir.driver.page.sizes import AssumedSizes, element_bytes
from neptune_mlir.ir.bindings import ir

_KINDS = (STREAM, PRIVATE, GLOBAL, *NESTS)
Share = Callable[[Any], float]

_FREE = ("select", "cast", "quantize", "not", "and", "or", "floordiv", "rem")


@dataclass
class KernelCost:
    """One kernel: `read` and `written` are bytes by the name of the tensor, `asked` the bytes that
    its programs ask caches for, where each program reads its own tiles."""

    op: Any
    flops: float
    read: dict[str, float]
    written: dict[str, float]
    asked: float

    @property
    def bytes(self) -> float:
        return sum(self.read.values()) + sum(self.written.values())


@dataclass
class Cost:
    """All kernels of a function."""

    kernels: list[KernelCost]

    @property
    def flops(self) -> float:
        return sum(k.flops for k in self.kernels)

    @property
    def bytes(self) -> float:
        return sum(k.bytes for k in self.kernels)

    @property
    def intensity(self) -> float:
        """Operations for a byte."""
        return self.flops / max(self.bytes, 1.0)


def cost_of(
    listing: Listing, sizes: AssumedSizes, live: Share = lambda stream: 1.0,
    seen: Share = lambda stream: 1.0,
) -> Cost:  # fmt: skip
    """What a function costs.

    Args:
        live: the share of a stream's points that its mask leaves.
        seen: the share of its streamed elements that any tile visits.
    """
    counter = _Counter(listing, sizes, live, seen)
    block = listing.function.regions[0].blocks[0]
    ops = [op.operation for op in block.operations if _is_kernel(op.operation)]
    return Cost([counter.kernel(op) for op in ops])


def _is_kernel(op: Any) -> bool:
    """Whether an op of the host function computes elements: a nest, a fused op, or an op of another
    dialect that nothing here looks into."""
    return not op.name.startswith("tensor.") and any(
        isinstance(r.type, ir.RankedTensorType) for r in op.results
    )


def operations(body: Term) -> int:
    """Operations on floats that a point of a nest takes; an exponential counts as one."""
    return sum(
        1 for n in T.walk(body) if not n.is_leaf and n.op not in _FREE and T.is_float(n.dtype)
    )


class _Counter:
    """Goes over one kernel after the other."""

    def __init__(self, listing: Listing, sizes: AssumedSizes, live: Share, seen: Share):
        self.listing, self.sizes, self.live, self.seen = listing, sizes, live, seen

    def kernel(self, op: Any) -> KernelCost:
        found = KernelCost(op, 0.0, {}, {}, 0.0)
        inside = _results_inside(op)
        for nest_op in _nests(op):
            self._count(found, op, nest_op, inside)
        if op.name not in _KINDS:
            tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
            found.read = {self.listing.values.key(v): self._whole(v) for v in tensors}
            found.asked = sum(found.read.values())
        for result, size in zip(op.results, self._results(op), strict=True):
            name = self.listing.values.key(result)
            found.written[name] = size * element_bytes(element_type(result))
        found.asked += sum(found.written.values())
        return found

    def _whole(self, tensor: Any) -> float:
        """Bytes of a tensor."""
        rank = ir.RankedTensorType(tensor.type).rank
        elements = prod(self.sizes.extent(tensor, d) for d in range(rank))
        return elements * element_bytes(element_type(tensor))

    def _results(self, op: Any) -> list[int]:
        """Elements of each result of a kernel."""
        if op.name in NESTS:
            domain = op.opview
            loops = self.sizes.domain(domain.domain, domain.extents)
            return [prod(loops[k] for k in domain.result_axes)]
        if op.name not in _KINDS:
            return [
                prod(self.sizes.extent(r, d) for d in range(ir.RankedTensorType(r.type).rank))
                for r in op.results
            ]
        made = list(op.regions[1 if op.name == STREAM else 0].blocks[0].operations)[-1]
        if op.name == STREAM:
            body = list(op.regions[0].blocks[0].operations)[-1].operation.operands
            return [self._made(value, body) for value in made.operation.operands]
        chunks = self._chunks(op) if op.name == PRIVATE else 1
        return [chunks * self._made(value, ()) for value in made.operation.operands]

    def _chunks(self, private: Any) -> int:
        number = private.attributes["chunks"].value
        return self.sizes.of(private.operands[0]) if number == DYNAMIC else int(number)

    def _made(self, value: Any, body: Any) -> int:
        """Elements of a tensor that an op in a kernel makes."""
        if isinstance(value.owner, ir.Block):
            value = body[value.arg_number]
        owner = value.owner
        if owner.name == STREAM:
            return self._results(owner.operation)[list(owner.results).index(value)]
        if owner.name not in NESTS:
            return prod(
                self.sizes.extent(value, d) for d in range(ir.RankedTensorType(value.type).rank)
            )
        loops = self._loops(owner.opview)
        return prod(loops[k] for k in owner.opview.result_axes)

    def _loops(self, nest: Any) -> list[int]:
        return self.sizes.domain(nest.domain, nest.extents)

    def _count(self, found: KernelCost, kernel: Any, op: Any, inside: set[Any]) -> None:
        try:
            nest = read_nest(op, self.listing.values)
        except NoTermForm:
            return
        loops = self._loops(op.opview)
        axes = nest_axes(op.opview)
        stream = _stream_around(op)
        points = float(prod(loops))
        if stream is not None and axes is not None:
            points *= self._share(stream, op, axes, loops)
        found.flops += points * (operations(nest.body) + (nest.kind in ("reduce", "accumulate")))
        for read in T.reads(nest.body):
            tensor = self.listing.values[tensor_key(read)]
            if tensor in inside or not _in_memory(tensor):
                continue
            size = self.sizes.touched(tensor, read.args, loops) * element_bytes(read.dtype)
            if stream is not None and axes is not None:
                streamed = stream.attributes["axis"].value
                if streamed in {axes[a] for p in read.args for a in p.axes}:
                    size *= self.seen(stream)
            name = tensor_key(read)
            first = found.read.get(name, 0.0)
            found.read[name] = max(first, size)
            if first < size:
                found.asked += (size - first) * self._times(stream or kernel, axes, read)

    def _share(self, stream: Any, op: Any, axes: tuple[int, ...], loops: list[int]) -> float:
        """The share of a nest's points that a stream visits; a correction runs once a tile."""
        axis = stream.attributes["axis"].value
        if op.block == stream.regions[1].blocks[0]:
            return 1.0
        if axis in axes:
            return self.live(stream)
        extent = self.sizes.domain(stream.attributes["domain"], stream.operands)[axis]
        tile = TILE.find(stream, [0] * (axis + 1))[axis]
        return -(-extent // tile) * self.seen(stream) if tile else 1.0

    def _times(self, kernel: Any, axes: tuple[int, ...] | None, read: Term) -> int:
        """How many programs read the same element."""
        if axes is None or "domain" not in kernel.attributes or not TILE.on(kernel):
            return 1
        extents = self.sizes.domain(kernel.attributes["domain"], kernel.operands)
        own = {axes[a] for p in read.args for a in p.axes}
        tiles = TILE.of(kernel)
        return prod(-(-extents[a] // tiles[a]) for a in _grid(kernel) - own if tiles[a])


def _grid(kernel: Any) -> set[int]:
    """The axes that programs share out: nests loop over them, and none folds them."""
    looped, folded = set(), set()
    for op in _nests(kernel):
        axes = nest_axes(op.opview)
        if axes is None:
            continue
        kept = {axes[k] for k in op.opview.result_axes} if op.name != CORRECT else set(axes)
        looped |= set(axes)
        folded |= set(axes) - kept
    return looped - folded


def _in_memory(tensor: Any) -> bool:
    """Whether a tensor is no running value that a region gets."""
    owner = tensor.owner
    return not isinstance(owner, ir.Block) or owner.owner.operation.name == "func.func"


def _nests(op: Any) -> list[Any]:
    found = []

    def visit(inner: Any) -> Any:
        if inner.name in NESTS:
            found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def _results_inside(op: Any) -> set[Any]:
    """What is made inside of a kernel, and is no tensor in memory."""
    return {r for nest in _nests(op) if nest != op for r in nest.results} | {
        r for inner in _streams(op) if inner != op for r in inner.results
    }


def _streams(op: Any) -> list[Any]:
    found = []

    def visit(inner: Any) -> Any:
        if inner.name == STREAM:
            found.append(inner)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found


def _stream_around(op: Any) -> Any | None:
    """The stream whose region holds a nest."""
    parent = op.parent
    while parent is not None and parent.operation.name != "func.func":
        if parent.operation.name == STREAM:
            return parent.operation
        parent = parent.operation.parent
    return None

