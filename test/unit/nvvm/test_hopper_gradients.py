# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Backward passes on specialised warps, right on the simulator: tiles that lie the other way round,
and vectors of f32 beside them."""

from __future__ import annotations

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir import ops
from neptune_mlir.codegen.nvidia.group_compute import IssuedProducts
from neptune_mlir.driver import compiler
from neptune_mlir.errors import Refused
from neptune_mlir.frontend.notation import cast, tanh
from neptune_mlir.ops import Extra
from neptune_mlir.pipelines import nvvm
from neptune_mlir.targets.tuned import Choice
from neptune_mlir.transforms.tiling.host_plan import nested_in
from neptune_mlir.zoo import relative_error
from support.chips.run_kernels import Specialised
from support.chips.simt_hopper import INSTRUCTIONS, HopperBlock


def backward_of(program, heads, rows, keys, head_dim, wrt=None):
    """The gradients of an attention, and what they are of: inputs, and what the forward gave."""
    forward, backward = neptune.vjp(program, wrt=wrt)
    rng = np.random.default_rng(1)
    q, k, v, d_out = (rng.standard_normal((1, heads, n, head_dim)).astype(np.float16)
                      for n in (rows, keys, keys, rows))  # fmt: skip
    out, lse = forward.reference(*(x.astype(float) for x in (q, k, v)))
    given = {"q": q, "k": k, "v": v, "out0": out.astype(np.float16),
             "saved0": lse.astype(np.float32), "d_out0": d_out}  # fmt: skip
    return backward, [given[n] for n in backward.inputs]


@pytest.mark.first_of_each("wrt")
@pytest.mark.parametrize(("wrt", "causal", "lengths"), [
    (("k", "v"), True, {}), (("k", "v"), False, {}), (("q",), True, {}),
    (("k", "v"), False, {"q_len": 144, "kv_len": 128}),  # what is left over is behind the loop
])  # fmt: skip
def test_attention(wrt, causal, lengths):
    """dK and dV by a stream over the queries, dQ by one over the keys; lengths that end in a
    tile."""
    program = ops.attention(head_dim=64, dtype="f16", causal=causal, align="start", **lengths)
    rows, keys = lengths.get("q_len", 150), lengths.get("kv_len", 90)
    backward, arrays = backward_of(program, 1, rows, keys, 64, wrt)
    kernel = Specialised(backward, Choice(128, 64, resident=False))
    found = kernel(*arrays)
    assert any(block.products and block.threads == 3 * 128 for block in kernel.blocks)
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    many = isinstance(wanted, tuple)
    for f, w in zip(found if many else [found], wanted if many else [wanted], strict=True):
        assert relative_error(f, w) < 2e-3


@pytest.mark.nightly
@pytest.mark.parametrize("causal", [False, True])
def test_a_tile_with_a_slot_more(causal):
    """dQ at head dim 256: one slot a ring, but under a mask a second one of the keys, which the
    late product reads when the scores of the next iteration do."""
    program = ops.attention(head_dim=256, dtype="f16", causal=causal, align="start")
    backward, arrays = backward_of(program, 1, 150, 300, 256, ("q",))
    kernel = Specialised(backward)
    found = kernel(*arrays)
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    assert relative_error(found, wanted) < 2e-3


JOINED = "joined:1;rows:128;stream:64;resident:0;adder:0;late:"


WIDE = "joined:1;rows:128;stream:128;slots:2;adder:0;late:0"  # groups have other rows of dQ


@pytest.mark.parametrize(("head_dim", "causal", "knobs", "lengths"), [
    (64, False, JOINED + "0;early:1", (100, 70)),
    pytest.param(64, False, JOINED + "2", (100, 70), marks=pytest.mark.nightly),
    (64, True, JOINED + "0;beside:8", (100, 70)),
    pytest.param(64, True, JOINED + "0;beside:4", (100, 70), marks=pytest.mark.nightly),
    pytest.param(64, True, JOINED + "1", (250, 240), marks=pytest.mark.nightly),
    pytest.param(128, True, JOINED + "0", (150, 140), marks=pytest.mark.nightly),
    pytest.param(64, False, JOINED + "0;boxed:0", (70, 70), marks=pytest.mark.nightly),
    pytest.param(64, True, WIDE + ";resident:0", (300, 290), marks=pytest.mark.nightly),
    pytest.param(64, False, WIDE + ";resident:0;turns:1", (260, 150), marks=pytest.mark.nightly),
    pytest.param(64, True, "joined:1;warp_groups:0", (70, 90), marks=pytest.mark.nightly),
])  # fmt: skip
def test_programs_that_add_to_one_result(head_dim, causal, knobs, lengths, monkeypatch):
    """The whole backward pass as one stream: five products, and dQ is added up by programs. As it
    lies in registers: a warp adds 512 bytes in order at once. Or staged without bank conflicts,
    where adds would hold up another product: half a warp's 8-byte stores go to different pairs of
    banks."""
    apart, staged = [], []
    add, store = HopperBlock._add_in_memory, HopperBlock._llvm_store

    def adds(self, address, values):
        apart.extend(np.diff(address.reshape(-1, 32), axis=1).ravel())
        add(self, address, values)

    def stores(self, op, operands, mask):
        if op.attributes["alignment"] == 8 and op.operands[1].shared:
            halves = (operands[1] // 8 % 16).reshape(-1, 16)[mask.reshape(-1, 16).all(axis=1)]
            staged.extend(len({*half}) for half in halves)
        store(self, op, operands, mask)

    monkeypatch.setattr(HopperBlock, "_add_in_memory", adds)
    monkeypatch.setattr(HopperBlock, "_llvm_store", stores)
    program = ops.attention(head_dim=head_dim, dtype="f16", causal=causal, align="start")
    backward, arrays = backward_of(program, 2, *lengths, head_dim)
    kernel = Specialised(backward, knobs=knobs)
    text = str(kernel.module)
    by_engine = "early" in knobs or head_dim == 128
    in_order = "warp_groups" not in knobs and not by_engine
    assert ("cp.reduce.async.bulk" in text) == by_engine
    assert ("red.global.add.v4" in text) == in_order
    assert ("red.global.add.v2" in text) == ("warp_groups" in knobs)
    assert ("nvvm.stmatrix" in text) == ("warp_groups" not in knobs)  # where groups exchange dS
    stored = [line for line in text.splitlines() if "nvvm.stmatrix" in line]
    if "late:0" in knobs:  # dQ sums the rows of dS, and nobody else reads it as it is
        assert stored and all("mma_layout<col>" in line for line in stored)
    behind = [part.rsplit("nvvm.stmatrix", 1)[1] for part in text.split("fence.proxy.async")
              if "nvvm.stmatrix" in part]  # what stands between stores of dS and their fence
    assert "late:0" not in knobs or all("wgmma.mma_async" in part for part in behind)
    found = kernel(*arrays)
    assert ({*apart} == {16}) == in_order
    assert ({*staged} == {16}) == by_engine
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    for f, w in zip(found, wanted, strict=True):
        assert relative_error(f, w) < 2e-3


COUNT = "red.release.gpu"
AWAIT = "ld.acquire.gpu.global.b32 v, [$0];\nsetp.ne.b32 p, v, $1"


def operands_of(monkeypatch, instruction):
    """What the operands of an instruction are, of each thread that comes to it."""
    found, run = [], INSTRUCTIONS[instruction]

    def runs(self, text, operands, mask):
        found.extend({*zip(*(v[mask] for v in operands), strict=True)})
        return run(self, text, operands, mask)

    monkeypatch.setitem(INSTRUCTIONS, instruction, runs)
    return found


@pytest.mark.parametrize(("head_dim", "causal", "knobs", "lengths"), [
    (64, False, "joined:1;rows:128;stream:64;late:0;adder:1;resident:1", (70, 90)),
    pytest.param(
        64, True, WIDE.replace("adder:0", "adder:1"), (300, 290), marks=pytest.mark.nightly
    ),
    pytest.param(128, True, "joined:1;adder:1", (150, 140), marks=pytest.mark.nightly),
    pytest.param(128, False, "joined:1;adder:1;boxed:0", (70, 70), marks=pytest.mark.nightly),
])  # fmt: skip
def test_warps_that_add(head_dim, causal, knobs, lengths, monkeypatch):
    """Groups store 16 bytes a lane and go on: a warp of each adds their tiles, and has read the
    last of a program before the group stages its results at the same place. It counts programs
    whose sums are there: who reads these waits for no kernel, where there are programs."""
    counted, awaited = operands_of(monkeypatch, COUNT), operands_of(monkeypatch, AWAIT)
    program = ops.attention(head_dim=head_dim, dtype="f16", causal=causal, align="start")
    backward, arrays = backward_of(program, 1, *lengths, head_dim)
    kernel = Specialised(backward, knobs=knobs)
    text = str(kernel.module)
    assert "cp.reduce.async.bulk.global" in text
    assert "cp.reduce.async.bulk.tensor" not in text and "red.global.add" not in text
    for loop in (str(op) for op in nested_in(kernel.module.operation) if op.name == "scf.for"):
        if "wgmma" in loop:  # what groups exchange is all that an iteration publishes
            assert loop.count("fence.proxy.async") == loop.count("bar.sync 1,") == 1
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    for f, w in zip(kernel(*arrays), wanted, strict=True):
        assert relative_error(f, w) < 2e-3
    words = {int(address) for address, _ in awaited}
    assert words == {int(address) for (address,) in counted} and len(words) == 2 * (not causal)
    assert causal or {int(n) for _, n in awaited} == {-(-lengths[1] // 128)}  # (two groups)
    found = kernel(*(x[:, :, :0] if n in ("k", "v") else x
                     for n, x in zip(backward.inputs, arrays, strict=True)))  # fmt: skip
    assert not found[0].any()


@pytest.mark.parametrize(("head_dim", "causal", "knobs", "lengths"), [
    (64, True, "joined:1;ordered:1;rows:128;stream:64;late:0", (200, 300)),
    pytest.param(64, False, "joined:1;ordered:1", (260, 300), marks=pytest.mark.nightly),
    pytest.param(128, True, "ordered:1", (150, 290), marks=pytest.mark.nightly),
    pytest.param(128, False, "ordered:1", (70, 300), marks=pytest.mark.nightly),
])  # fmt: skip
def test_programs_that_add_in_turns(head_dim, causal, knobs, lengths, monkeypatch):
    """Each tile of dQ is added to from the last program that has it down to the first one, and each
    waits for the one before it. The first one stores it: nobody makes zeros, but where there are
    no programs. (The simulator's blocks run one by one, so a turn that has not come
    when it is waited for never does.)"""
    waited, wait = {}, HopperBlock._await_word
    awaited = operands_of(monkeypatch, AWAIT)
    looked, look = [], HopperBlock._look_at_word

    def looks(self, text, operands, mask):
        found = look(self, text, operands, mask)
        looked.append(found[mask].max())
        return found

    monkeypatch.setitem(INSTRUCTIONS, "@p ld.acquire.gpu", looks)

    def waits(self, text, operands, mask):
        for address, turn, _ in {*zip(*(v[mask] for v in operands), strict=True)}:
            if turn:  # 0 of results that are no sums
                waited.setdefault(address, []).append(int(turn) % (1 << 32))
        wait(self, text, operands, mask)

    monkeypatch.setitem(INSTRUCTIONS, "ld.acquire.gpu", waits)
    program = ops.attention(head_dim=head_dim, dtype="f16", causal=causal, align="start")
    backward, arrays = backward_of(program, 2, *lengths, head_dim)
    kernel = Specialised(backward, knobs=knobs)
    found = kernel(*arrays)
    rows, keys = lengths
    stream = 128 if "ordered:1" == knobs.split(";", 1)[-1] and head_dim == 64 else 64
    programs = -(-keys // 128)
    lasts = [min(programs, -(-min(at + stream, rows) // 128)) if causal else programs
             for at in range(0, rows, stream)]  # fmt: skip
    turns = sorted([0, *range(last, 1, -1)] for last in lasts)
    assert sorted(waited.values()) == sorted(turns * 4)  # two heads, two groups
    assert {int(n) for _, n in awaited} == {1}  # the first program adds last: it is not waited for
    assert {int(address) for address, _ in awaited} == {*waited}
    assert any(looked) == (head_dim == 128 or stream == 64)  # before a tile is there
    wanted = backward.reference(*(x.astype(float) for x in arrays))
    for f, w in zip(found, wanted, strict=True):
        assert relative_error(f, w) < 2e-3
    keys = [list(backward.inputs).index(n) for n in ("k", "v")]
    found = kernel(*(x[:, :, :0] if k in keys else x for k, x in enumerate(arrays)))
    assert not found[0].any()


@pytest.mark.nightly
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_turns_spill_nothing(head_dim, causal):
    """What a group says of a tile takes no registers through its loop."""
    program = ops.attention(head_dim=head_dim, dtype="f16", causal=causal, align="start")
    kernel = neptune.compile(neptune.vjp(program)[1], target="sm_90a", knobs={"ordered": 1})
    kernels = [k for image in kernel.facts["images"] for k in image["kernels"].values()]
    assert any(k["consumers"] for k in kernels) and not any(k["spills"] for k in kernels)


def test_no_warp_waits_for_turns():
    """Programs without specialised warps add in any order: an image of these is refused."""
    program = neptune.vjp(ops.attention(head_dim=64, dtype="f16"))[1]
    knobs = "joined:1;ordered:1;warp_groups:0"
    module, _ = compiler.lower_text(program.to_mlir(), "test", "sm_90a", None, "tile", knobs)
    with pytest.raises(Refused, match="in turns"):
        nvvm.emit_tiles(module, "target", target="sm_90a")


# Numbers that scores read: what they have, and how.
LEARNED = {
    "slope": ("h", lambda s, b, h, i, j, x: s + x[h] * cast(j - i, "f32")),
    "scale": ("h", lambda s, b, h, i, j, x: s * x[h]),
    "cap": ("b h", lambda s, b, h, i, j, x: x[b, h] * tanh(s / x[b, h])),
    "of keys": ("kv", lambda s, b, h, i, j, x: s + x[j]),
    "of queries": ("h q", lambda s, b, h, i, j, x: s * x[h, i]),
}


@pytest.mark.parametrize(("name", "causal"), [
    ("slope", True),
    *(pytest.param(name, False, marks=pytest.mark.nightly) for name in LEARNED),
])  # fmt: skip
def test_gradients_of_numbers_that_scores_read(name, causal):
    """They are sums over rows and columns of scores. No kernel stores scores, and warps are
    specialised: keys have a number each, and a small kernel sums these."""
    axes, modifier = LEARNED[name]
    program = ops.attention(
        head_dim=64, dtype="f16", causal=causal, align="start",
        score_mod=lambda s, b, h, q, kv, x: modifier(s, b, h, q, kv, x),
        inputs={"x": Extra(axes)},
    )  # fmt: skip
    forward, backward = neptune.vjp(program, wrt=("k", "v", "x"))
    rng, (rows, keys) = np.random.default_rng(1), (70, 60)
    q, k, v, d_out = (rng.standard_normal((1, 1, n, 64)).astype(np.float16)
                      for n in (rows, keys, keys, rows))  # fmt: skip
    extents = {"b": 1, "h": 1, "q": rows, "kv": keys}
    x = (rng.random([extents[a] for a in axes.split()]) + 0.2).astype(np.float32)
    out, lse = forward.reference(*(a.astype(float) for a in (q, k, v, x)))
    given = {"q": q, "k": k, "v": v, "x": x, "out0": out.astype(np.float16),
             "saved0": lse.astype(np.float32), "d_out0": d_out}  # fmt: skip
    arrays = [given[n] for n in backward.inputs]
    kernel = Specialised(backward, Choice(128, 64, resident=False))
    tensors = [t for launch in kernel.plan.buffers for t in [launch.shape]]
    assert not any(len(shape) == 4 and shape[-1] != 64 for shape in tensors)
    found = kernel(*arrays)
    assert any(block.products and block.threads == 3 * 128 for block in kernel.blocks)
    wanted = backward.reference(*(a.astype(float) for a in arrays))
    for f, w in zip(found, wanted, strict=True):
        assert relative_error(f, w) < 2e-3


def test_instructions_stand_between_values():
    """Of a product's three pieces one stands at its start, the others before values that are taken
    one by one: none is left to issue behind the last value."""
    issued, seen = IssuedProducts(), []
    pieces = (seen.append(k) or [k] for k in range(3))
    issued.begin(pieces, 3, lambda begun: seen.append(f"done {begun}"))
    assert issued.later(1) == 1
    taken = iter(issued.interleaved("abcd", 4))
    for _ in range(4):
        seen.append(next(taken))
    assert seen == [0, "a", 1, "b", "c", 2, "done [2]", "d"]
    assert issued.later(1) == 2 and not issued.left


def test_instructions_that_are_held_back():
    """A product that is held back issues nothing before its end, and no group of it is waited for
    until then."""
    issued, seen = IssuedProducts(), []
    pieces = (seen.append(k) or [k] for k in range(1))
    issued.begin(pieces, 1, lambda begun: seen.append("done"), held=True)
    assert issued.later(1) == 0
    assert [*issued.interleaved("ab", 2)] == ["a", "b"] and not seen
    issued.end()
    assert seen == [0, "done"] and issued.later(1) == 1


def test_left_factors_that_stay():
    """Keys and values, which all iterations read, as left factors in registers: the same bits."""
    program = ops.attention(head_dim=64, dtype="f16")
    _, backward = neptune.vjp(program, wrt=("k", "v"))
    rng = np.random.default_rng(3)
    rows, keys = 70, 40
    q, k, v, out, d_out = (rng.standard_normal((1, 1, n, 64)).astype(np.float16)
                           for n in (rows, keys, keys, rows, rows))  # fmt: skip
    given = {"q": q, "k": k, "v": v, "out0": out, "d_out0": d_out,
             "saved0": rng.standard_normal((1, 1, rows)).astype(np.float32) + 9}  # fmt: skip
    arrays = [given[n] for n in backward.inputs]
    found = []
    for lefts in (True, False):
        kernel = Specialised(backward, Choice(128, 64, late=False, lefts=lefts))
        assert ("nvvm.ldmatrix" in str(kernel.module)) == lefts
        found.append(kernel(*arrays))
    for kept, read in zip(*found, strict=True):
        assert np.array_equal(kept, read)


def test_a_linear_layer_and_its_loss():
    """The gradient of the scores is stored once, in 16 bits; the weight's reads it as a left factor
    whose rows run along the free axis."""
    program = ops.linear_cross_entropy(width=528, classes=136, dtype="f16")
    forward, backward = neptune.vjp(program)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((n, 528)).astype(np.float16) for n in (70, 136))
    w *= np.float16(528**-0.5)
    target = rng.integers(0, 136, 70)
    _, lse = forward.reference(x.astype(float), w.astype(float), target)
    d_out = rng.standard_normal(70).astype(np.float32)
    arrays = [x, w, target, lse.astype(np.float32), d_out]
    kernel = Specialised(backward, Choice(128, 64, resident=False))
    found = kernel(*arrays)
    assert all(block.products and block.threads == 3 * 128 for block in kernel.blocks)
    wanted = backward.reference(*(a.astype(float) if a.dtype.kind == "f" else a for a in arrays))
    for f, w_ in zip(found, wanted, strict=True):
        assert relative_error(f, w_) < 2e-3
