# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`compile` and `Kernel`: sources, cache, levels, errors."""

import json
import subprocess
import sys

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import ArgumentError, InputError, ToolError, UsageError

SOFTMAX = """
func.func @softmax(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>)
      -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NEPTUNE_DUMP", raising=False)
    return tmp_path / "cache"


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEPTUNE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return neptune.compile(SOFTMAX)


def test_runs_at_several_sizes(kernel):
    for shape in ((1, 1), (3, 7), (17, 300), (5, 1025)):
        x = random(*shape)
        np.testing.assert_allclose(kernel(x), softmax(x), rtol=1e-5, atol=1e-7)


def test_out_and_strides(kernel):
    x = random(40, 30)[::2, ::-1]
    out = np.empty((20, 30), np.float32)
    assert kernel(x, out=out) is out
    np.testing.assert_allclose(out, softmax(x), rtol=1e-5, atol=1e-7)


def test_wrong_arguments(kernel):
    for arguments in [(), (random(2, 2), random(2, 2)), (random(4),), (random(2, 2).astype("i4"),)]:
        with pytest.raises(ArgumentError):
            kernel(*arguments)


def test_facts(kernel):
    assert kernel.facts["kernels"] == 1
    assert kernel.facts["nests"] >= 2
    assert kernel.facts["corrections"] >= 1


def test_levels(kernel):
    assert "neptune.reduce" in kernel.ir("neptune")
    assert "neptune.stream" in kernel.ir("fused")
    assert "scf.forall" in kernel.ir("tile")
    with pytest.raises(UsageError, match="no level 'poetry'"):
        kernel.ir("poetry")


def test_explain(kernel):
    text = kernel.explain()
    assert "stream over" in text and "repair:" in text and "remark: fused" in text


def test_sources(tmp_path):
    path = tmp_path / "softmax.mlir"
    path.write_text(SOFTMAX)
    x = random(3, 5)
    for program in (SOFTMAX, path, parse(SOFTMAX)):
        np.testing.assert_allclose(neptune.compile(program)(x), softmax(x), rtol=1e-5)
    with pytest.raises(UsageError, match="cannot compile a int"):
        neptune.compile(3)


def test_cache_is_keyed_by_program_schedule_and_entry(cache):
    assert not neptune.compile(SOFTMAX).cached
    assert neptune.compile(SOFTMAX).cached
    assert not neptune.compile(SOFTMAX, schedule="private").cached
    assert not neptune.compile(SOFTMAX.replace("@softmax", "@other")).cached


def test_a_damaged_entry_is_made_again(cache):
    neptune.compile(SOFTMAX)
    (entry,) = cache.rglob("*.bundle")
    entry.write_bytes(entry.read_bytes()[:-100])
    assert not neptune.compile(SOFTMAX).cached


def test_a_cached_kernel_needs_no_mlir(tmp_path):
    path = tmp_path / "softmax.mlir"
    path.write_text(SOFTMAX)
    program = (
        "import sys, json, pathlib, numpy, neptune_mlir\n"
        f"k = neptune_mlir.compile(pathlib.Path({str(path)!r}))\n"
        "k(numpy.zeros((2, 2), numpy.float32))\n"
        "print(json.dumps([k.cached, 'torch_mlir' in sys.modules or 'mlir' in sys.modules]))"
    )
    seen = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
        seen.append(json.loads(done.stdout))
    assert seen == [[False, True], [True, False]]


def test_save_and_load(kernel, tmp_path):
    kernel.save(tmp_path / "softmax.bundle")
    x = random(3, 5)
    loaded = neptune.Kernel.load(tmp_path / "softmax.bundle")
    np.testing.assert_array_equal(loaded(x), kernel(x))
    (tmp_path / "softmax.bundle").write_bytes(b"not a bundle")
    with pytest.raises(ToolError):
        neptune.Kernel.load(tmp_path / "softmax.bundle")


def test_dumps(tmp_path, monkeypatch):
    monkeypatch.setenv("NEPTUNE_DUMP", str(tmp_path / "dump"))
    neptune.compile(SOFTMAX)
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert {"raise-linalg.mlir", "lower-to-tiles.mlir"} <= {n[4:] for n in names}
    assert any(n.endswith(".ll") for n in names) and any(n.endswith(".s") for n in names)
    assert [int(n[:3]) for n in names] == list(range(len(names)))


@pytest.mark.parametrize(
    ("text", "message"),
    [("func.func @f(", "expected"), ("module {}", "no function with a body"), ("", "no function")],
)
def test_bad_programs(text, message):
    with pytest.raises(InputError, match=message):
        neptune.compile(text)


def test_unknown_targets_and_schedules():
    with pytest.raises(UsageError, match="unknown target 'z80'"):
        neptune.compile(SOFTMAX, target="z80")
    with pytest.raises(UsageError, match="no schedule 'fastest'"):
        neptune.compile(SOFTMAX, schedule="fastest")


def test_threads_compile_and_run():
    from concurrent.futures import ThreadPoolExecutor

    def work(k):
        x = random(k + 1, 33)
        text = SOFTMAX.replace("@softmax", f"@softmax{k % 3}")
        return np.allclose(neptune.compile(text)(x), softmax(x), rtol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("extreme", ["maximumf", "minimumf"])
def test_the_extreme_of_a_row_with_a_nan_is_nan(extreme):
    worst = "0xFF800000" if extreme == "maximumf" else "0x7F800000"
    kernel = neptune.compile(f"""
      func.func @extreme(%x: tensor<33x300xf32>) -> tensor<33xf32> {{
        %worst = arith.constant {worst} : f32
        %e = tensor.empty() : tensor<33xf32>
        %s = linalg.fill ins(%worst : f32) outs(%e : tensor<33xf32>) -> tensor<33xf32>
        %y = linalg.reduce {{ arith.{extreme} }} ins(%x : tensor<33x300xf32>)
            outs(%s : tensor<33xf32>) dimensions = [1]
        return %y : tensor<33xf32>
      }}""")
    x = np.random.default_rng(0).standard_normal((33, 300)).astype(np.float32)
    for row, place in enumerate((0, 17, 63, 255, 256, 299)):
        x[row, place] = np.nan
    x[7, 3], x[8, 299] = np.inf, -np.inf
    np.testing.assert_array_equal(kernel(x), x.max(1) if extreme == "maximumf" else x.min(1))


def two_sums_of_rows(first, second):
    """Sums over 37 columns of w * f(x, r), which leave a tile that is not full; there x and w are
    0. `first`, `second`: the lines that make %f of an x %a, its row's r %b, and their sum %d."""
    total = """
        %{name} = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>,
            affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
            iterator_types = ["parallel", "reduction"]}}
            ins(%x, %r, %w : tensor<3x37xf32>, tensor<3xf32>, tensor<3x37xf32>)
            outs(%s : tensor<3xf32>) {{
        ^bb0(%a: f32, %b: f32, %c: f32, %sum: f32):
          %d = arith.addf %a, %b : f32
          %f = {factor} : f32
          %g = arith.mulf %c, %f : f32
          %h = arith.addf %sum, %g : f32
          linalg.yield %h : f32
        }} -> tensor<3xf32>"""
    return neptune.compile(f"""
      func.func @sums(%x: tensor<3x37xf32>, %r: tensor<3xf32>, %w: tensor<3x37xf32>)
          -> (tensor<3xf32>, tensor<3xf32>) {{
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : tensor<3xf32>
        %s = linalg.fill ins(%zero : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
        {total.format(name="y", factor=first)}
        {total.format(name="z", factor=second)}
        return %y, %z : tensor<3xf32>, tensor<3xf32>
      }}""")


def test_what_padding_computes_may_overflow(small_tiles):
    """(0 + r)^2 is infinite."""
    kernel = two_sums_of_rows("arith.mulf %d, %d", "arith.mulf %d, %a")
    r = np.array([1, 1e20, -1e30], np.float32)
    squares, products = kernel(random(3, 37), r, np.ones((3, 37), np.float32))
    assert np.isfinite(squares[0]) and list(squares[1:]) == [np.inf, np.inf]
    assert np.isfinite(products).all()


def test_what_padding_adds_may_be_infinite(small_tiles):
    """0 + r is -inf."""
    kernel = two_sums_of_rows("arith.addf %a, %b", "arith.addf %a, %zero")
    r = np.array([1, -np.inf, np.inf], np.float32)
    sums, products = kernel(random(3, 37), r, np.ones((3, 37), np.float32))
    assert np.isfinite(sums[0]) and list(sums[1:]) == [-np.inf, np.inf]
    assert np.isfinite(products).all()
