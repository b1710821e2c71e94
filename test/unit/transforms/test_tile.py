# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The default tile sizes of the kernels that people write most."""

from __future__ import annotations

from typing import Any

import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.dialects.attributes import CHIP, LONGER, LONGER_FEW, TILE_FEW
from neptune_mlir.dialects.context import parse
from neptune_mlir.dialects.nests import DYNAMIC as D
from neptune_mlir.dialects.program import functions, streams
from neptune_mlir.errors import ScheduleError, UsageError
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import runner
from neptune_mlir.transforms.schedule.tile import kernel_ops
from support.fused_programs import DYNAMIC, Attention
from support.nest_programs import FUSE, Body, Builder, module_of

op = T.make


def tiles(module: Any, passes: str) -> list[list[int]]:
    with module.context, ir.Location.unknown():
        runner.run(module, runner.parse_pipeline(passes))
        return [
            list(k.operation.attributes["neptune.tile"])
            for function in functions(module)
            for k in kernel_ops(function)
        ]


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ([DYNAMIC] * 4 + [128, 128], [1, 1, 64, 64, 0, 0]),
        ([2, 8, 512, 512, 64, 64], [1, 1, 64, 64, 0, 0]),
        ([2, 8, 1, 512, 64, 64], [1, 1, 0, 64, 0, 0]),  # one row
        ([1, 1, 20, 40, 8, 8], [0, 0, 0, 0, 0, 0]),  # all of it fits
        ([2, 8, 512, 512, 640, 640], [1, 1, 64, 64, 64, 64]),  # too long to stay whole
    ],
)
def test_attention(sizes: list[int], want: list[int]) -> None:
    program = Attention(sizes, ())
    assert tiles(program.module, "tile") == [want]


@pytest.mark.parametrize(
    ("depth", "width", "dtype", "room", "want"),
    [
        (64, 64, "f16", "held=24576", (128, 64, 0, 0)),
        (128, 128, "f16", "held=24576", (128, 32, 0, 0)),  # scores count before and behind exp
        (128, 128, "bf16", "held=16384", (64, 64, 0, 0)),
        (192, 128, "f16", "held=24576", (128, 32, 0, 0)),
        (64, 256, "f16", "held=24576", (64, 64, 0, 0)),
        (256, 256, "f16", "held=24576,shared=163", (64, 64, 0, 0)),
        (256, 256, "f16", "held=24576,shared=99", (64, 32, 0, 0)),
        (512, 512, "f16", "held=24576,shared=99", (32, 16, 0, 0)),
        (512, 512, "f16", "held=24576,shared=64", (16, 16, 0, 0)),  # one stage of it fits
        (512, 512, "f32", "held=24576,shared=64", (16, 16, 0, 64)),  # whole columns do not fit
        (128, 128, "f32", "held=24576", (128, 32, 0, 0)),
        (128, 128, "f32", "held=24576,shared=99", (32, 32, 0, 0)),  # weights go there as well
        (64, 64, "f16", "least=16", (64, 64, 0, 0)),
        (40, 72, "f16", "held=24576,least=16", (128, 32, 48, 80)),  # whole instructions
        (40, 72, "f32", "least=16", (64, 64, 0, 0)),
        (40, 72, "f16", "warp_groups=1", (128, 128, 48, 0)),
        (160, 96, "bf16", "warp_groups=1", (128, 128, 0, 0)),
    ],
)  # fmt: skip
def test_the_largest_tiles_that_fit(
    depth: int, width: int, dtype: str, room: str, want: tuple[int, ...]
) -> None:
    program = Attention([DYNAMIC] * 4 + [depth, width], (), dtype=dtype)
    assert tiles(program.module, f"tile{{{room}}}") == [[1, 1, *want]]


def test_heads_that_share_keys_stay_apart() -> None:
    program = Attention([1, 8, 64, 64, 64, 64], (), group=4)
    assert tiles(program.module, "tile")[0][1] == 1


def softmax(f: Builder, x: Any) -> list[Any]:
    dims = (x, 0), (x, 1), (x, 2)
    m = f.reduce("max", f.at(x, 0, 1, 2), *dims, result=[0, 1])
    e = f.map(op("exp", op("sub", f.at(x, 0, 1, 2), f.at(m, 0, 1))), *dims)
    total = f.reduce("add", f.at(e, 0, 1, 2), *dims, result=[0, 1])
    return [f.map(op("div", f.at(e, 0, 1, 2), f.at(total, 0, 1)), *dims)]


