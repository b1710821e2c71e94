# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile IR as TTIR: what it means (run with NumPy in float64), and that Triton compiles it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.codegen.gpu.host import GpuHost
from neptune_mlir.codegen.triton import tool
from neptune_mlir.codegen.triton.ttir import TritonOptions, kernel_text
from neptune_mlir.dialects.context import parse
from neptune_mlir.driver.compiler import compile_text, lower_text
from neptune_mlir.errors import LoweringError, ToolError, UsageError
from neptune_mlir.ir.bindings import ir
from support.chips import ttir_exec
from support.tile_programs import attention

RNG = np.random.default_rng(7)
TRITON = tool.version(tool.interpreter())
needs_triton = pytest.mark.skipif(TRITON is None, reason="the package triton is not installed")


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape)


@functools.cache
def tiles(text: str) -> Any:
    return lower_text(text, "test", "triton:sm_90a", None, "tile")[0]


def check(program: Any, *arrays: Any, options: TritonOptions | None = None) -> None:
    module = tiles(program.to_mlir()).operation.clone()
    got = ttir_exec.run(module, arrays, options)
    want = program.reference(*arrays)
    want = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got, want, strict=True):
        # constants of a program are f32, or else nothing rounds
        np.testing.assert_allclose(g, w, rtol=2e-6, atol=2e-6 * np.abs(w).max(initial=1e-9))


def attention_inputs(name: str, queries: int, keys: int, head: int) -> tuple[Any, list[Any]]:
    kv = 1 if "gqa" in name else 2
    program = ops.operator(name, heads=2, kv_heads=kv, head_dim=head)
    arrays = [normal(1, 2, queries, head), normal(1, kv, keys, head), normal(1, kv, keys, head)]
    return program, [*arrays, normal(2) / 8] if "alibi" in name else arrays


@pytest.mark.first_of_each("name")
@pytest.mark.parametrize("name", [n for n in ops.OPERATORS if n.startswith("prefill")])
@pytest.mark.parametrize(("queries", "keys"), [(70, 90), (1, 1), (128, 128)])
def test_prefill(name: str, queries: int, keys: int) -> None:
    program, arrays = attention_inputs(name, queries, keys, 32)
    check(program, *arrays)


@pytest.mark.first_of_each("keys")
@pytest.mark.parametrize("name", [n for n in ops.OPERATORS if n.startswith("decode")])
@pytest.mark.parametrize("keys", [700, 1, 64])
def test_decode(name: str, keys: int) -> None:
    program, arrays = attention_inputs(name, 1, keys, 32)
    check(program, *arrays)


@pytest.mark.first_of_each()
@pytest.mark.parametrize("head", [80, 96, 20])
def test_extents_that_are_no_powers_of_two(head: int) -> None:
    program, arrays = attention_inputs("prefill_causal", 40, 70, head)
    check(program, *arrays)


def test_other_programs() -> None:
    check(ops.softmax(), normal(5, 77))
    check(ops.logsumexp(), normal(3, 130))
    check(ops.layer_norm(), normal(5, 77), normal(77), normal(77))
    check(ops.rms_norm(), normal(5, 77), normal(77))
    check(ops.variance(), normal(9, 200))


