# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `specialize-warps`: tile programs that a producer and consumers can share (sm_90a).

One warp group brings tiles to shared memory by TMA; one to three others, of 64 rows each, multiply
them (wgmma) and do everything else. A program qualifies by properties, whatever it computes:

* every matmul has 64 rows a group, and fills the instruction; where one has more columns than an
  instruction, groups share the rows, and each has a part of its columns;
* every tile in shared memory, for products or for what makes their factors, is a load that TMA
  can do: rows of whole chunks of 16 bytes, a tile that ends where the tensor ends, positions that
  no computed tile decides. Rows lie in panels of 64 columns, the last of them partly filled: what
  a panel has beyond the tensor's last column is 0;
* no tile moves between threads otherwise (row reductions stay in a row's lanes), unless groups
  share rows, or programs add up what a product makes of rows of all groups: then left factors that
  they compute do, through shared memory. Such groups meet in each iteration, and take no turns.

The loads and matmuls may stand in loops within loops. A kernel that qualifies is marked:

* `neptune.consumers`: how many warp groups compute;
* `neptune.turns` (option `turns`): the groups take turns at the matrix units (ping-pong);
* `neptune.resident` (option `resident`): blocks are persistent and run work tile after work tile,
  with the loads of the next one beside the end of the one before;
* `neptune.boxed` (option `boxed`): results that tensor maps can describe leave by TMA stores.

`neptune.tuned` of a kernel overrides the options. A kernel that does not qualify stays as it is,
and a remark says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.analysis.layouts import Shared, layout_of
from neptune_mlir.analysis.tiles import (
    Contraction,
    Generic,
    Window,
    chooses_scalars,
    element_bytes,
    element_of,
    foralls,
    is_added,
    is_inside,
    is_multiple,
    load_window,
    nested,
    read_contraction,
    read_generic,
    row_distance,
    shape_of,
    tuned,
)
from neptune_mlir.dialects.gpu_attributes import (
    BOXED,
    CONSUMERS,
    LAYOUT,
    RESIDENT,
    SWAPPED,
    TURNS,
    UNSPECIALIZED,
    VIA,
)
from neptune_mlir.ir.bindings import ir
from neptune_mlir.ir.values import defining_op
from neptune_mlir.targets.group_tiles import sharing
from neptune_mlir.targets.warp_groups import (
    CHUNK,
    DEEP,
    HALF,
    PANEL,
    REGISTERS,
    WIDE,
    WIDEST,
    of_size,
    panel_of,
    tile_bytes,
)
from neptune_mlir.transforms.fast_paths import SPECIALISED, missed
from neptune_mlir.transforms.gpu.assign_layouts import assign_layouts
from neptune_mlir.transforms.gpu.layout_products import matrix_products
from neptune_mlir.transforms.gpu.layout_work import MatrixProduct
from neptune_mlir.transforms.hopper.tile_ends import window_ends
from neptune_mlir.transforms.registry import collect_remarks, register

GROUP = 4  # warps
ROWS = 64  # of a product, a group
SWIZZLED = 8  # rows after which a swizzle comes round


class Unshared(Exception):
    """Why a program cannot be shared, and what would change that; a remark or a diagnostic says
    it."""

    def __init__(self, condition: str, change: str = ""):
        super().__init__(condition)
        self.change = change


class OtherRows(Unshared):
    """Its products have rows for another number of groups."""


@register("specialize-warps", "mark tile programs for a producer and consumer warp groups")
def specialize_warps(
    module: Any, *, target: str = "sm_90a", stages: int = 2, turns: bool = False,
    resident: bool = True, boxed: bool = True,
) -> None:  # fmt: skip
    with collect_remarks():  # about a trial
        trial = module.operation.clone()
        products = [matrix_products(forall, target) for forall in foralls(trial)]
    reasons: dict[int, list[Unshared]] = {}
    for groups in sorted({g for g, _ in REGISTERS}, reverse=True):
        unfit = _unfit(module, products, groups, target, stages)
        for k, forall in enumerate(foralls(module)):
            if CONSUMERS.on(forall):
                continue
            if k in unfit:
                reasons.setdefault(k, []).append(unfit[k])
                continue
            CONSUMERS.set(forall, groups)
            for mark, wanted in ((TURNS, turns), (RESIDENT, resident), (BOXED, boxed)):
                barred = mark == TURNS and (groups == 1 or _meet(products[k]))
                if tuned(forall, mark.short, wanted) and not barred:
                    mark.set(forall)
    for k, forall in enumerate(foralls(module)):
        if CONSUMERS.on(forall):
            continue
        if any(product.streamed for product in products[k]):
            UNSPECIALIZED.set(forall)
        if products[k] or _contracts(forall):
            # where some number of groups has the right rows, only what is wrong there matters
            found = [r for r in reasons[k] if not isinstance(r, OtherRows)] or reasons[k]
            text = "; ".join(dict.fromkeys(map(str, found)))
            change = "; ".join(dict.fromkeys(r.change for r in found if r.change))
            missed(forall.location, SPECIALISED, text, change)


def suits(module: Any) -> bool:
    """Whether the pass did a program good: some kernel has consumers, and none that streams tiles
    for a matrix product is without."""
    kernels = foralls(module)
    return any(map(CONSUMERS.on, kernels)) and not any(map(UNSPECIALIZED.on, kernels))


def _unfit(
    module: Any, products: list[list[MatrixProduct]], groups: int, target: str, stages: int
) -> dict[int, Unshared]:
    """Which kernels without consumers are not for so many groups, and why."""
    unfit: dict[int, Unshared] = {}
    left = []
    for k, forall in enumerate(foralls(module)):
        if CONSUMERS.on(forall):
            continue
        across = sharing(max((p.columns for p in products[k]), default=0))
        wanted = ROWS * groups / across
        other = next((p.rows for p in products[k] if not _has_rows(p, wanted, groups)), None)
        blocks = tuned(forall, "blocks", 1)
        if (groups, blocks) not in REGISTERS:
            unfit[k] = Unshared(f"registers do not hold {groups} groups in each of {blocks} blocks")
        elif other is not None:
            unfit[k] = OtherRows(_other_rows(other, groups, across), _MORE_ROWS)
        elif not products[k] and not _contracts(forall):
            unfit[k] = Unshared(_NO_STREAM)
        else:
            left.append(k)
    if left:
        trial = module.operation.clone()
        for k, forall in enumerate(foralls(trial)):
            if k in left:
                CONSUMERS.set(forall, groups)
        with collect_remarks():  # about a trial
            assign_layouts(trial, target=target, warps=GROUP * groups, stages=stages)
        for k, forall in enumerate(foralls(trial)):
            try:
                if k in left:
                    check(forall, groups)
            except Unshared as reason:
                unfit[k] = reason
    return unfit


def _has_rows(product: MatrixProduct, wanted: float, groups: int) -> bool:
    """Whether a product has the rows of all groups; of a part of a result that programs share,
    those of one, if each group can have a part of its columns."""
    shared = product.adds and product.rows == ROWS and groups & (groups - 1) == 0
    return product.rows == wanted or shared


def _meet(products: Sequence[MatrixProduct]) -> bool:
    """Whether groups give each other factors in an iteration, so that none may wait for a turn."""
    return any(p.adds or sharing(p.columns) > 1 for p in products)


def _contracts(forall: Any) -> bool:
    operations = nested(forall.regions[0].blocks[0])
    generics = [read_generic(op) for op in operations if op.name == "linalg.generic"]
    return any(read_contraction(g) is not None for g in generics)


_NO_STREAM = "no loop loads tiles for a matmul"


def _other_rows(rows: int, groups: int, across: int) -> str:
    each = f"each of {groups} groups" if across == 1 else f"{across} of {groups} groups"
    return f"a matmul of {rows} rows, not {ROWS} for {each}"


_MORE_ROWS = f"tiles of {ROWS} rows or a multiple (knob rows), or rows that share an operand"


def _via(op: Any) -> str:
    """How a tile op with layouts runs; "" for other ops."""
    return VIA.find(op, "")


@dataclass(frozen=True)
class Load:
    """A load by TMA: the tile, its window, the loops that it stands in, from the outside."""

    value: Any
    window: Window
    loops: tuple[Any, ...]

    @property
    def loop(self) -> Any:
        """The innermost loop; None outside of loops."""
        return self.loops[-1] if self.loops else None

    @property
    def bytes(self) -> int:
        *rows, columns = self.window.shape
        whole = row_distance(self.window.tensor)
        size = element_bytes(element_of(self.value))
        return tile_bytes(math.prod(rows), columns, panel_of(columns, whole, size), size)


def loads_of(forall: Any) -> list[Load]:
    """The loads to shared memory of a kernel with layouts, in program order."""
    found = []
    body = forall.regions[0].blocks[0]
    for op in nested(body):
        if op.name in ("tensor.pad", "tensor.extract_slice") and LAYOUT.on(op):
            window = load_window(op.results[0], forall)
            if window is None:
                raise Unshared("a tile in shared memory that no load brings")
            found.append(Load(op.results[0], window, loops_around(op, body)))
    return found


def loops_around(op: Any, body: Any) -> tuple[Any, ...]:
    """The loops that an op stands in within a block, from the outside."""
    found: list[Any] = []
    while op.block != body:
        op = op.parent
        found.append(op)
    return tuple(reversed(found))


def check(forall: Any, groups: int) -> None:
    """Raise Unshared unless the program, with layouts, has all the properties.

    Causes come before what follows from them: a reduction that runs as a loop makes tiles move.
    """
    body = forall.regions[0].blocks[0]
    operations = list(nested(body))
    products = [op for op in operations if _via(op) == "mma"]
    _check_rows(products, groups)
    _check_parts(products, forall)
    for op in operations:
        if op.name.startswith("scf.") and op.name not in (
            "scf.for", "scf.yield", "scf.forall.in_parallel"
        ) and not (op.name == "scf.if" and chooses_scalars(op)):  # fmt: skip
            raise Unshared(f"control flow by '{op.name}'; only loops can be split")
        if _via(op) == "loop":
            product = read_contraction(read_generic(op)) is not None
            kind = "contraction" if product else "reduction"
            wanted = f"; wgmma takes f16, bf16 and tf32, and widths that are multiples of {WIDE}"
            raise Unshared(
                f"a {kind} to {op.results[0].type} runs as a loop over shared memory"
                f"{wanted if product else ''}",
                "smaller tiles, or extents that are multiples of 16",
            )
    for op in products:
        _check_product(op, forall, ROWS * groups // _rows_of(op))
    across = ROWS * groups // min(map(_rows_of, products), default=ROWS * groups)
    for op in operations:
        if op.name == "linalg.copy" and not (is_exchanged(op) and (across > 1 or _is_added_up(op))):
            raise Unshared(f"a tile of type {op.results[0].type} moves between threads")
    loads = loads_of(forall)
    # of products that are loaded alone, a step may be all: the next program is their loop
    loaded = loads and all(load_window(v, forall) for op in products for v in op.operands[:2])
    if not loaded and not any(load.loop is not None for load in loads):
        raise Unshared(_NO_STREAM)
    for load in loads:
        _check_load(load, forall)


def _rows_of(op: Any) -> int:
    g = read_generic(op)
    return int(g.extents[_contraction(op, g).m])


def _check_rows(products: Sequence[Any], groups: int) -> None:
    found = [read_generic(op) for op in products]
    widths = [g.extents[_contraction(op, g).n] for op, g in zip(products, found, strict=True)]
    across = sharing(max(widths, default=0))
    for op, m in zip(products, map(_rows_of, products), strict=True):
        if m * across != ROWS * groups and not (m == ROWS and is_added(op.results[0])):
            raise OtherRows(_other_rows(m, groups, across), _MORE_ROWS)


def _check_parts(products: Sequence[Any], forall: Any) -> None:
    """Of columns that groups share, each has a part that begins with a panel: an instruction takes
    whole ones from there on."""
    for op in products:
        g = read_generic(op)
        width = g.extents[_contraction(op, g).n]
        groups, window = sharing(width), load_window(op.operands[1], forall)
        row = width if window is None else row_distance(window.tensor)
        panel = panel_of(width, row, element_bytes(element_of(op.operands[1])))
        if groups > 1 and (width % groups or width // groups % panel):
            raise Unshared(
                f"{groups} groups share {width} columns, which are in panels of {panel}",
                f"columns that are a multiple of {groups * panel}, or {WIDEST} at most",
            )


def _is_added_up(copy: Any) -> bool:
    """Whether products whose results programs add up read a copy: of all groups' rows, for these
    are what they sum over."""
    readers = [use.owner.operation for use in copy.results[0].uses]
    return all(is_added(reader.results[0]) for reader in readers)


def is_exchanged(op: Any) -> bool:
    """Whether a copy takes a computed left factor to shared memory, where it lies as the panel that
    instructions read."""
    layout, (tile,) = layout_of(op, shape_of(op.results[0])), op.results
    if not isinstance(layout, Shared) or (layout.columns % PANEL and layout.columns != HALF):
        return False
    if element_of(tile) not in ("f16", "bf16") or layout.rows % ROWS:
        return False
    readers = (use.owner.operation for use in tile.uses)
    return all(_via(reader) == "mma" for reader in readers)


def _contraction(op: Any, g: Generic) -> Contraction:
    p = read_contraction(g)
    assert p is not None
    return p.swapped() if SWAPPED.on(op) else p


def _check_product(op: Any, forall: Any, across: int) -> None:
    g = read_generic(op)
    p = _contraction(op, g)
    m, n, k = (g.extents[d] for d in (p.m, p.n, p.k))
    size = element_bytes(element_of(g.inputs[p.b]))
    deep, turned = of_size(DEEP, size), g.maps[p.b].index(p.k) == 0
    # a group's own columns begin with rows of a factor that swizzles begin with, or with a panel
    unit = WIDE if across == 1 else of_size(HALF, size) if turned else SWIZZLED
    if n % (unit * across) or n > WIDEST * across or k % deep:
        raise Unshared(
            f"wgmma has no shape {m}x{n}x{k}: widths are multiples of {WIDE}, {WIDEST} at most,"
            f" depths multiples of {deep}",
            "extents that are such multiples, compiled in",
        )
    if turned and size != 2:
        raise Unshared(
            f"a right factor of {element_of(g.inputs[p.b])} whose rows do not run along the sum,"
            " and wgmma transposes elements of 16 bits alone",
            "a factor that is stored transposed",
        )
    if g.maps[p.a].index(p.k) == 0 and size == 1:
        raise Unshared("a left factor of e4m3 whose rows do not run along the sum")
    if g.maps[-1].index(p.m) != 0 and not (size > 2 and SWAPPED.on(op)):
        raise Unshared("a matmul whose result is transposed")
    made = defining_op(g.inputs[p.a])
    exchanged = made is not None and made.name == "linalg.copy"
    if g.maps[p.a].index(p.k) != 1 and load_window(g.inputs[p.a], forall) is None and not exchanged:
        raise Unshared("a computed left factor of a matmul is transposed")


def _check_load(load: Load, forall: Any) -> None:
    window, value = load.window, load.value
    tensor = ir.RankedTensorType(window.tensor.type)
    if element_of(value) not in ("f16", "bf16", "f32", "i8"):  # bytes are e4m3 (`float8-bits`)
        raise Unshared(
            f"a load of {element_of(value)}; tiles for matmuls are f16, bf16, f32 or e4m3: cast it",
            "inputs of f16 or bf16",
        )
    size = element_bytes(element_of(value))
    chunk = of_size(CHUNK, size)
    shape, inner = window.shape, tensor.rank - 1
    if window.pages is not None:
        _check_pages(window)
    if not 1 <= len(shape) <= 2 or tensor.rank > 2 + len(shape) or window.dims[-1] != inner:
        raise Unshared("TMA needs a box whose last dimension is contiguous in its tensor")
    whole = row_distance(window.tensor)
    aligned = tensor.is_dynamic_dim(inner) and tuned(forall, "boxes", 0) > 1
    if tensor.is_dynamic_dim(inner) and whole % chunk and not aligned:
        raise Unshared(
            "rows have a length that only a call knows; compile it in",
            "a static innermost extent of that tensor",
        )
    if (whole % chunk and not aligned) or shape[-1] % chunk:
        row = tensor.shape[inner]
        raise Unshared(
            f"rows of {row} elements, in tiles of {shape[-1]}: TMA moves whole chunks of 16 bytes,"
            f" so make both multiples of {chunk}",
            f"an innermost extent that is a multiple of {chunk}",
        )
    if len(shape) == 2 and (shape[0] % 8 or shape[0] > 256):
        raise Unshared(f"a load of {shape[0]} rows; tiles have a multiple of 8, 256 at most")
    for k, valid in enumerate(window.valid):
        if k == 0 and len(shape) == 2 and ends_early(window, forall):
            if panel_of(shape[-1], whole, size) < of_size(PANEL, size):
                raise Unshared("a tile of narrow panels that ends before its tensor does")
            continue  # it comes in pieces
        if valid is not None and not window_ends(window, k, forall):
            raise Unshared(
                "a load ends before its tensor does, where TMA does not clip",
                "extents that are equal, and known to be (the same axis in both tensors)",
            )
    readers = {_via(use.owner.operation) for use in value.uses}
    if not readers <= {"mma", "registers"}:
        raise Unshared(
            "an op that needs other layouts reads a tile in shared memory",
            "factors that products alone read",
        )
    if size != 2 and len(readers) > 1:
        raise Unshared("a factor of f32 or e4m3 that another op reads")
    bounds = [bound for loop in load.loops for bound in list(loop.operands)[:3]]
    ends = [end for end in window.valid if end is not None]
    looked = (window.pages.start, window.pages.count, *window.pages.at) if window.pages else ()
    for entry in (*window.offsets, *ends, *looked, *bounds):
        if not isinstance(entry, int):
            _check_position(entry, forall)


def _check_pages(window: Window) -> None:
    """Whether pages of a tile are boxes: rows of whole swizzled groups, from a page's start on."""
    pages, rows = window.pages, window.shape[0]
    assert pages is not None
    if pages.slot is None or pages.size % SWIZZLED or rows % pages.size or len(window.shape) != 2:
        raise Unshared(
            f"a tile of {rows} rows lies in pages of {pages.size}, which are no boxes of it",
            f"pages of a multiple of {SWIZZLED} rows, and tiles of whole pages",
        )
    if not is_multiple(pages.start, pages.size):
        raise Unshared("a tile that may begin within a page")


def ends_early(window: Window, forall: Any) -> bool:
    """Whether a tile of rows may end before its tensor does, so that what is behind has to become
    0."""
    if len(window.shape) != 2 or window.valid[0] is None:
        return False
    return window.pages is not None or not window_ends(window, 0, forall)


def _check_position(value: Any, forall: Any) -> None:
    """The producer must be able to compute a position: from loop variables, arguments and elements
    of tensors that are there when the kernel begins."""
    if not is_inside(value, forall):
        return
    if isinstance(value, ir.BlockArgument):
        parent = value.owner.owner.operation
        if parent != forall and value != parent.regions[0].blocks[0].arguments[0]:
            raise Unshared("a loop carries the position of a load")
        return
    op = value.owner.operation
    if op.name == "scf.if" and chooses_scalars(op):
        for operand in [*op.operands, *(v for end in _yields(op) for v in end.operands)]:
            _check_position(operand, forall)
        return
    known = op.name == "tensor.extract" and not is_inside(op.operands[0], forall)
    if not known and op.name.split(".")[0] not in ("arith", "affine"):
        raise Unshared(f"'{op.name}' computes the position of a load")
    for operand in list(op.operands)[known:]:
        _check_position(operand, forall)


def _yields(branch: Any) -> list[Any]:
    return [list(region.blocks[0].operations)[-1].operation for region in branch.regions]


__all__ = ["GROUP", "ROWS", "Load", "ends_early", "loads_of", "shape_of", "specialize_warps"]
