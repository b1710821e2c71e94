# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long products take, by their tiles: what a choice of tiles rests on."""

import pytest

from neptune_mlir.pipelines.product_cases import WHOLE_SUM, tiles_worth
from neptune_mlir.runtime.plan import evaluate
from neptune_mlir.targets.product_tiles import (
    STREAMED,
    TILES,
    WHOLE,
    Product,
    ProductTile,
    ahead_cycles,
    cut_cycles,
    tiles_of,
    whole_cycles,
)

CHIP = 132


def time(expression, shapes=()):
    return evaluate(expression, shapes, (), CHIP)


def test_tiles_are_counted_in_a_batch():
    product = Product(130, 1000, 3, 64)
    assert time(tiles_of(product, WHOLE)) == 2 * 4 * 3
    known = Product(["dim", 0, 0], ["dim", 1, 1], 1, ["dim", 0, 1])
    assert not known.is_known and product.is_known
    assert time(tiles_of(known, WHOLE), [(130, 64), (64, 1000)]) == 2 * 4


def test_pairs_have_an_even_number_of_tiles():
    product = Product(300, 700, 2, 64)
    counts = [time(tiles_of(product, ProductTile(128, 128, pairs))) for pairs in (0, 1, 2)]
    assert counts == [3 * 6 * 2, 3 * 6 * 2, 4 * 6 * 2]
    assert [ProductTile(128, 192, pairs).beside for pairs in (0, 1, 2)] == [1137, 910, 796]


def test_blocks_share_long_sums_of_few_programs():
    def saved(rows, length):
        product = Product(rows, 4096, 1, length)
        alone, shared = (whole_cycles(product, ProductTile(128, 128, sums=n)) for n in (1, 2))
        return time(alone) - time(shared)

    assert saved(256, 4096) > 0 > saved(256, 512)
    assert saved(512, 4096) < 0  # twice as many programs do not run at once


def test_a_factor_that_programs_compute_for_long_is_computed_ahead():
    def saved(rows, columns, length):
        product = Product(rows, columns, 1, length, computed=True)
        tile = ProductTile(128, 128)
        return time(whole_cycles(product, tile)) - time(ahead_cycles(product, tile))

    assert saved(486, 2624, 7552) > 0 > saved(349, 6336, 512)  # as measured on an H200


@pytest.mark.parametrize("tile", [WHOLE, *TILES, *STREAMED])
def test_a_round_more_takes_its_time(tile):
    """So many programs as multiprocessors, and one more."""
    full = whole_cycles(Product(CHIP * tile.rows, tile.columns, 1, 4096), tile)
    more = whole_cycles(Product(CHIP * tile.rows + 1, tile.columns, 1, 4096), tile)
    twice = whole_cycles(Product(2 * CHIP * tile.rows, tile.columns, 1, 4096), tile)
    assert time(full) < time(more) <= time(twice) == 2 * time(full)


def test_a_result_narrower_than_a_tile_takes_less():
    wide, narrow = (whole_cycles(Product(128, n, 1, 4096), WHOLE) for n in (256, 64))
    assert time(narrow) < time(wide)


def test_chunks_save_time_where_programs_are_few():
    deep, tile = Product(128, 128, 1, 1 << 16), ProductTile(128, 128)
    assert time(cut_cycles(deep, tile, 64)) < time(whole_cycles(deep, tile)) / 8
    short = Product(128, 128, 1, 256)
    assert time(cut_cycles(short, tile, 4)) > time(whole_cycles(short, tile))


@pytest.mark.parametrize(
    ("rows", "columns", "length", "tile"),
    [
        (1009, 4608, 3584, ProductTile(128, 192)),  # 192 programs for 144, of which 12 are alone
        (2048, 6400, 2048, WHOLE),
    ],
)
def test_columns_that_are_reduced_have_the_tile_that_ends_first(rows, columns, length, tile):
    product = Product(rows, columns, 1, length, streamed=True)
    assert min((WHOLE, *STREAMED), key=lambda t: time(whole_cycles(product, t))) == tile


def test_wide_pairs_where_all_but_the_rows_is_known():
    wide = ProductTile(128, 256, pairs=2)
    assert tiles_worth(Product(2048, 8192, 1, 8192)) == [(WHOLE_SUM, wide)]
    odd = Product(4099, 6144, 1, 4096)  # an odd number of tiles of rows
    rows, columns = ["dim", 0, 0], ["dim", 1, 1]
    assert (WHOLE_SUM, wide) in tiles_worth(Product(rows, 8192, 1, 8192))
    others = odd, Product(rows, columns, 1, 8192)
    assert all(tile != wide for product in others for _, tile in tiles_worth(product))


def test_three_blocks_share_the_sum_of_narrow_tiles():
    """105 programs of 37 steps end before 80 of 55, as measured on an H200 (20.4 and 24.0 us)."""
    product = Product(604, 448, 1, 6976)
    three, two = (
        time(whole_cycles(product, tile))
        for tile in (ProductTile(128, 64, sums=3), ProductTile(64, 128, sums=2))
    )
    assert three < 0.95 * two
