# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused programs written by hand, for tests of the passes below the fused level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects import nests
from neptune_mlir.dialects.context import make_context
from neptune_mlir.dialects.neptune import segment_sizes
from neptune_mlir.dialects.nests import DYNAMIC, build_correct, build_map, build_reduce
from neptune_mlir.dialects.scalars import constant, mlir_type
from neptune_mlir.ir.bindings import func, ir, tensor

INF = float("inf")


def tensor_of(shape: Sequence[int], dtype: str) -> Any:
    return ir.RankedTensorType.get(list(shape), mlir_type(dtype))


def produce(*tensors: Any) -> None:
    ir.Operation.create(
        "neptune.produce", operands=list(tensors),
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get(segment_sizes(len(tensors)))},
    )  # fmt: skip


class Fused:
    """Builds the shared domain of a fused op; axes are named by letters."""

    def __init__(
        self, axes: str, sizes: Sequence[int], extents: Sequence[Any], tile: Sequence[int]
    ):
        self.names, self.sizes, self.extents = axes, list(sizes), list(extents)
        self.tile = tile
        self.values = nests.Values()

    def _tile_attribute(self) -> dict[str, Any]:
        sizes = list(self.tile)
        return {"neptune.tile": ir.DenseI64ArrayAttr.get(sizes)} if sizes else {}

    def index(self, axis: str) -> T.Term:
        return T.index(self.names.index(axis))

    def at(self, value: Any, axes: str) -> T.Term:
        """Element of `value`; `h/2` in `axes` (comma separated) divides."""
        idx = []
        for a in axes.split(",") if "," in axes else list(axes):
            name, _, divisor = a.partition("/")
            position = self.index(name)
            if divisor:
                position = T.make("floordiv", position, T.const(int(divisor), "index"))
            idx.append(position)
        return T.read(self.values.key(value), *idx, dtype=nests.element_type(value))

    def _place(self, axes: str, body: T.Term) -> tuple[T.Term, list[int], list[Any], list[int]]:
        """Body over loops instead of axes, with domain, extents and axes of the loops."""
        places = [self.names.index(a) for a in axes]
        local = T.rename_axes(body, {p: T.index(k) for k, p in enumerate(places)})
        domain = [self.sizes[p] for p in places]
        extents = [self.extent(p) for p in places if self.sizes[p] == DYNAMIC]
        return local, domain, extents, places

    def extent(self, axis: int) -> Any:
        return self.extents[sum(s == DYNAMIC for s in self.sizes[:axis])]

    def map(self, axes: str, body: T.Term) -> Any:
        local, domain, extents, places = self._place(axes, body)
        return build_map(self.values, local, domain, extents, axes=places)

    def reduce(self, op: str, axes: str, result: str, body: T.Term, init: Any = None) -> Any:
        local, domain, extents, places = self._place(axes, body)
        return build_reduce(
            self.values, op, local, domain, extents, [axes.index(a) for a in result],
            init=init, axes=places,
        )  # fmt: skip

    def correct(self, axes: str, acc: T.Term, old: T.Term, new: T.Term, h: T.Term) -> Any:
        local, domain, extents, places = self._place(axes, h)
        rename = {p: T.index(k) for k, p in enumerate(places)}
        return build_correct(
            self.values, [T.rename_axes(acc, rename)], [T.rename_axes(old, rename)],
            [T.rename_axes(new, rename)], local, "exponential", domain, extents,
            list(range(len(axes))), axes=places,
        )  # fmt: skip

    def op(
        self,
        name: str,
        results: Sequence[Any],
        regions: Sequence[tuple[Sequence[Any], Callable[..., None]] | None],
        attributes: dict[str, Any],
        shared_domain: bool = True,
    ) -> list[Any]:
        """A fused op; each region is (argument types, filler) or None for an empty one."""
        if shared_domain:
            attributes = {
                "domain": ir.DenseI64ArrayAttr.get(self.sizes),
                "axis_names": ir.ArrayAttr.get([ir.StringAttr.get(n) for n in self.names]),
                **self._tile_attribute(),
                **attributes,
            }
        op = ir.Operation.create(
            f"neptune.{name}", results=list(results),
            operands=self.extents if shared_domain else [],
            attributes={
                "resultSegmentSizes": ir.DenseI32ArrayAttr.get(segment_sizes(len(results))),
                **attributes,
            },
            regions=len(regions),
        )  # fmt: skip
        for region, filler in zip(op.regions, regions, strict=True):
            if filler is None:
                continue
            types, fill = filler
            block = region.blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
            with ir.InsertionPoint(block):
                fill(*block.arguments)
        return list(op.results)


