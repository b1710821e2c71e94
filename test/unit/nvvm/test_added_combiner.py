# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A combiner of a package, log-add-exp, goes everywhere: a row of the table and this test are all
that it takes. It is compared with float64 on hostile inputs, in awkward shapes."""

import math
import sys

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir import plugins
from neptune_mlir.algebra import combiners
from neptune_mlir.algebra import terms as T
from neptune_mlir.driver.compiler import lower_text
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.frontend import notation as nt
from support.chips import ttir_exec
from support.chips.run_kernels import Simulated

ENTRY = "[neptune_mlir.combiners]\nlogaddexp = added_reductions\n"
MODULE = '''
"""The registration, as a package has it."""
import math

import numpy as np

from neptune_mlir.algebra.combiners import Combiner, register
from neptune_mlir.algebra.terms import const, make


def combine(a, b):
    largest = make("max", a, b)
    grown = make("log1p", make("exp", make("sub", make("min", a, b), largest)))
    empty = make("eq", largest, const(-math.inf, a.dtype))  # -inf - -inf is no number
    return make("select", empty, largest, make("add", largest, grown))


def pullback(d, value, element):
    return make("mul", d, make("exp", make("sub", element, value)))


register(Combiner("logaddexp", -math.inf, combine, np.logaddexp, pullback=pullback))
'''


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    """The metadata and the module of an installed package."""
    monkeypatch.syspath_prepend(str(tmp_path))
    info = tmp_path / "added-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY)
    (tmp_path / "added_reductions.py").write_text(MODULE)
    monkeypatch.setattr(combiners, "_COMBINERS", dict(combiners._COMBINERS))
    plugins.entries.cache_clear()
    plugins.fingerprint.cache_clear()
    yield
    sys.modules.pop("added_reductions", None)
    plugins.entries.cache_clear()
    plugins.fingerprint.cache_clear()


def program(dtype="f32"):
    p = nt.Program("log_sum")
    i, j = p.axes("i j")
    x = p.input("x", i, j, dtype=dtype)
    p.output(nt.reduce("logaddexp", 2 * x[i, j], j), i)
    return p


def tiles(target):
    return lower_text(program().to_mlir(), "log_sum", target, None, "tile")[0]


def data(rows, columns, dtype=np.float32):
    rng = np.random.default_rng(rows * columns)
    x = (rng.standard_normal((rows, columns)) * 20).astype(dtype)
    x[0, :] = -np.inf
    x[-1, columns // 2] = 300
    return x


def wanted(x):
    return np.logaddexp.reduce(2 * x.astype(np.float64), axis=1)


@pytest.mark.parametrize(("rows", "columns"), [(3, 1), (5, 77), (2, 1031)])
def test_on_the_cpu(rows, columns):
    p, x = program(), data(rows, columns)
    np.testing.assert_allclose(p.reference(x), wanted(x), rtol=1e-12)
    np.testing.assert_allclose(neptune_mlir.compile(p)(x), wanted(x), rtol=2e-6)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_on_a_simulated_gpu(target):
    x = data(3, 37)
    run = Simulated(tiles(target), target=target)
    np.testing.assert_allclose(run(x), wanted(x), rtol=2e-6)


def test_by_way_of_triton():
    x = data(5, 77)
    (got,) = ttir_exec.run(tiles("triton:sm_90a"), [x])
    np.testing.assert_allclose(got, wanted(x), rtol=2e-6)


def test_16_bit_sums_are_kept_in_f32():
    x = data(4, 500, np.float16)
    np.testing.assert_allclose(neptune_mlir.compile(program("f16"))(x), wanted(x), rtol=1e-3)


def test_gradient():
    x = data(3, 40)[1:]
    y = wanted(x)[:, None]
    slope = neptune_mlir.grad(program())
    got = neptune_mlir.compile(slope)(x, np.ones(2, np.float32))
    np.testing.assert_allclose(got, 2 * np.exp(2 * x.astype(np.float64) - y), rtol=1e-4, atol=1e-12)


def test_wrong_names_and_types():
    p = nt.Program("wrong")
    i, j = p.axes("i j")
    x = p.input("x", i, j, dtype="i32")
    with pytest.raises(InputError, match="no combiner 'logadexp'"):
        nt.reduce("logadexp", x[i, j], j)
    with pytest.raises(InputError, match="not defined on i"):
        nt.reduce("logaddexp", x[i, j], j)
    with pytest.raises(UsageError, match="there is a combiner 'add' already"):
        combiners.register(combiners.Combiner("add", 0.0, T.make, np.add))


def test_there_is_one_identity_of_a_sum():
    assert math.copysign(1, combiners.identity_of("arith.addf", 32)) == 1
    assert combiners.lookup("add").identity_on("f32") == combiners.IDENTITIES["arith.addf"]
    for op, name in {"arith.maxsi": "max", "arith.minsi": "min", "arith.muli": "mul"}.items():
        assert combiners.identity_of(op, 32) == combiners.lookup(name).identity_on("i32")
