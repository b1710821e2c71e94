# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work grows with a program, not faster. It is counted in calls, which no busy machine alters."""

from __future__ import annotations

import cProfile
import gc
import os
import signal

import numpy as np
import pytest

import neptune_mlir as neptune
from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.facts import Facts
from neptune_mlir.algebra.normal import Normaliser
from neptune_mlir.algebra.numerics import accept
from neptune_mlir.driver import compiler
from neptune_mlir.frontend import notation as N
from neptune_mlir.transforms.fusion import defer, inline_maps, written
from neptune_mlir.transforms.fusion.written import Written

HEAD = """#m = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i)>
func.func @main(%x0: tensor<32x64xf32>) -> tensor<32x64xf32> {
  %e = tensor.empty() : tensor<32x64xf32>
  %c = arith.constant 1.01 : f32
  %z = arith.constant 0.0 : f32
  %q = tensor.empty() : tensor<32xf32>
  %f = linalg.fill ins(%z : f32) outs(%q : tensor<32xf32>) -> tensor<32xf32>
"""


def elementwise(name: str, inputs: list[str], lines: list[str]) -> str:
    """A map of 32x64 elements; inputs called `s...` are rows'."""
    maps = ", ".join("#r" if i[0] == "s" else "#m" for i in inputs)
    types = ", ".join(f"tensor<{32 if i[0] == 's' else '32x64'}xf32>" for i in inputs)
    names = ", ".join(f"%{i}" for i in inputs)
    arguments = ", ".join(f"%a{k}: f32" for k in range(len(inputs)))
    body = "\n    ".join(lines)
    return f"""  %{name} = linalg.generic {{indexing_maps = [{maps}, #m],
      iterator_types = ["parallel", "parallel"]}} ins({names} : {types})
      outs(%e : tensor<32x64xf32>) {{
  ^bb0({arguments}, %o: f32):
    {body}
    linalg.yield %y : f32
  }} -> tensor<32x64xf32>
"""


def row_sum(name: str, inputs: list[str], lines: list[str]) -> str:
    """The sums of %y over each row."""
    text = elementwise(name, inputs, [*lines, "%t = arith.addf %y, %o : f32"])
    text = text.replace("linalg.yield %y", "linalg.yield %t").replace(", #m],\n", ", #r],\n")
    text = text.replace('"parallel", "parallel"', '"parallel", "reduction"')
    return text.replace("outs(%e : tensor<32x64xf32>)", "outs(%f : tensor<32xf32>)").replace(
        "} -> tensor<32x64xf32>", "} -> tensor<32xf32>"
    )


def norms(n: int) -> str:
    """Reductions without a correction: each element by a function of the sum before."""
    body = ""
    for i in range(n):
        body += row_sum(f"s{i}", [f"x{i}"], ["%y = arith.mulf %a0, %a0 : f32"])
        lines = ["%t = math.tanh %a0 : f32", "%y = arith.divf %t, %a1 : f32"]
        body += elementwise(f"x{i + 1}", [f"x{i}", f"s{i}"], lines)
    return f"{HEAD}{body}  return %x{n} : tensor<32x64xf32>\n}}"


def scaled(n: int) -> str:
    """Norms whose factors move behind the sums of the norms that follow."""
    body = ""
    for i in range(n):
        body += row_sum(f"s{i}", [f"x{i}"], ["%y = arith.mulf %a0, %a0 : f32"])
        lines = ["%w = arith.addf %a1, %c : f32", "%r = math.rsqrt %w : f32"]
        lines += ["%y = arith.mulf %a0, %r : f32"]
        body += elementwise(f"x{i + 1}", [f"x{i}", f"s{i}"], lines)
    return f"{HEAD}{body}  return %x{n} : tensor<32x64xf32>\n}}"


def softmaxes(n: int) -> str:
    body = "".join(
        f"  %x{i + 1} = linalg.softmax dimension(1) ins(%x{i} : tensor<32x64xf32>)"
        " outs(%e : tensor<32x64xf32>) -> tensor<32x64xf32>\n"
        for i in range(n)
    )
    return f"{HEAD}{body}  return %x{n} : tensor<32x64xf32>\n}}"


