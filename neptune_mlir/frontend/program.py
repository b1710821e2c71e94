# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The objects of index notation: axes, tensors, and the program that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neptune_mlir.algebra import combiners
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.access import AccessIndex, position_of
from neptune_mlir.algebra.terms import FLOAT8, Term
from neptune_mlir.analysis.masks import linear
from neptune_mlir.errors import did_you_mean
from neptune_mlir.frontend.expr import Expr, caller_location, computing, convert, input_error, plain

DTYPES = ("f16", "bf16", "f32", "f64", FLOAT8, "i1", "i8", "i32", "i64", "index")


class Axis(Expr):
    """A loop of the program. In arithmetic it is the position along it (an integer).

    `made_of`: the extent as a term over sizes of other axes, of an axis that is given so.
    """

    __slots__ = ("made_of", "name", "number", "static")

    def __init__(
        self, program: Program, number: int, name: str, static: int | None,
        made_of: Term | None = None,
    ):  # fmt: skip
        super().__init__(T.index(number), program)
        self.number = number
        self.name = name
        self.static = static
        self.made_of = made_of

    @property
    def extent_term(self) -> Term:
        """The extent over the sizes that are known at run time only."""
        return self.size.term if self.made_of is None else self.made_of

    @property
    def size(self) -> Expr:
        """The extent, as an integer expression (known at run time if not before)."""
        if self.static is not None:
            return Expr(T.const(self.static, "index"), self.program)
        return Expr(T.sym(f"size:{self.name}", "index"), self.program)


@dataclass(frozen=True, eq=False)
class Tensor:
    """An input. `t[b, h // 4, j]` is its element there. The position along a dimension is an axis,
    an axis divided by a constant or its remainder, a number, an element of a tensor of integers
    (a lookup), or a sum of one of each: `k[table[b, j // 16], j % 16, h // 4, d]`,
    `k[start[b] + j, h, d]`.

    An axis other than the dimension's own has to fit it. Where both extents are known this
    is checked here, else when the kernel is called. A lookup that leaves the tensor reads some
    element of it.
    """

    name: str
    shape: tuple[Axis, ...]
    dtype: str
    program: Program

    def __getitem__(self, position: Any) -> Expr:
        position = position if isinstance(position, tuple) else (position,)
        if len(position) != len(self.shape):
            raise input_error(
                f"'{self.name}' has {len(self.shape)} dimensions "
                f"({', '.join(a.name for a in self.shape)}), the access gives {len(position)}"
            )
        idx = [self._index(n, x) for n, x in enumerate(position)]
        return Expr(T.read(self.name, *idx, dtype=self.dtype), self.program)

    def _index(self, dim: int, x: Any) -> Term:
        x = plain(x)
        if isinstance(x, int) and not isinstance(x, bool):
            x = self.program.constant(x, "index")
        position = position_of(x.term) if isinstance(x, Expr) else None
        if position is None:
            raise input_error(
                f"'{self.name}' is indexed by {x!r}",
                "index with an axis, an axis // or % a positive constant, a number, an element "
                "of an integer tensor, or a sum of one of each",
            )
        self.program.own(x)
        axis = None if position.axis is None else self.program.axis_list[position.axis]
        extent, last = self.shape[dim].static, position.last(None if axis is None else axis.static)
        if x.term.is_const and extent is None:
            raise input_error(
                f"'{self.name}' is indexed by {x!r} in a dimension of unknown size",
                f"give axis '{self.shape[dim].name}' a size",
            )
        if extent is not None and last is not None and not 0 <= last < extent:
            raise input_error(
                f"'{self.name}' is indexed by {x!r}, which reaches {last}: "
                f"dimension {dim} has size {extent}"
            )
        if position.constant and last is None and position.lookup is None:
            self._stays_inside(dim, x, position, axis)
        return position.term()

    def _stays_inside(self, dim: int, x: Expr, position: AccessIndex, axis: Axis | None) -> None:
        """Refuses an axis plus a number where the sizes do not say that it fits."""
        assert axis is not None
        left = T.make("sub", self.shape[dim].extent_term, axis.extent_term)
        form = None if position.is_digit or position.constant < 0 else linear(left)
        if form is None or form.atoms or form.constant < position.constant:
            raise input_error(
                f"'{self.name}' is indexed by {x!r}, which is not known to stay inside",
                f"give axis '{self.shape[dim].name}' a size made of that of '{axis.name}'",
            )


@dataclass(frozen=True)
class ReductionStep:
    """A reduction of the program: its key, combiner, body, and the axes that it removes."""

    key: str
    combiner: str
    body: Term
    kept: tuple[int, ...]
    removed: tuple[int, ...]
    place: tuple[str, int]


