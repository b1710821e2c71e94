# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single tile ops on the CPU against NumPy: reductions, maps and contractions of awkward sizes,
on arrays of awkward strides."""

import functools

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.dialects.context import parse
from neptune_mlir.pipelines import cpu
from neptune_mlir.runtime import CpuExecutable
from support.tile_programs import single

TYPES = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i32": np.int32,
         "i64": np.int64, "i1": np.bool_}  # fmt: skip
SHAPES = [(5, 7), (33, 17), (1, 130), (64, 1)]


def sample(shape, dtype, rng):
    if dtype.startswith("f"):
        return rng.standard_normal(shape).astype(TYPES[dtype])
    return rng.integers(0, 2 if dtype == "i1" else 40, shape).astype(TYPES[dtype])


def backwards(array):
    """Equal elements behind negative, non-unit, transposed strides."""
    if not array.ndim:
        return array
    room = np.zeros([2 * n for n in array.shape[::-1]], array.dtype)
    view = room.T[tuple(slice(None, None, -2) for _ in array.shape)]
    view[...] = array
    return view


def check(body, maps, kinds, inputs, output, init, reference, tolerance=1e-5):
    text = single(body, maps, kinds, inputs, output, init)
    run = CpuExecutable(cpu.compile_tiles(parse(text)))
    rng = np.random.default_rng(0)
    arrays = [sample(shape, dtype, rng) for shape, dtype in inputs]
    wanted = np.asarray(reference(*arrays))
    for given in (arrays, [backwards(a) for a in arrays]):
        got = run(*given)
        assert got.shape == tuple(output[0]) and got.dtype == TYPES[output[1]]
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance
        )


@functools.cache
def norm():
    return neptune.compile(ops.rms_norm())


ROW, COLUMN, ALL = (
    ("(i, j) -> (i)", "pr", 1),
    ("(i, j) -> (j)", "rp", 0),
    ("(i, j) -> ()", "rr", None),
)
REDUCTIONS = {
    "add": ("arith.addf", "f32", "0.0", np.sum),
    "max": ("arith.maximumf", "f32", "0xFF800000", np.max),
    "min": ("arith.minsi", "i64", "9223372036854775807", np.min),
    "and": ("arith.andi", "i1", "true", np.all), "or": ("arith.ori", "i1", "false", np.any),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", [ROW, COLUMN, ALL])
@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_reduction(name, way, shape):
    op, dtype, init, numpy = REDUCTIONS[name]
    out, kinds, axis = way
    result = [] if axis is None else [shape[1 - axis]]
    check(f"%y = {op} %acc, %a0 : {dtype}\nlinalg.yield %y : {dtype}", ["(i, j) -> (i, j)", out],
          kinds, [(shape, dtype)], (result, dtype), init, lambda x: numpy(x, axis))  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_combiner_of_many_ops(shape):
    body = """%m = arith.maximumf %acc, %a0 : f32
    %d = arith.subf %acc, %m : f32
    %e = math.exp %d : f32
    %d2 = arith.subf %a0, %m : f32
    %e2 = math.exp %d2 : f32
    %s = arith.addf %e, %e2 : f32
    %l = math.log %s : f32
    %y = arith.addf %m, %l : f32
    linalg.yield %y : f32"""
    check(body, ["(i, j) -> (i, j)", "(i, j) -> (i)"], "pr", [(shape, "f32")], (shape[:1], "f32"),
          "-1.0e30", lambda x: np.log(np.exp(x.astype(np.float64)).sum(1)))  # fmt: skip


def test_quotients_by_one_number():
    """A division by what is one number for a row is right for all numbers there are: the nearest,
    or its neighbour where parts of it underflow."""
    f32 = np.finfo(np.float32)
    ends = [0.0, 1.0, 3.0, 1e-45, 1e-39, f32.tiny, 1e-20, 7e19, f32.max, np.inf, np.nan]
    divisors = np.array([s * e for e in ends for s in (1, -1)], np.float32)
    rng = np.random.default_rng(0)
    plain = rng.standard_normal(40) * 2.0 ** rng.integers(-120, 120, 40)
    x = np.concatenate([divisors, plain.astype(np.float32)])
    rows = np.broadcast_to(x, (len(divisors), len(x))).copy()
    body = "%y = arith.divf %a0, %a1 : f32\nlinalg.yield %y : f32"
    same, row = "(i, j) -> (i, j)", "(i, j) -> (i)"
    inputs = [(rows.shape, "f32"), (divisors.shape, "f32")]
    text = single(body, [same, row, same], "pp", inputs, (rows.shape, "f32"))
    got = CpuExecutable(cpu.compile_tiles(parse(text)))(rows, divisors)
    with np.errstate(all="ignore"):
        wanted = rows / divisors[:, None]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    one = np.spacing(np.minimum(np.abs(wanted[finite]), f32.max / 2))
    assert (np.abs(got[finite].astype(np.float64) - wanted[finite]) <= one).all()
    exact = finite & (np.abs(rows) > 1e-20) & (np.abs(wanted) > 1e-20)
    np.testing.assert_array_equal(got[exact], wanted[exact])


@pytest.fixture(scope="module")
def softmax():
    return neptune.compile(ops.softmax(), target="cpu")


@pytest.mark.parametrize("shape", [(1, 1), (3, 255), (17, 256), (33, 20), (2, 600)])
def test_rows_where_they_lie(softmax, shape):
    """Rows are read and written in the arrays themselves, and nothing beside them, whatever the
    strides; what is behind the end of a row has no part in it."""
    rng = np.random.default_rng(0)
    n, m = shape
    room = np.full((n + 2, m + 3), np.nan, np.float32)
    rows = room[1:-1, 1:-2]
    rows[...] = rng.standard_normal(shape)
    wanted = np.exp(rows.astype(np.float64) - rows.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    for given in (rows, np.asfortranarray(rows), backwards(rows)):
        for place in (np.empty((n + 2, m + 2), np.float32), np.empty((m + 2, n + 2), np.float32).T):
            place[...] = 7
            softmax(given, out=place[1:-1, 1:-1])
            np.testing.assert_allclose(place[1:-1, 1:-1], wanted, rtol=2e-6, atol=1e-7)
            place[1:-1, 1:-1] = 7
            assert (place == 7).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_maps(shape):
    same, row, turned = "(i, j) -> (i, j)", "(i, j) -> (i)", "(i, j) -> (j, i)"
    check("%b = arith.extf %a0 : f16 to f32\n%y = arith.addf %b, %a1 : f32\nlinalg.yield %y : f32",
          [same, turned, same], "pp", [(shape, "f16"), (shape[::-1], "f32")], (shape, "f32"), None,
          lambda a, b: a.astype(np.float32) + b.T)  # fmt: skip
    check("%b = arith.truncf %a0 : f32 to f16\nlinalg.yield %b : f16", [same, turned], "pp",
          [(shape, "f32")], (shape[::-1], "f16"), None,
          lambda a: a.astype(np.float16).T)  # fmt: skip
    check("%b = math.exp %a0 : f16\n%y = arith.addf %b, %a1 : f16\nlinalg.yield %y : f16",
          [same, row, same], "pp", [(shape, "f16"), (shape[:1], "f16")], (shape, "f16"), None,
          lambda a, b: np.exp(a) + b[:, None], 3e-3)  # fmt: skip
    check("%b = math.exp %a0 : f64\n%y = math.powf %b, %a1 : f64\nlinalg.yield %y : f64",
          [same, row, same], "pp", [(shape, "f64"), (shape[:1], "f64")], (shape, "f64"), None,
          lambda a, b: np.exp(a) ** b[:, None], 1e-12)  # fmt: skip
    check("%y = arith.cmpf ogt, %a0, %a1 : f32\nlinalg.yield %y : i1", [same, row, same], "pp",
          [(shape, "f32"), (shape[:1], "f32")], (shape, "i1"), None,
          lambda a, b: a > b[:, None])  # fmt: skip


def test_positions_and_division():
    """`linalg.index`; and lanes past the end of a tile are not divided by."""
    body = """%p = linalg.index 0 : index
    %q = linalg.index 1 : index
    %c = arith.cmpi sle, %q, %p : index
    %z = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %d = arith.addi %a1, %one : i32
    %v = arith.divsi %a0, %d : i32
    %y = arith.select %c, %v, %z : i32
    linalg.yield %y : i32"""
    check(body, ["(i, j) -> (i, j)", "(i, j) -> (j)", "(i, j) -> (i, j)"], "pp",
          [((19, 21), "i32"), ((21,), "i32")], ((19, 21), "i32"), None,
          lambda a, b: np.tril(a // (b + 1)))  # fmt: skip


def test_shared_rows():
    """A dimension read divided by a constant (grouped heads)."""
    check("%y = arith.addf %a0, %a1 : f32\nlinalg.yield %y : f32",
          ["(i, j) -> (i floordiv 4, j)", "(i, j) -> (i, j)", "(i, j) -> (i, j)"], "pp",
          [((3, 5), "f32"), ((12, 5), "f32")], ((12, 5), "f32"), None,
          lambda a, b: np.repeat(a, 4, 0) + b)  # fmt: skip


PRODUCT = "%m = arith.mulf {a}, {b} : f32\n%y = arith.addf %acc, %m : f32\nlinalg.yield %y : f32"
WIDE = PRODUCT.format(a="%a0", b="%a1")
NARROW = "%w0 = arith.extf %a0 : f16 to f32\n%w1 = arith.extf %a1 : f16 to f32\n" + PRODUCT.format(
    a="%w0", b="%w1"
)


@pytest.mark.parametrize("width", [3, 16, 33])
def test_convolution(width):
    """Neighbours along a loop that another one moves; sums of 30 products about 1."""
    maps = ["(f, o, c, k) -> (c, o + k * 2)", "(f, o, c, k) -> (f, c, k)", "(f, o, c, k) -> (f, o)"]

    def reference(x, w):
        x, w = x.astype(np.float64), w.astype(np.float64)
        return sum(w[:, :, k] @ x[:, 2 * k : 2 * k + width] for k in range(5)) + 0.5

    check(WIDE, maps, "pprr", [((6, width + 8), "f32"), ((4, 6, 5), "f32")],
          ((4, width), "f32"), "0.5", reference)  # fmt: skip


@pytest.mark.parametrize("sizes", [(5, 7, 3), (33, 17, 65), (64, 1, 9), (3, 130, 5)])
@pytest.mark.parametrize("orders", ["mk,kn,mn", "km,nk,nm", "mk,nk,mn", "km,kn,nm"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_contraction(sizes, orders, dtype):
    contract(orders, dict(zip("mnk", sizes, strict=True)), dtype)


@pytest.mark.parametrize(
    "orders",
    ["bmk,bnk,mbn", "mkl,lnk,mn", "k,nk,n", "k,kn,n", "k,k,", "bk,bk,b", "mkl,nk,mn"],
)
def test_contraction_of_other_ranks(orders):
    contract(orders, {"b": 3, "m": 8, "n": 40, "k": 70, "l": 5}, "f32")


def contract(orders, sizes, dtype):
    a, b, c = orders.split(",")
    loops = list(dict.fromkeys(c + a + b))
    kinds = "".join("p" if x in c else "r" for x in loops)
    domain = ", ".join(loops)
    maps = [f"({domain}) -> ({', '.join(t)})" for t in (a, b, c)]
    shape = [[sizes[x] for x in t] for t in (a, b, c)]
    check(WIDE if dtype == "f32" else NARROW, maps, kinds, [(shape[0], dtype), (shape[1], dtype)],
          (shape[2], "f32"), "0.5",
          lambda x, y: np.einsum(f"{a},{b}->{c}", x.astype(np.float64), y.astype(np.float64)) + 0.5,
          1e-4)  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "cols", "start"),
    [
        (6150, 1024, 0),  # past the caches: whole lines, 25 MB
        (6150, 1024, 1),  # lines that rows share with their neighbours
        (6200, 1021, 0),
        (800, 8192, 0),  # rows longer than a tile
    ],
)
def test_large_results(rows, cols, start):
    """Wherever the result begins in a line, and in memory around which nothing changes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, cols), dtype=np.float32)
    w = rng.standard_normal(cols, dtype=np.float32)
    room = np.full(rows * cols + 64, 7, np.float32)
    first = -room.ctypes.data // 4 % 16 + start  # counted from a line
    out = room[first : first + rows * cols].reshape(rows, cols)
    norm()(x, w, out=out)
    wanted = x * (w / np.sqrt(np.mean(np.square(x), 1, keepdims=True) + 1e-6))
    np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=2e-5)
    assert (room[:first] == 7).all()
    assert (room[first + rows * cols :] == 7).all()
