# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes of an ONNX model as other nodes, where torch-mlir's conversion does not know them.

`simplified` writes attention, root-mean-square norms, products of several operands, and the fused
norms and activations of ONNX Runtime as plain nodes. `defined` replaces nodes by the functions that
ONNX itself defines them by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, inliner, numpy_helper

from neptune_mlir.driver.onnx.corrected import CORRECTED
from neptune_mlir.driver.onnx.definitions import expanded, having_one
from neptune_mlir.driver.onnx.folding import folded, straightened
from neptune_mlir.driver.onnx.masked import selected
from neptune_mlir.driver.onnx.old import converted
from neptune_mlir.driver.onnx.recurrent import ACTIVATIONS, written_out
from neptune_mlir.driver.onnx.scatters import elements, slices
from neptune_mlir.driver.onnx.structure import check, with_versions
from neptune_mlir.errors import InputError

RUNTIME = "com.microsoft"  # ONNX Runtime's own operators
OLDEST = 13  # the operator set from which axes mean what they mean now (Softmax)
# what torch-mlir has wrong (infinite with weights of classes; shapes that tensors hold), or
# looks for within (subgraphs)
_DEFINED = ["SoftmaxCrossEntropyLoss", "CenterCropPad", "FlexAttention"]
_WIDE = {TensorProto.FLOAT16, TensorProto.BFLOAT16}  # norms are computed in float32


def prepared(model: ModelProto, path: str) -> ModelProto:
    """A model with types, nodes that say where they stand, and nothing that `simplified` knows.

    Raises:
        InputError: an input of unknown rank, or of strings, or what `check` refuses.
    """
    with_versions(model, OLDEST)
    if (version := _set_version(model)) < OLDEST:
        model = converted(model, version, OLDEST)
    if model.functions:
        model = inliner.inline_local_functions(model)
    held = {x.name for x in model.graph.initializer}
    for given in model.graph.input:
        kind = given.type.tensor_type
        if given.name in held:
            continue
        if not given.type.HasField("tensor_type") or kind.elem_type == TensorProto.STRING:
            raise InputError(f"{path}: input '{given.name}' is not a tensor of numbers")
        if not kind.HasField("shape"):
            raise InputError(
                f"{path}: input '{given.name}' has no rank",
                hint="give it a shape with named dimensions (onnx.helper.make_tensor_value_info)",
            )
    for k, node in enumerate(model.graph.node):
        node.name = f"{path}:{node.name or f'{node.op_type}_{k}'}"
    known = straightened(folded(_typed(model)))
    chosen = selected(known, _types(known))
    check(chosen)
    made = simplified(_typed(chosen))
    return defined(made, _DEFINED) or made


