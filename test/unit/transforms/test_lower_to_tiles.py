# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fused attention lowered to tiles and executed, on awkward sizes, against float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neptune_mlir.algebra import terms as T
from neptune_mlir.ir.bindings import ir
from neptune_mlir.pipelines import runner
from support.chips.tile_exec import rounded, run
from support.fused_programs import DYNAMIC, Attention, Fused

Scalars = dict[str, T.Term]
LENGTH = 17  # value of the run-time scalar that some masks take


def index(n: int) -> T.Term:
    return T.const(n, "index")


def causal(f: Fused, _: Scalars) -> T.Term:
    return T.make("le", f.index("j"), f.index("i"))


def offset(f: Fused, s: Scalars) -> T.Term:
    shift = T.make("sub", s["Nj"], s["Ni"])
    return T.make("le", f.index("j"), T.make("add", f.index("i"), shift))


def window(f: Fused, s: Scalars, width: T.Term | None = None) -> T.Term:
    back = T.make("sub", f.index("i"), f.index("j"))
    return T.make("and", causal(f, s), T.make("lt", back, width or index(20)))


def two_sided(f: Fused, _: Scalars) -> T.Term:
    ahead = T.make("sub", f.index("j"), f.index("i"))
    back = T.make("sub", f.index("i"), f.index("j"))
    return T.make("and", T.make("le", ahead, index(9)), T.make("lt", back, index(20)))


def run_time_window(f: Fused, s: Scalars) -> T.Term:
    return window(f, s, s["s0"])


def key_length(f: Fused, s: Scalars) -> T.Term:
    return T.make("lt", f.index("j"), s["s0"])


def query_length(f: Fused, s: Scalars) -> T.Term:
    return T.make("lt", f.index("i"), s["s0"])


def prefix(f: Fused, s: Scalars) -> T.Term:
    return T.make("or", causal(f, s), T.make("lt", f.index("j"), index(5)))


Meaning = Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]
MASKS: dict[str, tuple[Any, Meaning]] = {
    "none": (None, lambda i, j, ni, nj: i >= 0),
    "causal": (causal, lambda i, j, ni, nj: j <= i),
    "offset": (offset, lambda i, j, ni, nj: j <= i + nj - ni),
    "window": (window, lambda i, j, ni, nj: (j <= i) & (i - j < 20)),
    "two_sided": (two_sided, lambda i, j, ni, nj: (j - i <= 9) & (i - j < 20)),
    "run_time_window": (run_time_window, lambda i, j, ni, nj: (j <= i) & (i - j < LENGTH)),
    "key_length": (key_length, lambda i, j, ni, nj: j < LENGTH),
    "query_length": (query_length, lambda i, j, ni, nj: i < LENGTH),
    "prefix": (prefix, lambda i, j, ni, nj: (j <= i) | (j < 5)),
}


def reference(q: Any, k: Any, v: Any, keep: Any, group: int) -> tuple[Any, Any, Any]:
    """Output, row maximum and row sum; a row without a live key gives 0."""
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = np.where(keep, 0.25 * np.einsum("bhid,bhjd->bhij", q, k), -np.inf)
    m = s.max(-1, initial=-np.inf)
    p = np.exp(s - np.where(np.isinf(m), 0, m)[..., None])
    total = p.sum(-1)
    return (p @ v) / np.where(total == 0, 1, total)[..., None], m, total


def check(
    mask: str,
    ni: int,
    nj: int,
    *,
    dynamic: Sequence[str] = "bhij",
    tile: Sequence[int] = (1, 1, 16, 16, 0, 0),
    shape: Sequence[int] = (1, 2, 4, 6),
    dtype: str = "f32",
    group: int = 1,
    chunks: int | None = None,
    stats: bool = False,
    prune: bool = True,
) -> ir.Module:
    """Lower and run attention with `shape` = (b, h, d, e); returns the tile-level text."""
    b, h, d, e = shape
    sizes = [
        DYNAMIC if name in dynamic else size
        for name, size in zip("bhijde", (b, h, ni, nj, d, e), strict=True)
    ]
    condition, meaning = MASKS[mask]
    program = Attention(
        sizes, tile, mask=condition, scalars=1, dtype=dtype, group=group, chunks=chunks,
        stats=stats,
    )  # fmt: skip
    passes = ("prune-masks," if prune else "") + "lower-correct,tile,lower-to-tiles"
    rng = np.random.default_rng(7)
    q, k, v = (
        rounded(rng.standard_normal(s), dtype)
        for s in ((b, h, ni, d), (b, h // group, nj, d), (b, h // group, nj, e))
    )
    with program.context, ir.Location.unknown():
        runner.run(program.module, runner.parse_pipeline(passes))
        text = str(program.module)
        got = run(program.module, "attention", [q, k, v, LENGTH])
    i, j = np.mgrid[:ni, :nj]
    want = reference(q, k, v, meaning(i, j, ni, nj), group)
    for result, expected in zip(got, want, strict=False):
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6)
    return text


@pytest.mark.first_of_each("mask")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("ni", "nj", "dynamic"), [(37, 40, "bhij"), (65, 33, ""), (3, 127, "ij")])
def test_masks(mask: str, ni: int, nj: int, dynamic: str) -> None:
    check(mask, ni, nj, dynamic=dynamic)