def sums_around(n: int) -> str:
    """Sums of one tensor, each around the sum before: one stream, were there no limit."""
    body = row_sum("s0", ["x0"], ["%y = arith.addf %a0, %c : f32"])
    for i in range(n):
        body += row_sum(f"s{i + 1}", ["x0", f"s{i}"], ["%y = arith.subf %a0, %a1 : f32"])
    body += elementwise("y", ["x0", f"s{n}"], ["%y = arith.subf %a0, %a1 : f32"])
    return f"{HEAD}{body}  return %y : tensor<32x64xf32>\n}}"


def chain(n: int) -> str:
    """Elementwise ops one after the other."""
    lines = ["arith.addf %a0, %c : f32", "arith.mulf %a0, %c : f32", "math.tanh %a0 : f32"]
    body = "".join(
        elementwise(f"x{i + 1}", [f"x{i}"], [f"%y = {lines[i % 3]}"]) for i in range(n)
    )
    return f"{HEAD}{body}  return %x{n} : tensor<32x64xf32>\n}}"


def doubling(n: int) -> str:
    """Elementwise ops that read the two before them: as a tree, exponential."""
    body = "".join(
        elementwise(f"x{i + 1}", [f"x{i}", f"x{max(0, i - 1)}"], ["%y = arith.addf %a0, %a1 : f32"])
        for i in range(n)
    )
    return f"{HEAD}{body}  return %x{n} : tensor<32x64xf32>\n}}"


def shared(n: int, step: str, last: str = "%y = math.absf %a0 : f32") -> str:
    """The sums of what is computed by ops that read the two before them."""
    body = "".join(
        elementwise(f"x{i + 1}", [f"x{i}", f"x{max(0, i - 1)}"], [f"%y = {step} %a0, %a1 : f32"])
        for i in range(n)
    )
    body += row_sum("s", [f"x{n}"], [last])
    text = f"{HEAD}{body}  return %s : tensor<32xf32>\n}}"
    return text.replace("-> tensor<32x64xf32> {\n  %e", "-> tensor<32xf32> {\n  %e", 1)


class TooMuch(Exception):
    pass


def calls(work, most: float = float("inf")) -> int:
    """How many Python functions `work` calls; it is stopped behind `most`."""
    counter = cProfile.Profile(builtins=False)  # in C: in Python it takes as long as `work`

    def count() -> int:
        return sum(entry.callcount for entry in counter.getstats())

    def look(*_) -> None:
        if count() > most:
            raise TooMuch

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, 1, 1)
    counter.enable()
    try:
        work()
    finally:
        counter.disable()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    look()
    return count()


@pytest.mark.parametrize(
    ("program", "size", "target"),
    [(softmaxes, 6, "cpu"), (doubling, 130, "cpu"), (chain, 70, "sm_80"),
     *(pytest.param(*more, marks=pytest.mark.nightly) for more in (
         (norms, 12, "cpu"), (sums_around, 16, "cpu"), (chain, 70, "cpu"),
         (softmaxes, 6, "sm_80")))],
)  # fmt: skip
def test_growth(program, size, target):
    """Three times the program takes less than 5.5 times the calls, down to the target's code.
    (Three times as much and a part that fills up first: bodies that take others in.)"""

    def lower(n: int) -> None:
        compiler.emit_text(program(n), program.__name__, target, None, None, "target")

    lower(2)  # what is done once in a process
    first = calls(lambda: lower(size))
    # (of a longer program fewer inputs are drawn again)
    assert calls(lambda: lower(3 * size), 5.5 * first) > first / 2


@pytest.mark.parametrize(
    ("step", "last"), [("arith.addf", "math.absf"), ("arith.addf", "math.exp"),
                       ("arith.mulf", "math.absf")],
)  # fmt: skip
def test_reductions_of_shared_operands(step, last):
    """As trees their bodies have 2^40 nodes."""
    text = shared(60, step, f"%y = {last} %a0 : f32")
    calls(lambda: compiler.lower_text(text, "shared", "cpu", None, "tile"), 3e6)


def test_reductions_behind_many_ops():
    """Questions that go from a reduction to the start of a program do not recurse."""
    compiler.lower_text(shared(600, "arith.addf"), "shared", "cpu", None, "tile")


@pytest.mark.nightly
@pytest.mark.parametrize("program", [scaled, softmaxes])
def test_long_chains_are_planned_in_linear_time(program):
    """Chains of 160 norms, four times as many as 40."""

    def plan(n: int) -> None:
        compiler.lower_text(program(n), program.__name__, "cpu", None, "fused")

    plan(2)
    first = calls(lambda: plan(40))
    calls(lambda: plan(160), 6.5 * first)  # 4.2 and 5.7 times as many when this was written


