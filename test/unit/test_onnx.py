# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX models: operators that torch-mlir does not know, lengths, loops, and what is refused."""

import numpy as np
import pytest

import neptune_mlir
from neptune_mlir.cli.main import main
from neptune_mlir.driver import compiler, foreign
from neptune_mlir.errors import ArgumentError, InputError, LoweringError

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch_mlir")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(0)
Node = helper.make_node


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def save(path, nodes, inputs, outputs, held=None, *, opset=23, domains=(), functions=()):
    """A model of float32 tensors (int64 where the name starts with `ids`) in a file."""

    def value(name, shape):
        kind = TensorProto.INT64 if name.startswith("ids") else TensorProto.FLOAT
        return helper.make_tensor_value_info(name, kind, shape)

    graph = helper.make_graph(
        nodes, "g", [value(*x) for x in inputs.items()], [value(*x) for x in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (held or {}).items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10, functions=functions)
    onnx.save(model, path)
    return path


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_grouped_causal_attention_is_one_kernel(tmp_path):
    path = save(
        tmp_path / "f.onnx",
        [Node("Attention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2, is_causal=1)],
        {"q": ["b", 9, 32], "k": ["b", 9, 16], "v": ["b", 9, 16]},
        {"y": ["b", 9, 32]},
    )  # fmt: skip
    kernel = neptune_mlir.compile(path)
    q, k, v = f32(2, 9, 32), f32(2, 9, 16), f32(2, 9, 16)
    heads = [x.astype(np.float64).reshape(2, 9, -1, 8).swapaxes(1, 2) for x in (q, k, v)]
    keys, values = (np.repeat(x, 2, axis=1) for x in heads[1:])
    scores = np.einsum("bhid,bhjd->bhij", heads[0], keys) * 8**-0.5
    out = softmax(np.where(np.tri(9, dtype=bool), scores, -np.inf)) @ values
    np.testing.assert_allclose(kernel(q, k, v), out.swapaxes(1, 2).reshape(2, 9, 32), atol=1e-5)
    assert len(kernel.plan.launches) == 1
    assert [a.name for a in kernel.plan.arguments] == ["q", "k", "v"]


def test_hardmax_of_old_operator_sets(tmp_path):
    """Before 13 all from the axis on was one dimension. The converter of versions forgets it."""
    nodes = [Node("Hardmax", ["x"], ["y"]), Node("Hardmax", ["x"], ["z"], axis=-1)]
    outputs = {"y": [3, 4, 5], "z": [3, 4, 5]}
    path = save(tmp_path / "f.onnx", nodes, {"x": [3, 4, 5]}, outputs, opset=11)
    x = f32(3, 4, 5)
    rows = x.reshape(3, 20)
    whole = (np.arange(20) == rows.argmax(1)[:, None]).reshape(3, 4, 5)
    found = neptune_mlir.compile(path)(x)
    np.testing.assert_array_equal(found[0], whole)
    np.testing.assert_array_equal(found[1], np.arange(5) == x.argmax(-1)[..., None])


def test_images_and_norms_of_old_operator_sets(tmp_path):
    """`Resize` had all samples at multiples of its steps, which the converter forgets;
    torch-mlir does not know the norm of batches of operator sets before 15."""
    nodes = [
        Node("BatchNormalization", ["x", *"sbmv"], ["n"], epsilon=1e-3),
        Node("Resize", ["n", "scales"], ["y"], mode="linear"),
        Node("Resize", ["n", "less"], ["z"]),
    ]
    held = {n: np.array([1, 1, 1, f], np.float32) for n, f in (("scales", 2), ("less", 0.6))}
    held |= {name: abs(f32(2)) for name in "sbmv"}
    outputs = {"y": [1, 2, 1, 8], "z": [1, 2, 1, 2]}
    path = save(tmp_path / "f.onnx", nodes, {"x": [1, 2, 1, 4]}, outputs, held, opset=10)
    x = f32(1, 2, 1, 4)
    s, b, m, v = (held[name][:, None, None] for name in "sbmv")
    n = (x - m) / np.sqrt(v + 1e-3) * s + b
    y, z = neptune_mlir.compile(path)(x)
    between = (n + n[..., [1, 2, 3, 3]]) / 2
    np.testing.assert_allclose(y, np.stack([n, between], -1).reshape(1, 2, 1, 8), atol=1e-5)
    np.testing.assert_allclose(z, n[..., [0, 2]], atol=1e-5)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("operator", ["GRU", "LSTM"])
def test_long_recurrences_from_either_end(tmp_path, operator):
    """A reverse one of over 256 steps was refused. One step of both is that of the other end."""
    gates = {"GRU": 3, "LSTM": 4}[operator]
    names = ["x", "w", "r", "b"], ["y", "h"]
    node = Node(operator, *names, hidden_size=4, direction="bidirectional")
    held = {"w": f32(2, gates * 4, 3), "r": f32(2, gates * 4, 4), "b": f32(2, gates * 8)}
    for name in held:
        held[name][1] = held[name][0]
    outputs = {"y": [300, 2, 2, 4], "h": [2, 2, 4]}
    path = save(tmp_path / "f.onnx", [node], {"x": [300, 2, 3]}, outputs, held, opset=14)
    kernel, x = neptune_mlir.compile(path), f32(300, 2, 3)
    (y, h), (turned, _) = kernel(x), kernel(x[::-1].copy())
    np.testing.assert_array_equal(h, [y[-1, 0], y[0, 1]])
    np.testing.assert_allclose(turned[::-1, ::-1], y, atol=1e-6)


def test_windows_and_the_lengths_of_a_cache(tmp_path):
    """Of 4 rows the last stands at a sequence's last key; the first of the second one sees none."""
    nodes = [
        Node(
            "Attention", ["q", "k", "v", "", "", "", "ids"], ["y"], is_causal=1, left_window_size=2
        )
    ]
    path = save(
        tmp_path / "f.onnx", nodes,
        {"q": [2, 4, 4, 8], "k": [2, 2, 9, 8], "v": [2, 2, 9, 8], "ids": [2]},
        {"y": [2, 4, 4, 8]}, opset=25,
    )  # fmt: skip
    q, k, v, count = f32(2, 4, 4, 8), f32(2, 2, 9, 8), f32(2, 2, 9, 8), np.array([7, 3])
    scores = q @ k.repeat(2, 1).swapaxes(2, 3) / np.sqrt(8)
    at = np.arange(4)[:, None] + count[:, None, None] - 4
    seen = (np.arange(9) <= at) & (np.arange(9) >= at - 2)
    with np.errstate(invalid="ignore"):
        weights = softmax(np.where(seen[:, None], scores, -np.inf))
    want = np.nan_to_num(weights) @ v.repeat(2, 1)
    found = neptune_mlir.compile(path)(q, k, v, count)
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert not found[1, :, 0].any()


def test_a_row_that_is_masked_as_a_whole_is_zero(tmp_path):
    path = save(
        tmp_path / "f.onnx", [Node("Attention", ["q", "k", "v", "m"], ["y"], softcap=2.0)],
        {"q": [1, 2, 5, 8], "k": [1, 2, 7, 8], "v": [1, 2, 7, 8], "m": [5, 7]}, {"y": [1, 2, 5, 8]},
    )  # fmt: skip
    q, k, v, m = f32(1, 2, 5, 8), f32(1, 2, 7, 8), f32(1, 2, 7, 8), f32(5, 7)
    m[3] = -np.inf
    out = neptune_mlir.compile(path)(q, k, v, m)
    scores = 2 * np.tanh(q.astype(np.float64) @ k.swapaxes(2, 3) * 8**-0.5 / 2) + m
    scores[:, :, 3] = 0
    wanted = softmax(scores) @ v
    wanted[:, :, 3] = 0
    np.testing.assert_allclose(out, wanted, atol=1e-5)


def test_norms_and_activations_of_runtimes_and_definitions(tmp_path):
    """A skipped norm, a root-mean-square norm, a function that ONNX defines, one of the model."""
    body = [
        Node("Constant", [], ["axis"], value_ints=[-1]),
        Node("ReduceL2", ["a", "axis"], ["n"], keepdims=1), Node("Div", ["a", "n"], ["o"]),
    ]  # fmt: skip
    own = helper.make_function("own", "Unit", ["a"], ["o"], body, [helper.make_opsetid("", 24)])
    skip = Node(
        "SkipLayerNormalization", ["x", "s", "g", "b"], ["n", "", "", "t"],
        domain="com.microsoft", epsilon=1e-3,
    )  # fmt: skip
    nodes = [
        skip, Node("RMSNormalization", ["n", "g"], ["r"], epsilon=1e-3),
        Node("Swish", ["r"], ["w"]), Node("Unit", ["w"], ["y"], domain="own"),
    ]  # fmt: skip
    held = {"g": f32(16), "b": f32(16)}
    path = save(
        tmp_path / "f.onnx", nodes, {"x": ["n", 16], "s": ["n", 16]},
        {"y": ["n", 16], "t": ["n", 16]}, held, opset=24, domains=("com.microsoft", "own"),
        functions=[own],
    )  # fmt: skip
    x, s = f32(6, 16), f32(6, 16)
    y, t = neptune_mlir.compile(path)(x, s)
    total = (x + s).astype(np.float64)
    np.testing.assert_allclose(t, total, atol=1e-6)
    centred = total - total.mean(-1, keepdims=True)
    n = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * held["g"] + held["b"]
    r = n / np.sqrt((n**2).mean(-1, keepdims=True) + 1e-3) * held["g"]
    w = r / (1 + np.exp(-r))
    np.testing.assert_allclose(y, w / np.linalg.norm(w, axis=-1, keepdims=True), atol=1e-5)


def test_a_call_checks_what_the_model_asserts_of_its_lengths(tmp_path):
    """A table of positions is cut to the length of a row, which it may not exceed."""
    nodes = [
        Node("Shape", ["x"], ["s"], start=1, end=2), Node("Slice", ["table", "zero", "s"], ["t"]),
        Node("Add", ["x", "t"], ["y"]),
    ]  # fmt: skip
    held = {"table": f32(12), "zero": np.array([0])}
    path = save(tmp_path / "f.onnx", nodes, {"x": ["b", "n"]}, {"y": ["b", "n"]}, held, opset=17)
    kernel, x = neptune_mlir.compile(path), f32(3, 9)
    np.testing.assert_array_equal(kernel(x), x + held["table"][:9])
    with pytest.raises(ArgumentError, match=r"x\.shape\[1\] is 13, but .* is 12: they must"):
        kernel(f32(3, 13))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("te,tef,efd->td", ([5, 3], [5, 3, 4], [3, 4, 2])),  # each has e, which is summed last
        ("...ab,...bc,...ab->...c", ([2, 3, 4], [2, 4, 5], [2, 3, 4])),
        ("ab, bc", ([2, 3], [3, 4])),
    ],
)
def test_products_along_axes_that_all_have(tmp_path, equation, shapes):
    given = [f32(*shape) for shape in shapes]
    want = np.einsum(equation, *(x.astype(np.float64) for x in given))
    inputs = {f"x{k}": shape for k, shape in enumerate(shapes)}
    nodes = [Node("Einsum", list(inputs), ["y"], equation=equation)]
    path = save(tmp_path / "f.onnx", nodes, inputs, {"y": list(want.shape)}, opset=17)
    np.testing.assert_allclose(neptune_mlir.compile(path)(*given), want, rtol=1e-5, atol=1e-5)


def test_a_loss_by_its_definition_whose_shapes_are_computed(tmp_path):
    """A Reshape to a computed shape had a result of no axes."""
    nodes = [Node("SoftmaxCrossEntropyLoss", ["x", "ids"], ["y"], reduction="none")]
    inputs, x, ids = {"x": [3, 5, 2], "ids": [3, 2]}, f32(3, 5, 2), RNG.integers(0, 5, (3, 2))
    path = save(tmp_path / "f.onnx", nodes, inputs, {"y": [3, 2]}, opset=17)
    weights = softmax(x.swapaxes(1, 2).astype(np.float64))
    want = -np.log(np.take_along_axis(weights, ids[..., None], -1)[..., 0])
    np.testing.assert_allclose(neptune_mlir.compile(path)(x, ids), want, rtol=1e-5)


def test_a_loss_with_weights_of_classes(tmp_path):
    """The mean over the sum of the weights; it was infinite."""
    nodes, shapes = [Node("SoftmaxCrossEntropyLoss", ["x", "ids", "w"], ["y"])], {"x": [4, 5]}
    path = save(tmp_path / "f.onnx", nodes, shapes | {"ids": [4], "w": [5]}, {"y": []}, opset=17)
    x, ids, w = f32(4, 5), np.array([1, 4, 0, 1]), RNG.uniform(0.5, 2, 5).astype(np.float32)
    losses = -np.log(softmax(x.astype(np.float64))[np.arange(4), ids])
    want = (losses * w[ids]).sum() / w[ids].sum()
    np.testing.assert_allclose(neptune_mlir.compile(path)(x, ids, w), want, rtol=1e-5)


def test_two_steps_of_a_recurrent_layer(tmp_path):
    path = save(
        tmp_path / "f.onnx",
        [Node("GRU", ["x", "w", "r"], ["", "y"], hidden_size=4, linear_before_reset=1)],
        {"x": [2, 3, 5]}, {"y": [1, 3, 4]}, {"w": f32(1, 12, 5), "r": f32(1, 12, 4)}, opset=18,
    )  # fmt: skip
    text = foreign.program_text(path)
    assert "scf.for" not in text
    compiler.lower_text(text, "f", "cpu", None, "fused")


def test_views_that_merge_lengths_of_calls(tmp_path):
    """torch-mlir takes one of them to be 1, and gave another shape without a word."""
    shapes = {"rows": [-1, 32], "parts": [-1, 16], "turned": [4, -1], "kept": [0, -1, 8]}
    nodes = [Node("Reshape", ["x", f"ids_{n}"], [n]) for n in shapes]
    held = {f"ids_{n}": np.array(s) for n, s in shapes.items()}
    path = save(
        tmp_path / "f.onnx", nodes, {"x": ["a", "b", 4, 8]}, {n: None for n in shapes}, held
    )
    x = f32(5, 2, 4, 8)
    found = neptune_mlir.compile(path)(x)
    for got, shape in zip(found, [(-1, 32), (-1, 16), (4, -1), (5, -1, 8)], strict=True):
        np.testing.assert_array_equal(got, x.reshape(shape))


@pytest.mark.parametrize("version", [17, 18])
def test_log_sum_exps_of_large_numbers_on_every_target(tmp_path, version):
    axes = {"axes": [1]} if version < 18 else {}
    names = ["x"] if axes else ["x", "ids_a"]
    held = {} if axes else {"ids_a": np.array([1])}
    node = Node("ReduceLogSumExp", names, ["y"], keepdims=0, **axes)
    path = save(tmp_path / "f.onnx", [node], {"x": ["a", 5]}, {"y": ["a"]}, held, opset=version)
    x = f32(4, 5)
    x[0], x[1], x[2, 1] = x[0] + 1000, -np.inf, np.inf
    with np.errstate(over="ignore"):
        want = [np.logaddexp.reduce(row) for row in x]
    np.testing.assert_allclose(neptune_mlir.compile(path)(x), want, rtol=1e-6)
    if version == 18:
        kernel = neptune_mlir.compile(path, target="sm_90a", on_demand=False)
        assert len(kernel.plan.launches) == 1


@pytest.mark.parametrize("reduction", ["none", "max"])
def test_short_scatters_are_parallel(tmp_path, reduction):
    """A loop over updates is refused on GPUs."""
    node = Node("ScatterElements", ["x", "ids", "u"], ["y"], axis=-1, reduction=reduction)
    given = {"x": ["b", 6], "ids": ["b", 3], "u": ["b", 3]}
    path = save(tmp_path / "f.onnx", [node], given, {"y": ["b", 6]}, opset=18)
    x, u, at = f32(4, 6), f32(4, 3), np.argsort(f32(4, 6), 1)[:, :3].copy()
    at[0, 0] -= 6
    want = ReferenceEvaluator(str(path)).run(None, {"x": x, "ids": at, "u": u})[0]
    np.testing.assert_array_equal(neptune_mlir.compile(path)(x, at, u), want)
    text = foreign.program_text(path)
    assert "scf.for" not in text


@pytest.mark.parametrize("rank", [1, 2])
def test_writes_where_a_condition_holds_are_selections(tmp_path, rank):
    """As exporters write `x[x < 0] = 7`, and `x[m] = row`: the number of copies depends on data."""
    nodes = [
        Node("Less", ["x" if rank == 2 else "m", "zero"], ["less"]),
        Node("NonZero", ["less"], ["at"]),
        Node("Transpose", ["at"], ["turned"], perm=[1, 0]),
        Node("Cast", ["less"], ["ones"], to=TensorProto.INT64),
        Node("ReduceSum", ["ones"], ["total"], keepdims=0),
        Node("Reshape", ["total", "one"], ["n"]),
        Node("Concat", ["n", "row"] if rank == 1 else ["n"], ["size"], axis=0),
        Node("Expand", ["value", "size"], ["copies"]),
        Node("ScatterND", ["x", "turned", "copies"], ["y"]),
    ]
    held = {"zero": np.float32(0), "one": np.array([1]), "row": np.array([5]),
            "value": f32(5) if rank == 1 else np.float32(7)}  # fmt: skip
    held = {name: np.asarray(value) for name, value in held.items()}
    given = {"x": ["b", 5], "m": ["b"]}
    path = save(tmp_path / "f.onnx", nodes, given, {"y": ["b", 5]}, held, opset=18)
    x, m = f32(4, 5), f32(4)
    want = ReferenceEvaluator(str(path)).run(None, {"x": x, "m": m})[0]
    np.testing.assert_array_equal(neptune_mlir.compile(path)(x, m), want)


@pytest.mark.parametrize("operator", ["DepthToSpace", "SpaceToDepth"])
def test_blocks_of_images_whose_extents_calls_know(tmp_path, operator):
    """torch-mlir takes channels in one order, whatever the mode is, and no such extents."""
    given = {"mode": "CRD"} if operator == "DepthToSpace" else {}
    path = save(
        tmp_path / "f.onnx", [Node(operator, ["x"], ["y"], blocksize=2, **given)],
        {"x": ["b", 12, "h", "w"]}, {"y": ["b", None, None, None]}, opset=18,
    )  # fmt: skip
    x = f32(2, 12, 4, 6)
    want = ReferenceEvaluator(str(path)).run(None, {"x": x})[0]
    np.testing.assert_array_equal(neptune_mlir.compile(path)(x), want)


@pytest.mark.parametrize("time", [0, 1])
def test_sequences_turned_round(tmp_path, time):
    """torch-mlir makes a loop of it."""
    node = Node("ReverseSequence", ["x", "ids"], ["y"], time_axis=time, batch_axis=1 - time)
    shape = [5, "b", 3] if time == 0 else ["b", 5, 3]
    given = {"x": shape, "ids": ["b"]}
    path = save(tmp_path / "f.onnx", [node], given, {"y": shape}, opset=18)
    x, n = f32(*(4 if d == "b" else d for d in shape)), np.array([1, 5, 3, 2])
    want = ReferenceEvaluator(str(path)).run(None, {"x": x, "ids": n})[0]
    np.testing.assert_array_equal(neptune_mlir.compile(path)(x, n), want)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_any_number(tmp_path, direction):
    """Of bits that no integer has, too: the processor takes them modulo some width."""
    node = Node("BitShift", ["ids", "ids2"], ["ids3"], direction=direction)
    given = {"ids": ["n"], "ids2": ["n"]}
    path = save(tmp_path / "f.onnx", [node], given, {"ids3": ["n"]}, opset=18)
    x, n = np.array([-8, 4, -1, -8, 4, 5]), np.array([64, 100, -1, 1, 2, 0])
    left, right = [0, 0, 0, -16, 16, 5], [-1, 0, -1, -4, 1, 5]
    want = left if direction == "LEFT" else right
    np.testing.assert_array_equal(neptune_mlir.compile(path)(x, n), want)


def test_sequences_of_unknown_length_are_refused_by_name(tmp_path):
    node = Node("ReverseSequence", ["x", "ids"], ["y"])
    given = {"x": ["t", "b"], "ids": ["b"]}
    path = save(tmp_path / "f.onnx", [node], given, {"y": ["t", "b"]}, opset=18)
    with pytest.raises((InputError, LoweringError), match="ReverseSequence"):
        neptune_mlir.compile(path)


def test_integers_with_scales(tmp_path):
    """With zeros above 127, by rows, and in products of three dimensions."""
    nodes = [
        Node("QuantizeLinear", ["x", "scales", "zeros"], ["by_rows"], axis=1),
        Node("DequantizeLinear", ["by_rows", "scales", "zeros"], ["y"], axis=1),
        Node("QuantizeLinear", ["x", "scale", "zero"], ["a"]),
        Node("QLinearMatMul", ["a", "scale", "zero", "b", "scale", "zero", "scale", "zero"], ["c"]),
        Node("DequantizeLinear", ["c", "scale", "zero"], ["z"]),
    ]
    held = {
        "scales": np.array([0.01, 0.02, 0.5], np.float32), "scale": np.array(0.02, np.float32),
        "zeros": np.array([200, 130, 3], np.uint8), "zero": np.array(140, np.uint8),
        "b": RNG.integers(0, 256, (2, 4, 5)).astype(np.uint8),
    }  # fmt: skip
    outputs = {"y": [2, 3, 4], "z": [2, 3, 5]}
    path = save(tmp_path / "f.onnx", nodes, {"x": [2, 3, 4]}, outputs, held, opset=21)
    x = f32(2, 3, 4)
    wanted = ReferenceEvaluator(str(path)).run(None, {"x": x})
    for got, want in zip(neptune_mlir.compile(path)(x), wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_samples_of_images(tmp_path, mode):
    """Outside of an image, where nothing may be read, and halfway between two elements."""
    node = Node("GridSample", ["x", "grid"], ["y"], mode=mode)
    given = {"x": ["b", 2, "h", "w"], "grid": ["b", "i", 4, 2]}
    path = save(tmp_path / "f.onnx", [node], given, {"y": ["b", 2, "i", 4]}, opset=20)
    x, grid = f32(2, 2, 3, 4), f32(2, 3, 4, 2)
    x[:, :, 0, 0], grid[:, 0, 0] = np.inf, -9.0
    grid[0, 1:], grid[1, 0, 1:] = [0.25, 0.0], 1e6
    want = ReferenceEvaluator(str(path)).run(None, {"x": x, "grid": grid})[0]
    np.testing.assert_allclose(neptune_mlir.compile(path)(x, grid), want, atol=1e-5)


def test_rows_that_are_looked_up_at_places_of_a_reshaped_image(tmp_path):
    """Nearest rows of a table, as vector quantisation has them: the places are [8], the rows
    [2, 3, 2, 2], and no kernel looks places up in another shape."""
    table = f32(5, 3)
    path = save(
        tmp_path / "f.onnx",
        [
            Node("Transpose", ["x"], ["last"], perm=[0, 2, 3, 1]),
            Node("Reshape", ["last", "flat"], ["points"]),
            Node("MatMul", ["points", "columns"], ["near"]),
            Node("ArgMax", ["near"], ["place"], axis=1, keepdims=0),
            Node("Gather", ["table", "place"], ["rows"]),
            Node("Reshape", ["rows", "image"], ["found"]),
            Node("Transpose", ["found"], ["y"], perm=[0, 3, 1, 2]),
            Node("Sub", ["y", "x"], ["z"]),
        ],
        {"x": [2, 3, 2, 2]}, {"y": [2, 3, 2, 2], "z": [2, 3, 2, 2]},
        {"table": table, "columns": table.T.copy(), "flat": np.array([8, 3]),
         "image": np.array([2, 2, 2, 3])},
    )  # fmt: skip
    x = f32(2, 3, 2, 2)
    points = x.transpose(0, 2, 3, 1).reshape(8, 3)
    rows = table[(points @ table.T).argmax(1)].reshape(2, 2, 2, 3).transpose(0, 3, 1, 2)
    for got, wanted in zip(neptune_mlir.compile(path)(x), (rows, rows - x), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


def test_zeros_over_their_norm_are_zeros(tmp_path):
    nodes = [Node("LpNormalization", ["x"], ["y"], axis=0)]
    path = save(tmp_path / "f.onnx", nodes, {"x": [3, 4]}, {"y": [3, 4]}, opset=17)
    x = f32(3, 4)
    x[:, 1] = 0
    want = x / np.where(x.any(0), np.sqrt((x**2).sum(0)), 1)
    np.testing.assert_allclose(neptune_mlir.compile(path)(x), want, rtol=1e-6)


def test_determinants_are_refused(tmp_path):
    nodes = [Node("Det", ["x"], ["y"])]
    path = save(tmp_path / "f.onnx", nodes, {"x": [2, 2]}, {"y": []}, opset=17)
    with pytest.raises(InputError, match=r"Det_0: 'Det' has no lowering"):
        neptune_mlir.compile(path)


def test_what_is_refused_is_named_where_it_stands(tmp_path, capsys):
    x = {"x": [3, 8]}
    path = save(
        tmp_path / "f.onnx", [Node("Frobnicate", ["x"], ["y"], domain="own", name="node7")],
        x, {"y": [3, 8]}, domains=("own",),
    )  # fmt: skip
    assert main(["compile", str(path)]) != 0
    assert f"{path}:node7: error: torch-mlir cannot lower 'onnx.Frobnicate'" in (
        capsys.readouterr().err
    )
    path = save(tmp_path / "g.onnx", [Node("Softmax", ["x"], ["y"])], {"x": None}, {"y": None})
    with pytest.raises(InputError, match="input 'x' has no rank"):
        foreign.program_text(path)


def test_shapes_that_a_model_computes_are_constants(tmp_path):
    """As exporters write `x.reshape(x.shape[0], 2, -1).transpose(...)`, and a branch that the shape
    chooses: without the values nothing behind it had a rank."""

    def branch(name, *nodes):
        result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
        return helper.make_graph(list(nodes), name, [], [result])

    path = save(
        tmp_path / "f.onnx",
        [
            Node("Shape", ["x"], ["s"]), Node("Gather", ["s", "zero"], ["b"]),
            Node("Unsqueeze", ["b", "axis"], ["bs"]),
            Node("Concat", ["bs", "rest"], ["to"], axis=0),
            Node("Reshape", ["x", "to"], ["y"]), Node("Transpose", ["y"], ["t"], perm=[1, 0, 2]),
            Node("Equal", ["b", "three"], ["is3"]),
            Node("If", ["is3"], ["o"], then_branch=branch("a", Node("Softmax", ["t"], ["z"])),
                 else_branch=branch("b", Node("Neg", ["t"], ["z"]))),
        ],
        {"x": [3, 8]}, {"o": None},
        {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([2, -1]),
         "three": np.array(3)},
    )  # fmt: skip
    x = f32(3, 8)
    wanted = softmax(x.astype(np.float64).reshape(3, 2, -1).transpose(1, 0, 2))
    np.testing.assert_allclose(neptune_mlir.compile(path)(x), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "direction"),
    [
        ("RNN", "reverse"),
        *(pytest.param(n, "bidirectional", marks=pytest.mark.nightly) for n in ("GRU", "LSTM")),
    ],
)
def test_recurrent_networks_read_from_either_end(tmp_path, operator, direction):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]
    turns = [True] if direction == "reverse" else [False, True]
    ways = len(turns)
    held = {"w": f32(ways, gates * 3, 5), "r": f32(ways, gates * 3, 3), "b": f32(ways, gates * 6)}
    path = save(
        tmp_path / "f.onnx",
        [Node(operator, ["x", *held], ["y", "h"], hidden_size=3, direction=direction)],
        {"x": [2, "batch", 5]}, {"y": None, "h": None}, held, opset=17,
    )  # fmt: skip
    x = f32(2, 2, 5)
    each = []
    for k, turned in enumerate(turns):  # the evaluator reads from the start alone
        part = {n: v[k : k + 1] for n, v in held.items()}
        alone = save(
            tmp_path / f"{k}.onnx", [Node(operator, ["x", *part], ["y", "h"], hidden_size=3)],
            {"x": [2, 2, 5]}, {"y": [2, 1, 2, 3], "h": [1, 2, 3]}, part, opset=17,
        )  # fmt: skip
        data = x[::-1].copy() if turned else x
        y, h = ReferenceEvaluator(str(alone)).run(None, {"x": data})
        each.append((y[::-1] if turned else y, h))
    found = neptune_mlir.compile(path)(x)
    for got, parts, axis in zip(found, zip(*each, strict=True), (1, 0), strict=True):
        np.testing.assert_allclose(got, np.concatenate(parts, axis), atol=1e-5)


def graph(nodes, inputs, outputs, held=None):
    def value(name, shape):
        kind = TensorProto.BOOL if name.startswith("b") else TensorProto.FLOAT
        kind = TensorProto.INT64 if name.startswith("i") else kind
        return helper.make_tensor_value_info(name, kind, shape)

    return helper.make_graph(
        nodes, "inner", [value(*x) for x in inputs.items()], [value(*x) for x in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (held or {}).items()],
    )  # fmt: skip


def test_branches_on_data_and_loops_of_known_steps(tmp_path):
    """Also one in another, with names that regions share, and steps that data end."""
    then = graph([Node("Mul", ["h", "two"], ["o"])], {}, {"o": [4]}, {"two": np.float32([2])})
    other = graph([Node("Neg", ["h"], ["o"])], {}, {"o": [4]})
    step = [
        Node("ReduceSum", ["h"], ["t"], keepdims=0), Node("Less", ["t", "nine"], ["bgo"]),
        Node("If", ["bgo"], ["u"], then_branch=then, else_branch=other),
        Node("Add", ["u", "x"], ["next"]),
    ]  # fmt: skip
    nine = {"nine": np.float32(9)}
    ended = graph(step, {"i": [], "bin": [], "h": [4]}, {"bgo": [], "next": [4]}, nine)
    keeps = [*step, Node("Identity", ["bin"], ["bout"]), Node("ReduceMax", ["next"], ["most"],
                                                              keepdims=0)]  # fmt: skip
    whole = graph(keeps, {"i": [], "bin": [], "h": [4]},
                  {"bout": [], "next": [4], "most": []}, nine)  # fmt: skip
    along = graph([Node("Mul", ["s", "k"], ["p"]), Node("Add", ["p", "r"], ["q"])],
                  {"s": [3], "r": [3]}, {"q": [3], "p": [3]}, {"k": np.float32([0.5])})  # fmt: skip
    nodes = [
        Node("Loop", ["steps", "yes", "x"], ["a"], body=ended),
        Node("Loop", ["steps", "yes", "x"], ["b0", "c"], body=whole),
        Node("Scan", ["z", "rows"], ["d", "e"], body=along, num_scan_inputs=1,
             scan_input_directions=[1]),
    ]  # fmt: skip
    path = save(
        tmp_path / "f.onnx", nodes, {"x": [4], "z": [3], "rows": [5, 3]},
        {"a": [4], "b0": [4], "c": [4], "d": [3], "e": [5, 3]},
        {"steps": np.int64(4), "yes": np.array(True)},
    )  # fmt: skip
    given = {"x": abs(f32(4)), "z": f32(3), "rows": f32(5, 3)}
    found = neptune_mlir.compile(path)(*given.values())
    model, given["rows"] = onnx.load(path), given["rows"][::-1]
    model.graph.node[-1].attribute.pop()  # the evaluator knows no directions
    onnx.save(model, path)
    for got, want in zip(found, ReferenceEvaluator(str(path)).run(None, given), strict=True):
        np.testing.assert_allclose(got, want.reshape(got.shape), rtol=2e-6, atol=1e-6)


def test_norms_of_windows(tmp_path):
    nodes = [Node("LpPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
             Node("LpPool", ["x"], ["z"], kernel_shape=[2, 2], p=3)]  # fmt: skip
    outputs = {"y": [1, 2, 4, 6], "z": [1, 2, 6, 5]}
    path = save(tmp_path / "f.onnx", nodes, {"x": [1, 2, 7, 6]}, outputs)
    x = f32(1, 2, 7, 6)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 1)]).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view
    y = (windows(padded, (3, 2), (2, 3))[:, :, ::2] ** 2).sum((-2, -1)) ** 0.5
    z = (abs(windows(x.astype(np.float64), (2, 2), (2, 3))) ** 3).sum((-2, -1)) ** (1 / 3)
    for got, want in zip(neptune_mlir.compile(path)(x), (y, z), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_layers_of_some_steps_are_loops(tmp_path, kind):
    gates = 3 if kind == "GRU" else 4
    held = {"w": f32(2, gates * 5, 3), "r": f32(2, gates * 5, 5) / 4, "b": f32(2, gates * 10)}
    node = Node(kind, ["x", "w", "r", "b"], ["y", "h"], hidden_size=5, direction="bidirectional")
    outputs = {"y": [40, 2, 2, 5], "h": [2, 2, 5]}
    path = save(tmp_path / "f.onnx", [node], {"x": [40, 2, 3]}, outputs, held)
    text, x = foreign.program_text(path), f32(40, 2, 3)
    assert text.count("scf.for") >= 2 and text.count("linalg.matmul") < 20
    found = neptune_mlir.compile(path)(x)
    for got, want in zip(found, ReferenceEvaluator(str(path)).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
