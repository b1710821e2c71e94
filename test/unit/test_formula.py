# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formulas of pseudo-code and proofs: read back into trees, letters for what repeats, MathML."""

import re
from xml.etree import ElementTree

import pytest

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.proofs.proof import acc, leaf_text, new, old
from neptune_mlir.driver.explain import listings
from neptune_mlir.driver.page.formula import (
    CARRIED,
    MIDDLE,
    NEW,
    OLD,
    OTHER,
    Node,
    letters_of,
    parse,
    renamed,
    walk,
    without_position,
)
from neptune_mlir.driver.page.mathml import equation, math

A, B, C = (Node("name", letter) for letter in "abc")


def op(sign, *args):
    return Node("op", sign, args)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a - b - c", op("-", op("-", A, B), C)),
        ("(a - (b - c))", op("-", A, op("-", B, C))),
        ("a + b * c", op("+", A, op("*", B, C))),
        ("-(a)", op("neg", A)),
        ("a <= b and not c", op("and", op("<=", A, B), op("not", C))),
        ("exp(a - -inf)", Node("call", "exp", (op("-", A, op("neg", Node("name", "inf"))),))),
        ("a[b, c // 4]", Node("name", "a", (B, op("//", C, Node("number", "4"))))),
        ("sum over b, c: a * b", Node("over", "sum", (op("*", A, B),), axes=("b", "c"))),
        ("max(a', max over b: c)",
         Node("call", "max", (Node("name", "a", (), OLD), Node("over", "max", (C,), axes=("b",))))),
        ("(acc(a) + acc(a*))",
         op("+", Node("name", "a", (), CARRIED), Node("name", "a", (), OTHER))),
        ("@a + a_old - a_new",
         op("-", op("+", A, Node("name", "a", (), OLD)), Node("name", "a", (), NEW))),
        ("@('mid', 'a')", Node("name", "a", (), MIDDLE)),
        ("1e-05 * x.shape[1]",
         op("*", Node("number", "1e-05"), Node("name", "x.shape", (Node("number", "1"),)))),
        ("... + a", op("+", Node("more", "..."), A)),
    ],
)  # fmt: skip
def test_parse(text, tree):
    assert parse(text) == tree


@pytest.mark.parametrize("text", ["a b", "a +", "f(a", "a ? b", "sum over 3: a", "", "a]"])
def test_what_is_no_formula(text):
    assert parse(text) is None


def test_every_obligation_can_be_read():
    """What `terms.show` writes is what `parse` reads, whatever the operators."""
    x, m = T.read("x", T.index(0)), T.ref("m")
    arguments = {1: (x,), 2: (x, m), 3: (T.make("lt", x, m), x, m)}
    for name, arity in T.OPS.items():
        dtype = "f16" if name == "cast" else None
        term = T.make(name, *arguments[arity], dtype=dtype)
        found = parse(T.show(term))
        assert found is not None, T.show(term)
        ElementTree.fromstring(math(found))
    h = T.make("mul", acc("m"), T.make("exp", T.make("sub", old("m"), new("m"))))
    sides = {n.side for n in walk(parse(T.show(h, leaf_text))) if n.kind == "name"}
    assert sides == {CARRIED, OLD, NEW}


def text_of(markup):
    return "".join(ElementTree.fromstring(markup).itertext()).replace("⁢", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(a + b) * c", "(a+b)c"),
        ("a * 2 * a", "2·a2"),  # 2·a²: numbers first, equal factors as a power
        ("a - (b - c)", "a−(b−c)"),
        ("exp(a - b)", "ea−b"),
        ("exp(a / b)", "exp⁡(ab)"),  # a fraction is no exponent
        ("f64(a) + f32(b)", "a+b"),
        ("a / where(b == 0, 1, b)", "ab≠0"),
        ("max0' - max0", "max′0−max0"),
        ("0.5 * a", "0.5·a"),
    ],
)
def test_math(text, shown):
    assert text_of(math(parse(text))) == shown


def test_powers_and_escapes():
    assert "<msup>" in math(parse("(a - b) * (a - b)"))
    assert "&lt;" in math(parse("a < b"))
    assert equation([A, "=", B], block=False).count("<math") == 1


def test_letters_hold_at_any_time():
    """The mean before and after the tile is one letter, with and without a prime."""
    texts = ("x - s' / n' + (s' / n' - s / n)", "(s' / n' - s / n) * n'", "s / n - s' / n'")
    quotients = [t.replace("s / n", "s_new / (n_new + 1)").replace("s' / n'", "s_old / (n_old + 1)")
                 for t in texts]  # fmt: skip
    formulas = [parse(t) for t in quotients]
    letters = letters_of(formulas)
    ((letter, meaning),) = letters.defined
    assert meaning == parse("s / (n + 1)")
    shown = letters.shown(formulas[2])
    assert shown == op(
        "-", Node("name", letter.text, (), NEW), Node("name", letter.text, (), OLD)
    )
    assert letters_of([parse("a + b")]).table == {}


def test_names_and_positions():
    node = renamed(parse("x[i, j] * (m_old - m[j // 4])"), {"m": "max0", "j": "K"})
    assert without_position(node, ["i", "K"]) == parse("x * (max0_old - max0[K // 4])")


def test_listing_lines_are_formulas(tmp_path):
    """Every right-hand side of a listing reads as a formula."""
    from neptune_mlir.driver.compiler import lower_text

    program = """
    func.func @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %e = tensor.empty() : tensor<4x8xf32>
      %y = linalg.softmax dimension(1) ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>)
          -> tensor<4x8xf32>
      return %y : tensor<4x8xf32>
    }"""
    module, _ = lower_text(program, "f.mlir", "cpu", None, "fused")
    (listing,) = listings(module, program)
    sides = [re.split(r" = ", line.text, maxsplit=1)[1] for line in listing.lines
             if re.match(r"\w+\[.*\] = ", line.text) and "repaired" not in line.text]  # fmt: skip
    assert len(sides) == 3 and all(parse(side) is not None for side in sides)
