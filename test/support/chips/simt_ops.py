# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A kernel (`gpu.func`) as the simulator runs it: read through the bindings once, not at every
step. Reading an op costs more than running it on all threads of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.ir.bindings import ir
from support.chips.scalar_ops import NUMPY, function_of


class Value:
    """An SSA value.

    Attributes:
        kind: the type, of its elements if it is a vector.
        count: how many elements a thread holds.
        vector: whether it is a vector (of one element, too).
        numpy: the dtype of the arrays that stand for it; None for what has none.
        shared: whether it is an address of shared memory.
    """

    __slots__ = ("count", "kind", "numpy", "shared", "vector")

    def __init__(self, of: Any):
        self.vector = isinstance(of, ir.VectorType)
        self.kind = str(of.element_type if self.vector else of)
        self.count = of.shape[0] if self.vector else 1
        self.numpy = NUMPY.get(self.kind)
        self.shared = self.kind == "!llvm.ptr<3>"

    def another(self) -> Value:
        """Another value of the same type: to ask for the properties of a type takes longer."""
        made = Value.__new__(Value)
        made.count, made.kind, made.numpy = self.count, self.kind, self.numpy
        made.shared, made.vector = self.shared, self.vector
        return made


class Attributes(dict[str, Any]):
    """Attributes by name, as numbers, strings and lists; what is none of these, as its text."""

    def __init__(self, raw: Any):
        super().__init__()
        self._raw = raw

    def __missing__(self, name: str) -> Any:
        found = self._raw[name]
        if isinstance(found, ir.DenseElementsAttr):
            plain = found.get_splat_value().value
        elif isinstance(found, (ir.DenseI32ArrayAttr, ir.DenseI64ArrayAttr)):
            plain = list(found)
        else:
            plain = getattr(found, "value", str(found))
        self[name] = plain
        return plain


class Op:
    """An operation; `regions` are its bodies, None where one is empty; `scalar` computes it where
    it is one on each thread's own values."""

    __slots__ = ("attributes", "handler", "name", "operands", "regions", "results", "scalar")

    def __init__(self, op: Any, values: dict[Any, Value]):
        self.name: str = op.name
        self.handler = "_" + self.name.replace(".", "_")
        self.operands = [values[v] for v in op.operands]
        self.attributes = Attributes(op.attributes)
        self.results = [_define(v, values) for v in op.results]
        self.regions = [
            Body(region.blocks[0], values) if len(region.blocks) else None for region in op.regions
        ]
        self.scalar = None
        if self.name.startswith("arith."):
            kinds = tuple(v.kind for v in self.operands)
            name = self.name.removeprefix("arith.")
            self.scalar = function_of(name, kinds, self.results[0].kind)


class Body:
    """A block of ops; `ends` are the operands of its terminator."""

    __slots__ = ("arguments", "ends", "ops")

    def __init__(self, block: Any, values: dict[Any, Value]):
        self.arguments = [_define(v, values) for v in block.arguments]
        *ops, last = (op.operation for op in block.operations)
        self.ops = [Op(op, values) for op in ops]
        assert last.name in ("scf.yield", "scf.condition", "gpu.return"), last.name
        self.ends = [values[v] for v in last.operands]


def _define(value: Any, values: dict[Any, Value]) -> Value:
    of = value.type
    alike = values.get(of)  # the first value of each type stands at the type, too
    if alike is None:
        values[of] = values[value] = Value(of)
    else:
        values[value] = alike.another()
    return values[value]


@dataclass(frozen=True)
class Kernel:
    """A kernel; `shared` is in bytes, `cluster` how many blocks run together."""

    threads: int
    shared: int
    body: Body
    cluster: int = 1

    @classmethod
    def of(cls, function: Any) -> Kernel:
        """Decode a `gpu.func`."""
        attributes = Attributes(function.attributes)
        body = Body(function.regions[0].blocks[0], {})
        clustered = "nvvm.cluster_dim" in function.attributes
        cluster = attributes["nvvm.cluster_dim"][0] if clustered else 1
        return cls(attributes["known_block_size"][0], attributes["neptune.shared"], body, cluster)
