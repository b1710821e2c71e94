# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the host function of tile IR computes, as expressions of a launch plan.

Shared by `outline-kernels` (CPU, buffers) and `distribute_host` (GPUs, tensors): the function's
arguments, its scalar code, and what a kernel takes from outside of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neptune_mlir.dialects.attributes import EQUAL_DIMS, KERNEL, OF_MASK, STORED, UNSIGNED
from neptune_mlir.dialects.constants import constants_of
from neptune_mlir.dialects.op_names import MULTIPROCESSORS
from neptune_mlir.dialects.regions import operations_named
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, location_text
from neptune_mlir.ir.values import defining_op
from neptune_mlir.runtime.plan import NUMBERS, Argument, Buffer, Constant, Launch, Plan


def entry_function(module: Any, entry: str) -> Any:
    """The function to compile: the one called `entry`, or the only one. Raises LoweringError."""
    declared = {op.name.value: op for op in module.body.operations
                if op.operation.name == "func.func"}  # fmt: skip
    functions = {name: op for name, op in declared.items() if len(op.regions[0].blocks)}
    chosen = [f for name, f in functions.items() if not entry or name == entry]
    if len(chosen) != 1:
        names = ", ".join(functions)
        raise LoweringError(f"no single function '{entry}' to compile", hint=f"there are: {names}")
    for call in operations_named(chosen[0].operation, "func.call"):
        callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        if callee in declared and callee not in functions:
            raise LoweringError(
                f"'{callee}' is declared, and nothing says what it is",
                loc=location_text(call.location),
                hint="define it in the program, or install the package that adds it",
            )
    return chosen[0]


class _Expressions(dict[Any, Any]):
    """Scalar value -> expression of the plan."""

    def __missing__(self, value: Any) -> Any:
        op = value.owner.operation
        raise LoweringError(
            f"'{op.name}' outside of any kernel makes a number that the host has to know: it knows "
            "only shapes and scalar arguments",
            loc=location_text(op.location),
            hint="keep it in a tensor, or pass it as an argument",
        )


