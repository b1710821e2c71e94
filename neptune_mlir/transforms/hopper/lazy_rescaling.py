# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `lazy-rescaling`: iterations that keep their reference, as branches of a warp (sm_90a).

`keep-references` marks loops (`neptune.keeps`) whose reference may be any number that keeps the
weights in range. An iteration of such a loop tries the reference of the one before:

    %p1, %sums, %fits = scf.if %tries { p = exp(x - m), row sums of p, are all in range? }
                        else          { x, m, false }
    %m', %l', %p, %c  = scf.if %fits  { m, l + sums, p1, 1 }
                        else          { what the loop says, of x: a new m, c, l, p }
    %acc'             = scf.if %fits  { acc } else { acc * c }

`%fits` is one bit of a warp (`neptune.warp_all`). x and p1 share registers, so a warp that tried in
vain computes x again: the matmul that made it, by that warp alone (`neptune.again`), and all that
follows it. A warp tries where the iteration before kept its reference or moved it by little
(`%tries`, carried); the first iteration has none to try. That any reference in range will do is
what `free-references` proved; it makes the first side of the branches legal.

Loops that run for a tile or two (no `neptune.again`) do what they say, and only skip factors of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from neptune_mlir.analysis.tiles import foralls, read_generic
from neptune_mlir.dialects.attribute_types import copy_attributes
from neptune_mlir.dialects.gpu_attributes import (
    AGAIN,
    CONSUMERS,
    ITERATION,
    KEEPS,
    LAYOUT,
    LAYOUTS,
    LIKELY,
    MEASURED,
    TRIED,
    VIA,
)
from neptune_mlir.dialects.op_names import RELEASE, WARP_ALL
from neptune_mlir.ir.bindings import arith, ir, linalg, math, scf
from neptune_mlir.transforms.gpu.copies import Copies
from neptune_mlir.transforms.gpu.keep_references import (
    LITTLE,
    SMALL,
    largest_sum,
    read_guess,
)
from neptune_mlir.transforms.gpu.streams import chains_of, read_accumulation
from neptune_mlir.transforms.hopper.loop_graph import layout_text
from neptune_mlir.transforms.registry import register


@register("lazy-rescaling", "let warps keep the reference of the iteration before while it fits")
def lazy_rescaling(module: Any) -> None:
    for forall in foralls(module):
        if not CONSUMERS.on(forall):
            continue
        for chain in chains_of(forall, KEEPS.on):
            with forall.context:
                _rewrite_chain(chain)


def _rewrite_chain(chain: Sequence[Any]) -> None:
    i1 = ir.IntegerType.get_signless(1)
    with chain[0].location, ir.InsertionPoint(chain[0]):
        tries = arith.constant(i1, 0)
    for loop in chain:
        with loop.location:
            tries = _Lazy(loop).write(tries)


