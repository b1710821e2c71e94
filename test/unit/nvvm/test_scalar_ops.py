# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The simulators' scalar ops against upstream's lowering: the same IR as machine code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from support.chips import scalar_ops, simt
from support.chips.scalar_kernels import Case, compiled, simulate
from support.chips.simt_amd import AmdBlock
from support.chips.simt_hopper import HopperBlock

INTEGERS = ("i1", "i8", "i16", "i32", "i64")


def integers(kind: str) -> np.ndarray:
    if kind == "i1":
        return np.array([0, 1], np.int8)
    if kind == "index":
        return integers("i32").astype(np.int64)
    width = simt.SIZES[kind] * 8
    edges = {0, 1, -1, 2, -2, 3, -3, 7, 100, -101, *(1 << k for k in range(width - 1)),
             *(-(1 << k) for k in range(width)), *((1 << k) - 1 for k in range(width))}  # fmt: skip
    # what lies halfway between floats, a little less and a little more
    edges |= {s * ((1 << k) + (1 << j) + d) for k in range(8, 63) for j in (k - 8, k - 9, k - 11,
              k - 12, k - 24, k - 25, k - 53) if j >= 0 for d in (-1, 0, 1) for s in (-1, 1)}
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    return np.array(sorted(e for e in edges if low <= e <= high), scalar_ops.NUMPY[kind])


def floats(kind: str) -> np.ndarray:
    """Every value of 16-bit types; of the others, edges and what rounds to 16 bits halfway."""
    if kind in ("f16", "bf16"):
        return simt.from_bytes(np.arange(1 << 16, dtype=np.uint16).view(np.uint8), kind)
    rng = np.random.default_rng(3)
    wide = rng.standard_normal(500) * 10.0 ** rng.integers(-50, 50, 500)
    nudges = (0, 2.0**-8, 2.0**-9, 2.0**-11, 2.0**-12, 2.0**-12 + 2.0**-23, 2.0**-24, 2.0**-25,
              3 * 2.0**-25)  # fmt: skip
    with np.errstate(all="ignore"):
        small = np.concatenate([floats(k)[::7].astype(np.float64) for k in ("f16", "bf16")])
        values = np.concatenate([small[~np.isnan(small)], wide])
        values = np.concatenate([values * (1 + nudge) for nudge in nudges])
        return np.append(values, np.nan).astype(scalar_ops.NUMPY[kind])


def values(kind: str) -> np.ndarray:
    return floats(kind) if scalar_ops.is_float(kind) else integers(kind)


def pairs(kind: str) -> list[np.ndarray]:
    found = values(kind)
    if len(found) > 60:
        found = np.concatenate([found[:4], found[-4:], found[:: len(found) // 50]])
    if kind[0] == "i" and kind != "i1":  # among them all distances that a shift may have
        found = np.concatenate([found, np.arange(-3, 65).astype(found.dtype)])
    elif kind != "i1":
        edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-7, 2.0**-130], found.dtype)
        found = np.concatenate([found, edges])
    return [x.ravel() for x in np.meshgrid(found, found)]


def casts() -> list[Case]:
    found = []

    def add(name: str, source: str, target: str) -> None:
        line = f"%y = arith.{name} %a0 : {source} to {target}"
        found.append(Case(line, (source,), target))

    for narrow, wide in itertools.combinations(INTEGERS, 2):
        add("trunci", wide, narrow)
        add("extsi", narrow, wide)
        add("extui", narrow, wide)
    for whole in INTEGERS:
        for real in ("f16", "f32", "f64"):
            add("sitofp", whole, real)
            add("uitofp", whole, real)
            if whole != "i1":
                add("fptosi", real, whole)
                add("fptoui", real, whole)
        for name in ("index_cast", "index_castui"):
            add(name, whole, "index")
            add(name, "index", whole)
    for source, target in (("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")):
        add("extf", source, target)
    for source, target in (("f32", "f16"), ("f32", "bf16"), ("f64", "f32")):
        add("truncf", source, target)
    for one, other in (("f32", "i32"), ("f16", "i16"), ("bf16", "i16"), ("f64", "i64")):
        add("bitcast", one, other)
        add("bitcast", other, one)
    return found


def arithmetic() -> list[Case]:
    found = []
    for kind in ("i1", "i8", "i32", "i64"):
        for name in (*scalar_ops.SIGNED, *scalar_ops.UNSIGNED):
            if kind != "i1" or name in ("andi", "ori", "xori", "addi", "muli", "maxsi", "minui"):
                found.append(Case(f"%y = arith.{name} %a0, %a1 : {kind}", (kind, kind), kind))
        for name in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"):
            found.append(Case(f"%y = arith.cmpi {name}, %a0, %a1 : {kind}", (kind, kind), "i1"))
    for kind in ("f16", "f32", "f64"):
        for name in scalar_ops.FLOATS:
            two = name != "negf"
            if name != "remf":  # a call of the C library
                line = f"%y = arith.{name} %a0{', %a1' if two else ''} : {kind}"
                found.append(Case(line, (kind, kind), kind))
    for name in ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge",
                 "ult", "ule", "une", "uno", "true"):  # fmt: skip
        found.append(Case(f"%y = arith.cmpf {name}, %a0, %a1 : f32", ("f32", "f32"), "i1"))
    return found