@pytest.mark.parametrize("causal", [False, True])
def test_hand_written_tile_ir(causal: bool) -> None:
    q, k, v = normal(2, 1, 45, 16), normal(2, 1, 45, 16), normal(2, 1, 45, 16)
    module = parse(attention(16, 16, 32, causal=causal))
    (got,) = ttir_exec.run(module, [q, k, v, 0.25])
    s = q @ k.swapaxes(-1, -2) * 0.25
    if causal:
        s = np.where(np.tri(45, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(got, p / p.sum(-1, keepdims=True) @ v, rtol=1e-12, atol=1e-12)


def generic(inputs: str, output: str, maps: str, kinds: str, body: str, fill: str = "0.0") -> str:
    """One program that loads whole tensors, runs one generic, and stores its result."""
    types = [f"tensor<{t}>" for t in inputs.split()]
    out = f"tensor<{output}>"
    dtype = output.split("x")[-1]
    names = [f"%a{k}" for k in range(len(types))]
    loads = []
    for k, (name, kind, t) in enumerate(zip(names, types, inputs.split(), strict=True)):
        sizes = t.split("x")[:-1]
        zeros, ones = ", ".join("0" * len(sizes)), ", ".join("1" * len(sizes))
        loads.append(f"%t{k} = tensor.extract_slice {name}[{zeros}] [{', '.join(sizes)}] [{ones}]"
                     f" : {kind} to {kind}")  # fmt: skip
    shape = output.split("x")[:-1]
    zeros, ones = ", ".join("0" * len(shape)), ", ".join("1" * len(shape))
    iterators = ", ".join(f'"{"parallel" if c == "p" else "reduction"}"' for c in kinds)
    return f"""
func.func @f({", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))}) -> {out} {{
  %empty = tensor.empty() : {out}
  %r = scf.forall (%program) in (1) shared_outs(%o = %empty) -> ({out}) {{
    {"; ".join(loads).replace("; ", chr(10))}
    %c = arith.constant {fill if dtype == "i1" else f"{fill} : {dtype}"}
    %e = tensor.empty() : {out}
    %i = linalg.fill ins(%c : {dtype}) outs(%e : {out}) -> {out}
    %g = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
      ins({", ".join(f"%t{k}" for k in range(len(types)))} : {", ".join(types)}) outs(%i : {out}) {{
{body}
    }} -> {out}
    scf.forall.in_parallel {{
      tensor.parallel_insert_slice %g into %o[{zeros}] [{", ".join(shape)}] [{ones}]
        : {out} into {out}
    }}
  }}
  return %r : {out}
}}"""


def maps(*texts: str) -> str:
    """`mk kn mn` as affine maps over the sorted letters."""
    letters = sorted(set("".join(texts)))
    dims = ", ".join(letters)
    return ", ".join(f"affine_map<({dims}) -> ({', '.join(t)})>" for t in texts)


PRODUCT = """
    ^bb0(%x: f32, %y: f32, %acc: f32):
      %p = arith.mulf %x, %y : f32
      %s = arith.addf %acc, %p : f32
      linalg.yield %s : f32"""


@pytest.mark.parametrize(
    "equation",
    ["mk,nk->mn", "km,kn->nm", "mk,kn->mn", "bmk,bnk->bmn", "mak,nak->mn", "kam,kn->amn",
     "mk,kn->nm", "mbk,knb->nbm", "k,kn->n", "mk,k->m", "m,n->mn"],
)  # fmt: skip
@pytest.mark.parametrize("size", [16, 20])
def test_contractions_of_any_axes(equation: str, size: int) -> None:
    left, right, out = equation.replace("->", ",").split(",")
    extent = {c: 3 if c in "ab" else size + 4 * (c == "n") for c in "abkmn"}

    def shape(axes: str) -> tuple[int, ...]:
        return tuple(extent[c] for c in axes)

    def kind(axes: str) -> str:
        return "x".join(map(str, shape(axes))) + "xf32"

    letters = sorted({*left, *right, *out})
    kinds = "".join("p" if c in out else "r" for c in letters)
    text = generic(
        f"{kind(left)} {kind(right)}", kind(out), maps(left, right, out), kinds, PRODUCT, "2.0"
    )
    a, b = normal(*shape(left)), normal(*shape(right))
    (got,) = ttir_exec.run(parse(text), [a, b])
    np.testing.assert_allclose(got, np.einsum(equation, a, b) + 2.0, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("op", "dtype", "combine"),
    [("addf", "f32", np.add), ("mulf", "f32", np.multiply), ("maximumf", "f32", np.maximum),
     ("minnumf", "f32", np.fmin), ("addi", "i32", np.add), ("maxsi", "i32", np.maximum),
     ("minsi", "i8", np.minimum), ("andi", "i1", np.logical_and), ("ori", "i1", np.logical_or),
     ("xori", "i32", np.bitwise_xor), ("muli", "i64", np.multiply)],
)  # fmt: skip
@pytest.mark.parametrize("kept", ["r", "c"])
def test_reductions(op: str, dtype: str, combine: Any, kept: str) -> None:
    body = f"""
    ^bb0(%x: {dtype}, %acc: {dtype}):
      %s = arith.{op} %acc, %x : {dtype}
      linalg.yield %s : {dtype}"""
    data = RNG.integers(0, 2 if dtype == "i1" else 3, (6, 11))
    x = data.astype({"f32": np.float64, "i1": np.bool_}.get(dtype, f"i{int(dtype[1:]) // 8}"
                                                              if dtype[0] == "i" else None))
    start = {"i1": "true", "f32": "1.0"}.get(dtype, "1")
    extent = 6 if kept == "r" else 11
    kinds = "rp" if kept == "r" else "pr"  # the loops are c, r
    text = generic(f"6x11x{dtype}", f"{extent}x{dtype}", maps("rc", kept), kinds, body, start)
    (got,) = ttir_exec.run(parse(text), [x])
    want = combine(combine.reduce(x, axis=1 if kept == "r" else 0), x.dtype.type(1))
    np.testing.assert_array_equal(got, want)


def printed(text: str) -> str:
    module = parse(text)
    with module.context, ir.Location.unknown():
        (signature,) = GpuHost.find(module, "").read()
        return kernel_text(signature)


def test_small_products_are_sums() -> None:
    large = generic("32x16xf32 16x16xf32", "32x16xf32", maps("mk", "kn", "mn"), "rpp", PRODUCT)
    small = generic("4x8xf32 8x4xf32", "4x4xf32", maps("mk", "kn", "mn"), "rpp", PRODUCT)
    assert "tt.dot" in printed(large)
    assert "tt.dot" not in printed(small)


def test_a_combiner_that_may_need_an_order_is_refused() -> None:
    body = """
    ^bb0(%x: f32, %acc: f32):
      %p = arith.mulf %acc, %x : f32
      %s = arith.addf %p, %acc : f32
      linalg.yield %s : f32"""
    text = generic("8x8xf32", "8xf32", maps("rc", "r"), "rp", body)
    with pytest.raises(LoweringError, match="not known to be associative"):
        printed(text)


def test_unknown_targets() -> None:
    text = ops.softmax().to_mlir()
    for target in ("triton", "triton:sm_17", "triton:sm_80,gfx942"):
        with pytest.raises(UsageError, match="unknown target"):
            compile_text(text, "softmax", target, None, None)


def test_triton_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEPTUNE_TRITON_PYTHON", "/nonexistent/python")
    with pytest.raises(ToolError, match="triton is not installed"):
        tool.compile_kernel("module {}", "sm_80")


@needs_triton
@pytest.mark.parametrize("text", ["module {", "module { tt.func public @f( }", "no ir at all"])
def test_bad_input_is_an_error_message(text: str) -> None:
    with pytest.raises(ToolError, match="Triton stopped for sm_80"):
        tool.compile_kernel(text, "sm_80")


@needs_triton
@pytest.mark.parametrize("chips", ["sm_80,sm_89,sm_90a", "gfx942,gfx1100"])
@pytest.mark.parametrize("name", ["prefill_softcap", "decode_gqa"])
def test_every_target_builds(name: str, chips: str) -> None:
    program = ops.operator(name)
    bundle = compile_text(program.to_mlir(), name, f"triton:{chips}", None, None)
    images = bundle.facts["images"]
    assert [i["target"] for i in images] == chips.split(",")
    for image in images:
        for kernel in image["kernels"].values():
            code = bundle.code[kernel["offset"] : kernel["offset"] + kernel["size"]]
            assert code.startswith(b"\x7fELF")
            assert kernel["threads"] >= 128 and 16 <= kernel["registers"] <= 512
        if image["target"] == "sm_90a" and name == "prefill_softcap":
            assert not any(k["spills"] for k in image["kernels"].values())


@needs_triton
def test_products_use_matrix_instructions() -> None:
    program = ops.operator("prefill_global")
    module, _ = lower_text(program.to_mlir(), "f", "triton:sm_80", None, "tile")
    from neptune_mlir.pipelines import triton

    text = triton.emit_tiles(module, "ptx", None, "triton:sm_80")
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in text
    assert "cp.async" in text