def f32(x: float) -> T.Term:
    return T.const(x, "f32")


def guard(m: T.Term) -> T.Term:
    return T.make("select", T.make("eq", m, f32(-INF)), f32(0.0), m)


def rebase(a: T.Term, old: T.Term, new: T.Term) -> T.Term:
    return T.make("mul", a, T.make("exp", T.make("sub", old, new)))


class Attention:
    """Fused attention over axes b h i j d e, as a module with one function `attention`.

    An empty `tile` leaves the choice to the tile pass.

    Sizes may be DYNAMIC. `mask(fused, scalars)` gives the condition under which a score
    counts; `scalars` are extra i64 arguments, given as index terms.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        tile: Sequence[int] = (1, 1, 64, 64, 0, 0),
        *,
        dtype: str = "f32",
        group: int = 1,
        scalars: int = 0,
        mask: Callable[[Fused, dict[str, T.Term]], T.Term] | None = None,
        chunks: int | None = None,
        stats: bool = False,
    ):
        self.sizes, self.tile, self.dtype, self.group = list(sizes), tile, dtype, group
        self.mask, self.chunks, self.stats = mask, chunks, stats
        self.scalars = scalars
        self.context = make_context()
        with self.context, ir.Location.unknown():
            self.module = ir.Module.create()
            with ir.InsertionPoint(self.module.body):
                self._function()
            self.module.operation.verify()

    def _function(self) -> None:
        b, h, i, j, d, e = self.sizes
        hk = h if h == DYNAMIC else h // self.group
        self.result = tensor_of([b, h, i, e], "f32")
        results = [self.result]
        if self.stats:
            results += [tensor_of([b, h, i], "f32")] * 2
        arguments = [
            tensor_of([b, h, i, d], self.dtype),
            tensor_of([b, hk, j, d], self.dtype),
            tensor_of([b, hk, j, e], self.dtype),
            *[ir.IndexType.get()] * self.scalars,
        ]
        function = func.FuncOp("attention", (arguments, results))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp(self._fused(*block.arguments))

    def _fused(self, q: Any, k: Any, v: Any, *scalars: Any) -> list[Any]:
        where = [(q, 0), (q, 1), (q, 2), (k, 2), (q, 3), (v, 3)]
        extents = [
            tensor.DimOp(t, constant(dim, "index")).result
            for size, (t, dim) in zip(self.sizes, where, strict=True)
            if size == DYNAMIC
        ]
        f = Fused("bhijde", self.sizes, extents, self.tile)
        self.fused = f
        symbols = {f"s{n}": T.sym(f.values.key(s), "index") for n, s in enumerate(scalars)}
        for name in ("i", "j"):
            at = f.names.index(name)
            if self.sizes[at] == DYNAMIC:
                symbols[f"N{name}"] = T.sym(f.values.key(f.extent(at)), "index")
            else:
                symbols[f"N{name}"] = T.const(self.sizes[at], "index")
        keys = "bhjd" if self.group == 1 else f"b,h/{self.group},j,d"
        vals = "bhje" if self.group == 1 else f"b,h/{self.group},j,e"
        b, h, i, _j, _d, e = self.sizes
        row, wide = tensor_of([b, h, i], "f32"), tensor_of([b, h, i, e], "f32")

        def wide_read(t: Any, axes: str) -> T.Term:
            return T.make("cast", f.at(t, axes), dtype="f32")

        def body(m0: Any, l0: Any, o0: Any) -> None:
            product = T.make("mul", wide_read(q, "bhid"), wide_read(k, keys))
            s = f.reduce("add", "bhijd", "bhij", product)
            scaled = T.make("mul", f.at(s, "bhij"), f32(0.25))
            if self.mask is not None:
                scaled = T.make("select", self.mask(f, symbols), scaled, f32(-INF))
            x = f.map("bhij", scaled)
            m = f.reduce("max", "bhij", "bhi", f.at(x, "bhij"), init=m0)
            p = f.map("bhij", T.make("exp", T.make("sub", f.at(x, "bhij"), guard(f.at(m, "bhi")))))
            old, new = f.at(m0, "bhi"), f.at(m, "bhi")
            acc = f.at(l0, "bhi")
            lc = f.correct("bhi", acc, old, new, rebase(acc, old, new))
            total = f.reduce("add", "bhij", "bhi", f.at(p, "bhij"), init=lc)
            acc = f.at(o0, "bhie")
            oc = f.correct("bhie", acc, old, new, rebase(acc, old, new))
            weighted = T.make("mul", f.at(p, "bhij"), wide_read(v, vals))
            o = f.reduce("add", "bhije", "bhie", weighted, init=oc)
            produce(m, total, o)

        def divide(o: Any, total: Any) -> Any:
            sums = f.at(total, "bhi")
            safe = T.make("select", T.make("eq", sums, f32(0.0)), f32(1.0), sums)
            return f.map("bhie", T.make("div", f.at(o, "bhie"), safe))

        def finish(m: Any, total: Any, o: Any) -> None:
            r = divide(o, total)
            produce(r, *[m, total] if self.stats else [])

        def identity(*running: Any) -> None:
            produce(*running)

        axis = {"axis": ir.IntegerAttr.get(mlir_type("i64"), 3)}
        running = [row, row, wide]
        if self.chunks is None:
            results = [wide, row, row] if self.stats else [wide]
            return f.op("stream", results, [(running, body), (running, finish), None], axis)

        def private() -> None:
            produce(*f.op("stream", running, [(running, body), (running, identity), None], axis))

        led = [tensor_of([self.chunks, *kind.shape], "f32") for kind in running]
        chunks = {"chunks": ir.IntegerAttr.get(mlir_type("i64"), self.chunks)}
        mp, lp, op = f.op("private", led, [([], private)], chunks, shared_domain=False)
        g = Fused(
            "cbhie", [self.chunks, b, h, i, e],
            [f.extent(f.names.index(a)) for a in "bhie" if f.sizes[f.names.index(a)] == DYNAMIC],
            self.tile and (0, *(self.tile[f.names.index(a)] for a in "bhie")),
        )  # fmt: skip

        def join() -> None:
            m = g.reduce("max", "cbhi", "bhi", g.at(mp, "cbhi"))
            old, new = g.at(mp, "cbhi"), g.at(m, "bhi")
            acc = g.at(lp, "cbhi")
            lc = g.correct("cbhi", acc, old, new, rebase(acc, old, new))
            total = g.reduce("add", "cbhi", "bhi", g.at(lc, "cbhi"))
            acc = g.at(op, "cbhie")
            oc = g.correct("cbhie", acc, old, new, rebase(acc, old, new))
            o = g.reduce("add", "cbhie", "bhie", g.at(oc, "cbhie"))
            sums = g.at(total, "bhi")
            safe = T.make("select", T.make("eq", sums, f32(0.0)), f32(1.0), sums)
            produce(g.map("bhie", T.make("div", g.at(o, "bhie"), safe)))

        return g.op("global", [wide], [([], join)], {})