@dataclass(frozen=True)
class Output:
    """A result: its value over `axes`, and what gradients call it."""

    term: Term
    axes: tuple[int, ...]
    place: tuple[str, int]
    name: str


class Program:
    """A function under construction: axes, inputs, outputs; `module()` gives its MLIR.

    Attributes:
        notes: how the program was derived from another one, for `explain`.
        in_two: inputs that calls may give as two arrays, one behind the other along a dimension
            (`runtime.shards.in_two`), on chips where kernels can take them so.
        meets: inputs by which its programs trade parts with those of another device
            (`codegen.gpu.meeting`), on chips where they can: scalars, then the parts, in pairs.
        followed: whether such a program comes behind it.

    Raises:
        InputError: wherever a definition is wrong, with the line of Python that makes it.
    """

    def __init__(self, name: str):
        _identifier(name, "program")
        self.name = name
        self.axis_list: list[Axis] = []
        self.inputs: dict[str, Tensor | str] = {}  # a scalar is its dtype
        self.steps: list[ReductionStep] = []
        self.outputs: list[Output] = []
        self.notes: list[str] = []
        self.in_two: dict[str, int] = {}
        self.meets: tuple[str, ...] = ()
        self.followed = False
        self._step_of: dict[tuple[Any, ...], str] = {}

    def axis(self, name: str, size: int | str | Expr | None = None) -> Axis:
        """A new axis; `size` None or "?" means known at run time. The size may be made of others:
        `p.axis("j", pages.size * 16)`."""
        _identifier(name, "axis")
        made_of: Term | None = None
        if isinstance(size, Expr):
            made_of, size = self._size_term(name, size), None
        size = None if size == "?" else plain(size)
        if size is not None and (not isinstance(size, int) or isinstance(size, bool)):
            raise input_error(f"axis '{name}' has size {size!r}", "an int, or None at run time")
        if any(a.name == name for a in self.axis_list):
            raise input_error(f"the program already has an axis '{name}'")
        if size is not None and size < 0:
            raise input_error(f"axis '{name}' has size {size}", "sizes are 0 or more")
        if made_of is not None and made_of.is_const:
            size, made_of = int(made_of.value), None
        found = Axis(self, len(self.axis_list), name, size, made_of)
        self.axis_list.append(found)
        return found

    def _size_term(self, name: str, size: Expr) -> Term:
        self.own(size)
        known = {f"size:{a.name}" for a in self.axis_list}
        leaves = [n for n in T.walk(size.term) if n.is_leaf and not n.is_const]
        if T.is_float(size.dtype) or any(n.op != "sym" or n.attr not in known for n in leaves):
            raise input_error(
                f"axis '{name}' has the size {size!r}", "make it of sizes of axes and numbers"
            )
        return T.make("cast", size.term, dtype="index")

    def axes(self, names: str, **sizes: int | str | None) -> list[Axis]:
        """Several axes: `p.axes("b h i", h=8)`; sizes not given are known at run time."""
        split = names.split()
        for name in sizes:
            if name not in split:
                raise input_error(f"a size is given for '{name}', which is not in '{names}'")
        return [self.axis(n, sizes.get(n)) for n in split]

    def input(self, name: str, *axes: Axis, dtype: str = "f32") -> Tensor:
        """A tensor argument whose dimensions run along `axes`."""
        self._new_input(name, dtype)
        for a in axes:
            if not isinstance(a, Axis):
                raise input_error(f"dimension {a!r} of '{name}' is not an axis")
            self.own(a)
        tensor = Tensor(name, axes, dtype, self)
        self.inputs[name] = tensor
        return tensor

    def scalar(self, name: str, dtype: str = "f32") -> Expr:
        """A scalar argument: a value known at run time (a window size, a temperature)."""
        self._new_input(name, dtype)
        self.inputs[name] = dtype
        return Expr(T.sym(name, dtype), self)

    def copy(self, name: str) -> Program:
        """A program with the same axes, inputs and reductions, and no outputs yet."""
        made = Program(name)
        for axis in self.axis_list:
            made.axis(axis.name, axis.static).made_of = axis.made_of
        for key, argument in self.inputs.items():
            if isinstance(argument, str):
                made.scalar(key, argument)
            else:
                shape = (made.axis_list[a.number] for a in argument.shape)
                made.input(key, *shape, dtype=argument.dtype)
        made.steps = list(self.steps)
        made._step_of = dict(self._step_of)
        return made

    def dimension_of(self, axis: Axis) -> tuple[str, int] | None:
        """The input and its dimension that an axis runs over: its own, else one that it indexes."""
        for name, argument in self.inputs.items():
            for dim, own in enumerate(argument.shape if isinstance(argument, Tensor) else ()):
                if own is axis:
                    return name, dim
        bodies = [s.body for s in self.steps]
        for term in (*bodies, *(o.term for o in self.outputs)):
            for read in T.reads(term):
                if read.attr in self.inputs and axis.term in read.args:
                    return str(read.attr), read.args.index(axis.term)
        return None

    def own(self, x: Expr) -> None:
        """Refuses what belongs to another program."""
        if x.program is not self:
            raise input_error(f"{x!r} belongs to another program")

    def _new_input(self, name: str, dtype: str) -> None:
        _identifier(name, "input")
        if name in self.inputs:
            raise input_error(f"the program already has an input '{name}'")
        if dtype not in DTYPES:
            raise input_error(f"unknown dtype '{dtype}'", f"one of {', '.join(DTYPES)}")

    def constant(self, value: float, dtype: str = "f32") -> Expr:
        return Expr(T.const(value, dtype), self)

    def output(
        self, value: Expr, *axes: Axis, dtype: str | None = None, name: str | None = None
    ) -> None:
        """Return `value` as a tensor with these dimensions (all axes that it varies along).

        `name` is what gradients call it; default `out<number>`.
        """
        if not isinstance(value, Expr) or value.program is not self:
            raise input_error("the output is not an expression of this program")
        for a in axes:
            if not isinstance(a, Axis):
                raise input_error(f"output dimension {a!r} is not an axis")
            self.own(a)
        if dtype is not None and dtype not in DTYPES:
            raise input_error(f"unknown dtype '{dtype}'", f"one of {', '.join(DTYPES)}")
        missing = [a.name for a in value.axes if all(a is not x for x in axes)]
        if missing:
            raise input_error(
                f"the output varies along {', '.join(missing)}, which its dimensions leave out",
                "list every axis, or reduce it",
            )
        if len({a.number for a in axes}) != len(axes):
            raise input_error("an output dimension is listed twice")
        name = f"out{len(self.outputs)}" if name is None else name
        _identifier(name, "output")
        if any(o.name == name for o in self.outputs):
            raise input_error(f"the program already has an output '{name}'")
        term = convert(value, dtype).term if dtype else value.term
        if term.dtype == FLOAT8:
            hint = "cast it to f16 or f32"
            raise input_error(f"an output of {FLOAT8}, which is for inputs", hint)
        numbers = tuple(a.number for a in axes)
        self.outputs.append(Output(term, numbers, caller_location(), name))

    def reduction(self, combiner: str, value: Expr, axes: tuple[Axis, ...]) -> Expr:
        """`value` reduced over `axes`; equal reductions are one."""
        if not axes:
            raise input_error("a reduction needs the axes to reduce", "e.g. sum(x[i, j], j)")
        for a in axes:
            if not isinstance(a, Axis):
                raise input_error(f"{a!r} is not an axis")
            self.own(a)
        if combiner in ("and", "or") and value.dtype != "i1":
            raise input_error(f"all and any take a condition, not {value.dtype}")
        if not combiners.is_known(combiner):
            hint = did_you_mean(combiner, combiners.names())
            raise input_error(f"no combiner '{combiner}'", hint)
        value = computing(value, combiner)
        if combiners.lookup(combiner).identity_on(value.dtype) is None:
            raise input_error(f"the combiner '{combiner}' is not defined on {value.dtype}")
        removed = tuple(sorted({a.number for a in axes}))
        kept = tuple(k for k in sorted(T.axes_of(value.term)) if k not in removed)
        identity = (combiner, value.term, removed)
        if identity not in self._step_of:
            key = f"%{len(self.steps)}"
            place = caller_location()
            self.steps.append(ReductionStep(key, combiner, value.term, kept, removed, place))
            self._step_of[identity] = key
        read = T.read(self._step_of[identity], *[T.index(k) for k in kept], dtype=value.dtype)
        return Expr(read, self)

    def show(self, term: Term) -> str:
        """Readable text with the axes' names."""

        def name(leaf: Term) -> str | None:
            return self.axis_list[leaf.attr].name if leaf.op == "index" else None

        return T.show(term, name)

    def module(self, context: Any = None) -> Any:
        """The program as an `ir.Module` with one function on `neptune` nests."""
        from neptune_mlir.frontend.emit import emit

        return emit(self, context)

    def to_mlir(self) -> str:
        """The program as MLIR text, with the lines of Python as locations."""
        return self.module().operation.get_asm(enable_debug_info=True)

    def reference(self, *arrays: Any) -> Any:
        """Evaluate the definition with NumPy in float64 (integers stay integers).

        Returns:
            One array, or a tuple for several outputs.
        """
        from neptune_mlir.frontend.reference import evaluate

        return evaluate(self, arrays)


def _identifier(name: Any, what: str) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise input_error(f"{what} name {name!r} is not an identifier")