class HostReader:
    """Tables that grow while a host function is read op by op."""

    def __init__(self, function: Any):
        self.function = function
        self.expressions = _Expressions()
        self.constants: dict[Any, Any] = {}  # scalar value -> the op that makes it
        self.arrays: dict[Any, Any] = {}  # array value -> ["argument"|"constant"|"buffer", k]
        self.shapes: dict[Any, list[Any]] = {}  # same keys -> extents as expressions
        self.arguments: list[Argument] = []
        self.constants_held: list[Constant] = []
        self.buffers: list[Buffer] = []
        self.launches: list[Launch] = []
        self.asserted: list[list[Any]] = []  # expressions that a call must make equal
        self.results: tuple[Any, ...] = ()
        given = list(function.regions[0].blocks[0].arguments)
        held = constants_of(function)
        self._given = len(given) - len(held)
        for k, value in enumerate(given[: self._given]):
            self._argument(k, value)
        for value, digest in held.items():
            self._constant(value, digest)

    def _argument(self, k: int, value: Any) -> None:
        kind, name = value.type, _name(value.location) or f"argument {k}"
        if not isinstance(kind, (ir.RankedTensorType, ir.MemRefType)):
            self.arguments.append(Argument("scalar", str(kind), (), name))
            self.expressions[value] = ["argument", k]
            return
        shape = [None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)]
        stored = STORED.find(self.function.operation, ())
        dtype = (stored and stored[k]) or str(kind.element_type)
        self.arguments.append(Argument("tensor", dtype, tuple(shape), name))
        self.arrays[value] = ["argument", k]
        self.shapes[value] = [["dim", k, d] if n is None else n for d, n in enumerate(shape)]

    def _constant(self, value: Any, digest: str) -> None:
        if next(iter(value.uses), None) is None:
            return  # nothing needs it any more
        kind, shape = value.type, list(value.type.shape)
        self.arrays[value] = ["constant", len(self.constants_held)]
        self.shapes[value] = shape
        self.constants_held.append(
            Constant(str(kind.element_type), tuple(shape), digest, _name(value.location))
        )

    def kernel_name(self, forall: Any) -> str:
        """The name that a forall carries; where a pass lost it, one that no other carries."""
        given = _given_name(forall)
        others = {_given_name(op) for op in self.function.regions[0].blocks[0].operations}
        others |= {launch.kernel for launch in self.launches}
        names = (f"{self.function.name.value}_{k}" for k in itertools.count(len(self.launches)))
        return given or next(name for name in names if name not in others)

    def passed(
        self, scalars: Sequence[Any], kernel: Any, types: Sequence[str] = NUMBERS
    ) -> list[Any]:
        """Numbers as operands of a kernel's launch. Raises LoweringError for what no call passes.

        Args:
            kernel: the op that takes them.
            types: that the target's calls pass.
        """
        for value in scalars:
            kind, made = str(value.type), defining_op(value)
            if kind in types:
                continue
            given = "" if made else f"'{self.arguments[value.arg_number].name}': "
            raise LoweringError(
                f"{given}numbers of type {kind} cannot be passed to a kernel",
                loc=location_text(made.location if made else kernel.location),
                hint=f"give it as f32 and cast it where it is used, or as a tensor<1x{kind}>",
            )
        return [["value", str(v.type), self.expressions[v]] for v in scalars]

    def launch(self, name: str, grid: Sequence[Any], operands: Sequence[Any], kernel: Any) -> None:
        """Add the launch of a kernel, which was this op of the host function."""
        of_mask = OF_MASK.on(kernel.operation)
        self.launches.append(Launch(name, tuple(grid), tuple(operands), of_mask))

    def plan(self) -> Plan:
        """What has been read, as a plan."""
        return Plan(
            self.function.name.value, tuple(self.arguments),
            (*self._equalities(), *((a, b) for a, b in self.asserted)),
            self._seen_buffers(), tuple(self.launches), self.results,
            constants=tuple(self.constants_held),
        )  # fmt: skip

    def _seen_buffers(self) -> tuple[Buffer, ...]:
        """The arrays of a call: where all results in one are unsigned, or bytes that stand for
        floats, it is for the caller."""
        unsigned = UNSIGNED.find(self.function.operation, ())
        stored = STORED.find(self.function.operation, ())[-len(self.results) :]
        seen: dict[tuple[Any, ...], set[str]] = {}
        for k, result in enumerate(self.results):
            kind = (stored and stored[k]) or ("u" if k in unsigned else "")
            seen.setdefault(tuple(result), set()).add(kind)
        kinds = {place: min(found) for place, found in seen.items() if len(found) == 1}

        def typed(buffer: Buffer, kind: str) -> Buffer:
            return replace(buffer, dtype=f"u{buffer.dtype}" if kind == "u" else kind)

        return tuple(
            typed(buffer, kind) if (kind := kinds.get(("buffer", k))) else buffer
            for k, buffer in enumerate(self.buffers)
        )

    def _equalities(self) -> tuple[tuple[Any, Any], ...]:
        """What `equal-extents` found: groups of argument, dimension and factor."""
        pairs = []
        for flat in EQUAL_DIMS.find(self.function.operation, ()):
            terms = [
                fold("mul", self._extent(a, d), factor)
                for a, d, factor in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            ]
            pairs += [(terms[0], other) for other in terms[1:]]
        return tuple(pairs)

    def _extent(self, argument: int, dimension: int) -> Any:
        if argument < self._given:
            return ["dim", argument, dimension]
        value = self.function.regions[0].blocks[0].arguments[argument]
        return value.type.shape[dimension]

    def reshaped(self, op: Any) -> list[Any]:
        """The shape that an expand_shape or a collapse_shape gives a new array."""
        if op.name.endswith(".expand_shape"):
            sizes = iter(op.operands[1:])
            static = ir.DenseI64ArrayAttr(op.attributes["static_output_shape"])
            dynamic = ir.ShapedType.get_dynamic_size()
            return [self.expressions[next(sizes)] if n == dynamic else n for n in static]
        before = self.shapes[op.operands[0]]
        shape = []
        for group in op.attributes["reassociation"]:
            extent: Any = 1
            for dimension in group:
                factor = before[dimension.value]
                whole = isinstance(extent, int) and isinstance(factor, int)
                extent = extent * factor if whole else ["mul", extent, factor]
            shape.append(extent)
        return shape

    def _asserted(self, op: Any) -> None:
        """What the program asserts of its extents, each call checks."""
        holds = self.expressions[op.operands[0]]
        if isinstance(holds, list):
            pair = holds[1:] if holds[0] == "eq" else [holds, 1]
            if pair not in self.asserted:
                self.asserted.append(pair)
        elif not holds:
            raise LoweringError(
                f"the program asserts what never holds: {op.attributes['msg'].value}",
                loc=location_text(op.location),
                hint="change the shapes, or what is done with them, so that it holds",
            )

    def scalar(self, op: Any, name: str) -> None:
        """Read an op on numbers. Raises LoweringError for anything else."""
        if name == "arith.constant":
            value = op.attributes["value"]
            if isinstance(value, (ir.IntegerAttr, ir.FloatAttr, ir.BoolAttr)):
                self.expressions[op.results[0]] = value.value
                self.constants[op.results[0]] = op.operation
                return
        if name in ("affine.apply", "affine.min", "affine.max"):
            attribute = op.attributes["map"]
            table = [self.expressions[v] for v in op.operands]
            split = attribute.value.n_dims
            outcomes = [
                affine_expression(e, table[:split], table[split:]) for e in attribute.value.results
            ]
            whole = outcomes[0]
            for other in outcomes[1:]:
                whole = [name.removeprefix("affine."), whole, other]
            self.expressions[op.results[0]] = whole
            return
        if name == MULTIPROCESSORS:
            self.expressions[op.results[0]] = ["multiprocessors"]
            return
        if name == "cf.assert":
            self._asserted(op)
            return
        head = _SCALAR_OPS.get(name)
        if name in ("arith.cmpi", "arith.cmpf"):
            head = _COMPARISONS.get((name, int(ir.IntegerAttr(op.attributes["predicate"]).value)))
        if head is None:
            raise LoweringError(
                f"'{name}' outside of any kernel: the host may only size and launch",
                loc=location_text(op.location),
                hint=_LOOPS
                if name.startswith("scf.")
                else "compute it on tensors, or pass it as an argument",
            )
        operands = [self.expressions[v] for v in op.operands]
        if isinstance(head, tuple):  # ("swap", operator)
            head, operands = head[1], operands[::-1]
        self.expressions[op.results[0]] = [head, *operands] if head else operands[0]


