# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors that ops between nests make, as the check of whole programs has them."""

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir.analysis.moved import moved
from neptune_mlir.driver import compiler
from neptune_mlir.transforms.fusion import defer, whole
from neptune_mlir.transforms.fusion.exponents import exponents_of, summed_with_own_weights
from neptune_mlir.transforms.fusion.whole import SmallProgram

LOWEST = float(np.finfo(np.float32).min)
ROWS, WIDTH = 29, 12
MAPS = """
#a = affine_map<(i, j) -> (i, j)>
"""


def flipped(name, source, shape, dim):
    """A flip as torch-mlir writes it."""
    places = ["%i", "%j"]
    places[dim] = "%k"
    kind = f"tensor<{shape[0]}x{shape[1]}xf32>"
    return f"""
  %{name} = linalg.generic {{indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]}}
      ins(%{source} : {kind}) outs(%{source} : {kind}) {{
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %last = arith.constant {shape[dim] - 1} : index
    %k = arith.subi %last, {"%i" if dim == 0 else "%j"} : index
    %e = tensor.extract %{source}[{", ".join(places)}] : {kind}
    linalg.yield %e : f32
  }} -> {kind}"""


def attention(hidden="-1.0e9", flip=True):
    """softmax(mask(x xᵀ).flip(-1)) @ x.flip(0): a row sees itself and what comes before it."""
    n, d = ROWS, WIDTH
    flips = flipped("f", "m", (n, n), 1) + flipped("y", "x", (n, d), 0) if flip else ""
    scores, values = ("f", "y") if flip else ("m", "x")
    return f"""{MAPS}
func.func @main(%x: tensor<{n}x{d}xf32>) -> tensor<{n}x{d}xf32> {{
  %zero = arith.constant 0.0 : f32
  %low = arith.constant {hidden} : f32
  %t0 = tensor.empty() : tensor<{d}x{n}xf32>
  %t = linalg.transpose ins(%x : tensor<{n}x{d}xf32>) outs(%t0 : tensor<{d}x{n}xf32>)
      permutation = [1, 0]
  %s0 = tensor.empty() : tensor<{n}x{n}xf32>
  %s1 = linalg.fill ins(%zero : f32) outs(%s0 : tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %s = linalg.matmul ins(%x, %t : tensor<{n}x{d}xf32>, tensor<{d}x{n}xf32>)
      outs(%s1 : tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %m = linalg.generic {{indexing_maps = [#a, #a], iterator_types = ["parallel", "parallel"]}}
      ins(%s : tensor<{n}x{n}xf32>) outs(%s0 : tensor<{n}x{n}xf32>) {{
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sgt, %j, %i : index
    %v = arith.select %c, %low, %in : f32
    linalg.yield %v : f32
  }} -> tensor<{n}x{n}xf32>{flips}
  %w = linalg.softmax dimension(1) ins(%{scores} : tensor<{n}x{n}xf32>)
      outs(%s0 : tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  %o0 = tensor.empty() : tensor<{n}x{d}xf32>
  %o1 = linalg.fill ins(%zero : f32) outs(%o0 : tensor<{n}x{d}xf32>) -> tensor<{n}x{d}xf32>
  %o = linalg.matmul ins(%w, %{values} : tensor<{n}x{n}xf32>, tensor<{n}x{d}xf32>)
      outs(%o1 : tensor<{n}x{d}xf32>) -> tensor<{n}x{d}xf32>
  return %o : tensor<{n}x{d}xf32>
}}"""


def nests(text, level="inline-maps"):
    module, (program,) = compiler.nests_of(text, "program", level)
    return module, program


