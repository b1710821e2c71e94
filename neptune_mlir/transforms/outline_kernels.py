# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `outline-kernels`: every `scf.forall` becomes a kernel, the host function a launch plan.

Runs on bufferized tile IR. A kernel is a function of the arrays and scalars that the forall
captured, the grid extents, a shared counter and this worker's scratch memory. Any number of
workers call it at once: each takes the next program of the grid from the counter until none is
left. The counter runs down, because in a triangular grid the last programs are the long ones.

A grid of one program may have been folded into the host function by then (canonicalize does
that): what computes there becomes a kernel of one program.

The plan (`neptune_mlir/runtime/plan.py`) is left as JSON in the module's `neptune.plan`.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.bindings import arith, func, ir, location_text, memref, scf
from neptune_mlir.errors import LoweringError
from neptune_mlir.runtime.plan import Argument, Buffer, Launch, Plan
from neptune_mlir.transforms.registry import register


@register("outline-kernels", "turn each scf.forall into a kernel and the host code into a plan")
def outline_kernels(module: Any, *, entry: str = "") -> None:
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    chosen = [f for f in functions if not entry or f.name.value == entry]
    if len(chosen) != 1:
        names = ", ".join(f.name.value for f in functions)
        raise LoweringError(f"no single function '{entry}' to compile", hint=f"there are: {names}")
    host = _Host(chosen[0])
    plan = host.plan(module)
    for function in functions:
        function.operation.erase()
    module.operation.attributes["neptune.plan"] = ir.StringAttr.get(plan.to_json())


# another shape of the same elements: a view, or a copy of an argument with odd strides
_RESHAPES = ("memref.expand_shape", "memref.collapse_shape")


