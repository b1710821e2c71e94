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


def test_grids_curves_and_places_with_gaps(tmp_path):
    torch = pytest.importorskip("torch")
    nodes = [
        Node("AffineGrid", ["t", "size"], ["g"], align_corners=1),
        Node("GridSample", ["x", "g"], ["a"], mode="cubic", padding_mode="reflection"),
        Node("GridSample", ["x", "g"], ["b"], mode="cubic", align_corners=1),
        Node("GridSample", ["x", "g"], ["c"], padding_mode="reflection", align_corners=1),
        Node("MaxPool", ["x"], ["d", "e"], kernel_shape=[3, 2], dilations=[2, 2], strides=[2, 1],
             pads=[1, 0, 1, 0]),
    ]  # fmt: skip
    given = {"x": f32(2, 2, 6, 5), "t": f32(2, 2, 3)}
    size = np.array([2, 2, 3, 4])
    held = [numpy_helper.from_array(size, "size")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value(n, 1, a.shape) for n, a in given.items()],
        [value(n, 7 if n == "e" else 1, None) for n in "gabcde"], held,
    )  # fmt: skip
    path = tmp_path / "f.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    functional = torch.nn.functional
    x, t = (torch.from_numpy(a) for a in given.values())
    grid = functional.affine_grid(t, size.tolist(), align_corners=True)
    wanted = [
        grid, *(functional.grid_sample(x, grid, mode, padding, aligned) for mode, padding, aligned
                in (("bicubic", "reflection", False), ("bicubic", "zeros", True),
                    ("bilinear", "reflection", True))),
    ]  # fmt: skip
    most, places = functional.max_pool2d(x, (3, 2), (2, 1), (1, 0), 2, return_indices=True)
    images = torch.arange(4).reshape(2, 2, 1, 1) * 30  # ONNX counts over all of them
    wanted += [most, places + images]
    found = neptune_mlir.compile(path)(*given.values())
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


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
        (Node("NonZero", ["x"], ["y"]), "depends on its data"),
        (Node("StringNormalizer", ["x"], ["y"]), "no operator of tensors"),
        (Node("CumSum", ["x", "axis"], ["y"]), "make it a constant"),
        (Node("Col2Im", ["x", "image", "block"], ["y"]), "lower 'torch.aten.col2im'"),
    ],
)
def test_refusals(tmp_path, node, says):
    held = {"w": f32(1, 1, 6), "r": f32(1, 1, 1), "l": np.array([1, 2], np.int32),
            "image": np.array([2048, 1024]), "block": np.array([1, 2])}  # fmt: skip
    given = [helper.make_tensor_value_info("x", 1, [3, 2, 6])]
    given += [helper.make_tensor_value_info("axis", 7, [])] * ("axis" in node.input)
    graph = helper.make_graph(
        [node], "g", given,
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )  # fmt: skip
    path = tmp_path / "f.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]), path)
    with pytest.raises(InputError, match=rf"(?s){node.op_type}_0.*{says}"):
        neptune_mlir.compile(path)


def test_cells_that_torch_mlir_takes_for_others(tmp_path):
    """It looks neither at activations that it does not know nor at clips, without a word."""
    held = {"w": f32(1, 16, 3), "r": f32(1, 16, 4)}
    cells = ["HardSigmoid", "Tanh", "Softsign"]
    nodes = [Node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4, activations=cells)]
    x, path = f32(3, 2, 3), tmp_path / "f.onnx"
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, [3, 1, 2, 4])],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(made, path)
    w, r = (held[n][0].astype(np.float64) for n in ("w", "r"))
    h, c = np.zeros((2, 2, 4))
    for here, got in zip(x, neptune_mlir.compile(path)(x), strict=True):
        i, o, f, new = np.split(here @ w.T + h @ r.T, 4, 1)
        i, o, f = (np.clip(0.2 * gate + 0.5, 0, 1) for gate in (i, o, f))
        c = f * c + i * np.tanh(new)
        h = o * c / (1 + abs(c))
        np.testing.assert_allclose(got[0], h, atol=1e-6)
    clipped = Node("LSTM", ["x", "w", "r"], ["y"], hidden_size=4, clip=0.1)
    made.graph.node[0].CopyFrom(clipped)
    onnx.save(made, path)
    with pytest.raises(InputError, match="'LSTM' of other activations"):
        neptune_mlir.compile(path)


def test_numbers_that_are_none(tmp_path):
    nodes = [Node("Max", ["x", "zero", "y"], ["a"]), Node("Min", ["x", "y"], ["b"]),
             Node("Clip", ["x", "low", "high"], ["c"]), Node("Sign", ["x"], ["d"]),
             Node("Equal", ["x", "x"], ["t"]), Node("Cast", ["t"], ["e"], to=1),
             Node("Relu", ["x"], ["f"])]  # fmt: skip
    held = {"zero": np.float32([0]), "low": np.float32(-1), "high": np.float32(1)}
    x, y = np.float32([np.nan, np.inf, -np.inf, 0, 2, -3]), np.float32([1, 1, np.nan, 0, 1, 1])
    wanted = model(tmp_path / "f.onnx", nodes, {"x": x, "y": y}, list("abcdef"), held)
    found = neptune_mlir.compile(tmp_path / "f.onnx")(x, y)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
