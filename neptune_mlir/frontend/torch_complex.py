# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Complex numbers of torch as two tensors, real and imaginary parts, and Fourier transforms as
products with cosines and sines. No kernel has complex numbers.

torch's own `ComplexTensor` says what an operation on two such parts is (torch 2.10 and later). A
graph is traced once more with it; arguments and results stay what they are, so they are real.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

WHOLE = 128  # elements that a transform sums up at once; more are rows of rows, where they divide
# of which torch has no rule
MOVES = (
    "roll", "unfold", "tril", "triu", "unbind", "im2col", "lift_fresh_copy", "index_put", "scatter",
)  # fmt: skip


def take_apart(torch: Any, exported: Any) -> Any:
    """An exported program that computes without complex numbers. It stays as it is where it has
    none, where this torch cannot, and where an argument or a result is complex."""
    if not any(_is_complex(torch, node) for node in exported.graph.nodes):
        return exported
    if any(_is_complex(torch, node) and _writes(node) for node in exported.graph.nodes):
        exported = exported.run_decompositions({})  # torch's rules copy what they take a part of
    _replace_pairs(torch, exported)
    return exported


def _writes(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _replace_pairs(torch: Any, exported: Any) -> None:
    graph = exported.graph
    signature = exported.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants}  # fmt: skip
    apart = {node: held.get(node.name) for node in _places(graph) if _is_complex(torch, node)}
    results = graph.output_node().all_input_nodes
    if None in apart.values() or any(_is_complex(torch, node) for node in results):
        return
    try:
        core = importlib.import_module("torch._subclasses.complex_tensor")
        ops = importlib.import_module("torch._subclasses.complex_tensor._ops.common")
    except ImportError:
        return
    for name in apart.values():  # what a module holds: pairs in the last dimension
        for kept in (exported.state_dict, exported.constants):
            if name in kept:
                held = kept[name]
                both = torch.view_as_real(held.detach().resolve_conj()).contiguous()
                named = isinstance(held, torch.nn.Parameter)  # torch asks whether it is one still
                kept[name] = torch.nn.Parameter(both, held.requires_grad) if named else both
    for node in apart:
        node.meta["val"] = torch.view_as_real(node.meta["val"])
        node.meta.pop("tensor_meta", None)
    traced = _traced(torch, core.ComplexTensor, ops.lookup_complex, exported, set(apart))
    _replace(torch, exported, traced.graph, traced)


def _is_complex(torch: Any, node: Any) -> bool:
    values = node.meta.get("val")
    listed = values if isinstance(values, (tuple, list)) else [values]
    return any(isinstance(x, torch.Tensor) and x.dtype.is_complex for x in listed)


