# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The attention family means what its documentation says: against formulas in plain NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.frontend.notation import cast, tanh, where
from neptune_mlir.ops import Extra


def formula(
    q, k, v, *, scale=None, causal=False, window=None, softcap=None, slope=None, sink=None,
    documents=None, align="end",
):  # fmt: skip
    """Output and log-sum-exp, one line a rule."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    at_k = np.arange(k.shape[2])
    at_q = (np.arange(q.shape[2]) + (k.shape[2] - q.shape[2] if align == "end" else 0))[:, None]
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if slope is not None:
        s = s + slope[:, None, None] * (at_k - at_q)
    seen = np.ones_like(s, bool)
    if causal:
        seen &= at_k <= at_q
    if window is not None:
        seen &= at_q - at_k < window
    if documents is not None:
        seen &= (documents[0][:, :, None] == documents[1][:, None, :])[:, None]
    w = np.where(seen, np.exp(s), 0.0)  # the tests' scores are small enough for that
    total = w.sum(-1) + (0 if sink is None else np.exp(sink)[:, None])
    with np.errstate(all="ignore"):
        out = np.where((total == 0)[..., None], 0.0, (w @ v) / total[..., None])
        return out, np.log(total)


def tensors(rng, heads, kv_heads, queries, keys, head_dim=5, v_dim=3, batch=2):
    q = rng.standard_normal((batch, heads, queries, head_dim))
    k = rng.standard_normal((batch, kv_heads, keys, head_dim))
    return q, k, rng.standard_normal((batch, kv_heads, keys, v_dim))


def close(got, wanted, **tolerance):
    np.testing.assert_allclose(np.asarray(got, np.float64), wanted, **tolerance)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    group=st.sampled_from([1, 2, 3]), kv_heads=st.integers(1, 2), queries=st.integers(1, 13),
    keys=st.integers(1, 13), scale=st.sampled_from([None, 0.0, 0.3]), causal=st.booleans(),
    window=st.sampled_from([None, 0, 1, 4]), softcap=st.sampled_from([None, 2.0]),
    alibi=st.booleans(), sink=st.booleans(), documents=st.booleans(),
    align=st.sampled_from(["end", "start"]), static=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_combination_of_options(
    group, kv_heads, queries, keys, scale, causal, window, softcap, alibi, sink, documents,
    align, static, seed,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    heads = kv_heads * group
    arrays = dict(zip("qkv", tensors(rng, heads, kv_heads, queries, keys), strict=True))
    facts = {}
    if alibi:
        arrays["slope"] = facts["slope"] = rng.standard_normal(heads)
    if sink:
        arrays["sink"] = facts["sink"] = rng.standard_normal(heads)
    if documents:
        arrays["doc_q"] = rng.integers(0, 2, (2, queries))
        arrays["doc_kv"] = rng.integers(0, 2, (2, keys))
        facts["documents"] = arrays["doc_q"], arrays["doc_kv"]
    sizes = {"heads": heads, "kv_heads": kv_heads, "q_len": queries, "kv_len": keys, "batch": 2}
    program = ops.attention(
        head_dim=5, v_dim=3, dtype="f64", scale=scale, causal=causal, window=window,
        softcap=softcap, alibi=alibi, sink=sink, documents=documents, align=align,
        return_lse=True, **(sizes if static else {"group": group}),
    )  # fmt: skip
    assert list(program.inputs) == list(arrays), "arguments come in the documented order"
    out, lse = program.reference(*arrays.values())
    wanted = formula(
        *(arrays[n] for n in "qkv"), scale=scale, causal=causal, window=window,
        softcap=softcap, align=align, **facts,
    )  # fmt: skip
    close(out, wanted[0], rtol=1e-10, atol=1e-12)
    close(lse, wanted[1], rtol=1e-10, atol=1e-12)


COMPILED = {
    "documents": {"documents": True, "causal": True},
    "sink": {"sink": True, "window": 9, "causal": True},
    "start": {"align": "start", "causal": True, "alibi": True},
    "window alone": {"window": 5},
    "lse": {"return_lse": True, "causal": True, "softcap": 3.0},
    "scale 0": {"scale": 0.0},
}


@pytest.mark.first_of_each("options")
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("options", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize(("queries", "keys"), [(33, 71), (71, 33), (1, 67)])
def test_fused(options, queries, keys):
    rng = np.random.default_rng(3)
    q, k, v = (a.astype(np.float32) for a in tensors(rng, 4, 2, queries, keys, 24, 17))
    more, facts = [], {n: x for n, x in options.items() if n not in ("documents", "return_lse")}
    for name in ("alibi", "sink"):
        if facts.pop(name, False):
            more.append(rng.standard_normal(4).astype(np.float32))
            facts["slope" if name == "alibi" else name] = more[-1].astype(np.float64)
    if "documents" in options:
        more += [rng.integers(0, 3, (2, n)).astype(np.int32) for n in (queries, keys)]
        facts["documents"] = tuple(more[-2:])
    program = ops.attention(head_dim=24, v_dim=17, group=2, **options)
    got = neptune_mlir.compile(program)(q, k, v, *more)
    out, lse = formula(q, k, v, **facts)
    if options.get("return_lse"):
        close(got[1], lse, rtol=2e-6, atol=2e-6)
        got = got[0]
    close(got, out, rtol=0, atol=2e-5)
    assert (got[(out == 0).all(-1)] == 0).all()


# Issued by the paper: query heads, key heads, and the rules.
PAPER = {
    "prefill_global": (32, 32, {}),
    "prefill_causal": (32, 32, {"causal": True}),
    "prefill_gqa": (64, 8, {"causal": True}),
    "prefill_alibi": (32, 32, {"causal": True, "slope": True}),
    "prefill_softcap": (32, 16, {"causal": True, "softcap": 50.0}),
    "prefill_windowed": (32, 8, {"causal": True, "softcap": 50.0, "window": 4096}),
    "decode_causal": (32, 32, {"causal": True}),
    "decode_gqa": (64, 8, {"causal": True}),
    "decode_alibi": (32, 32, {"causal": True, "slope": True}),
    "decode_softcap": (32, 16, {"causal": True, "softcap": 50.0}),
}


def test_the_paper_has_ten_operators():
    assert list(ops.OPERATORS) == list(PAPER)


@pytest.mark.parametrize("name", PAPER)
def test_operator_of_the_paper(name):
    heads, kv_heads, rules = PAPER[name]
    rules = dict(rules)
    rng = np.random.default_rng(4)
    queries = 1 if name.startswith("decode") else 19
    more = [rng.standard_normal(heads) / 8] if rules.pop("slope", False) else []
    if more:
        rules["slope"] = more[0]
    options = {}
    if "window" in rules:  # far longer than what a test can see: shorten both
        assert ops.OPERATORS[name]["window"] == rules["window"]
        options["window"] = rules["window"] = 7
    program = ops.operator(name, dtype="f64", **options)
    sizes = {a.name: a.static for a in program.axis_list}
    assert (sizes["h"], sizes["d"], sizes["e"], sizes["b"]) == (heads, 128, 128, 1)
    q, k, v = tensors(rng, heads, kv_heads, queries, 23, 128, 128, batch=1)
    close(program.reference(q, k, v, *more), formula(q, k, v, **rules)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sixteen_bit_weights_are_rounded_by_the_program(dtype):
    program = ops.attention(head_dim=8, dtype=dtype)
    weights = program.steps[-1].body.args[0]  # cast to f32 of the cast to 16 bit
    assert (weights.op, weights.args[0].op, weights.args[0].dtype) == ("cast", "cast", dtype)
    assert program.outputs[0].term.dtype == dtype
    assert ops.attention(head_dim=8).steps[-1].body.args[0].op == "exp"


def test_bf16_on_the_cpu():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(1, 2, 45, 32, generator=torch.manual_seed(n)).bfloat16()
               for n in range(3))  # fmt: skip
    out = neptune_mlir.compile(ops.attention(head_dim=32, dtype="bf16", causal=True))(q, k, v)
    wanted, _ = formula(*(a.float().numpy() for a in (q, k, v)), causal=True)
    assert out.dtype == torch.bfloat16
    close(out.float(), wanted, rtol=0, atol=2e-2)


def test_decode_attention_is_one_query_at_the_end():
    rng = np.random.default_rng(5)
    q, k, v = tensors(rng, 2, 2, 1, 9)
    program = ops.decode_attention(head_dim=5, v_dim=3, window=4, dtype="f64")
    close(program.reference(q, k, v), formula(q, k[:, :, -4:], v[:, :, -4:])[0], rtol=1e-12)


def test_flex_modifiers_trace():
    def score_mod(score, b, h, q, kv, slope, cap):
        return cap * tanh((score + slope[h] * (kv - q)) / cap)

    def mask_mod(b, h, q, kv, doc, window):
        return (doc[b, q] == doc[b, kv]) & (q >= kv) & (q - kv < window)

    program = ops.attention(
        head_dim=16, score_mod=score_mod, mask_mod=mask_mod,
        inputs={"slope": Extra("h"), "cap": Extra(), "doc": Extra("b kv", "i32"),
                "window": Extra(dtype="index")},
    )  # fmt: skip
    rng = np.random.default_rng(6)
    q, k, v = (a.astype(np.float32) for a in tensors(rng, 3, 3, 29, 29, 16, 16))
    slope = rng.standard_normal(3).astype(np.float32)
    doc = np.sort(rng.integers(0, 3, (2, 29)), axis=1).astype(np.int32)
    at = np.arange(29)
    s = np.einsum("bhid,bhjd->bhij", q, k, dtype=np.float64) / 4
    s = 4.0 * np.tanh((s + slope[:, None, None] * (at - at[:, None])) / 4.0)
    seen = (at[:, None] >= at) & (at[:, None] - at < 11)
    seen = seen & (doc[:, :, None] == doc[:, None, :])
    w = np.where(seen[:, None], np.exp(s), 0)
    wanted = (w @ v) / w.sum(-1, keepdims=True)
    close(program.reference(q, k, v, slope, 4.0, doc, 11), wanted, rtol=1e-9, atol=1e-12)
    close(neptune_mlir.compile(program)(q, k, v, slope, 4.0, doc, 11), wanted, rtol=0, atol=1e-5)


def test_a_modifier_may_return_a_number():
    q = np.ones((1, 1, 3, 4))
    v = np.arange(12.0).reshape(1, 1, 3, 4)
    constant = ops.attention(head_dim=4, score_mod=lambda s, b, h, q, kv: 1.0)
    np.testing.assert_allclose(constant.reference(q, q, v)[0, 0, 0], v[0, 0].mean(0))
    everything = ops.attention(head_dim=4, mask_mod=lambda b, h, q, kv: True)
    np.testing.assert_allclose(everything.reference(q, q, v)[0, 0, 0], v[0, 0].mean(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 8, "kv_heads": 3}, "8 query heads are not 3 key heads"),
        ({"heads": 6, "group": 4}, "6 query heads are not 1 key heads times a group of 4"),
        ({"heads": 8, "kv_heads": 2, "group": 2}, "times a group of 2"),
        ({"group": 0}, "group is 0"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"v_dim": -1}, "v_dim is -1"),
        ({"dtype": "i32"}, "attention on i32"),
        ({"window": 1.5}, "window is 1.5"),
        ({"window": -3}, "window is -3"),
        ({"softcap": "x"}, "softcap is 'x'"),
        ({"softcap": 0.0}, "softcap is 0.0"),
        ({"align": "middle"}, "align is 'middle'"),
        ({"mask_mod": 3}, "mask_mod is 3"),
        ({"mask_mod": lambda b, h: True}, "mask_mod: too many positional arguments"),
        ({"score_mod": lambda s, b, h, q, kv, bias: s}, "'bias', which inputs does not list"),
        ({"inputs": {"bias": Extra("h d")}}, "'bias' has an axis 'd'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(UsageError, match=message):
        ops.attention(**{"head_dim": 4, **options})


def test_an_unknown_operator():
    with pytest.raises(UsageError, match="no operator 'prefill'"):
        ops.operator("prefill")


@pytest.mark.parametrize(
    ("option", "mod"),
    [
        ("mask_mod", lambda b, h, q, kv: q + kv),
        ("score_mod", lambda s, b, h, q, kv: s if q > kv else -s),
        ("score_mod", lambda s, b, h, q, kv: where(s, s, 0.0)),
        ("score_mod", lambda s, b, h, q, kv: cast(s, "f8")),
    ],
)
def test_a_wrong_modifier_names_a_line(option, mod):
    with pytest.raises(InputError) as caught:
        ops.attention(head_dim=4, **{option: mod})
    assert caught.value.loc.startswith(__file__)


def test_heads_follow_from_each_other():
    def heads(**options):
        program = ops.attention(head_dim=4, **options)
        return program.inputs["q"].shape[1].static, program.inputs["k"].shape[1].static

    assert heads(kv_heads=8) == (8, 8)
    assert heads(kv_heads=2, group=4) == (8, 2)
    assert heads(heads=8, group=4) == (8, 2)
    assert heads(heads=8, kv_heads=2) == (8, 2)
    assert heads(group=4) == (None, None)