def log_sum_exp(f: Builder, x: Any) -> list[Any]:
    dims = (x, 0), (x, 1), (x, 2)
    m = f.reduce("max", f.at(x, 0, 1, 2), *dims, result=[0, 1])
    e = op("exp", op("sub", f.at(x, 0, 1, 2), f.at(m, 0, 1)))
    total = f.reduce("add", e, *dims, result=[0, 1])
    return [f.map(op("add", op("log", f.at(total, 0, 1)), f.at(m, 0, 1)), (x, 0), (x, 1))]


def matmul(f: Builder, x: Any, y: Any) -> list[Any]:
    product = op("mul", f.at(x, 0, 2), f.at(y, 2, 1))
    return [f.reduce("add", product, (x, 0), (y, 1), (x, 1), result=[0, 1])]


def matmul_of_batches(f: Builder, x: Any, y: Any) -> list[Any]:
    product = op("mul", f.at(x, 0, 1, 3), f.at(y, 3, 2))
    dims = (x, 0), (x, 1), (y, 1), (x, 2)
    return [f.reduce("add", product, *dims, result=[0, 1, 2])]


def matmul_by_panels(f: Builder, x: Any, y: Any) -> list[Any]:
    product = op("mul", f.at(x, 0, 3), f.at(y, 1, 2, 3))
    dims = (x, 0), (y, 0), (y, 1), (x, 1)
    return [f.reduce("add", product, *dims, result=[0, 1, 2])]


def two_products(f: Builder, x: Any, v: Any, w: Any) -> list[Any]:
    """Of softmax weights of x, both in one pass over their sum's axis."""
    m = f.reduce("max", f.at(x, 0, 1), (x, 0), (x, 1), result=[0])
    e = f.map(op("exp", op("sub", f.at(x, 0, 1), f.at(m, 0))), (x, 0), (x, 1))
    made = [op("mul", f.at(e, 0, 1), f.at(y, 1, 2)) for y in (v, w)]
    return [
        f.reduce("add", body, (x, 0), (x, 1), (y, 1), result=[0, 2])
        for body, y in zip(made, (v, w), strict=True)
    ]


def row_sum(f: Builder, x: Any) -> list[Any]:
    return [f.reduce("add", f.at(x, 0, 1), (x, 0), (x, 1), result=[0])]


def column_sum(f: Builder, x: Any) -> list[Any]:
    return [f.reduce("add", f.at(x, 0, 1), (x, 0), (x, 1), result=[1])]


def exponential(f: Builder, x: Any) -> list[Any]:
    return [f.map(op("exp", f.at(x, 0, 1)), (x, 0), (x, 1))]


@pytest.mark.parametrize(
    ("body", "shapes", "result", "passes", "want"),
    [
        (softmax, [[D, D, D]], [D, D, D], f"{FUSE},tile", [[1, 16, 256]]),
        (softmax, [[D, D, D]], [D, D, D], f"{FUSE},privatize{{chunks=4}},tile",
         [[1, 16, 256], [0, 1, 16, 256]]),
        (matmul, [[D, D], [D, D]], [D, D], "tile", [[64, 64, 64]]),
        (matmul, [[900, 96], [96, 48]], [900, 48], "tile", [[64, 0, 0]]),
        (matmul_of_batches, [[D, D, D], [D, D]], [D, D, D], "tile", [[1, 64, 64, 64]]),
        (matmul_of_batches, [[D, 1, D], [D, D]], [D, 1, D], "tile", [[64, 0, 64, 64]]),
        (matmul_by_panels, [[D, D], [D, D, D]], [D, D, D], "tile", [[64, 1, 64, 64]]),
        (row_sum, [[D, D]], [D], "tile", [[16, 256]]),
        (column_sum, [[D, D]], [D], "tile", [[64, 256]]),
        (exponential, [[D, 100]], [D, 100], "tile", [[16, 0]]),
    ],
)  # fmt: skip
def test_other_kernels(
    body: Body, shapes: list[list[int]], result: list[int], passes: str, want: list[list[int]]
) -> None:
    module = module_of(body, [(s, "f32") for s in shapes], [(result, "f32")])
    assert tiles(module, passes) == want