class _Lazy:
    """Rewrites one loop."""

    def __init__(self, loop: Any):
        self.loop, self.body = loop, loop.regions[0].blocks[0]
        self.parts = read_accumulation(loop)
        self.guess = read_guess(loop, self.parts)
        self.again = AGAIN.on(self.parts.leading)
        self.corrected = read_generic(self.parts.delayed).init
        *inner, self.end = [op.operation for op in self.body.operations]
        self.inner = inner
        later = (*self.parts.products, *self.parts.late, *self.parts.corrections)
        self.tiles = [  # from the first matmul to the weights
            op for op in inner[inner.index(self.parts.leading) :]
            if op.name == "linalg.generic" and op not in later
        ]  # fmt: skip

    def write(self, tries: Any) -> Any:
        """Write the loop anew; returns whether the iteration behind it is to try."""
        loop = self.loop
        low, high, step, *starts = loop.operands
        with ir.InsertionPoint(loop):
            made = scf.ForOp(low, high, step, [*starts, tries])
        copy_attributes(loop, made.operation, leave=[KEEPS])
        LAYOUTS.set(made.operation, [*LAYOUTS.of(loop), ""])
        position, *inside = self.body.arguments
        *carried, self.tries = made.inner_iter_args
        values = dict(zip(inside, carried, strict=True))
        self.copies = Copies(self.body, {position: made.induction_variable, **values})
        with ir.InsertionPoint(made.body):
            kept = self._write_body()
            scf.YieldOp([*map(self.copies.value, self.end.operands), kept])
        *results, after = made.results
        for old, new in zip(loop.results, results, strict=True):
            old.replace_all_uses_with(new)
        loop.erase()
        return after

    def _write_body(self) -> Any:
        """The ops of an iteration; returns whether the next one is to try."""
        releases: list[Any] = []
        for op in self.inner:
            if op == self.parts.leading:
                written = self.copies.write(op)
                if self.again:  # a matmul of the warp group; that of a warp is in a branch
                    AGAIN.drop(written)
            elif op.name == RELEASE and op.operands[0] in self.parts.leading.operands:
                releases.append(op)
            elif op == self.tiles[0]:
                kept = self._write_weights()
                for release in releases:
                    self.copies.write(release)
                releases = []
            elif op not in (*self.tiles, *self.parts.corrections):
                self.copies.write(op)
        return kept

    # ---- from scores to weights

    def _write_weights(self) -> Any:
        guess, i1 = self.guess, ir.IntegerType.get_signless(1)
        if not self.again:
            for op in self.tiles:
                self.copies.write(op)
            factor = self.copies.values[guess.factor.results[0]]
            same = self._in_warp(
                [factor], guess.factor.results[0],
                lambda c: arith.cmpf(_EQUAL, c, _number(1.0)),
            )  # fmt: skip
            self._correct(same)
            return arith.constant(i1, 1)
        tried, sums, fits = self._try()
        values = [*guess.outputs, guess.factor.results[0]]
        branch = self._branch(fits, values, also=[i1])
        with ir.InsertionPoint(branch.then_block):
            blank = self.copies.value(guess.factor.operands[len(guess.factor.operands) - 1])
            before = self.copies.values[guess.reference]
            scf.YieldOp([before, self._plus(sums), tried, blank, arith.constant(i1, 1)])
        with ir.InsertionPoint(branch.else_block):
            inside = self._inside()
            inside.values[self.parts.leading.results[0]] = self._scores_again(tried)
            for op in self.tiles:
                inside.write(op)
            made = [inside.values[v] for v in values]
            scf.YieldOp([*made, self._moved_little(inside)])
        *made, kept = branch.results
        self.copies.values.update(zip(values, made, strict=True))
        self._correct(fits)
        return kept

    def _try(self) -> tuple[Any, Any, Any]:
        """Weights by the old reference, their sums, and whether these are in range; the scores, the
        reference and no where the iteration does not try."""
        guess, scores = self.guess, self.parts.leading.results[0]
        i1 = ir.IntegerType.get_signless(1)
        branch = self._branch(self.tries, [guess.weights, guess.total.results[0]], also=[i1])
        with ir.InsertionPoint(branch.then_block):
            inside = self._inside()
            before = inside.values[guess.moved.results[0]] = inside.values[guess.reference]
            start = guess.scaled.results[0]
            inside.values[start] = _filled(start.type, 0.0)
            for op in self.tiles:
                if op not in (guess.moved, guess.factor, guess.scaled):
                    written = inside.write(op)
                    TRIED.set(written)
                    if op == guess.weighing and MEASURED.on(op):
                        MEASURED.set(written, "small")
            sums = inside.values[guess.total.results[0]]
            most = largest_sum(guess.weights)
            fits = self._in_warp([sums, before], guess.total.results[0], partial(_fits, most))
            scf.YieldOp([inside.values[guess.weights], sums, fits])
        with ir.InsertionPoint(branch.else_block):
            before = self.copies.values[guess.reference]
            scf.YieldOp([self.copies.values[scores], before, arith.constant(i1, 0)])
        return tuple(branch.results)

    def _scores_again(self, tried: Any) -> Any:
        """The scores, of a warp that may have overwritten them."""
        again = self._branch(self.tries, [self.parts.leading.results[0]])
        LIKELY.drop(again.operation)
        with ir.InsertionPoint(again.then_block):
            scf.YieldOp(self._inside().write(self.parts.leading).results)
        with ir.InsertionPoint(again.else_block):
            scf.YieldOp([tried])
        return again.results[0]

    def _plus(self, sums: Any) -> Any:
        """The running sum, and the sums of this tile."""
        scaled, factor = self.guess.scaled, self.guess.factor.results[0]
        (running,) = [v for v in list(scaled.operands)[:-1] if v != factor]
        return _elementwise(
            [self.copies.value(running), sums], ir.F32Type.get(),
            layout_text(self.guess.total.results[0]), arith.addf,
        )  # fmt: skip

    def _moved_little(self, inside: Copies) -> Any:
        """Whether all rows of the warp have small references, and those that had some, like the
        old."""
        guess = self.guess
        values = [guess.reference, guess.factor.results[0], guess.moved.results[0]]
        return self._in_warp([inside.values[v] for v in values], values[-1], _moved_little)

    def _correct(self, skips: Any) -> None:
        """What the delayed matmul adds to, corrected unless the warp's factors are all 1."""
        branch = self._branch(skips, [self.corrected])
        start = self.copies.values[self.body.arguments[1 + self.parts.carried]]
        with ir.InsertionPoint(branch.then_block):
            scf.YieldOp([start])
        with ir.InsertionPoint(branch.else_block):
            inside = self._inside()
            for op in self.parts.corrections:
                inside.write(op)
            scf.YieldOp([inside.values[self.corrected]])
        self.copies.values[self.corrected] = branch.results[0]

    # ---- small things

    def _inside(self) -> Copies:
        """Copies in a branch, of which nothing is known behind it."""
        return Copies(self.body, self.copies.values)

    def _branch(self, condition: Any, values: Sequence[Any], also: Sequence[Any] = ()) -> Any:
        """A branch that gives what stands for tiles of the loop, and scalars."""
        made = scf.IfOp(condition, [*(v.type for v in values), *also], has_else=True)
        LAYOUTS.set(made.operation, [*map(layout_text, values), *[""] * len(also)])
        LIKELY.set(made.operation)
        return made

    def _in_warp(self, tiles: Sequence[Any], like: Any, condition: Callable[..., Any]) -> Any:
        """Whether a condition on rows holds for all rows of the warp."""
        i1 = ir.IntegerType.get_signless(1)
        rows = _elementwise(tiles, i1, layout_text(like), condition)
        return ir.Operation.create(WARP_ALL, results=[i1], operands=[rows]).results[0]