@pytest.mark.parametrize("hidden", ["-1.0e9", "-3.40282347e38"])
def test_the_smallest_float_in_hidden_rows(hidden):
    """Weights of hidden rows are 1 until something is seen; two such rows overflow then."""
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    x[2:] = LOWEST
    s = x[:2].astype(np.float64) @ x[:2].T
    e = np.exp(s - s.max(1, keepdims=True)) * np.tri(2)
    want = e / e.sum(1, keepdims=True) @ x[:2]
    found = neptune.compile(attention(hidden))(x)
    assert np.abs(found[:2] - want).max() < 1e-5


@pytest.mark.parametrize(("hidden", "flip", "found"), [
    ("-1.0e9", True, {"x"}), ("-1.0e9", False, {"x"}), ("0xFF800000", True, set()),
])  # fmt: skip
def test_what_is_summed_with_its_own_weights(hidden, flip, found):
    """-inf hides without a number, and then values are values."""
    module, program = nests(attention(hidden, flip))
    with module.context:
        assert len(moved(program)) == flip  # the other flip is a nest that looks rows up
        keys = {program.values.key(a): "x" for a in program.block.arguments}
        assert {keys[k] for k in exponents_of(program)} == found
        assert bool(summed_with_own_weights(program)) == bool(found)


def test_what_is_not_judged_is_not_fused(monkeypatch):
    """The sum stays apart where nobody sees the program as a whole."""
    defer.forget()
    monkeypatch.setattr(whole, "MOST", 1)
    _, facts = compiler.lower_text(attention(), "program", "cpu", None, "fused")
    assert any(defer.UNSEEN in r for r in facts["remarks"])
    assert not any("deferred" in r for r in facts["remarks"])
    _, facts = compiler.lower_text(attention("0xFF800000"), "program", "cpu", None, "fused")
    assert not any(defer.UNSEEN in r for r in facts["remarks"])
    defer.forget()


VIEWS = f"""{MAPS}
#r = affine_map<(i, j) -> (i)>
func.func @main(%x: tensor<6x8xf32>) -> tensor<12xf32> {{
  %zero = arith.constant 0.0 : f32{flipped("f", "x", (6, 8), 1)}
  %e = tensor.expand_shape %f [[0, 1], [2]] output_shape [2, 3, 8]
      : tensor<6x8xf32> into tensor<2x3x8xf32>
  %c = tensor.collapse_shape %e [[0, 1, 2]] : tensor<2x3x8xf32> into tensor<48xf32>
  %g = tensor.expand_shape %c [[0, 1]] output_shape [12, 4] : tensor<48xf32> into tensor<12x4xf32>
  %o0 = tensor.empty() : tensor<12xf32>
  %o1 = linalg.fill ins(%zero : f32) outs(%o0 : tensor<12xf32>) -> tensor<12xf32>
  %o = linalg.generic {{indexing_maps = [#a, #r], iterator_types = ["parallel", "reduction"]}}
      ins(%g : tensor<12x4xf32>) outs(%o1 : tensor<12xf32>) {{
  ^bb0(%in: f32, %out: f32):
    %q = arith.mulf %in, %in : f32
    %s = arith.addf %q, %out : f32
    linalg.yield %s : f32
  }} -> tensor<12xf32>
  return %o : tensor<12xf32>
}}"""


def test_flips_and_views_as_steps():
    """On extents that are what they are, the steps compute what the program does."""
    for text, shape in ((attention(), (ROWS, WIDTH)), (VIEWS, (6, 8))):
        module, program = nests(text)
        with module.context:
            loops = [(k, a) for k, n in program.nests.items() for a in range(len(n.domain))]
            small = SmallProgram(program, loops)
            definition = small.whole()
            (key,) = definition.inputs
            assert definition.inputs[key][0] == shape
            x = np.random.default_rng(1).standard_normal((3, *shape)).astype(np.float32)
            (found,) = definition.values(small.steps, {key: x.astype(np.float64)}, np.float64)
        run = neptune.compile(text)
        for row, of in zip(found, x, strict=True):
            assert np.abs(row.ravel() - np.ravel(run(of))).max() < 1e-4