def _places(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _traced(torch: Any, pair: Any, lookup: Any, exported: Any, apart: set[Any]) -> Any:
    """The graph in real operations, with placeholders as before."""
    makers = _makers(torch, pair)
    # torch's rules make tensors of numbers
    ours = {torch.ops.aten.mul: _product, torch.ops.aten.div: _quotient}
    moves = {getattr(torch.ops.aten, name) for name in MOVES}
    places = _places(exported.graph)

    class Apart(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, given: Any = (), named: Any = None
        ) -> Any:
            named = named or {}
            packet = function.overloadpacket
            listed = torch.utils._pytree.tree_leaves((given, named))
            takes = any(isinstance(x, (pair, complex)) for x in listed)
            dtype = named.get("dtype")
            if not takes and dtype is not None and dtype.is_complex:
                made = function(*given, **{**named, "dtype": dtype.to_real()})
                return pair(made, torch.zeros_like(made))
            if not takes and packet not in makers:
                return function(*given, **named)
            with self:
                own = makers.get(packet)
                if own is None and packet in ours and len(given) == 2:
                    own = functools.partial(ours[packet], pair)
                if own is None and packet in moves:
                    own = functools.partial(_by_parts, pair, packet)
                if own is None:
                    own = lookup(function, *given, **named)
                if own is None:
                    raise NotImplementedError(f"'{function}' has no form of real numbers")
                return own(*given, **named)

    class Spelled(torch.fx.Interpreter):  # type: ignore[misc]
        """With frames of a signal written out: torch transposes their spectra in place."""

        def call_function(self, target: Any, given: Any, named: Any) -> Any:
            if target == torch.ops.aten.stft.default:
                return _spectrogram(torch, *given, **named)
            return super().call_function(target, given, named)

    def run(*given: Any) -> Any:
        values = [
            pair(x.select(-1, 0), x.select(-1, 1)) if node in apart else x
            for node, x in zip(places, given, strict=True)
        ]
        with Apart(), torch.no_grad(), torch.fx.traceback.preserve_node_meta():
            return Spelled(exported.graph_module).run(*values)

    given = [node.meta["val"] for node in places]
    with _fake_mode(exported.graph):
        return torch.fx.experimental.proxy_tensor.make_fx(run)(*given)


def _fake_mode(graph: Any) -> Any:
    values = (node.meta.get("val") for node in _places(graph))
    return next(x.fake_mode for x in values if hasattr(x, "fake_mode"))


def _replace(torch: Any, exported: Any, graph: Any, holder: Any) -> None:
    """Let a program compute what another graph does, whose placeholders are its own."""
    old, output = exported.graph, exported.graph.output_node()
    places = _places(old)
    inserted: dict[Any, Any] = dict(zip(_places(graph), places, strict=True))
    for node in graph.nodes:
        if node.op == "get_attr":
            inserted[node] = _constant(torch, exported, getattr(holder, node.target))
    with old.inserting_before(output):
        for node in graph.nodes:
            if node.op == "call_function":
                inserted[node] = old.node_copy(node, inserted.__getitem__)
    made = torch.utils._pytree.tree_leaves(graph.output_node().args[0])
    names = [x.name if isinstance(x, torch.fx.Node) else None for x in output.args[0]]
    results = [inserted.get(x, x) for x in made]
    with old.inserting_before(output):  # each result has a node, whose name is the old one
        for k, name in enumerate(names):
            if name is not None and (results[k] in places or results[k] in results[:k]):
                copy = old.call_function(torch.ops.aten.clone.default, (results[k],))
                copy.meta.update(results[k].meta)
                results[k] = copy
    kept = {*inserted.values(), *results, *places, output}
    output.args = (tuple(results),)
    for node in reversed(list(old.nodes)):
        if node not in kept:
            old.erase_node(node)
    for name, result in zip(names, results, strict=True):
        if name is not None:
            result.name = name
    exported.graph_module.recompile()


def _constant(torch: Any, exported: Any, value: Any) -> Any:
    """A placeholder that stands for a tensor."""
    spec = torch.export.graph_signature
    name = f"constant_of_rule_{len(exported.constants)}"
    fake = _fake_mode(exported.graph).from_tensor(value)
    with exported.graph.inserting_before(next(iter(exported.graph.nodes))):
        made = exported.graph.placeholder(name)
    made.meta["val"] = fake
    exported.constants[name] = value
    exported.graph_signature.input_specs.insert(0, spec.InputSpec(
        spec.InputKind.CONSTANT_TENSOR, spec.TensorArgument(made.name), name))
    return made


def _makers(torch: Any, pair: Any) -> dict[Any, Callable[..., Any]]:
    """Rules of what makes complex numbers: the three transforms that torch has, and others."""
    aten = torch.ops.aten

    def both(x: Any) -> tuple[Any, Any]:
        return (x.re, x.im) if isinstance(x, pair) else (x, None)

    def normed(re: Any, im: Any, n: float, normalization: int) -> Any:
        factor = {0: 1.0, 1: n**-0.5, 2: 1 / n}[normalization]
        return pair(re, im) if factor == 1 else pair(re * factor, im * factor)

    def complexes(x: Any, dims: Sequence[int], normalization: int, forward: bool) -> Any:
        re, im = both(x)
        for dim in dims:
            re, im = _along(torch, re, im, dim, -1 if forward else 1)
        n = math.prod(x.shape[d] for d in dims)
        return normed(re, im, n, normalization)

    def to_complexes(x: Any, dims: Sequence[int], normalization: int, onesided: bool) -> Any:
        made = complexes(x, dims, normalization, True)
        if not onesided:
            return made
        n = x.shape[dims[-1]] // 2 + 1
        return pair(*(part.narrow(dims[-1], 0, n) for part in both(made)))

    def to_real(x: Any, dims: Sequence[int], normalization: int, last: int) -> Any:
        dim, others = dims[-1], list(dims[:-1])
        re, im = both(complexes(x, others, 0, False))
        n = re.shape[dim]
        # the other half is the conjugate, in reverse; what is imaginary of ends is not looked at
        at = torch.arange(last, device=re.device)
        half = torch.where(at < n, at, last - at).clamp(max=n - 1)
        sign = torch.where(at < n, 1.0, -1.0).to(re.dtype)
        sign = torch.where((at == 0) | (2 * at == last), 0.0, sign)
        along = [-1 if k == dim % re.dim() else 1 for k in range(re.dim())]
        whole = re.index_select(dim, half), im.index_select(dim, half) * sign.view(along)
        made, zero = _along(torch, *whole, dim, 1)
        size = last * math.prod(re.shape[d] for d in others)
        return normed(made, zero, size, normalization).re

    return {
        aten._fft_c2c: complexes, aten._fft_r2c: to_complexes, aten._fft_c2r: to_real,
        aten.complex: pair,
        aten.polar: lambda size, angle: pair(size * angle.cos(), size * angle.sin()),
        aten.view_as_complex: lambda x: pair(x.select(-1, 0), x.select(-1, 1)),
    }  # fmt: skip


def _spectrogram(
    torch: Any, x: Any, size: int, hop: int | None = None, length: int | None = None,
    window: Any = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    if align_to_window:
        raise NotImplementedError("'aten.stft' that is aligned to its window is not written out")
    frames = x.unfold(-1, size, hop or size // 4)
    length = length or size
    if window is None and length < size:
        window = torch.ones(length, dtype=x.dtype, device=x.device)
    if window is not None:
        before = (size - length) // 2
        frames = frames * torch.nn.functional.pad(window, (before, size - length - before))
    made = torch.ops.aten._fft_r2c.default(
        frames, [frames.dim() - 1], int(normalized), onesided is not False
    )
    return made.transpose(-1, -2) if return_complex else torch.view_as_real(made.transpose(-1, -2))


def _by_parts(pair: Any, function: Any, *given: Any, **named: Any) -> Any:
    """What only moves elements."""
    parts = tuple(
        function(*(getattr(x, part) if isinstance(x, pair) else x for x in given), **named)
        for part in ("re", "im")
    )
    if isinstance(parts[0], (tuple, list)):
        return [pair(re, im) for re, im in zip(*parts, strict=True)]
    return pair(*parts)


def _product(pair: Any, x: Any, y: Any) -> Any:
    """Of a pair or a complex number, and anything."""
    if isinstance(x, pair) and isinstance(y, pair):
        return pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)
    x, y = (x, y) if isinstance(x, pair) or isinstance(y, complex) else (y, x)
    if not isinstance(y, complex):
        return pair(x.re * y, x.im * y)
    if not isinstance(x, pair):
        return pair(x * y.real, x * y.imag)
    return pair(x.re * y.real - x.im * y.imag, x.re * y.imag + x.im * y.real)


def _quotient(pair: Any, x: Any, y: Any) -> Any:
    """By a pair, a complex number or anything."""
    if isinstance(y, complex):
        return _product(pair, x, 1 / y)
    if not isinstance(y, pair):
        return pair(x.re / y, x.im / y)
    size = y.re * y.re + y.im * y.im
    return _product(pair, x, pair(y.re / size, -y.im / size))


def _along(torch: Any, re: Any, im: Any, dim: int, sign: int) -> tuple[Any, Any]:
    """A transform along a dimension, with e^(sign 2πi jk/n)."""
    if not isinstance(re.shape[dim], int):
        raise NotImplementedError("a Fourier transform needs a length that is known")
    re = re.movedim(dim, -1)
    im = None if im is None else im.movedim(dim, -1)
    re, im = _of_rows(torch, re, im, sign)
    return re.movedim(-1, dim), im.movedim(-1, dim)


def _of_rows(torch: Any, re: Any, im: Any, sign: int) -> tuple[Any, Any]:
    """By products, of sqrt(n) elements at a time where n has such a divisor and is large."""
    n = re.shape[-1]
    first = next((d for d in range(math.isqrt(n), 1, -1) if n % d == 0), 1)
    if n <= WHOLE or first == 1:
        cos, sin = _waves(torch, re, n, n, n, sign)
        return _multiplied(re, im, cos, sin, lambda x, y: x @ y)
    # j = j1 n2 + j2, k = k1 + n1 k2: over j1, then by e^(2πi j2 k1/n), then over j2
    second = n // first
    re = re.unflatten(-1, (first, second)).mT
    im = None if im is None else im.unflatten(-1, (first, second)).mT
    re, im = _of_rows(torch, re, im, sign)
    turn = _waves(torch, re, second, first, n, sign)
    re, im = _multiplied(re, im, *turn, lambda x, y: x * y)
    re, im = _of_rows(torch, re.mT, im.mT, sign)
    return re.mT.flatten(-2), im.mT.flatten(-2)


def _waves(torch: Any, like: Any, rows: int, columns: int, n: int, sign: int) -> tuple[Any, Any]:
    """cos and sin of sign 2π jk/n, as constants."""
    tracing = torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing
    with tracing(), torch._subclasses.fake_tensor.unset_fake_temporarily():
        j = torch.arange(rows, device=like.device).unsqueeze(1)
        k = torch.arange(columns, device=like.device)
        turns = (j * k) % n
        angle, exact = turns.double() * (2 * math.pi / n), 4 * turns % n == 0
        # 0 where that is exact, so that what has no imaginary part has an angle of 0 or pi
        both = (torch.where(exact, x.round(), x) for x in (angle.cos(), angle.sin()))
        cosines, sines = (x.to(like.dtype) for x in both)
        return cosines, sign * sines + 0.0


def _multiplied(
    re: Any, im: Any, cos: Any, sin: Any, times: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    if im is None:
        return times(re, cos), times(re, sin)
    return times(re, cos) - times(im, sin), times(re, sin) + times(im, cos)