_EQUAL, _AT_LEAST, _LESS = 1, 3, 4  # ordered comparisons of floats


def _number(value: float) -> Any:
    return arith.constant(ir.F32Type.get(), value)


def _is_small(reference: Any) -> Any:
    return arith.cmpf(_LESS, math.absf(reference), _number(SMALL))


def _fits(most: float, total: Any, reference: Any) -> Any:
    return arith.andi(arith.cmpf(_LESS, total, _number(most)), _is_small(reference))


def _moved_little(old: Any, factor: Any, new: Any) -> Any:
    none = arith.cmpf(_EQUAL, old, _number(float("-inf")))
    near = arith.ori(none, arith.cmpf(_AT_LEAST, factor, _number(LITTLE)))
    return arith.andi(near, _is_small(new))


def _filled(kind: Any, value: float) -> Any:
    blank = ir.Operation.create("tensor.empty", results=[kind]).results[0]
    return linalg.fill(_number(value), outs=[blank])


def _elementwise(tiles: Sequence[Any], element: Any, layout: str, body: Callable[..., Any]) -> Any:
    """A tile op in registers on tiles of one shape, in the layout of its result."""
    shape = ir.RankedTensorType(tiles[0].type).shape
    kind = ir.RankedTensorType.get(shape, element)
    blank = ir.Operation.create("tensor.empty", results=[kind]).results[0]
    same = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(shape)))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    made = ir.Operation.create(
        "linalg.generic", results=[kind], operands=[*tiles, blank], regions=1,
        attributes={
            "indexing_maps": ir.ArrayAttr.get([same] * (len(tiles) + 1)),
            "iterator_types": ir.ArrayAttr.get([parallel] * len(shape)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(tiles), 1]),
            **VIA.entry("registers"), **ITERATION.entry(layout), **LAYOUT.entry(layout),
        },
    )  # fmt: skip
    types = [ir.RankedTensorType(v.type).element_type for v in tiles]
    block = made.regions[0].blocks.append(*types, element)
    with ir.InsertionPoint(block):
        linalg.YieldOp([body(*list(block.arguments)[: len(tiles)])])
    return made.results[0]