def column_mean(f: Builder, x: Any) -> list[Any]:
    total = f.reduce("add", f.at(x, 0, 1), (x, 0), (x, 1), result=[1])
    return [f.map(op("sub", f.at(x, 0, 1), f.at(total, 1)), (x, 0), (x, 1))]


@pytest.mark.parametrize(
    ("body", "shape", "want"),
    [
        (softmax, [D, D, 4096], [1, 1, 0]),  # a row in the registers of 128 threads
        (softmax, [D, D, 3072], [1, 4, 1024]),
        (softmax, [D, D, 16384], [1, 1, 4096]),
        (softmax, [D, D, 768], [1, 16, 256]),
        (softmax, [D, D, D], [1, 16, 256]),  # nobody knows how long rows are
        (column_mean, [4096, D], [256, 16]),  # it does not read along rows
    ],
)  # fmt: skip
def test_whole_rows(body: Body, shape: list[int], want: list[int]) -> None:
    for room in ("held=24576", "warp_groups=1"):
        module = module_of(body, [(shape, "f32")], [(shape, "f32")])
        assert tiles(module, f"{FUSE},tile{{{room}}}") == [want]


@pytest.mark.parametrize(
    ("body", "shape", "more", "want"),
    [
        (softmax, [D, D, 8192], "", [1, 1, 0]),  # held whole: it is read again
        (softmax, [D, D, 16384], "", [1, 1, 0]),  # in shared memory, beside exponentials
        (softmax, [D, D, 16388], "", [1, 1, 0]),
        (softmax, [D, D, 8191], "", [1, 1, 0]),
        (softmax, [D, D, 50257], "", [1, 1, 8192]),  # the last tile is not full
        (softmax, [D, D, 12288], "", [1, 1, 0]),
        (softmax, [D, D, 12800], "", [1, 1, 0]),
        (softmax, [D, D, 12801], "", [1, 1, 8192]),  # no chunks, and no tile of short pieces
        (softmax, [D, D, 57344], "", [1, 1, 0]),  # one a multiprocessor
        (softmax, [D, D, 57856], "", [1, 1, 8192]),
        (softmax, [D, D, D], "", [1, 4, 256]),
        (softmax, [D, D, D], " length=512", [1, 1, 1024]),
        (softmax, [D, D, D], " length=3072", [1, 1, 4096]),
        (softmax, [D, D, D], " length=8192 few=1", [1, 1, 16384]),
        (softmax, [D, D, D], " length=8192", [1, 1, 8192]),
        (column_mean, [4096, D], "", [16, 256]),  # neighbours read neighbouring columns
    ],
)  # fmt: skip
def test_rows_with_a_program_of_many_warps(
    body: Body, shape: list[int], more: str, want: list[int]
) -> None:
    module = module_of(body, [(shape, "f32")], [(shape, "f32")])
    with module.context:
        CHIP.set(module.operation, "sm_90a")
    assert tiles(module, f"{FUSE},tile{{held=24576{more}}}") == [want]
    (stream,) = streams(module)
    noted = D in shape[-1:] and body is softmax and not more
    assert LONGER.find(stream.operation, ()) == ((512, 3072, 8192) if noted else ())
    kept = want[-1] == 0 and shape[-1] % 4 == 0  # whole chunks of a row are in shared memory
    assert LONGER_FEW.on(stream.operation) == (noted or kept or shape[-1] > 12288)


@pytest.mark.parametrize(
    ("body", "more", "want", "starts"),
    [
        (softmax, "", [1, 4, 256], (513, 2049, 4097)),
        (softmax, " length=1025", [1, 1, 1024], ()),  # calls with up to 2048 take these:
        (softmax, " most=1536", [1, 1, 1536], ()),
        (softmax, " most=2048", [1, 1, 2048], ()),
        (softmax, " length=2049", [1, 1, 4096], ()),
        (softmax, " length=4097", [1, 1, 8192], ()),
        (softmax, " length=8192 few=1", [1, 1, 16384], ()),
        (row_sum, " length=513", [4, 1024], ()),  # nothing but a number a row is kept
    ],
)  # fmt: skip
def test_rows_of_whole_chunks(
    body: Body, more: str, want: list[int], starts: tuple[int, ...]
) -> None:
    shape = [D] * len(want)
    module = module_of(body, [(shape, "f32")], [(shape[: 3 if body is softmax else 1], "f32")])
    with module.context:
        CHIP.set(module.operation, "sm_90a")
    found = tiles(module, f"assume-chunks,{FUSE},tile{{held=24576{more}}}")
    assert found == [want]
    assert not starts or LONGER.of(streams(module)[0].operation) == starts