def test_what_was_written_is_spelled_once(monkeypatch):
    """The factors of a norm are those of all norms before it, each of which has them, too."""
    spelled = []
    spell = Written._now
    monkeypatch.setattr(Written, "_now", lambda *given: spelled.append(1) or spell(*given))
    compiler.lower_text(scaled(24), "scaled", "cpu", None, "fused")
    assert 24 < len(spelled) < 300  # twice as many with each norm: 1310, and 28 norms 66595


def test_what_is_too_long_to_be_tested_does_not_move(monkeypatch):
    def remarks() -> list[str]:
        defer.forget()
        accept.forget()
        found = compiler.lower_text(scaled(3), "scaled", "cpu", None, "fused")[1]["remarks"]
        return [r for r in found if "too long to be tested" in r]

    assert not remarks()
    monkeypatch.setattr(written, "MOST", 8)
    assert remarks()


def test_long_chains_are_cut():
    """A body takes no more than MAX_OPS operations in; the tensors between are kept."""
    module, _ = compiler.lower_text(chain(300), "chain", "cpu", None, "fused")
    maps = [op for op in module.body.operations[0].regions[0].blocks[0].operations
            if op.operation.name == "neptune.map"]  # fmt: skip
    assert len(maps) == -(-300 // inline_maps.MAX_OPS)


def test_long_maps_have_small_tiles():
    """A GPU thread spells all of its elements: of longer bodies it has fewer."""
    few, many = (
        len(compiler.emit_text(chain(n), "chain", "sm_80", None, None, "target")[0].splitlines())
        for n in (30, 120)
    )
    assert many < 1.5 * few


def nested(n: int) -> T.Term:
    """x <- x*x + x, n times: a tree of more than 2^n nodes."""
    x = T.ref("m", T.index(0))
    for _ in range(n):
        x = T.make("add", T.make("mul", x, x), x)
    return x


def test_texts_have_a_bound():
    shown = T.show(nested(60))
    assert "..." in shown and len(shown) < 20 * T.SHOWN
    assert "..." not in T.show(nested(3))
    keys = {T.key(nested(n)) for n in range(3, 60)}
    assert len(keys) == 57 and max(map(len, keys)) < 20 * T.SPELLED


def test_facts_ask_once():
    facts = Facts(frozenset([1]), combiner={"m": "max"}, nonneg={"m"})
    x = nested(60)
    assert facts.sign(x) == 1 and facts.lower_bound(x) == 0
    assert facts.direction(x) is None
    with facts.assuming(x, -1):
        assert facts.sign(x) == -1
    assert facts.sign(x) == 1


def test_bounds_of_shared_terms():
    x = T.make("tanh", T.ref("m"))
    for _ in range(60):
        x = T.make("max", T.make("min", x, x), x)
    assert Facts(frozenset()).upper_bound(x) == 1
    assert Normaliser(Facts(frozenset())).poly(x)


def test_terms_go_with_their_users():
    """Whatever a compilation builds is gone after it."""

    def left(n: int) -> int:
        compiler.lower_text(norms(n), "norms", "cpu", None, "fused")
        for of in (accept, defer):
            of.forget()  # the last programs
        gc.collect()
        return len(T._interned)

    assert left(8) == left(3)


def test_a_long_body_of_functions_is_walked_without_recursion():
    """All maps become one body; each of its functions depends on what it reads by all before."""
    p = N.Program("functions")
    i = p.axis("i", 64)
    x = p.input("x", i)[i]
    for _ in range(300):
        x = N.tanh(x) + 0.5
    p.output(x, i)
    given = np.linspace(-2, 2, 64, dtype=np.float32)
    wanted = given.astype(np.float64)
    for _ in range(300):
        wanted = np.tanh(wanted) + 0.5
    np.testing.assert_allclose(neptune.compile(p)(given), wanted, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ("sm_80", "sm_90a", "gfx1100", "gfx942"))
def test_growth_of_machine_code(chip):
    """Four times the operations take at most eight times as long, code generators included."""

    def seconds(n: int) -> float:
        before = os.times()
        compiler.compile_text(chain(n), "test", chip, None, None)
        return sum(os.times()[:4]) - sum(before[:4])

    seconds(8)
    assert seconds(800) < 8 * seconds(200)
