# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The hostile inputs: what the issue of wrong numbers named is there, in the types that have it."""

import numpy as np
import pytest

from neptune_mlir.algebra.numerics import hostile
from neptune_mlir.algebra.numerics.floats import EPSILON, LARGEST, rounded

SHAPE = (6, 40)


def made(name, dtype="f32", shape=SHAPE):
    return hostile.forms(shape, dtype)[name](np.random.default_rng(0), shape)


@pytest.mark.parametrize("dtype", EPSILON)
def test_values_are_of_the_type(dtype):
    for name, form in hostile.forms(SHAPE, dtype).items():
        found = form(np.random.default_rng(0), SHAPE)
        assert found.shape == SHAPE and found.dtype == np.float64
        np.testing.assert_array_equal(found, rounded(found, dtype), err_msg=name)
        if "inf" not in name:
            assert not np.isinf(found).any(), name
        if "NaN" not in name:
            assert not np.isnan(found).any(), name


def test_masks():
    lowest = made("mask the smallest float start")
    assert (lowest[:, :20] == -LARGEST["f32"]).all() and (np.abs(lowest[:, 22:]) < 10).all()
    assert (made("mask -1e9 end")[:, 20:] == -1e9).all()
    assert (made("mask -inf everywhere") == -np.inf).all()
    rows = np.isinf(made("mask -inf everywhere in every other row")).all(1)
    assert rows.tolist() == [True, False] * 3
    assert np.isinf(made("mask -inf all but the last")).sum(1).tolist() == [39] * 6
    assert not any("-1e9" in name for name in hostile.forms(SHAPE, "f16"))  # has no such number


def test_counts_and_conditions():
    shown = made("shows nothing everywhere in every other row", "i1")
    assert shown.dtype == bool and shown.sum(1).tolist() == [0, 40] * 3
    assert made("shows nothing all but the first", "i1").sum(1).tolist() == [1] * 6
    assert made("shows nothing all but the last", "i64").sum() == 6
    assert made("count all 0", "i64").sum() == 0


def test_weights_magnitudes_and_moves():
    np.testing.assert_allclose(made("weights sum to 1").sum(1), 1, rtol=1e-6)
    assert (made("weights 0 at the start")[:, :20] == 0).all()
    assert (made("weights 0 at the end (columns)")[3:] == 0).all()
    assert 1e29 < np.abs(made("magnitude 1e+30")).max() < 1e31
    assert abs(made("mean 1e+06").mean() - 1e6) < 1
    jump = made("moves down at once")
    assert jump[:, :20].min() > 9000 and jump[:, 20:].max() < 10
    assert np.isnan(made("one NaN near the end")).sum() == 1


def test_cases_change_what_they_name():
    generator = np.random.default_rng(0)
    dtypes = ["f32", "f32", "i1", "f32"]
    shapes = [SHAPE, (40,), SHAPE, ()]
    given = [hostile.plain(generator, s, d) for s, d in zip(shapes, dtypes, strict=True)]
    found = list(hostile.cases(given, dtypes, ["x", "u", "keep", "eps"]))
    names = [case.name for case in found]
    assert len(names) == len(set(names))
    by_name = dict(zip(names, found, strict=True))
    assert all(a is b for a, b in zip(by_name["as given"].arguments, given, strict=True))
    case = by_name["u: mean 1e+04"]
    assert case.kind == "mean"
    assert [a is b for a, b in zip(case.arguments, given, strict=True)] == [True, False, True, True]
    case = by_name["keep: shows nothing start; floats: mean 1e+02"]
    assert case.arguments[0].mean() > 99 and not case.arguments[2][:, 0].any()
    assert 1e9 < by_name["all floats: magnitude 1e+10"].arguments[1].max() < 1e11
    assert by_name["eps: number 0"].arguments[3] == 0
    again = list(hostile.cases(given, dtypes, ["x", "u", "keep", "eps"]))
    for one, other in zip(found, again, strict=True):  # the same each time
        for a, b in zip(one.arguments, other.arguments, strict=True):
            np.testing.assert_array_equal(a, b)


def test_roles_leave_out_what_nobody_passes():
    kinds = {role: {n.split()[0] for n in hostile.forms(SHAPE, "f32", role)}
             for role in hostile.ROLES}  # fmt: skip
    assert "mask" in kinds[""] & kinds["score"]
    assert "mask" not in kinds["value"]
    assert {"mean", "magnitude", "weights"} <= kinds["value"]


def test_empty_and_tiny_shapes():
    generator = np.random.default_rng(0)
    for shape in ((0, 5), (3, 0), (1,), (1, 1, 1)):
        for dtype in ("f32", "f16", "i1", "i64"):
            list(hostile.cases([hostile.plain(generator, shape, dtype)], [dtype]))


def test_imports_no_mlir():
    import subprocess
    import sys

    code = (
        "import sys, neptune_mlir.algebra.numerics.hostile\n"
        "assert not any(n.startswith(('torch_mlir', 'mlir')) for n in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("seed", [0, 11, 1 << 40])
def test_each_case_has_numbers_of_its_own(seed):
    """The same whatever cases are drawn before it, or in another program."""
    given = [np.zeros(SHAPE), np.zeros(SHAPE)]
    alone = "y: moves widely"
    for names in (("x", "y"), ("y", "x")):
        found = {c.name: c for c in hostile.cases(given, ["f32", "f32"], names, seed=seed)}
        (one,) = hostile.cases(given, ["f32", "f32"], names, seed=seed, only=[alone])
        generator = np.random.default_rng([seed, *alone.encode()])
        wanted = hostile.forms(SHAPE, "f32")["moves widely"](generator, SHAPE)
        for case in (found[alone], one):
            np.testing.assert_array_equal(case.arguments[names.index("y")], wanted)
    numbers = {c.arguments[names.index("y")].tobytes() for c in found.values()
               if c.name.startswith("y: magnitude")}  # fmt: skip
    assert len(numbers) == len([n for n in found if n.startswith("y: magnitude")])
