# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The function around the code of a kernel: what it is given, which program a block runs, and the
scalars of the tile program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from neptune_mlir.analysis.fragments import is_in_fragments
from neptune_mlir.analysis.tiles import Window, tuned
from neptune_mlir.codegen.gpu.access.threads import Threads
from neptune_mlir.codegen.gpu.chip import Chip
from neptune_mlir.codegen.gpu.host import KernelSignature
from neptune_mlir.codegen.gpu.memory import Array, Memory
from neptune_mlir.codegen.gpu.scalars import ScalarOp, Scalars, on_one_die
from neptune_mlir.codegen.gpu.tile_forms import ResultView
from neptune_mlir.dialects.attributes import BLOCKS, HELD, SHARED_BYTES, TUNED, WARPS
from neptune_mlir.errors import LoweringError, OutOfMemory
from neptune_mlir.ir.bindings import ir, location_text, scf
from neptune_mlir.targets.resources import blocks_beside
from neptune_mlir.transforms.tiling.grid_direction import runs_upwards


class KernelFrame(ABC):
    """A kernel's function. Who writes what is in it makes `s`, `threads` and `memory`."""

    s: Scalars
    threads: Threads
    memory: Memory

    def __init__(self, signature: KernelSignature, chip: Chip):
        self.signature = signature
        self.forall = signature.forall
        self.body = self.forall.regions[0].blocks[0]
        self.chip, self.target = chip, chip.target
        self.warps = WARPS.of(self.forall)
        self.scalars: dict[Any, Any] = {}  # scalar value of the tile program -> value here
        self.arrays: dict[Any, Array] = {}
        self.views: dict[Any, ResultView] = {}  # parts of results
        self.early = 0  # registers of tiles that are loaded before anything else is done
        self.is_followed = False  # by a kernel that may start early
        self.waits_first = False  # before it lets that one start

    # ---- arguments, and the end

    def argument_types(self) -> list[Any]:
        types: list[Any] = []
        for tensor in self.signature.tensors:
            rank = ir.RankedTensorType(tensor.type).rank
            types += [ir.Type.parse("!llvm.ptr<1>")] + [self.s.i64] * max(0, rank - 1)
        for scalar in self.signature.scalars:
            types.append(self.s.i32 if isinstance(scalar.type, ir.IndexType) else scalar.type)
        return types + [self.s.i32] * len(self.signature.bounds)

    def place_arguments(self, block: Any) -> None:
        given = iter(block.arguments)
        inputs = len(self.signature.tensors) - self.signature.outputs
        made: list[Array] = []
        for k, tensor in enumerate(self.signature.tensors):
            kind = ir.RankedTensorType(tensor.type)
            pointer = next(given)
            strides = [next(given) for _ in range(max(0, kind.rank - 1))]
            innermost = [self.s.constant(1, self.s.i64)] if kind.rank else []
            ordered = is_in_fragments(self.forall, tensor, k - inputs)
            made.append(Array(k, pointer, (*strides, *innermost), str(kind.element_type), ordered))
        self.arrays.update(zip(self.signature.tensors[:inputs], made, strict=False))
        self.results = made[inputs:]
        for scalar in self.signature.scalars:
            value = next(given)
            if isinstance(scalar.type, ir.IndexType):
                value = self.s.value(value)
            self.s.mark_uniform(value)
            self.scalars[scalar] = value
        self.bounds = [self.s.value(next(given)) for _ in self.signature.bounds]
        waits = self.signature.follows and not self.signature.independent
        if waits and self.waits_first:
            self.chip.wait_for_last()
        if self.is_followed:
            self.chip.let_next_start()
        if waits and not self.waits_first:
            self.wait_at_start()
        if self.signature.independent:
            self.chip.see_what_is_over()

    def wait_at_start(self) -> None:
        self.chip.wait_for_last()  # the kernel before this one

    def finish(self, operation: Any) -> None:
        limit, used = self.target.shared_block, self.memory.peak
        if used > limit:
            raise OutOfMemory(
                f"kernel '{self.signature.name}' needs {used} bytes of shared memory, and a block "
                f"of {self.target.name} has {limit}",
                loc=location_text(self.forall.location),
                hint="use smaller tiles, or fewer stages",
            )
        self.chip.annotate(operation, self.blocks_per_sm())
        if TUNED.on(self.forall):
            TUNED.set(operation, TUNED.of(self.forall))
        self.chip.declare_shared(self.signature.name, used)
        SHARED_BYTES.set(operation, used)
        self.signature.threads, self.signature.shared = self.threads.count, used
        for array, unit in self.memory.aligned.items():
            place = self.signature.places[array]  # `array` is its number
            self.signature.alignment[place] = max(self.signature.alignment.get(place, 1), unit)

    def blocks_per_sm(self) -> int:
        """How many blocks are to share a multiprocessor (0: the assembler's choice).

        Left alone, the assembler rather spills than gives up a block.
        """
        if BLOCKS.on(self.forall):
            return BLOCKS.of(self.forall)
        held, threads = max(HELD.of(self.forall), self.early), self.threads.count
        return blocks_beside(self.target, threads, held, self.memory.peak) if held else 0

    # ---- which program it is

    def program_position(self, block: Any) -> None:
        """Loop variables of the forall from the number of the block."""
        dimension = ir.Attribute.parse("#gpu<dim x>")
        number = self.s.op("gpu.block_id", [], self.s.index, dimension=dimension)
        dies = self.target.dies
        if dies > 1 and self.bounds and tuned(self.forall, "near", 1):
            number = on_one_die(self.s, number, self.bounds, dies)
        self.place_program(number)
        self.place_results()

    def place_results(self) -> None:
        for argument, array in zip(
            list(self.body.arguments)[len(self.bounds) :], self.results, strict=True
        ):
            rank = len(array.strides)
            self.views[argument] = ResultView(array, (0,) * rank, tuple(range(rank)))

    def place_program(self, number: Any) -> None:
        """Loop variables of the forall from the number of a program.

        The last runs fastest, and so that long programs begin first (`grid_direction`).
        """
        s, rank = self.s, len(self.bounds)
        rows = self.bounds[rank - 1]
        here = s.op("arith.remui", [number, rows], s.index) if rank > 1 else number
        last = self.body.arguments[rank - 1]
        up = runs_upwards(self.forall, last)
        self.scalars[last] = here if up else s.sub(s.sub(rows, 1), here)
        if rank > 1:
            self.place_variables(s.op("arith.divui", [number, rows], s.index), rank - 1)

    def place_variables(self, number: Any, count: int) -> None:
        """The first `count` loop variables of the forall, of which the last runs fastest."""
        s = self.s
        for k in reversed(range(count)):
            here = s.op("arith.remui", [number, self.bounds[k]], s.index) if k else number
            self.scalars[self.body.arguments[k]] = here
            number = s.op("arith.divui", [number, self.bounds[k]], s.index) if k else None

    # ---- scalars of the tile program

    def scalar(self, value: Any, local: dict[Any, Any] | None = None) -> Any:
        """The value here of a scalar of the tile program, copying what makes it.

        `local` overrides values, for code that runs ahead of its iteration.
        """
        if local and value in local:
            return local[value]
        if value in self.scalars:
            return self.scalars[value]
        if isinstance(value.owner, ir.Block):
            return self.scalars[value]
        op = value.owner.operation
        if op.name == "tensor.dim":
            raise LoweringError(
                "the size of a tensor is taken inside a kernel", loc=location_text(op.location)
            )
        if op.name == "tensor.extract":
            made = self.write_extract(op, local)
        elif op.name == "scf.if":
            made = self.choose(op, local)[list(op.results).index(value)]
        else:
            made = self.s.clone(ScalarOp.of(op), [self.scalar(o, local) for o in op.operands])
        if local is not None:
            local[value] = made
        return made

    @abstractmethod
    def write_extract(self, op: Any, local: dict[Any, Any] | None = None) -> Any:
        """An element of a tensor that the kernel takes, or of a tile that has but one."""

    def choose(self, op: Any, local: dict[Any, Any] | None = None) -> list[Any]:
        """The scalars of a branch, each side with what makes its own."""
        sides = [region.blocks[0] for region in op.regions]
        branch = scf.IfOp(
            self.scalar(op.operands[0], local), [v.type for v in op.results], has_else=True
        )
        for side, block in zip(sides, (branch.then_block, branch.else_block), strict=True):
            *_, end = side.operations
            with self.s.scope(block):
                inside = dict(local or {})  # what is made here is not there behind the branch
                scf.YieldOp([self.scalar(v, inside) for v in end.operation.operands])
        return list(branch.results)

    def window(self, found: Window, local: dict[Any, Any] | None = None) -> Window:
        """A window with its offsets and sizes as values of this kernel."""

        def here(entry: Any) -> Any:
            return entry if entry is None or isinstance(entry, int) else self.scalar(entry, local)

        pages = found.pages and replace(
            found.pages, table=self.arrays[found.pages.table], at=tuple(map(here, found.pages.at)),
            count=here(found.pages.count), start=here(found.pages.start),
        )  # fmt: skip
        return Window(
            found.tensor, tuple(map(here, found.offsets)), found.dims, found.shape,
            tuple(map(here, found.valid)), found.multiple, pages,
        )  # fmt: skip
