# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlexAttention's modifiers mean in index notation what Python makes of them element by element."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.attention.flex_attention")

from neptune_mlir.errors import InputError, UsageError  # noqa: E402
from neptune_mlir.torch import attention, op, trace  # noqa: E402
from neptune_mlir.torch.attention import key_of_mods  # noqa: E402
from support.flex_mods import (  # noqa: E402
    BATCH,
    DIM,
    HEADS,
    KEYS,
    MASK_MODS,
    QUERIES,
    SCORE_MODS,
    causal,
    definition,
    documents,
    ragged,
    slopes,
    tensors,
)  # fmt: skip

flex = torch.nn.attention.flex_attention
SCALE = DIM**-0.5


def evaluated(q, k, v, score_mod=None, mask_mod=None, block_mask=None):
    """The program of a call, by the notation's own float64 evaluation: nothing is compiled."""
    mods, captured = key_of_mods(q, k, score_mod, mask_mod, block_mask)
    program = op.program_of(q, k, v, None, mods, SCALE, False, True)
    arguments = op.arguments_of(q, k, v, None, captured, mods)
    return program.reference(*(x.float().numpy() if x.dtype is torch.bfloat16 else x.numpy()
                               for x in arguments))  # fmt: skip


def agree(found, wanted, tolerance=1e-5):
    """f32 and bf16 numbers that modifiers hold are computed with as such by Python."""
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SCORE_MODS)
def test_score_mod(name):
    q, k, v = tensors(torch.float64)
    mod = SCORE_MODS[name]
    agree(evaluated(q, k, v, mod), definition(q, k, v, SCALE, mod))


@pytest.mark.parametrize("name", MASK_MODS)
def test_mask_mod(name):
    q, k, v = tensors(torch.float64)
    mod = MASK_MODS[name]
    wanted = definition(q, k, v, SCALE, None, mod)
    agree(evaluated(q, k, v, None, mod), wanted, 1e-12)


def test_both_and_a_block_mask_with_grouped_heads():
    q, k, v = tensors(torch.float64, kv_heads=2)
    blocks = flex.create_block_mask(causal, None, None, QUERIES, KEYS, device="cpu", BLOCK_SIZE=4)
    both = flex.and_masks(causal, MASK_MODS["document"])
    wanted = definition(q, k, v, SCALE, SCORE_MODS["slopes"], both)
    agree(evaluated(q, k, v, SCORE_MODS["slopes"], MASK_MODS["document"], blocks), wanted)


def test_a_block_mask_made_by_hand_says_more_than_its_mask_mod():
    q, k, v = tensors(torch.float64, queries=8, keys=8)
    count = torch.tensor([[[1, 2]]], dtype=torch.int32)
    places = torch.tensor([[[[1, 0], [0, 1]]]], dtype=torch.int32)
    partial = flex.BlockMask.from_kv_blocks(count, places, BLOCK_SIZE=4, mask_mod=causal)
    full = flex.BlockMask.from_kv_blocks(
        count * 0, places, count, places, BLOCK_SIZE=4, mask_mod=causal
    )
    for blocks, seen in (
        (partial, lambda b, h, i, j: (i >= j) & ((i >= 4) | (j >= 4))),
        (full, lambda b, h, i, j: (i >= 4) | (j >= 4)),
    ):
        agree(evaluated(q, k, v, None, None, blocks), definition(q, k, v, SCALE, None, seen))
    with pytest.raises(UsageError, match="block_mask is for lengths"):
        evaluated(*tensors(torch.float64), None, None, partial)


def sources(mod):
    """What a mask_mod's program reads besides q, k and v: captured tensors, and tables."""
    q, k, _ = tensors()
    mods, _ = key_of_mods(q, k, None, mod, None)
    (plan, _), = op._mods[mods].tensors([])  # fmt: skip
    return [isinstance(s.of, str) for s in plan.sources]


def test_only_what_has_no_word_becomes_a_table():
    assert sources(MASK_MODS["natten"]) == [], "positions alone need no input"
    assert sources(MASK_MODS["document"]) == [True, True], "one tensor, read at two places"
    assert sources(MASK_MODS["ragged"]).count(True) == 2, "documents are read in place"
    assert sources(MASK_MODS["ragged"]).count(False) == 2, "their offsets are looked up before"
    assert not any(sources(MASK_MODS["morton natten"])), "bits are tables"


def test_a_large_table_of_pairs_is_said(monkeypatch):
    monkeypatch.setattr("neptune_mlir.torch.mods._LARGE", 100)
    with pytest.warns(UserWarning, match="at queries and keys together"):
        evaluated(*tensors(torch.float64), lambda s, b, h, i, j: s - slopes[(i + j) % 4])