class _Host:
    """Reads the host function op by op into a plan."""

    def __init__(self, function: Any):
        self.function = function
        self.expressions: dict[Any, Any] = {}  # scalar value -> expression
        self.arrays: dict[Any, Any] = {}  # memref value -> ["argument"|"buffer", k]
        self.shapes: dict[Any, list[Any]] = {}  # same keys -> extents as expressions
        self.constants: dict[Any, Any] = {}  # scalar value -> the op that makes it
        self.group: list[Any] = []  # ops of the host that compute, not outlined yet
        self.buffers: list[Buffer] = []
        self.launches: list[Launch] = []
        self.results: tuple[Any, ...] = ()

    def plan(self, module: Any) -> Plan:
        block = self.function.regions[0].blocks[0]
        arguments = []
        for k, value in enumerate(block.arguments):
            if isinstance(value.type, ir.MemRefType):
                shape = [
                    None if value.type.is_dynamic_dim(d) else value.type.shape[d]
                    for d in range(value.type.rank)
                ]
                arguments.append(
                    Argument("tensor", str(value.type.element_type), tuple(shape), f"argument {k}")
                )
                self.arrays[value] = ["argument", k]
                self.shapes[value] = [
                    ["dim", k, d] if n is None else n for d, n in enumerate(shape)
                ]
            else:
                arguments.append(Argument("scalar", str(value.type), (), f"argument {k}"))
                self.expressions[value] = ["argument", k]
        for op in block.operations:
            self._op(op, module)
        return Plan(
            self.function.name.value, tuple(arguments), self._equalities(), tuple(self.buffers),
            tuple(self.launches), self.results,
        )  # fmt: skip

    def _equalities(self) -> tuple[tuple[Any, Any], ...]:
        """What `equal-extents` found: groups of argument, dimension and factor."""
        attributes = self.function.attributes
        if "neptune.equal_dims" not in attributes:
            return ()
        pairs = []
        for group in attributes["neptune.equal_dims"]:
            flat = [int(x) for x in group]
            terms = [
                ["dim", a, d] if factor == 1 else ["mul", ["dim", a, d], factor]
                for a, d, factor in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            ]
            pairs += [(terms[0], other) for other in terms[1:]]
        return tuple(pairs)

    def _op(self, op: Any, module: Any) -> None:
        name = op.operation.name
        if name == "func.return":
            self._flush(module)
            self.results = tuple(self._array(value) for value in op.operands)
        elif name == "scf.forall":
            self._flush(module)
            self._launch(op, module)
        elif name in ("memref.alloc", "memref.dealloc", *_RESHAPES):
            pass  # an array is made when something needs it; the runtime frees it
        elif name == "memref.dim":
            self._array(op.operands[0])
            dimension = self.expressions[op.operands[1]]
            self.expressions[op.results[0]] = self.shapes[op.operands[0]][dimension]
        elif name.startswith(("linalg.", "memref.", "scf.")) and name != "memref.cast":
            self.group.append(op.operation)
        elif name != "memref.cast":
            if all(v in self.expressions for v in op.operands):
                self._scalar(op, name)
            else:
                self.group.append(op.operation)

    def _reshaped(self, op: Any) -> list[Any]:
        """The shape that an expand_shape or a collapse_shape gives a new array."""
        if op.name == "memref.expand_shape":
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

    def _array(self, value: Any) -> Any:
        """The reference of the plan for an array of the host."""
        if value not in self.arrays:
            op = value.owner.operation
            if op.name == "memref.cast":
                self.arrays[value] = self._array(op.operands[0])
                self.shapes[value] = self.shapes[op.operands[0]]
            elif op.name == "memref.alloc":
                kind, sizes = value.type, iter(op.operands)
                shape = [
                    self.expressions[next(sizes)] if kind.is_dynamic_dim(d) else kind.shape[d]
                    for d in range(kind.rank)
                ]
                self.arrays[value] = ["buffer", len(self.buffers)]
                self.shapes[value] = shape
                self.buffers.append(Buffer(str(kind.element_type), tuple(shape)))
            elif op.name in _RESHAPES:
                source = self._array(op.operands[0])
                shape = self._reshaped(op)
                self.arrays[value] = ["buffer", len(self.buffers)]
                self.shapes[value] = shape
                self.buffers.append(Buffer(str(value.type.element_type), tuple(shape), source))
            else:
                raise LoweringError(
                    f"'{op.name}' outside of any kernel makes an array that is not a new one",
                    loc=location_text(op.location),
                )
        return self.arrays[value]

    def _flush(self, module: Any) -> None:
        """Outline the pending ops of the host as a kernel of one program."""
        ops, self.group = self.group, []
        if not ops:
            return
        inside = {inner for op in ops for inner in [op, *_nested_in(op)]}
        for value in _captured(ops):
            op = None if isinstance(value, ir.BlockArgument) else value.owner.operation
            if op is not None and op.name == "memref.alloc" and value not in self.arrays:
                users = {use.owner.operation for use in value.uses}
                if value.type.has_static_shape and users <= inside:
                    op.move_before(ops[0])
                    ops.insert(0, op)  # a tile of this kernel
        # not a name that a forall may carry
        name = f"{self.function.name.value}_host_{len(self.launches)}"
        self._outline(module, name, ops, [], [], [], [], ops[0].location)

    def _scalar(self, op: Any, name: str) -> None:
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
            outcomes = [_affine(e, table[:split], table[split:]) for e in attribute.value.results]
            whole = outcomes[0]
            for other in outcomes[1:]:
                whole = [name.removeprefix("affine."), whole, other]
            self.expressions[op.results[0]] = whole
            return
        head = _SCALAR_OPS.get(name)
        if name in ("arith.cmpi", "arith.cmpf"):
            head = _COMPARISONS.get((name, int(ir.IntegerAttr(op.attributes["predicate"]).value)))
        if head is None:
            raise LoweringError(
                f"'{name}' outside of any kernel: the host may only size and launch",
                loc=location_text(op.location),
            )
        operands = [self.expressions[v] for v in op.operands]
        if isinstance(head, tuple):  # ("swap", operator)
            head, operands = head[1], operands[::-1]
        self.expressions[op.results[0]] = [head, *operands] if head else operands[0]

    def _launch(self, forall: Any, module: Any) -> None:
        attributes = forall.operation.attributes
        name = f"{self.function.name.value}_{len(self.launches)}"
        if "neptune.kernel" in attributes:
            name = ir.StringAttr(attributes["neptune.kernel"]).value
        body = forall.regions[0].blocks[0]
        ops = [op.operation for op in list(body.operations)[:-1]]
        lows, highs, steps = _bounds(forall)
        ivs = list(body.arguments)[: len(highs)]
        self._outline(module, name, ops, ivs, lows, highs, steps, forall.location)

    def _outline(
        self, module: Any, name: str, ops: list[Any], ivs: list[Any], lows: list[Any],
        highs: list[Any], steps: list[Any], location: Any,
    ) -> None:  # fmt: skip
        """Move `ops` into a kernel that runs them for each point of a grid, and launch it."""

        def term(bound: Any) -> Any:
            return bound if isinstance(bound, int) else self.expressions[bound]

        grid = tuple(
            _fold("ceildiv", _fold("sub", term(h), term(low)), term(s))
            for low, h, s in zip(lows, highs, steps, strict=True)
        )
        captured = [v for v in _captured(ops) if v not in ivs]
        arrays = [v for v in captured if isinstance(v.type, ir.MemRefType)]
        operands = [self._array(v) for v in arrays]
        scalars = [v for v in captured if v not in arrays and v not in self.constants]
        for bound in [*lows, *steps]:  # the kernel turns grid positions into loop variables
            if not isinstance(bound, int) and bound not in scalars:
                scalars.append(bound)
        operands += [["value", str(v.type), self.expressions[v]] for v in scalars]

        index, rank = ir.IndexType.get(), len(grid)
        counter = ir.MemRefType.get([1], ir.IntegerType.get_signless(64))
        byte = ir.IntegerType.get_signless(8)
        scratch = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], byte)
        kinds = [v.type for v in [*arrays, *scalars]] + [index] * rank + [counter, scratch]
        with ir.InsertionPoint(module.body), location:
            kernel = func.FuncOp(name, (kinds, []))
            kernel.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
            kernel.attributes["neptune.grid_kernel"] = ir.UnitAttr.get()
            entry = kernel.add_entry_block()
        inside = dict(zip([*arrays, *scalars], entry.arguments, strict=False))
        extents = list(entry.arguments)[len(inside) : len(inside) + rank]
        with ir.InsertionPoint(entry), location:
            for value in captured:
                if value in self.constants:
                    inside[value] = self.constants[value].clone().results[0]
            position, loop_body = _take_programs(entry.arguments[len(kinds) - 2], extents)
            with ir.InsertionPoint(loop_body):
                ids: list[Any] = []
                for extent in reversed(extents):  # the last dimension runs fastest
                    ids.insert(0, arith.remui(position, extent))
                    position = arith.divui(position, extent)
                for k, iv in enumerate(ids):
                    if (lows[k], steps[k]) != (0, 1):
                        scaled = arith.muli(iv, _index_value(steps[k], inside))
                        iv = arith.addi(scaled, _index_value(lows[k], inside))
                    ivs[k].replace_all_uses_with(iv)
                end = scf.YieldOp([])
            func.ReturnOp([])
        for op in ops:
            op.move_before(end.operation)
        for op in _nested(loop_body):
            for k, operand in enumerate(op.operands):
                if operand in inside:
                    op.operands[k] = inside[operand]
        self.launches.append(Launch(name, grid, tuple(operands)))


