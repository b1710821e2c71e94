# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chains that differ in names only are tested once, and nothing else is shared."""

from dataclasses import replace

import pytest

from neptune_mlir.algebra.chain import Unsolvable
from neptune_mlir.algebra.numerics import accept as acceptance
from neptune_mlir.algebra.numerics import alike
from neptune_mlir.algebra.numerics.accept import Definition, TestedChain, accept, length_of
from neptune_mlir.algebra.terms import const, index, rewrite, term
from neptune_mlir.algebra.terms import ref as ref_to
from support.chains import AXIS, ZOO, E, exp, read, reduction, ref


@pytest.fixture
def tests(monkeypatch):
    """The stress tests that are run."""
    acceptance.forget()
    found = []
    honest = alike.stress

    def counted(chain, *others, **named):
        found.append([r.name for r in chain])
        return honest(chain, *others, **named)

    monkeypatch.setattr(alike, "stress", counted)
    yield found
    acceptance.forget()


def softmax_sum(data, top, total, scale=1.0):
    x = read(data, 0, 1)
    chain = [reduction(top, "max", x), reduction(total, "add", exp(x * scale - ref(top) * scale))]
    return chain, {total: ref_to(total)}


def test_names_decide_nothing(tests):
    for names in (("x", "m", "l"), ("y", "top", "sum"), ("m", "l", "x")):
        chain, outputs = softmax_sum(*names)
        _, report = accept(chain, AXIS, outputs)
        assert report.ok and set(report.fused) == {names[2]}
    assert tests and all(names == ["m", "l"] for names in tests)
    accept(*_with_axis(softmax_sum("x", "m", "l", 0.5)))
    assert len(tests) > 1  # another chain


def _with_axis(parts):
    chain, outputs = parts
    return chain, AXIS, outputs


def test_digests_are_of_the_content():
    def digest(*names, scale=1.0, nonneg=()):
        chain, outputs = softmax_sum(*names, scale)
        return alike.digest(chain, AXIS, outputs, nonneg)

    assert digest("x", "m", "l") == digest("a", "b", "c")
    assert digest("x", "m", "l") != digest("x", "m", "l", scale=2.0)
    assert digest("x", "m", "l") != digest("x", "m", "l", nonneg={"x"})


def renamed(chain, names):
    """A chain in other names."""

    def rule(n):
        if n.op in ("read", "ref"):
            return term(n.op, n.args, names.get(n.attr, n.attr), n.dtype)
        return None

    return [replace(r, name=names.get(r.name, r.name), body=rewrite(r.body, rule)) for r in chain]


def test_failures_have_the_names_of_the_chain_at_hand(tests):
    lost = ZOO["nothing left"]  # x - x is 0 over the reals only
    last = lost[-1].name
    for names in ({}, {r.name: f"{r.name} of another" for r in lost}):
        chain, wanted = renamed(lost, names), names.get(last, last)
        for _ in range(2):  # a refusal is remembered as well
            with pytest.raises(Unsolvable, match=f"'{wanted}' is") as caught:
                accept(chain, AXIS, {wanted: ref_to(wanted)})
            assert caught.value.reduction == wanted
    assert tests and all(names[-1] == last for names in tests)


def test_what_was_planned_before_decides_nothing(tests):
    """A chain is compared with itself unless whoever asks has its definition."""
    chain, outputs = softmax_sum("x", "m", "l")
    other = Definition(
        (chain[0], reduction("l", "add", exp(read("x", 0, 1) - ref("m")) * 2.0)),
        tuple(outputs.items()),
    )
    with pytest.raises(Unsolvable):
        accept(chain, AXIS, outputs, written=other)
    assert accept(chain, AXIS, outputs)[1].ok


def test_a_verdict_needs_no_test(tests):
    chain, outputs = softmax_sum("x", "m", "l")
    solution, report = accept(chain, AXIS, outputs)
    verdict = TestedChain.of(str(TestedChain(solution.empty_rows, report.runs)))
    count = len(tests)
    again, said = accept(chain, AXIS, outputs, passed=verdict)
    assert len(tests) == count and said.runs == report.runs and said.ok
    assert [r.body for r in again.running] == [r.body for r in solution.running]
    assert again.finals == solution.finals


@pytest.mark.parametrize(
    ("divisor", "extent", "length"),
    [(40.0, 40, 40), (1 / 40.0, 40, 40), (40.0, 41, 24), (40.0, -1, 24), (4096.0, 4096, 24)],
)
def test_short_streams_that_means_divide_by(divisor, extent, length):
    chain = [reduction("s", "add", read("x", 0, 1) * divisor)]
    assert length_of(chain, {}, extent) == length


def at(position):
    return E(term("read", (const(position, "index"), index(1)), "u", "f32"))


def test_elements_at_constant_positions_are_names(tests):
    """The steps of a recurrence are one chain, and are tested in small arrays."""
    for step in (0, 3, 250):
        weighted = read("x", 0, 1) * at(step)
        chain = [reduction("m", "max", weighted), reduction("l", "add", exp(weighted - ref("m")))]
        assert accept(chain, AXIS, {"l": ref_to("l")})[1].ok
    assert len(tests) == 1


def test_numbers_of_axes_decide_nothing_but_their_order_does(tests):
    """Of a program with more axes a chain has some. Which one is streamed stays apart."""
    reports, counts = [], []
    for rows, stream, others in ((0, 1, 2), (2, 5, 9), (1, 3, 4), (3, 1, 4)):
        x, m = read("x", rows, stream), ref("m", rows)
        products = exp(x - m) * read("v", stream, others)
        chain = [
            replace(reduction("m", "max", x), axes=(rows,)),
            replace(reduction("l", "add", products), axes=tuple(sorted((rows, others)))),
        ]
        reports.append(accept(chain, stream, {"l": ref_to("l")})[1])
        counts.append(len(tests))
        assert reports[-1].ok
    assert counts[0] == counts[1] == counts[2] < counts[3]
    assert reports[0] == reports[1] == reports[2]


def test_positions_stay_apart():
    def digest(first, second):
        chain = [reduction("m", "max", at(first)), reduction("l", "add", exp(at(second)))]
        return alike.digest(chain, AXIS, {}, ())

    found = [digest(*two) for two in ((2, 2), (7, 7), (2, 7), (5, 9), (7, 2))]
    assert found[0] == found[1] and found[2] == found[3] and len(set(found)) == 3