def test_a_new_closure_of_old_structure_is_not_traced_again():
    q, k, v = tensors(torch.float64)

    def make(tensor, width):
        return lambda b, h, i, j: (tensor[h] > 0.5) | (i - j < width)

    evaluated(q, k, v, None, make(slopes, 3))
    known = len(trace._traces)
    other = make(1 - slopes, 3)
    agree(evaluated(q, k, v, None, other), definition(q, k, v, SCALE, None, other))
    assert len(trace._traces) == known
    wider = make(slopes, 5)
    agree(evaluated(q, k, v, None, wider), definition(q, k, v, SCALE, None, wider))
    assert len(trace._traces) == known + 1


width = 2


def test_what_a_modifier_reads_may_change():
    q, k, v = tensors(torch.float64)
    table = torch.arange(16) // 4

    def looked_up(b, h, i, j):
        return slopes[table[i]] > slopes[table[j]]

    mods = (lambda b, h, i, j: i - j < width, looked_up)
    for mod in mods:
        agree(evaluated(q, k, v, None, mod), definition(q, k, v, SCALE, None, mod))
    globals()["width"] = 4
    table.copy_(torch.arange(16) % 4)
    for mod in mods:
        agree(evaluated(q, k, v, None, mod), definition(q, k, v, SCALE, None, mod))


REFUSED = {
    "bessel": (lambda s, *at: torch.special.bessel_j0(s), "'special_bessel_j0' to the score"),
    "if": (lambda s, b, h, i, j: s if i > j else -s, "write choices as torch.where"),
    "sum": (lambda s, b, h, i, j: sum([s, "x"]), "cannot be traced: TypeError"),
    "row": (lambda s, b, h, i, j: s + slopes, r"returns torch.float32 \[4\], not a score"),
    "none": (lambda s, b, h, i, j: None, "returns no tensor, not a score"),
    "arguments": (lambda s, b: s, "takes 2 positional arguments but 5 were given"),
    "heads": (lambda s, b, h, i, j: s + slopes[h // 3], "'h // 3'.*\n.*no multiple of 3"),
    "short": (lambda s, b, h, i, j: s + slopes[j], r"shape \[4\] at 'kv'"),
    "scan": (lambda s, b, h, i, j: s.cumsum(0), "'cumsum' to the score"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    mod, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        evaluated(*tensors(torch.float64), mod)


def test_a_mask_is_a_condition():
    with pytest.raises(InputError, match=r"returns torch.int32 \[\], not a condition"):
        evaluated(*tensors(torch.float64), None, lambda b, h, i, j: i)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q, k.half(), v), "one dtype for q, k and v"),
        (lambda q, k, v: (q.int(), k.int(), v.int()), "attention of torch.int32"),
        (lambda q, k, v: (q[0], k[0], v[0]), r"\[batch, heads, length, dim\]"),
        (lambda q, k, v: (q, k[..., :4], v), "do not fit"),
        (lambda q, k, v: (q, k, v[:, :, :4]), "do not fit"),
        (lambda q, k, v: (q, k[:, :2], v[:, :2]), "enable_gqa=True"),
        (lambda q, k, v: (torch.cat([q, q]), k, v), "two batch sizes"),
    ],
)
def test_wrong_tensors(change, message):
    with pytest.raises(UsageError, match=message):
        attention(*change(*tensors()))


def test_one_compilation_for_all_lengths():
    mod = ragged(causal)
    mask = flex.and_masks(mod, lambda b, h, q, kv: documents[b, q] == documents[b, kv])
    before = len(op._kernels)
    for n in (1, 5, 11, 13):
        q, k, v = tensors(queries=n, keys=n)
        out, lse = attention(q, k, v, mask_mod=mask, score_mod=SCORE_MODS["slopes"],
                             return_lse=True)  # fmt: skip
        agree((out, lse), definition(q, k, v, SCALE, SCORE_MODS["slopes"], mask))
    q, k, v = (x[:, :3].transpose(1, 2)[:1] for x in tensors(queries=3, keys=3))
    attention(q[..., ::2, :], k[..., ::2, :], v[..., ::2, :], mask_mod=mask,
              score_mod=SCORE_MODS["slopes"], return_lse=True)  # fmt: skip
    assert len(op._kernels) == before + 1
    assert (BATCH, HEADS) != q.shape[:2], "batch and heads differed, too"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*SCORE_MODS, *MASK_MODS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_compiled(name, dtype):
    """f16: 2^-11 relative to values of 3, for weights and results rounded once each."""
    q, k, v = tensors(dtype, kv_heads=2)
    mods = {"score_mod": SCORE_MODS.get(name), "mask_mod": MASK_MODS.get(name)}
    out, lse = attention(q, k, v, **mods, enable_gqa=True, return_lse=True)
    wanted = definition(q, k, v, SCALE, **mods)
    agree((out.float(), lse), wanted, 3e-5 if dtype is torch.float32 else 5e-3)