def _take_programs(counter: Any, extents: list[Any]) -> tuple[Any, Any]:
    """`while ((i = counter++) < programs)`: the program's number (from the top), the body."""
    index, i64 = ir.IndexType.get(), ir.IntegerType.get_signless(64)
    one = arith.constant(i64, 1)
    first, next_ = arith.constant(index, 0), arith.constant(index, 1)
    total = next_
    for extent in extents:
        total = arith.muli(total, extent)
    loop = scf.WhileOp([index], [])
    before = loop.regions[0].blocks.append()
    after = loop.regions[1].blocks.append(index)
    with ir.InsertionPoint(before):
        taken = memref.AtomicRMWOp(arith.AtomicRMWKind.addi, one, counter, [first]).result
        here = arith.index_cast(index, taken)
        scf.ConditionOp(arith.cmpi(arith.CmpIPredicate.slt, here, total), [here])
    with ir.InsertionPoint(after):
        program = arith.subi(arith.subi(total, next_), after.arguments[0])
    return program, after


def _index_value(bound: Any, inside: dict[Any, Any]) -> Any:
    return arith.constant(ir.IndexType.get(), bound) if isinstance(bound, int) else inside[bound]


def _bounds(forall: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Lower bounds, upper bounds and steps, each a Python int or a value."""
    attributes, operands = forall.operation.attributes, list(forall.operation.operands)
    bounds = []
    for name in ("staticLowerBound", "staticUpperBound", "staticStep"):
        static = [int(x) for x in ir.DenseI64ArrayAttr(attributes[name])]
        dynamic = ir.ShapedType.get_dynamic_size()
        bounds.append([operands.pop(0) if x == dynamic else x for x in static])
    return bounds[0], bounds[1], bounds[2]


def _nested(block: Any) -> list[Any]:
    found = []
    for op in block.operations:
        found.append(op.operation)
        found += _nested_in(op.operation)
    return found


def _nested_in(op: Any) -> list[Any]:
    return [inner for region in op.regions for block in region.blocks for inner in _nested(block)]


def _captured(ops: list[Any]) -> list[Any]:
    """Values used by the ops (or inside them) and made elsewhere, in order of first use."""
    own: set[Any] = set()
    used: dict[Any, None] = {}
    for op in [inner for outer in ops for inner in [outer, *_nested_in(outer)]]:
        used.update(dict.fromkeys(op.operands))
        own.update(op.results)
        for region in op.regions:
            for block in region.blocks:
                own.update(block.arguments)
    return [value for value in used if value not in own]


def _fold(head: str, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a - b if head == "sub" else -(-a // b)
    if (head, b) in (("sub", 0), ("ceildiv", 1)):
        return a
    return [head, a, b]


def _affine(expression: Any, dims: list[Any], symbols: list[Any]) -> Any:
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
            left = _affine(expression.lhs, dims, symbols)
            return [head, left, _affine(expression.rhs, dims, symbols)]
    raise AssertionError(f"an affine expression of no known kind: {expression}")


# "" stands for the identity; ("swap", x) for x with its operands exchanged
_SCALAR_OPS: dict[str, Any] = {
    "arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.ceildivsi": "ceildiv",
    "arith.ceildivui": "ceildiv", "arith.floordivsi": "floordiv", "arith.divui": "floordiv",
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
