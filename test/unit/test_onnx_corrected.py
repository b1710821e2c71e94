# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX nodes that torch-mlir has wrong without a word: windows, places, bias, lengths."""

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


def model(path, nodes, given, results, held=None):
    """A file whose inputs are like `given`, and what these results have to be."""

    def value(name, x):
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )

    known = [numpy_helper.from_array(np.asarray(a), n) for n, a in (held or {}).items()]
    graph = helper.make_graph(
        nodes, "g", [value(*x) for x in given.items()],
        [helper.make_empty_tensor_value_info(n) for n in results], known,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    wanted = ReferenceEvaluator(made).run(None, given)
    del graph.output[:]
    graph.output.extend(map(value, results, wanted))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(made, path)
    return wanted


def test_windows_places_and_scales(tmp_path):
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    nodes = [
        Node("AveragePool", ["x"], ["a"], ceil_mode=1, count_include_pad=1, **window),
        Node("AveragePool", ["x"], ["b"], kernel_shape=[2, 2], dilations=[2, 1]),
        Node("MaxPool", ["x"], ["c", "d"], **window),
        Node("QLinearConv", ["q", "s", "z", "w", "rows", "zeros", "t", "u", "bias"], ["e"]),
        Node("LRN", ["x"], ["f"], size=2, alpha=0.3),
    ]
    held = {
        "s": np.float32(0.1), "z": np.uint8(120), "t": np.float32(9), "u": np.uint8(128),
        "w": RNG.integers(-90, 90, (3, 2, 3, 3)).astype(np.int8), "zeros": np.zeros(3, np.int8),
        "rows": np.array([0.1, 0.2, 0.05], np.float32),
        "bias": RNG.integers(-9999, 9999, 3).astype(np.int32),
    }  # fmt: skip
    given = {"x": f32(2, 2, 6, 4), "q": RNG.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8)}
    path = tmp_path / "f.onnx"
    wanted = model(path, nodes, given, "abcdef", held)
    kernel = neptune_mlir.compile(path)
    for got, want in zip(kernel(*given.values()), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_sequences_that_end_before_others(tmp_path):
    """Their last state stays, and results behind it are 0; backwards they begin at their end."""
    x, lengths, size = f32(3, 2, 2), np.array([1, 3], np.int32), 3
    held = {"w": f32(2, size, 2), "r": f32(2, size, size)}
    path = tmp_path / "f.onnx"
    cell = {"hidden_size": size, "direction": "bidirectional"}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [Node("RNN", ["x", *held, "", "l"], ["y", "h"], **cell)], "g",
        [value("x", 1, x.shape), value("l", 6, [2])],
        [value("y", 1, [3, 2, 2, size]), value("h", 1, [2, 2, size])],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]), path)
    results, last = np.zeros((3, 2, 2, size)), np.zeros((2, 2, size))
    for way in (0, 1):
        for k, n in enumerate(lengths):
            state = np.zeros(size)
            for step in range(n)[:: -1 if way else 1]:
                state = np.tanh(held["w"][way] @ x[step, k] + held["r"][way] @ state)
                results[step, way, k] = state
            last[way, k] = state
    for got, want in zip(neptune_mlir.compile(path)(x, lengths), (results, last), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (Node("AveragePool", ["x"], ["y"], kernel_shape=[2], strides=[3], ceil_mode=1), "behind"),
        (Node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2], auto_pad="SAME_UPPER"), "places"),
        (Node("RNN", ["x", "w", "r", "", "l"], ["y"], hidden_size=1, clip=0.5), "end before"),
    ],
)
def test_refusals(tmp_path, node, says):
    held = {"w": f32(1, 1, 6), "r": f32(1, 1, 1), "l": np.array([1, 2], np.int32)}
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [3, 2, 6])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )  # fmt: skip
    path = tmp_path / "f.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]), path)
    with pytest.raises(InputError, match=rf"{node.op_type}_0.*{says}"):
        neptune_mlir.compile(path)
