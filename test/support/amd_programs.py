# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs for AMD chips, arguments that an emulator can run, and what they give in float64.

Each change runs `MACHINE` on each chip, but for one program; the rest is nightly.
Each is a function without arguments, so that none is made before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import neptune_mlir
from neptune_mlir import ops, zoo
from neptune_mlir.driver.inputs import bf16_bits
from neptune_mlir.frontend.shard import split
from support import ten_operators as ten
from support.serving_cases import Paged, formula, in_bytes, ragged_sequences

CHIPS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
TOLERANCE = {"f32": 1e-6, "f16": 6e-4, "bf16": 5e-3}
KINDS = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True)
class Case:
    """A program and its arguments.

    Attributes:
        tolerance: of the relative Frobenius error of a result.
        wanted: the results; None where the program's definition gives them in float64.
    """

    program: Any
    inputs: Sequence[Any]
    tolerance: float
    wanted: Sequence[Any] | None = None


Make = Callable[[], Case]


class Arrays:
    """Random arrays, no two alike."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, *shape: int, dtype: str = "f32", scale: float = 1.0) -> Any:
        values = self.rng.standard_normal(shape) * scale
        return bf16_bits(values) if dtype == "bf16" else values.astype(KINDS[dtype])

    def labels(self, rows: int, classes: int) -> Any:
        return self.rng.integers(0, classes, rows)


def attention(
    dtype: str = "f16", q_len: int = 97, kv_len: int = 97, heads: int = 1, kv_heads: int = 1,
    head_dim: int = 64, **options: Any,
) -> Make:  # fmt: skip
    def make() -> Case:
        array = Arrays()
        program = ops.attention(
            head_dim=head_dim, dtype=dtype, heads=heads, kv_heads=kv_heads, **options
        )
        shapes = ((heads, q_len), (kv_heads, kv_len), (kv_heads, kv_len))
        inputs = [array(1, h, n, head_dim, dtype=dtype) for h, n in shapes]
        return Case(program, inputs, TOLERANCE[dtype])

    return make


def operator(name: str, length: int, head_dim: int) -> Make:
    """One of the ten, with few heads, in f16."""
    return lambda: Case(
        ten.small(name, head_dim=head_dim), ten.inputs(name, length, head_dim, seed=1),
        TOLERANCE["f16"],
    )  # fmt: skip


def rows(build: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "f32") -> Make:
    """A program on rows: arrays of these shapes."""

    def make() -> Case:
        array = Arrays()
        inputs = [array(*shape, dtype=dtype) for shape in shapes]
        return Case(build(dtype=dtype), inputs, TOLERANCE[dtype])

    return make


def matmul(build: Callable[..., Any], dtype: str, m: int, k: int, n: int, vectors: int) -> Make:
    """A matrix, `vectors` of its columns, and the matrix that it is multiplied with."""

    def make() -> Case:
        array = Arrays()
        inputs = [array(m, k, dtype=dtype), *(array(k, dtype=dtype) for _ in range(vectors)),
                  array(k, n, dtype=dtype, scale=k**-0.5)]  # fmt: skip
        return Case(build(dtype=dtype), inputs, TOLERANCE[dtype])

    return make


def cross_entropy() -> Case:
    array = Arrays()
    return Case(ops.cross_entropy(), [array(21, 301), array.labels(21, 301)], TOLERANCE["f32"])


def linear_cross_entropy() -> Case:
    array = Arrays()
    inputs = [array(50, 64, dtype="f16"), array(150, 64, dtype="f16"), array.labels(50, 150)]
    program = ops.linear_cross_entropy(width=64, dtype="f16")
    return Case(program, inputs, TOLERANCE["f16"])


MACHINE: dict[str, Make] = {
    "attention 64": attention(q_len=64, kv_len=70),
    "attention 64, grouped, causal": attention(causal=True, heads=2, kv_len=131),
    "attention 128": attention(head_dim=128, causal=True, q_len=66, kv_len=130),
    "decode": operator("decode_gqa", 133, 64),
    "rms norm matmul": matmul(ops.rms_norm_matmul, "f16", 70, 136, 72, 1),
    "softmax": rows(ops.softmax, (21, 301)),
    "layer norm": rows(ops.layer_norm, (9, 301), (301,), (301,)),
    "cross entropy": cross_entropy,
}

def carried(finish: bool) -> Make:
    """The next run of attention over devices, that begins with the parts of the one before."""

    def make() -> Case:
        program = split(ops.attention(head_dim=64, dtype="f16"), ["j"]).carried("j", finish)
        of, parts = Arrays(), ((1, 2, 70), (1, 2, 70, 64))
        q, k, v = (of(1, 2, n, 64, dtype="f16") for n in (70, 97, 97))
        return Case(program, [q, k, v, *(of(*shape) for shape in parts)], TOLERANCE["f16"])

    return make


MORE: dict[str, Make] = {
    "attention that begins with parts": carried(True),
    "attention that gives parts on": carried(False),
    "attention bf16": attention("bf16", causal=True, q_len=133, kv_len=133),
    "attention f32": attention("f32", causal=True, q_len=70, kv_len=70),
    "attention f32 128": attention("f32", head_dim=128, q_len=66, kv_len=66),
    "attention 32": attention(head_dim=32, q_len=64, kv_len=65),
    "attention 96": attention(head_dim=96, causal=True),
    "attention 256": attention("bf16", head_dim=256, q_len=70, kv_len=70),
    "attention with log-sum-exp": attention(causal=True, return_lse=True),
    "rows that see no key": attention(causal=True, q_len=101, kv_len=37),
    "one tile": attention(q_len=64, kv_len=64),
    "one query": attention(q_len=1, kv_len=31),
    "rms norm matmul f32": matmul(ops.rms_norm_matmul, "f32", 35, 67, 41, 1),
    "rms norm matmul bf16": matmul(ops.rms_norm_matmul, "bf16", 70, 136, 72, 1),
    "layer norm matmul": matmul(ops.layer_norm_matmul, "f16", 66, 128, 88, 2),
    "absmax matmul": matmul(ops.absmax_matmul, "f16", 40, 96, 80, 0),
    "layer norm f16": rows(ops.layer_norm, (19, 320), (320,), (320,), dtype="f16"),
    "softmax bf16": rows(ops.softmax, (21, 203), dtype="bf16"),
    "softmax weighted sum": rows(
        lambda dtype: ops.softmax_weighted_sum(width=64, dtype=dtype), (45, 99), (99, 64),
        dtype="f16",
    ),
    "linear cross entropy": linear_cross_entropy,
}  # fmt: skip


def of_zoo(example: zoo.Example) -> Make:
    def make() -> Case:
        return Case(
            example.build(), list(example.inputs(np.random.default_rng(0))), TOLERANCE["f32"]
        )

    return make


# ---- serving: unused pages and table entries hold anything

LENGTHS = [0, 1, 15, 16, 17, 48]


def paged(
    page_size: int = 16, q_len: int = 1, lengths: Sequence[int] = LENGTHS, heads: int = 8,
    group: int = 4, dim: int = 64, **options: Any,
) -> Make:  # fmt: skip
    def make() -> Case:
        case = Paged([*lengths], page_size, heads, group, dim, q_len, np.float16)
        program = ops.paged_attention(
            head_dim=dim, page_size=page_size, group=group, dtype="f16", **options,
            q_len=q_len if q_len == 1 else None,
        )  # fmt: skip
        return Case(program, case.arguments, TOLERANCE["f16"], case.expected()[:1])

    return make


def paged_in_bytes(kind: str, scales: str) -> Make:
    def make() -> Case:
        case = Paged(LENGTHS, 16, heads=8, group=4, dim=64, dtype=np.float16)
        inputs, wanted = in_bytes(case, kind, scales)
        program = ops.paged_attention(
            head_dim=64, page_size=16, group=4, dtype="f16", kv_dtype=kind, kv_scales=scales,
            scale=0.05,
        )  # fmt: skip
        return Case(program, inputs, 2e-3, [wanted])

    return make


def ragged(**options: Any) -> Make:
    def make() -> Case:
        array = Arrays()
        queries, keys = [70, 0, 1, 13], [75, 4, 0, 40]
        starts = [np.cumsum([0, *n]).astype(np.int32) for n in (queries, keys)]
        q = array(sum(queries), 2, 64, dtype="f16")
        k, v = (array(sum(keys), 1, 64, dtype="f16") for _ in "kv")
        wanted = np.zeros(q.shape)
        for mine, out, _ in ragged_sequences(q, k, v, *starts, **options):
            wanted[mine] = out
        program = ops.ragged_attention(head_dim=64, group=2, dtype="f16", **options)
        return Case(program, [q, k, v, *starts], TOLERANCE["f16"], [wanted])

    return make


def latent(q_len: int, dim: int = 64, rope: int = 32, page_size: int = 16) -> Make:
    def make() -> Case:
        array = Arrays()
        lengths = np.array([0, page_size - 1, page_size + 1, 3 * page_size], np.int32)
        pages = np.full((13, page_size, dim + rope), np.nan, np.float16)
        table = array.rng.permutation(12).reshape(4, 3).astype(np.int32)
        q = array(4, 4, q_len, dim + rope, dtype="f16")
        wanted = np.zeros((4, 4, q_len, dim))
        for b, length in enumerate(lengths):
            held = array(length, dim + rope, dtype="f16")
            for at in range(length):
                pages[table[b, at // page_size], at % page_size] = held[at]
            wanted[b] = formula(q[b], held[None], held[None, :, :dim], scale=0.1)[0]
            table[b, -(-length // page_size) :] = -7
        program = ops.latent_attention(
            latent_dim=dim, rope_dim=rope, page_size=page_size, scale=0.1, q_len=q_len, dtype="f16"
        )
        queries = (part.copy() for part in np.split(q, [dim], axis=-1))
        return Case(program, [*queries, pages, table, lengths], TOLERANCE["f16"], [wanted])

    return make


def join() -> Case:
    array = Arrays()
    inputs = [a for _ in "ab" for a in (array(2, 3, 5, 64, dtype="f16"), array(2, 3, 5))]
    return Case(ops.join_attention(v_dim=64, dtype="f16"), inputs, TOLERANCE["f16"])


SERVING: dict[str, Make] = {
    "paged decode": paged(),
    "paged decode, pages of one key": paged(page_size=1),
    "paged prefill": paged(q_len=70, lengths=[71, 130, 70], heads=2, group=2),
    "paged, int8": paged_in_bytes("int8", "token"),
    "paged, e4m3": paged_in_bytes("e4m3", "head"),
    "ragged": ragged(),
    "ragged with a window": ragged(window=40),
    "latent decode": latent(1),
    "latent, three queries": latent(3),
    "join": join,
}


# ---- backward


def gradient(make: Make) -> Make:
    """What a program gives, and with it the gradients for its inputs, from cotangents alone."""

    def made() -> Case:
        case = make()
        cotangents = [x.astype(np.float32) for x in _normal(_results(case))]
        program = neptune_mlir.grad(case.program)
        return Case(program, [*case.inputs, *cotangents], 10 * case.tolerance)

    return made


def backward(make: Make) -> Make:
    """The gradients from what the forward program saved."""

    def made() -> Case:
        case = make()
        forward, program = neptune_mlir.vjp(case.program)
        saved = forward.reference(*_wide(case.inputs))
        names = [o.name for o in forward.outputs]
        given = dict(zip(case.program.inputs, case.inputs, strict=True))
        given |= zip(names, saved if isinstance(saved, tuple) else (saved,), strict=True)
        results = _normal(_results(case))
        given |= {f"d_{n}": d for n, d in zip(names, results, strict=False)}
        inputs = [
            x if x.dtype.kind in "iub" else x.astype(KINDS[tensor.dtype])
            for n, tensor in program.inputs.items()
            for x in [np.asarray(given[n])]
        ]
        return Case(program, inputs, 2e-3)

    return made


def _wide(inputs: Sequence[Any]) -> list[Any]:
    return [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]


def _results(case: Case) -> list[Any]:
    found = case.program.reference(*_wide(case.inputs))
    return list(found) if isinstance(found, tuple) else [found]


def _normal(arrays: Sequence[Any]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(np.shape(a)) for a in arrays]


BACKWARD: dict[str, Make] = {
    "attention 64": backward(attention(causal=True)),
    "attention 128": backward(attention(head_dim=128, q_len=66, kv_len=90)),
    "attention, grouped": backward(attention(causal=True, heads=2, kv_len=131)),
    "linear cross entropy": backward(linear_cross_entropy),
}


# ---- all of them


def every_program() -> dict[str, Make]:
    """All programs above, the ten operators, the zoo, and the gradients of the zoo."""
    kinds = {"serving": SERVING, "backward": BACKWARD,
             "zoo": {e.name: of_zoo(e) for e in zoo.ZOO},
             "gradient": {e.name: gradient(of_zoo(e)) for e in zoo.ZOO},
             "operator": {f"{name} {dim}": operator(name, 197, dim)
                          for name in ops.OPERATORS for dim in (64, 128)}}  # fmt: skip
    named = {f"{kind}: {n}": make for kind, of in kinds.items() for n, make in of.items()}
    return MACHINE | MORE | named