def _typed(model: ModelProto) -> ModelProto:
    """The model with the types of its values, and constants of every spelling as initializers."""
    from onnx import shape_inference

    kept = []
    for node in model.graph.node:
        held = _array(node) if node.op_type == "Constant" and not node.domain else None
        if held is None:
            kept.append(node)
        else:
            model.graph.initializer.append(numpy_helper.from_array(held, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return shape_inference.infer_shapes(model, data_prop=True)


def _array(node: NodeProto) -> Any:
    """The array that a constant is; None where it is none of numbers."""
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    kinds = {"value_float": np.float32, "value_int": np.int64}
    kind = kinds.get(attribute.name.removesuffix("s"))
    return None if kind is None else np.asarray(value, kind)


def defined(model: ModelProto, names: Collection[str]) -> ModelProto | None:
    """The model with nodes of these operators replaced by ONNX's definitions of them, of all
    operators that have one where no name is given. None where none of them has one."""
    wanted = having_one(model, names)
    made = expanded(model, wanted) if wanted else None
    if made is None:
        return None
    # definitions compute shapes, hold loops over steps, and what torch-mlir does not know either
    return simplified(_typed(straightened(folded(_typed(made)))))


class _Nodes:
    """New nodes, and what is known of the values of a model.

    Args:
        types: element type and extents (None: not known) of values.
        version: of the operator set.
        lengths: names of extents that are not known, "" where they have none.
        held: constants.
    """

    def __init__(
        self, types: dict[str, tuple[int, list[int | None]]], version: int,
        lengths: dict[str, list[str]], held: Mapping[str, Any],
    ):  # fmt: skip
        self.types = types
        self.held = held
        self.version = version
        self.lengths = lengths
        self.nodes: list[NodeProto] = []
        self.place, self.results = "", 0
        self._count = 0

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        """The result of a new node."""
        self._count += 1
        result = f"{self.place}:{self._count}"
        node = helper.make_node(name, inputs, [result], self.place, **attributes)
        self.nodes.append(node)
        return result

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def number(self, value: float, like: str) -> str:
        """A number of the element type of a value."""
        kind = self.types[like][0]
        tensor = helper.make_tensor("", kind, [], [value])
        return self.op("Constant", value=tensor)

    def shape(self, name: str) -> list[int | None]:
        return self.types[name][1]

    def is_alike(self, axis: int, *names: str) -> bool:
        """Whether values have the same extent along an axis."""
        known = {self.shape(name)[axis] for name in names}
        lengths = {self.lengths.get(name, {axis: ""})[axis] for name in names}
        return len(known) == 1 and (None not in known or (len(lengths) == 1 and "" not in lengths))

    def reduced(
        self, kind: str, name: str, axes: Sequence[int] | str | None, keep: bool = False
    ) -> str:
        """`kind`: Sum, Mean, Max or Min. `axes`: see `listed`."""
        if self.version < 18 and kind != "Sum" and axes is not None and not isinstance(axes, str):
            return self.op(f"Reduce{kind}", name, axes=[*axes], keepdims=int(keep))
        return self.op(f"Reduce{kind}", name, *self.listed(axes), keepdims=int(keep))

    def listed(self, axes: Sequence[int] | str | None) -> list[str]:
        """The operand that names axes: of numbers, or of a value that has them. None for all."""
        if axes is None:
            return []
        return [axes if isinstance(axes, str) else self.constant([*axes])]

    def mean(self, name: str, axes: Sequence[int]) -> str:
        """Along axes, which stay."""
        return self.reduced("Mean", name, axes, keep=True)

    def part(self, name: str, first: int, stop: int) -> str:
        """Elements along the last axis."""
        return self.op("Slice", name, *(self.constant([n]) for n in (first, stop, -1)))

    def length(self, name: str, axis: int) -> str:
        """An extent of a value, as a scalar."""
        known = self.types.get(name)
        if known and known[1][axis] is not None:
            return self.constant(known[1][axis])
        return self.op("Gather", self.op("Shape", name), self.constant(axis))


def simplified(model: ModelProto) -> ModelProto:
    """The model with every node that `_WAYS` has written out as plain nodes."""
    if not any((n.domain, n.op_type) in _WAYS for n in model.graph.node):
        return model
    held = {x.name: x for x in model.graph.initializer}
    writer = _Nodes(_types(model), _set_version(model), _lengths(model), held)
    for node in model.graph.node:
        writer.place, writer.results = node.name, len([*filter(None, node.output)])
        before = len(writer.nodes)
        way = _WAYS.get((node.domain, node.op_type))
        results = way(writer, node) if way else None
        if results is None:
            del writer.nodes[before:]
            writer.nodes.append(node)
            continue
        for name, result in zip(node.output, results, strict=False):
            if name:
                writer.nodes.append(helper.make_node("Identity", [result], [name], node.name))
    del model.graph.node[:]
    model.graph.node.extend(writer.nodes)
    return _typed(model)


def _set_version(model: ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), OLDEST)


def _types(model: ModelProto) -> dict[str, tuple[int, list[int | None]]]:
    found: dict[str, tuple[int, list[int | None]]] = {
        x.name: (x.data_type, list(x.dims)) for x in model.graph.initializer
    }
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
            found.setdefault(value.name, (kind.elem_type, dims))
    return found


def _lengths(model: ModelProto) -> dict[str, list[str]]:
    typed = ((x.name, x.type.tensor_type) for x in (*model.graph.input, *model.graph.value_info))
    return {name: [d.dim_param for d in kind.shape.dim] for name, kind in typed}


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _inputs(node: NodeProto, count: int) -> list[str]:
    """Names of the inputs, "" for those left out."""
    return [*node.input, *[""] * (count - len(node.input))]


# ---- attention -----------------------------------------------------------------------------------


def _attention(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """None where numbers of heads are not known, and where scores are a result."""
    q, k, v, mask, past_k, past_v, lengths = _inputs(node, 7)
    a = _attributes(node)
    known = all(x in w.types for x in (q, k, v, mask) if x)
    if any(node.output[3:]) or not known:
        return None
    flat = len(w.shape(q)) == 3
    heads = a.get("q_num_heads") if flat else w.shape(q)[1]
    shared = a.get("kv_num_heads") if flat else w.shape(k)[1]
    dim, value_dim = w.shape(q)[-1], w.shape(v)[-1]
    if not (heads and shared and dim and value_dim):
        return None
    group = heads // shared
    if mask and (mask := _grouped_mask(w, _of_all_keys(w, node), shared, group)) == "":
        return None
    if flat:
        dim, value_dim = dim // heads, value_dim // shared
        q, k, v = (
            w.op("Transpose", w.op("Reshape", x, w.constant([0, 0, n, d])), perm=[0, 2, 1, 3])
            for x, n, d in ((q, heads, dim), (k, shared, dim), (v, shared, value_dim))
        )
    first = w.length(past_k, 2) if past_k else ""
    if past_k:
        k, v = (w.op("Concat", *x, axis=2) for x in ((past_k, k), (past_v, v)))
    present = (k, v)
    if group > 1:
        q = w.op("Reshape", q, w.constant([0, shared, group, -1, dim]))
        k, v = (w.op("Unsqueeze", x, w.constant([2])) for x in (k, v))
    turned = [0, 1, 2, 4, 3] if group > 1 else [0, 1, 3, 2]
    scores = w.op("MatMul", q, w.op("Transpose", k, perm=turned))
    scores = w.op("Mul", scores, w.number(a.get("scale", dim**-0.5), node.input[0]))
    seen = _seen(w, node, first, flat, rank=4 + (group > 1))
    scores = _masked(w, node, scores, mask, seen)
    out = w.op("MatMul", _softmax(w, node, scores, bool(mask or lengths)), v)
    if group > 1:
        out = w.op("Reshape", out, w.constant([0, heads, -1, value_dim]))
    if flat:
        out = w.op("Transpose", out, perm=[0, 2, 1, 3])
        out = w.op("Reshape", out, w.constant([0, 0, heads * value_dim]))
    return (out, *present)


def _masked(w: _Nodes, node: NodeProto, scores: str, mask: str, seen: str) -> str:
    """Scores under a cap, and what masks them."""
    like, a = node.input[0], _attributes(node)
    if limit := a.get("softcap", 0.0):
        cap = w.number(limit, like)
        scores = w.op("Mul", w.op("Tanh", w.op("Div", scores, cap)), cap)
    least = w.number(-np.inf, like)
    if mask and w.types[node.input[3]][0] == TensorProto.BOOL:
        scores = w.op("Where", mask, scores, least)
    elif mask:
        scores = w.op("Add", scores, mask)
    return w.op("Where", seen, scores, least) if seen else scores


def _of_all_keys(w: _Nodes, node: NodeProto) -> str:
    """A mask with elements for keys behind its last ones, which nothing sees; "" where how many
    there are is not known."""
    mask, past, (kind, shape) = node.input[3], _inputs(node, 5)[4], w.types[node.input[3]]
    counts = [w.shape(node.input[1])[-2], w.shape(past)[2] if past in w.types else 0]
    if shape[-1] is None or None in counts:
        return mask  # as it is, as long as the keys
    missing = sum(n or 0 for n in counts) - shape[-1]
    if missing <= 0 or shape[-1] == 1:
        return mask
    if None in shape:
        return ""
    wide = [*shape[:-1], missing]
    never = np.full(wide, 0 if kind == TensorProto.BOOL else -np.inf)
    held = helper.make_tensor("", kind, wide, never.flatten().tolist())
    found = w.op("Concat", mask, w.op("Constant", value=held), axis=-1)
    w.types[found] = (kind, [*shape[:-1], shape[-1] + missing])
    return found


def _grouped_mask(w: _Nodes, mask: str, shared: int, group: int) -> str:
    """A mask under scores whose heads are split in groups; "" where that is not known."""
    shape = w.shape(mask) if mask else []
    if group == 1 or len(shape) <= 2:
        return mask
    if len(shape) == 4 and shape[1] == 1:
        return w.op("Unsqueeze", mask, w.constant([2]))
    if len(shape) == 4 and shape[1] == shared * group and None not in shape:
        return w.op("Reshape", mask, w.constant([shape[0], shared, group, *shape[2:]]))
    return ""


def _seen(w: _Nodes, node: NodeProto, first: str, flat: bool, rank: int) -> str:
    """Whether a row sees a key by where they stand, rows by keys, and by which keys there are, with
    axes for batch and heads before; "" where each sees all."""
    a, lengths = _attributes(node), _inputs(node, 7)[6]
    left, right = a.get("left_window_size", -1), a.get("right_window_size", -1)
    rows, keys = (w.length(x, 1 if flat else 2) for x in node.input[:2])
    zero, one = w.constant(0), w.constant(1)
    i = w.op("Range", zero, rows, one)
    j = w.op("Range", zero, w.op("Add", keys, first) if first else keys, one)
    i = w.op("Add", i, first) if first else i
    i, found = w.op("Unsqueeze", i, w.constant([1])), []
    if lengths:  # the last row stands at a sequence's last key
        count = w.op("Reshape", lengths, w.constant([-1] + [1] * (rank - 1)))
        i = w.op("Add", i, w.op("Sub", count, rows))
        found.append(w.op("Less", j, count))
    if a.get("is_causal"):
        found.append(w.op("LessOrEqual", j, i))
    if left >= 0:
        found.append(w.op("LessOrEqual", w.op("Sub", i, w.constant(left)), j))
    if right >= 0:
        found.append(w.op("LessOrEqual", j, w.op("Add", i, w.constant(right))))
    return functools.reduce(lambda x, y: w.op("And", x, y), found) if found else ""


def _softmax(w: _Nodes, node: NodeProto, scores: str, masked: bool) -> str:
    """Weights of scores; a row that is masked as a whole has the weights 0."""
    kind = w.types[node.input[0]][0]
    precise = _attributes(node).get("softmax_precision", kind)
    if precise != kind:
        scores = w.op("Cast", scores, to=precise)
    weights = w.op("Softmax", scores, axis=-1)
    if masked:
        largest = w.op("ReduceMax", scores, w.constant([-1]), keepdims=1)
        low, zero = (
            w.op("Constant", value=helper.make_tensor("", precise, [], [x])) for x in (-np.inf, 0.0)
        )
        weights = w.op("Where", w.op("Equal", largest, low), zero, weights)
    return weights if precise == kind else w.op("Cast", weights, to=kind)


def _rotary(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """Pairs of a head's elements turned by an angle of the position."""
    x, cos, sin, positions = _inputs(node, 4)
    a = _attributes(node)
    if not all(n in w.types for n in (x, cos, sin)):
        return None
    flat, last = len(w.shape(x)) == 3, w.shape(x)[-1]
    heads = a.get("num_heads", 0) if flat else 1
    half = w.shape(cos)[-1]
    if not (heads and last and half):
        return None
    dim = last // heads
    if flat:
        x = w.op("Reshape", x, w.constant([0, 0, heads, dim]))
    if positions:
        cos, sin = (w.op("Gather", table, positions, axis=0) for table in (cos, sin))
    cos, sin = (w.op("Unsqueeze", table, w.constant([2 if flat else 1])) for table in (cos, sin))
    turned, rest = w.part(x, 0, 2 * half), w.part(x, 2 * half, dim)
    if a.get("interleaved", 0):
        pairs = w.op("Reshape", turned, w.constant([0, 0, 0, half, 2]))
        one = w.constant([-1])
        left, right = (w.op("Squeeze", w.part(pairs, k, k + 1), one) for k in (0, 1))
    else:
        left, right = w.part(turned, 0, half), w.part(turned, half, 2 * half)
    real = w.op("Sub", w.op("Mul", left, cos), w.op("Mul", right, sin))
    imaginary = w.op("Add", w.op("Mul", left, sin), w.op("Mul", right, cos))
    parts = [real, imaginary]
    if a.get("interleaved", 0):
        parts = [w.op("Unsqueeze", part, w.constant([-1])) for part in parts]
    out = w.op("Concat", *parts, axis=-1)
    if a.get("interleaved", 0):
        out = w.op("Reshape", out, w.constant([0, 0, 0, 2 * half]))
    out = w.op("Concat", out, rest, axis=-1) if dim > 2 * half else out
    return [w.op("Reshape", out, w.constant([0, 0, last])) if flat else out]


# ---- norms and activations -----------------------------------------------------------------------


def _normal(
    w: _Nodes, x: str, scale: str, node: NodeProto, axes: Sequence[int] = (-1,), *, centred: bool
) -> str:  # fmt: skip
    """x over the root of its mean square along some axes, or of its variance, times `scale`."""
    kind = w.types[scale][0]
    number = np.float64 if kind == TensorProto.DOUBLE else np.float32
    wide = w.op("Cast", x, to=TensorProto.FLOAT) if kind in _WIDE else x
    wide = w.op("Sub", wide, w.mean(wide, axes)) if centred else wide
    epsilon = _attributes(node).get("epsilon", 1e-12 if centred else 1e-5)
    mean = w.op("Add", w.mean(w.op("Mul", wide, wide), axes), w.constant(epsilon, number))
    normal = w.op("Div", wide, w.op("Sqrt", mean))
    return w.op("Mul", w.op("Cast", normal, to=kind) if kind in _WIDE else normal, scale)


def _rms_norm(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    x, scale = node.input[:2]
    axis = _attributes(node).get("axis", -1)
    if scale not in w.types or any(node.output[1:]) or (axis != -1 and x not in w.types):
        return None
    axes = range(axis, 0) if axis < 0 else range(axis - len(w.shape(x)), 0)
    return [_normal(w, x, scale, node, axes, centred=False)]


def _lp_normal(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """x over its norm along an axis; zeros stay zeros."""
    a, x = _attributes(node), node.input[0]
    axis, name = a.get("axis", -1), f"ReduceL{a.get('p', 2)}"
    if w.version < 18:
        norm = w.op(name, x, axes=[axis], keepdims=1)
    else:
        norm = w.op(name, x, w.constant([axis]), keepdims=1)
    none = w.op("Equal", norm, w.number(0.0, x))
    return [w.op("Div", x, w.op("Where", none, w.number(1.0, x), norm))]


def _skip_norm(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """Sums and their norm. The statistics, which are for training, are not made."""
    simple = node.op_type == "SkipSimplifiedLayerNormalization"
    x, skip, scale, *rest = _inputs(node, 5)
    shift, bias = ("", rest[0]) if simple else rest
    if scale not in w.types or any(node.output[1:3]):
        return None
    total = w.op("Add", x, skip)
    total = w.op("Add", total, bias) if bias else total
    normal = _normal(w, total, scale, node, centred=not simple)
    return [w.op("Add", normal, shift) if shift else normal, "", "", total]


def _gelu(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """x of the normal distribution's share below it, or (FastGelu) its approximation by tanh."""
    x, bias = _inputs(node, 2)
    like = bias if bias in w.types else x
    if like not in w.types:
        return None
    x = w.op("Add", x, bias) if bias else x
    one, half = w.number(1.0, like), w.number(0.5, like)
    if node.op_type == "FastGelu" or _attributes(node).get("approximate") == b"tanh":
        cubic = w.op("Mul", w.op("Mul", w.op("Mul", x, x), x), w.number(0.044715, like))
        inner = w.op("Mul", w.op("Add", x, cubic), w.number((2 / np.pi) ** 0.5, like))
        share = w.op("Tanh", inner)
    else:
        share = w.op("Erf", w.op("Mul", x, w.number(0.5**0.5, like)))
    return [w.op("Mul", w.op("Mul", x, half), w.op("Add", share, one))]


def _quick_gelu(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    x, alpha = node.input[0], _attributes(node).get("alpha", 1.702)
    if x not in w.types:
        return None
    return [w.op("Mul", x, w.op("Sigmoid", w.op("Mul", x, w.number(alpha, x))))]


# ---- products ------------------------------------------------------------------------------------


def _einsum(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """Products of two operands, each with the axes of its result: of three, torch-mlir sums an axis
    that all have when it multiplies the first two. None where it is one already."""
    equation = "".join(_attributes(node)["equation"].decode().split())
    given, arrow, kept = equation.partition("->")
    if given == kept:
        return [node.input[0]]  # a scalar perhaps, on which torch-mlir dies
    if arrow and len(node.input) <= 2:
        return None
    if not arrow:
        once = sorted(x for x in set(given) - set(".,") if given.count(x) == 1)
        kept = "".join(["..." * ("..." in given), *once])
    (made, *names), (axes, *others) = node.input, given.split(",")
    if not names:
        made = w.op("Einsum", made, equation=f"{axes}->{kept}")
    for k, (name, own) in enumerate(zip(names, others, strict=True), 1):
        left, later = kept, others[k:]
        if later:
            needed = dict.fromkeys(x for x in axes + own if x in kept.join(later) + kept)
            left = "..." * ("." in needed) + "".join(x for x in needed if x != ".")
        made = w.op("Einsum", made, name, equation=f"{axes},{own}->{left}")
        axes = left
    return [made]


# ---- reductions ----------------------------------------------------------------------------------


def _log_sum_exp(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    """From the maximum on: torch-mlir has exponentials of float64, infinite above 709."""
    x, *listed = [name for name in node.input if name]
    a = _attributes(node)
    if x not in w.types or (a.get("noop_with_empty_axes") and not listed):
        return None
    axes = listed[0] if listed else a.get("axes")
    top = w.reduced("Max", x, axes, keep=True)
    infinite = w.op("Equal", w.op("Abs", top), w.number(np.inf, x))
    top = w.op("Where", infinite, w.number(0, x), top)
    keep = bool(a.get("keepdims", 1))
    total = w.reduced("Sum", w.op("Exp", w.op("Sub", x, top)), axes, keep)
    return [w.op("Add", w.op("Log", total), top if keep else w.op("Squeeze", top, *w.listed(axes)))]


# ---- recurrent networks --------------------------------------------------------------------------

def _recurrent(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    return written_out(w, node.op_type, _inputs(node, 8), _attributes(node))


def _scatter(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    way = elements if node.op_type == "ScatterElements" else slices
    return way(w, node.input, _attributes(node))


def _corrected(w: _Nodes, node: NodeProto) -> Sequence[str] | None:
    return CORRECTED[node.op_type](w, _inputs(node, 8), _attributes(node))


_WAYS: dict[tuple[str, str], Callable[[_Nodes, NodeProto], Sequence[str] | None]] = {
    ("", "Attention"): _attention,
    ("", "RotaryEmbedding"): _rotary,
    ("", "RMSNormalization"): _rms_norm,
    ("", "SimplifiedLayerNormalization"): _rms_norm,
    (RUNTIME, "SimplifiedLayerNormalization"): _rms_norm,
    ("", "LpNormalization"): _lp_normal,
    (RUNTIME, "SkipLayerNormalization"): _skip_norm,
    (RUNTIME, "SkipSimplifiedLayerNormalization"): _skip_norm,
    ("", "Gelu"): _gelu,  # torch-mlir's tanh form is 5e-5 off
    (RUNTIME, "Gelu"): _gelu,
    (RUNTIME, "BiasGelu"): _gelu,
    (RUNTIME, "FastGelu"): _gelu,
    (RUNTIME, "QuickGelu"): _quick_gelu,
    ("", "Einsum"): _einsum,
    ("", "ReduceLogSumExp"): _log_sum_exp,
    ("", "ScatterElements"): _scatter,
    ("", "ScatterND"): _scatter,
    **{("", name): _corrected for name in CORRECTED},
    **{("", name): _recurrent for name in ACTIVATIONS},
}