def _given_name(op: Any) -> str:
    return KERNEL.find(op.operation, "")


def _name(location: Any) -> str:
    """What a program in index notation calls an argument: it is the argument's location."""
    return str(location.name_str) if isinstance(location, ir.NameLoc) else ""


def grid_bounds(forall: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Lower bounds, upper bounds and steps, each a Python int or a value."""
    attributes, operands = forall.operation.attributes, list(forall.operation.operands)
    bounds = []
    for name in ("staticLowerBound", "staticUpperBound", "staticStep"):
        static = [int(x) for x in ir.DenseI64ArrayAttr(attributes[name])]
        dynamic = ir.ShapedType.get_dynamic_size()
        bounds.append([operands.pop(0) if x == dynamic else x for x in static])
    return bounds[0], bounds[1], bounds[2]


def nested(block: Any) -> list[Any]:
    """Every op of a block and of the regions in it."""
    found = []
    for op in block.operations:
        found.append(op.operation)
        found += nested_in(op.operation)
    return found


def nested_in(op: Any) -> list[Any]:
    return [inner for region in op.regions for block in region.blocks for inner in nested(block)]


def captured(ops: list[Any]) -> list[Any]:
    """Values used by the ops (or inside them) and made elsewhere, in order of first use."""
    own: set[Any] = set()
    used: dict[Any, None] = {}
    for op in [inner for outer in ops for inner in [outer, *nested_in(outer)]]:
        used.update(dict.fromkeys(op.operands))
        own.update(op.results)
        for region in op.regions:
            for block in region.blocks:
                own.update(block.arguments)
    return [value for value in used if value not in own]


def fold(head: str, a: Any, b: Any) -> Any:
    """`a - b` ("sub"), `a * b` ("mul") or `ceil(a / b)` ("ceildiv") as an expression."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b) if head == "ceildiv" else a - b if head == "sub" else a * b
    if (head, b) in (("sub", 0), ("mul", 1), ("ceildiv", 1)):
        return a
    return [head, a, b]


def affine_expression(expression: Any, dims: list[Any], symbols: list[Any]) -> Any:
    """An affine expression of MLIR over expressions of the plan."""
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    for kind, head in (
        (ir.AffineAddExpr, "add"), (ir.AffineMulExpr, "mul"), (ir.AffineModExpr, "mod"),
        (ir.AffineFloorDivExpr, "floordiv"), (ir.AffineCeilDivExpr, "ceildiv"),
    ):  # fmt: skip
        if isinstance(expression, kind):
            left = affine_expression(expression.lhs, dims, symbols)
            return [head, left, affine_expression(expression.rhs, dims, symbols)]
    raise AssertionError(f"an affine expression of no known kind: {expression}")


# "" stands for the identity; ("swap", x) for x with its operands exchanged
_LOOPS = ("loops in order (a scatter, a long recurrence) run on the CPU alone: compile for cpu, or "
          "leave it out")  # fmt: skip
_SCALAR_OPS: dict[str, Any] = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.ceildivsi": "ceildiv",
    "arith.ceildivui": "ceildiv", "arith.floordivsi": "floordiv", "arith.divui": "floordiv",
    "arith.divsi": "quotient", "arith.remsi": "remainder",
    "arith.remui": "mod", "arith.minsi": "min", "arith.maxsi": "max", "arith.minui": "min",
    "arith.maxui": "max", "arith.select": "select", "arith.index_cast": "",
    "arith.index_castui": "", "arith.extsi": "", "arith.extui": "", "arith.trunci": "",
    "arith.addf": "add", "arith.subf": "sub", "arith.mulf": "mul", "arith.divf": "div",
    "arith.negf": "neg", "arith.extf": "", "arith.truncf": "", "arith.sitofp": "float",
    "arith.uitofp": "float", "arith.fptosi": "int", "arith.andi": "and", "arith.ori": "or",
    "math.exp": "exp", "math.log": "log", "math.sqrt": "sqrt",
}  # fmt: skip

# MLIR numbers its predicates; unsigned ones compare sizes, which are not negative
_COMPARISONS: dict[tuple[str, int], Any] = {
    ("arith.cmpi", 0): "eq", ("arith.cmpi", 1): "ne",
    ("arith.cmpi", 2): "lt", ("arith.cmpi", 3): "le",
    ("arith.cmpi", 4): ("swap", "lt"), ("arith.cmpi", 5): ("swap", "le"),
    ("arith.cmpi", 6): "lt", ("arith.cmpi", 7): "le",
    ("arith.cmpi", 8): ("swap", "lt"), ("arith.cmpi", 9): ("swap", "le"),
    ("arith.cmpf", 1): "eq", ("arith.cmpf", 2): ("swap", "lt"),
    ("arith.cmpf", 3): ("swap", "le"), ("arith.cmpf", 4): "lt", ("arith.cmpf", 5): "le",
}  # fmt: skip