def defined(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The operands for which upstream says what comes out."""
    name = case.line.split("arith.")[1].split()[0]
    kind, target = case.kinds[0], case.target
    keep = np.ones(len(arrays[0]), bool)
    if name in ("fptosi", "fptoui"):
        width = simt.SIZES[target] * 8
        low, high = (-(2.0 ** (width - 1)), 2.0 ** (width - 1)) if name == "fptosi" else (
            0, 2.0**width)  # fmt: skip
        with np.errstate(all="ignore"):
            whole = np.trunc(arrays[0].astype(np.float64))
        keep = (whole >= low) & (whole < high)
    elif name in ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi"):
        least = np.iinfo(arrays[0].dtype).min
        keep = (arrays[1] != 0) & ~((arrays[0] == least) & (arrays[1] == -1))
    elif name == "ceildivui":
        keep = arrays[1] != 0
    elif name.startswith("sh"):
        keep = (arrays[1] >= 0) & (arrays[1] < simt.SIZES[kind] * 8)
    elif name == "index_cast" and kind == "i64":  # there and back may be folded to nothing
        keep = (arrays[0] >= -(1 << 31)) & (arrays[0] < 1 << 31)
    return [a[keep] for a in arrays]


def differing(got: np.ndarray, want: np.ndarray, signs: bool) -> np.ndarray:
    """Where results differ: any NaN is as good as another."""
    if got.dtype.kind != "f":
        return got != want
    nan = np.isnan(want)
    wrong = (np.isnan(got) != nan) | ((got != want) & ~nan)
    return wrong | (signs & ~nan & (np.signbit(got) != np.signbit(want)))


@pytest.mark.parametrize("make", [casts, arithmetic])
def test_as_machine_code(make):
    cases = make()
    found = []
    for case, run in zip(cases, compiled(cases), strict=True):
        arrays = [values(case.kinds[0])] if len(case.kinds) == 1 else pairs(case.kinds[0])
        arrays = defined(case, arrays)
        got, want = simulate(case, arrays), run(arrays)
        assert got.dtype == want.dtype
        signs = "num" not in case.line  # maxnum and minnum of zeros have either sign
        wrong = np.flatnonzero(differing(got, want, signs))
        if len(wrong):
            k = wrong[0]
            shown = [a[k] for a in arrays]
            found.append(f"{case.line}: {len(wrong)} wrong, of {shown} {got[k]}, not {want[k]}")
    assert not found, "\n".join(found)


def test_all_chips_have_these_ops():
    """Simulators of other chips compute with the same table."""
    for block in (AmdBlock, HopperBlock):
        own = [name for name in vars(block) if name.startswith(("_arith", "_scalar"))]
        assert own == [], block


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_fma_rounds_once(kind):
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(20000).astype(scalar_ops.NUMPY[kind]) for _ in range(2))
    exact = a.astype(np.float64) * b
    # what nearly cancels the product, and what it is less than a unit of
    tiny = rng.choice([2.0**-30, -(2.0**-30), 1, 2.0**12], len(a))
    c = (np.where(tiny > 1, exact * tiny, -exact) + tiny * exact).astype(a.dtype)
    case = Case(f"%y = math.fma %a0, %a1, %a2 : {kind}", (kind,) * 3, kind)
    got = simulate(case, [a, b, c])
    (run,) = compiled([Case(case.line.replace("math.fma", '"llvm.intr.fma"(').replace(
        f" : {kind}", f") : ({kind}, {kind}, {kind}) -> {kind}"), case.kinds, kind)])  # fmt: skip
    np.testing.assert_array_equal(got, run([a, b, c]))


def test_conversions_saturate():
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300, -300, -1, 255.9, 127.9, 2.0**31])
    for name, kind, wanted in (
        ("fptosi", "i32", [0, 2147483647, -2147483648, 2147483647, -2147483648, 300, -300, -1, 255,
                           127, 2147483647]),
        ("fptoui", "i8", [0, -1, 0, -1, 0, -1, 0, 0, -1, 127, -1]),
    ):  # fmt: skip
        case = Case(f"%y = arith.{name} %a0 : f32 to {kind}", ("f32",), kind)
        assert simulate(case, [x.astype(np.float32)]).tolist() == wanted


def test_every_value_of_bf16_is_rounded_to():
    """Sums and products of bf16 are bf16 numbers, as `ml_dtypes` has them."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a, b = pairs("bf16")
    for name, operation in (("addf", np.add), ("mulf", np.multiply), ("divf", np.divide)):
        case = Case(f"%y = arith.{name} %a0, %a1 : bf16", ("bf16", "bf16"), "bf16")
        with np.errstate(all="ignore"):
            want = operation(*(x.astype(ml_dtypes.bfloat16) for x in (a, b))).astype(np.float32)
        np.testing.assert_array_equal(simulate(case, [a, b]), want)