@pytest.mark.parametrize(("ni", "nj"), [(1, 1), (0, 5), (5, 0), (16, 32), (1, 40)])
@pytest.mark.parametrize("dynamic", ["bhij", ""])
def test_small_and_empty(ni: int, nj: int, dynamic: str) -> None:
    check("causal", ni, nj, dynamic=dynamic)


def test_mask_that_was_not_pruned_stays_in_every_tile() -> None:
    text = check("window", 37, 40, prune=False)
    assert text.count("scf.for %") == 2  # whole tiles and the ragged tail


def test_full_tiles_have_no_mask() -> None:
    text = check("window", 64, 64, dynamic="")
    assert text.count("scf.for %") == 3
    last = text.split("scf.for %")[3].split("scf.yield")[0]  # partial, partial, full
    assert "linalg.index" not in last and "tensor.pad" not in last


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_inputs_keep_plain_contractions(dtype: str) -> None:
    text = check("causal", 37, 40, dtype=dtype, shape=(1, 1, 16, 8))
    assert f"arith.extf %in : {dtype} to f32" in text


@pytest.mark.parametrize("heads_tile", [1, 2])
def test_heads_that_share_keys(heads_tile: int) -> None:
    check("causal", 37, 40, tile=(1, heads_tile, 16, 16, 0, 0), shape=(1, 4, 4, 6), group=2)


@pytest.mark.parametrize(
    ("tile", "dynamic", "shape"),
    [
        ((1, 1, 16, 16, 3, 4), "bhij", (1, 2, 8, 6)),  # contraction and columns cut
        ((2, 3, 16, 16, 3, 0), "bhijd", (3, 2, 9, 6)),  # batch tiles, run-time contraction
        ((0, 0, 0, 0, 0, 0), "", (2, 2, 5, 6)),  # nothing cut
        ((1, 1, 1, 16, 0, 0), "bhij", (2, 1, 4, 6)),  # one row a program
        ((1, 1, 16, 1, 0, 0), "j", (1, 2, 4, 6)),  # one key a step
        ((2, 2, 32, 64, 8, 1), "", (1, 1, 3, 3)),  # tiles larger than what they cut
    ],
)
def test_tilings(tile: Sequence[int], dynamic: str, shape: Sequence[int]) -> None:
    check("causal", 19, 21, tile=tile, dynamic=dynamic, shape=shape)


def test_a_padded_sum_loads_its_rows_once() -> None:
    """A depth of 5 in a tile of 8 is a loop that runs once: queries are loaded outside of the
    stream all the same."""
    text = check("none", 32, 32, tile=(1, 1, 16, 16, 8, 0), dynamic="", shape=(1, 1, 5, 4))
    before, _, stream = text.partition("scf.for %")
    rows = "tensor.pad"
    assert before.count(rows) == 1 and stream.count(rows) == 1  # queries; keys


def test_row_statistics_stored_by_several_programs() -> None:
    check("causal", 37, 40, tile=(1, 1, 16, 16, 0, 4), stats=True)


@pytest.mark.parametrize("chunks", [1, 3, 5])
@pytest.mark.parametrize(("mask", "nj", "dynamic"), [("window", 40, "ij"), ("none", 96, "")])
def test_private_and_global(chunks: int, mask: str, nj: int, dynamic: str) -> None:
    check(mask, 19, nj, chunks=chunks, dynamic=dynamic)


def test_more_chunks_than_tiles() -> None:
    check("none", 19, 5, chunks=4, dynamic="")


@st.composite
def tiled_attention(draw: st.DrawFn) -> dict[str, Any]:
    """Any sizes and any legal tiling of them."""
    group = draw(st.sampled_from([1, 2, 3]))
    b, h = draw(st.integers(1, 2)), group * draw(st.integers(1, 2))
    ni, nj, d, e = (draw(st.integers(*r)) for r in ((0, 40), (0, 60), (1, 9), (1, 9)))
    dynamic = draw(st.sets(st.sampled_from("bhijd")))
    tile = []
    for name in "bhijde":
        uncut = [] if name in dynamic or (name == "h" and group > 1) else [0]
        if name == "h":
            cuts = [k for k in range(1, group + 1) if group % k == 0]
        else:
            cuts = [1, 2, 3, 8, 16, 33]
        tile.append(draw(st.sampled_from(uncut + cuts)))
    return {
        "mask": draw(st.sampled_from(sorted(MASKS))), "ni": ni, "nj": nj,
        "shape": (b, h, d, e), "group": group, "dynamic": "".join(sorted(dynamic)),
        "tile": tile, "chunks": draw(st.sampled_from([None, None, 1, 3])),
        "prune": draw(st.booleans()),
    }  # fmt: skip


@settings(max_examples=12, deadline=None, derandomize=True)
@given(tiled_attention())
def test_any_tiling_of_any_size(case: dict[str, Any]) -> None:
    check(case.pop("mask"), case.pop("ni"), case.pop("nj"), **case)
