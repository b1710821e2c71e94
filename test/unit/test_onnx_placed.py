# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX nodes that torch-mlir has none of: places in images and caches, Fourier transforms, and what
is defined by ONNX alone."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.errors import InputError

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch_mlir")

from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(0)
Node = helper.make_node


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def saved(path, nodes, given, results, held=None, opset=24, domains=()):
    """A file whose inputs are like `given`, and what these results have to be."""

    def value(name, x):
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        return helper.make_tensor_value_info(name, kind, x.shape)

    known = [numpy_helper.from_array(np.asarray(a), n) for n, a in (held or {}).items()]
    graph = helper.make_graph(
        nodes, "g", [value(*x) for x in given.items()],
        [helper.make_empty_tensor_value_info(n) for n in results], known,
    )  # fmt: skip
    sets = [helper.make_opsetid("", opset), *domains]
    made = helper.make_model(graph, opset_imports=sets)
    wanted = ReferenceEvaluator(made).run(None, given)
    del made.graph.output[:]
    made.graph.output.extend(map(value, results, wanted))
    onnx.save(made, path)
    return wanted


def check(path, given, wanted, tolerance=2e-5):
    kernel = neptune_mlir.compile(path)
    made = kernel(*given.values())
    for got, want in zip(made if isinstance(made, tuple) else [made], wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, atol=tolerance, rtol=tolerance)


