# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bench variant is the product with one option changed: same table, same launch variants."""

from __future__ import annotations

import re
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import neptune_mlir
from neptune_mlir import ops
from neptune_mlir.bench.build import build, compile_variant
from neptune_mlir.driver import compiler
from neptune_mlir.driver.kernel import Source
from neptune_mlir.errors import NeptuneError
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Choice, Entry, Shape, Table

SOURCE = Source(Source.of(ops.attention(head_dim=64, dtype="f16", causal=True)).text, "causal")
TRIANGLE = Shape(64, 64, True, True)


def stored(bundle: Bundle) -> bytes:
    """A bundle without what the benchmark says of it."""
    bundle.facts.pop("bench", None)
    return bytes(bundle.to_bytes())


def test_no_change_is_the_product_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, target = ops.logsumexp(), "gfx942"
    text = program.to_mlir()
    product = neptune_mlir.compile(Source(text, "rows"), target).bundle.to_bytes()

    def one(*_: object) -> object:
        yield "rows", lambda: SimpleNamespace(to_mlir=lambda: text), {"kind": "rows"}, print

    monkeypatch.setattr("neptune_mlir.bench.build.programs", one)
    assert build(tmp_path, ["fused"], target, ["f32"], ["same="], say=lambda line: None) == 0
    (path,) = tmp_path.glob("*.bundle")  # the variant is the same code: nothing else is written
    assert stored(Bundle.from_bytes(path.read_bytes())) == product


@cache
def kernels(knobs: str = "", level: str = "tile") -> dict[str, str]:
    """The program at a level for sm_90a, by the calls that it is for."""
    text, _ = compiler.emit_text(SOURCE.text, SOURCE.name, "sm_90a", None, None, level, knobs)
    parts = [part.split("\n", 1) for part in text.split("// -----\n")]
    return {calls.removeprefix("// "): body for calls, body in parts}


def whole(programs: dict[str, str]) -> dict[str, str]:
    """Those whose stream no schedule cuts into chunks, one or more."""
    found = {
        calls: body for calls, body in programs.items()
        if "attention_1" not in body and not calls.endswith(" <= 1))")
    }  # fmt: skip
    assert 1 < len(found) < len(programs)
    return found


@pytest.mark.first_of_each()
@pytest.mark.parametrize("knobs", ["boxed:0", "turns:1"])
def test_a_changed_knob_keeps_the_launch_variants(knobs: str) -> None:
    product, variant = kernels(), kernels(knobs)
    assert list(variant) == list(product) and len(product) > 2
    name, value = knobs.split(":")
    for body in variant.values():
        found = re.findall(r"neptune.tuned = \{(.*?)\}", body)
        assert found and f"{name} = {value} : i64" in found[0]  # (a join has no stream)
    # all else is as it was: the marks of specialised warps, tiles, what the rule chose for few
    said = re.compile(rf",? ?neptune.(tuned = \{{[^}}]*\}}|{name}\b)")
    for one, other in zip(variant.values(), product.values(), strict=True):
        assert said.sub("", one) == said.sub("", other)


def test_a_size_leaves_the_other_one_to_the_rule() -> None:
    """Rows are those of the table and of the rule, for each kind of calls."""
    product, variant = whole(kernels()), whole(kernels("stream:96"))
    rows = [
        {int(n) for body in found.values() for n in re.findall(r"tensor<(\d+)x64xf32>", body)}
        for found in (product, variant)
    ]
    assert rows[0] == rows[1] and len(rows[0]) > 1
    for body in variant.values():
        assert re.search(r"tensor<\d+x96xf32>", body)


def test_keeps_reaches_all_carriers() -> None:
    """The table's choice, the rule's for few programs, the order of loops, and the pass."""
    table = Table((Entry("sm_90a", TRIANGLE, 0, Choice(128, 96, slots=3)),))
    with tuned.using(table):
        bodies = kernels.__wrapped__("keeps:0")  # not from the cache
    assert len(bodies) > 1 and "tensor<128x96xf32>" in next(iter(bodies.values()))
    for body in bodies.values():
        assert "keeps = 0 : i64" in body
    for knobs in ("", "keeps:0"):
        marked = compiler.text_after(
            SOURCE.text, SOURCE.name, "sm_90a", None, None, "keep-references", knobs
        )
        assert ("neptune.keeps" in marked) == (not knobs)
    # scores made of positions: the stream begins where its mask ends, for a reference to keep
    biased = partial(ops.attention, head_dim=64, dtype="f16", causal=True, alibi=True)
    text = Source.of(biased()).text
    orders = []
    for knobs in ("", "keeps:0"):
        made, _ = compiler.lower_text(text, "biased", "sm_80", None, "tile", knobs)
        orders.append(re.sub(r", neptune.tuned = \{.*?\}", "", str(made)))
    assert orders[0] != orders[1]


def test_no_warp_groups_is_the_portable_kernel() -> None:
    assert all("neptune.consumers" in body for body in whole(kernels()).values())
    assert not any("neptune.consumers" in body for body in kernels("warp_groups:0").values())


def test_unknown_settings_are_named() -> None:
    with pytest.raises(NeptuneError, match="no knob 'speed'") as caught:
        compile_variant(SOURCE.text, SOURCE.name, "sm_90a", {"speed": "3"})
    assert "keeps" in str(caught.value.hint) and "stream" in str(caught.value.hint)