@pytest.mark.parametrize(
    ("body", "n", "most"), [(log_sum_exp, D, 8), (log_sum_exp, 32000, 4), (softmax, D, 1)]
)
def test_up_to_how_many_rows_a_multiprocessor_large_tiles_are_for(
    body: Body, n: int, most: int
) -> None:
    """Small tiles of rows that are read once are for calls with many programs."""
    shape, few = [D, D, n], 1 if most == 1 else 2

    def tiled(more: str) -> tuple[Any, list[list[int]]]:
        module = module_of(body, [(shape, "f32")], [(shape[: 4 - few], "f32")])
        with module.context:
            CHIP.set(module.operation, "sm_90a")
        return module, tiles(module, f"assume-chunks,{FUSE},tile{{held=24576{more}}}")

    module, _ = tiled("")
    assert LONGER_FEW.of(streams(module)[0].operation) == (8192, most)
    assert tiled(f" length=8192 few={few}")[1] == [[1, 1, 16384 // few]]


def test_a_sum_of_rows_alone_has_a_row_a_program() -> None:
    module = module_of(row_sum, [([D, 4096], "f32")], [([D], "f32")])
    with module.context:
        CHIP.set(module.operation, "sm_90a")
    assert tiles(module, "tile{held=24576}") == [[1, 0]]


def test_a_row_that_all_results_share_is_a_table() -> None:
    """A program for each of many results would have a few threads at work: a table is short, or
    comes from a near cache."""

    def largest_product(f: Builder, x: Any, table: Any) -> list[Any]:
        product = op("mul", f.at(table, 1), f.scalar(x))
        return [f.reduce("max", product, (table, 0), (table, 0), result=[0])]

    module = module_of(largest_product, ["f32", ([D], "f32")], [([D], "f32")])
    with module.context:
        CHIP.set(module.operation, "sm_90a")
    assert tiles(module, "tile{held=24576 product-rows=1}") == [[128, 32]]


@pytest.mark.parametrize(
    ("shape", "want"),
    [
        ([4096, 65536], [16, 256]),
        ([4096, 4096], [64, 64]),  # of few columns: as many programs as there can be
        ([4096, 4095], [64, 256]),  # columns that are moved one by one, by many warps
        ([64, 4095], [0, 64]),  # all that lies across them
        ([32, 4096], [0, 128]),
        ([4, 4096], [0, 256]),
    ],
)
def test_columns_that_are_reduced_alone(shape: list[int], want: list[int]) -> None:
    def column_maxima(f: Builder, x: Any) -> list[Any]:
        return [f.reduce("max", f.at(x, 0, 1), (x, 0), (x, 1), result=[1])]

    module = module_of(column_maxima, [(shape, "f32")], [(shape[1:], "f32")])
    with module.context:
        CHIP.set(module.operation, "sm_90a")
    assert tiles(module, "tile{held=24576}") == [want]


@pytest.mark.parametrize(("room", "want"), [("{held=8192}", [1, 1, 1024]), ("", [1, 16, 256])])
def test_rows_where_registers_are_few(room: str, want: list[int]) -> None:
    module = module_of(softmax, [([D, D, 4096], "f32")], [([D, D, 4096], "f32")])
    assert tiles(module, f"{FUSE},tile{room}") == [want]


@pytest.mark.parametrize(
    ("words", "want"),
    [(0, [4, 0, 64]), (2048, [2, 0, 64]), (1024, [1, 0, 64]), (512, [1, 0, 32])],
)
def test_fewer_words_without_products(words: int, want: list[int]) -> None:
    """A sum over rows of what is computed of them, beside the columns of a table."""

    def weighted(f: Builder, x: Any, table: Any) -> list[Any]:
        weight = op("exp", f.at(x, 2, 0))
        body = op("mul", weight, f.at(table, 2, 1))
        return [f.reduce("add", body, (x, 1), (table, 1), (x, 0), result=[0, 1])]

    module = module_of(weighted, [([D, D], "f32"), ([D, 16], "f32")], [([D, 16], "f32")])
    with module.context:
        CHIP.set(module.operation, "gfx1100")
    assert tiles(module, f"tile{{words={words}}}") == [want]
    matrix = module_of(matmul, [([D, D], "f32"), ([D, D], "f32")], [([D, D], "f32")])
    assert tiles(matrix, f"tile{{words={words}}}") == [[64, 64, 64]]


def test_columns_of_two_products() -> None:
    shapes, results = ([D, D], [D, 32], [D, 48]), ([D, 32], [D, 48])
    given = [[(s, "f32") for s in sizes] for sizes in (shapes, results)]
    (sizes,) = tiles(module_of(two_products, *given), f"{FUSE},tile")
    assert sorted(sizes) == [0, 0, 64, 64]


def test_sizes_given_for_streams() -> None:
    program = Attention([DYNAMIC] * 4 + [64, 64], ())
    assert tiles(program.module, "tile{sizes=1x2x32x16x0x8}") == [[1, 2, 32, 16, 0, 8]]


def test_bad_sizes_are_refused() -> None:
    program = Attention([DYNAMIC] * 4 + [64, 64], ())
    with pytest.raises(ScheduleError, match="2 tile sizes for 6 axes"):
        tiles(program.module, "tile{sizes=1x2}")
    with pytest.raises(UsageError, match="1x64x0"):
        tiles(program.module, "tile{sizes=1x-2}")


@pytest.mark.parametrize(
    ("sizes", "group", "want"),
    [
        ([2, 8, 1, 512, 64, 64], 4, [1, 4, 0, 64, 0, 0]),  # heads that share keys are rows
        ([2, 8, 1, 512, 64, 64], 1, [1, 1, 16, 64, 0, 0]),  # one row is padded
        ([2, 40, 1, 512, 64, 64], 20, [1, 10, 0, 64, 0, 0]),  # as many as fit one instruction
        ([2, 128, 1, 512, 64, 64], 128, [1, 64, 0, 64, 0, 0]),  # or several
        ([2, 74, 1, 512, 64, 64], 37, [1, 1, 16, 64, 0, 0]),
        ([2, 8, 4, 512, 64, 64], 4, [1, 1, 0, 64, 0, 0]),  # rows enough
    ],
)
def test_least_rows(sizes: list[int], group: int, want: list[int]) -> None:
    program = Attention(sizes, (), group=group)
    assert tiles(program.module, "tile{least=16}") == [want]


def test_a_join_of_a_number_known_at_run_time() -> None:
    """The chunk axis takes as many as there can be; the few of them with many rows apart."""
    program = Attention([DYNAMIC, 8, 1, DYNAMIC, 64, 64], (), group=8)
    passes = "tile{least=16,stream=32},privatize{chunks=0,programs=100},tile{columns=32}"
    stream, join = tiles(program.module, passes)
    assert stream == [1, 8, 0, 32, 0, 0]
    assert join == [100, 1, 1, 0, 1, 1, 32]
    _, op = kernel_ops(next(iter(functions(program.module))))
    assert TILE_FEW.of(op.operation) == ((8, 1, 1, 0, 1, 1, 0), (32, 1, 1, 0, 1, 1, 0))


def test_a_join_of_two_chunks_of_wide_results() -> None:
    """A join for 8 takes a row a program there, and asks for 6 chunks that may not be there."""
    program = Attention([DYNAMIC, 8, 1, DYNAMIC, 64, 512], (), group=8)
    tiles(program.module, "tile{stream=32},privatize{chunks=0,programs=100},tile{columns=32}")
    _, op = kernel_ops(next(iter(functions(program.module))))
    assert [sizes[0] for sizes in TILE_FEW.of(op.operation)][:2] == [2, 8]


def test_chunks_for_programs_need_tile_sizes() -> None:
    program = Attention([DYNAMIC] * 4 + [64, 64], ())
    with pytest.raises(ScheduleError, match="no tile sizes"):
        tiles(program.module, "privatize{chunks=0,programs=100}")


def test_a_statistic_of_rows_beside_the_result_changes_nothing() -> None:
    """Its axes stand behind those of the result, and yet the column is the result's."""
    from neptune_mlir import ops
    from neptune_mlir.pipelines import common

    found = []
    for lse in (False, True):
        program = ops.attention(head_dim=64, dtype="f16", return_lse=lse)
        module = parse(program.to_mlir())
        runner.run(module, common.IMPORT)
        found.append(tiles(module, f"{FUSE},tile"))
    assert found[0] == found[1] == [[1, 1, 64, 64, 0, 0]]