def test_places_in_caches_and_images(tmp_path):
    """Rows from the end of a circular cache on, elements back to where they were the largest, and
    windows that overlap, with gaps and pads. Of what lies outside of an image 0."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        Node("TensorScatter", ["cache", "rows", "first"], ["a"], mode="circular"),
        Node("MaxPool", ["x"], ["top", "at"], **window),
        Node("MaxUnpool", ["top", "at", "whole"], ["b"], **window),
        Node("Col2Im", ["columns", "image", "block"], ["c"], pads=[1, 0, 1, 0], dilations=[1, 2],
             strides=[2, 1]),
        Node("RoiAlign", ["x", "regions", "which"], ["d"], output_height=2, output_width=3,
             sampling_ratio=2, spatial_scale=0.5),
        Node("DeformConv", ["x", "w", "moved", "", "mask"], ["e"], pads=[1, 0, 0, 1],
             strides=[2, 1], offset_group=2, group=2),
    ]  # fmt: skip
    given = {
        "cache": f32(2, 3, 5, 4), "rows": f32(2, 3, 2, 4), "first": np.array([4, 1]),
        "x": f32(2, 4, 4, 6), "columns": f32(2, 12, 12),
        "regions": np.array([[-3, 1, 9, 5], [2, -4, 7, 8], [0, 0, 1, 1]], np.float32),
        "moved": f32(2, 16, 2, 6) * 2, "mask": f32(2, 8, 2, 6),
    }  # fmt: skip
    held = {
        "whole": np.array([2, 4, 5, 6]), "image": np.array([5, 6]), "block": np.array([3, 2]),
        "which": np.array([1, 0, 1]), "w": f32(4, 2, 2, 2),
    }  # fmt: skip
    wanted = saved(tmp_path / "f.onnx", nodes, given, "abcde", held)
    check(tmp_path / "f.onnx", given, wanted)


def test_waves_and_products_of_what_is_before(tmp_path):
    """Longer and shorter than the signal; of an odd length one-sided, and back."""
    nodes = [
        Node("DFT", ["x", "nine", "one"], ["a"], onesided=1),
        Node("DFT", ["a", "nine", "one"], ["b"], inverse=1, onesided=1),
        Node("DFT", ["z", "five", "zero"], ["c"], inverse=1),
        Node("STFT", ["x", "step", "window"], ["d"]),
        Node("CumProd", ["z", "one"], ["e"], exclusive=1, reverse=1),
    ]
    given = {"x": f32(2, 7, 1), "z": f32(6, 3, 2)}
    held = {name: np.array(k) for k, name in enumerate(["zero", "one", "step"])}
    held |= {"nine": np.array(9), "five": np.array(5), "window": f32(4)}
    wanted = saved(tmp_path / "f.onnx", nodes, given, "abcde", held, opset=26)
    check(tmp_path / "f.onnx", given, wanted)


def test_definitions_of_nodes_that_leave_inputs_out(tmp_path):
    """A state without a bias, an attention whose scores a graph changes, steps in order; and a size
    that is a part of a constant."""
    score = helper.make_graph(
        [Node("Tanh", ["s"], ["t"])], "score",
        [helper.make_tensor_value_info("s", 1, ["b", "h", "i", "j"])],
        [helper.make_tensor_value_info("t", 1, ["b", "h", "i", "j"])],
    )  # fmt: skip
    nodes = [
        Node("CausalConvWithState", ["x", "w", "", "past"], ["a", "b"], activation="silu"),
        Node("FlexAttention", ["q", "q", "q"], ["c"], domain="ai.onnx.preview", score_mod=score),
        Node("LinearAttention", ["y", "y", "y", "", "", "rate"], ["d", "e"], update_rule="delta",
             q_num_heads=2, kv_num_heads=1),
        Node("CenterCropPad", ["x", "size"], ["f"], axes=[1, 2]),
    ]  # fmt: skip
    nodes[2].input[1] = nodes[2].input[2] = "k"
    given = {"x": f32(2, 3, 5), "past": f32(2, 3, 2), "q": f32(1, 2, 4, 8), "y": f32(1, 2, 8),
             "k": f32(1, 2, 4), "rate": f32(1, 2, 1)}  # fmt: skip
    held = {"w": f32(3, 1, 3), "size": np.array([2, 7])}
    domains = [helper.make_opsetid("ai.onnx.preview", 1)]
    path = tmp_path / "f.onnx"
    wanted = saved(path, nodes, given, "abcdef", held, opset=27, domains=domains)
    check(path, given, wanted)


def test_regions_that_say_how_many_samples_are_refused(tmp_path):
    nodes = [Node("RoiAlign", ["x", "regions", "which"], ["a"], name="pool")]
    given = {"x": f32(1, 1, 4, 4), "regions": np.array([[0, 0, 3, 3]], np.float32)}
    saved(tmp_path / "f.onnx", nodes, given, "a", {"which": np.array([0])})
    with pytest.raises(InputError, match=r"f.onnx(?s:.)*roi_?align"):
        neptune_mlir.compile(tmp_path / "f.onnx")


def test_forms_of_nodes_that_torch_mlir_knows(tmp_path):
    """Slices from behind the last element on, vectors and batches of matrices, integer powers,
    windows back in groups or in a shape, sums of integers from a zero on, scales of blocks, sizes
    by curves, by halves and from a part, pads by the other end, and volumes."""
    nodes = [
        Node("Slice", ["x", "nine", "low", "axis", "back"], ["a"]),
        Node("MatMul", ["v", "x"], ["b"]),
        Node("MatMul", ["x", "u"], ["c"]),
        Node("Pow", ["x", "three"], ["d"]),
        Node("ConvTranspose", ["x", "w", "bias"], ["e"], strides=[2, 3], auto_pad="SAME_LOWER"),
        Node("ConvTranspose", ["x", "w1"], ["m"], group=2, dilations=[2, 1], strides=[2, 1],
             pads=[1, 0, 0, 1]),
        Node("ConvInteger", ["q", "k", "z"], ["f"], pads=[1, 0, 1, 1]),
        Node("DequantizeLinear", ["q", "scales", "zeros"], ["g"], axis=2, block_size=2),
        Node("QuantizeLinear", ["x", "steps", "starts"], ["h"], axis=3, block_size=3),
        Node("Resize", ["x", "", "scales2"], ["i"], mode="cubic", exclude_outside=1, antialias=1),
        Node("Resize", ["x", "part", "", "size"], ["j"], mode="linear", axes=[3, 2],
             coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=7.0),
        Node("Resize", ["x", "", "scales2"], ["l"], nearest_mode="ceil",
             coordinate_transformation_mode="half_pixel_symmetric"),
        Node("Pad", ["x", "around", "", "axis"], ["n"], mode="wrap"),
        Node("GridSample", ["volume", "at"], ["o"], mode="nearest"),
        Node("LpPool", ["volume"], ["p"], kernel_shape=[2, 2, 1], p=3),
    ]  # fmt: skip
    given = {
        "x": f32(1, 2, 5, 6),
        "volume": f32(1, 2, 3, 4, 2),
        "at": f32(1, 2, 2, 2, 3),
        "q": RNG.integers(0, 255, (1, 2, 4, 3)).astype(np.uint8),
    }
    one = np.array
    held = {
        "around": one([2, 9]), "nine": one([9]),
        "low": one([-9]), "axis": one([-1]), "back": one([-2]),
        "v": f32(5), "u": f32(6), "three": one(3), "w": f32(2, 2, 3, 3), "bias": f32(2),
        "w1": f32(2, 1, 3, 3),
        "k": RNG.integers(-99, 99, (2, 2, 2, 2)).astype(np.int8).view(np.uint8) // 2,
        "z": np.uint8(9), "scales": np.abs(f32(1, 2, 2, 3)), "steps": np.abs(f32(1, 2, 5, 2)) + 0.1,
        "zeros": RNG.integers(0, 255, (1, 2, 2, 3)).astype(np.uint8),
        "starts": RNG.integers(0, 255, (1, 2, 5, 2)).astype(np.uint8),
        "scales2": one([1, 1, 0.55, 1.7], np.float32), "size": one([4, 3]),
        "part": one([0.1, -0.3, 1.2, 0.9], np.float32),
    }  # fmt: skip
    wanted = saved(tmp_path / "f.onnx", nodes, given, "abcdefghijlmnop", held, opset=21)
    check(tmp_path / "f.onnx", given, wanted)


def test_the_nearest_element_is_that_of_float32():
    """3 over 0.6 is below 5 in float64, of a scale that float32 holds."""
    from neptune_mlir.driver.onnx.resized import _places

    at = _places("asymmetric", 8, 4, np.float32(0.6), 0, 1)
    assert np.floor(at).tolist() == [0, 1, 3, 5]


def test_a_mask_that_is_shorter_than_the_keys(tmp_path):
    """What is behind it is not seen."""
    nodes = [Node("Attention", ["q", "k", "k", "mask", "", "", "counts"], ["a"])]
    given = {
        "q": f32(2, 2, 3, 4),
        "k": f32(2, 2, 6, 4),
        "mask": f32(3, 4),
        "counts": np.array([3, 4]),
    }
    wanted = saved(tmp_path / "f.onnx", nodes, given, "a")
    check(tmp_path / "f.onnx", given, wanted)
