# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Patterns over ops: what matches, what is refused, and what failing functions say."""

import re
import textwrap
from pathlib import Path

import pytest

from neptune_mlir.cli import opt
from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import InputError, UsageError
from neptune_mlir.frontend import notation as nt
from neptune_mlir.ir.bindings import arith, ir
from neptune_mlir.pipelines import common, runner
from neptune_mlir.transforms.patterns import language
from neptune_mlir.transforms.patterns.language import (
    Given,
    Named,
    OneOf,
    Op,
    Repeat,
    constant,
    register,
    spellings,
)
from neptune_mlir.transforms.patterns.to_pdl import MOST_REWRITES, Rewriting, names_in

x, y = Given("x"), Given("y")
SQUARES = """\
func.func @f(%a: f32, %b: f32) -> (f32, f32) {
  %s = arith.mulf %a, %a : f32
  %p = arith.mulf %a, %b : f32
  return %s, %p : f32, f32
}
"""


@pytest.fixture(autouse=True)
def table(monkeypatch):
    language.names()  # those of this project are there
    monkeypatch.setattr(language, "_PATTERNS", dict(language._PATTERNS))


def declared(pattern, rewrite=lambda match: match["x"], **options):
    register("mine", pattern, **options)(rewrite)
    return language.lookup("mine")


def applied(text, *patterns):
    module = parse(text)
    with module.context:
        Rewriting(patterns).run(module)
        assert module.operation.verify()
    return module


def names(module):
    return names_in([module.operation]) - {"builtin.module", "func.func", "func.return"}


def count(module, name):
    return str(module).count(name)


def test_one_name_is_one_value():
    assert count(applied(SQUARES, declared(Op("arith.mulf", x, x))), "arith.mulf") == 1
    assert count(applied(SQUARES, declared(Op("arith.mulf", x, y))), "arith.mulf") == 0


def test_guards_and_types():
    never = declared(Op("arith.mulf", x, y), guard=lambda match: False)
    assert count(applied(SQUARES, never), "arith.mulf") == 2
    for kind, left in (("f32", 0), ("f64", 2), (lambda t: str(t) == "f32", 0),
                       (lambda t: False, 2)):  # fmt: skip
        typed = declared(Op("arith.mulf", Given("x", kind), y))
        assert count(applied(SQUARES, typed), "arith.mulf") == left


CHAIN = """\
func.func @f(%a: f16) -> (f64, f64) {
  %b = arith.extf %a : f16 to f32
  %c = arith.extf %b : f32 to f64
  %d = arith.negf %c : f64
  %e = arith.extf %a : f16 to f64
  %f = arith.negf %e : f64
  return %d, %f : f64, f64
}
"""


@pytest.mark.parametrize(("least", "most", "left"), [(1, 2, 0), (2, 2, 1), (1, 1, 0), (3, 4, 2)])
def test_repetition(least, most, left):
    """With one repetition, two casts match by their last one."""
    wide = Repeat(lambda value: Op("arith.extf", value), x, least=least, most=most)

    def zero(match):
        return arith.ConstantOp(ir.F64Type.get(), 0.0)

    assert count(applied(CHAIN, declared(Op("arith.negf", wide), zero)), "arith.negf") == left


def test_alternatives_in_order():
    """Where several match, the first one counts."""
    swapped = OneOf(Op("arith.mulf", x, y), Op("arith.mulf", y, x))
    assert "return %arg0, %arg0" in str(applied(SQUARES, declared(swapped)))
    swapped = OneOf(Op("arith.mulf", y, x), Op("arith.mulf", x, y))
    assert "return %arg0, %arg1" in str(applied(SQUARES, declared(swapped)))


def test_a_named_op_is_one_op():
    either = Op("math.exp", OneOf(x, Op("arith.negf", x)), name="grown")
    assert len(spellings(Op("arith.divf", either, either))) == 2
    module = applied(
        "func.func @f(%a: f32) -> (f32, f32) {\n  %e = math.exp %a : f32\n"
        "  %d = math.exp %a : f32\n  %q = arith.divf %e, %e : f32\n"
        "  %r = arith.divf %e, %d : f32\n  return %q, %r : f32, f32\n}",
        declared(Op("arith.divf", either, either)),
    )
    assert count(module, "arith.divf") == 1


def test_attributes_and_any_op():
    text = SQUARES.replace("arith.mulf %a, %a", "arith.mulf %a, %a fastmath<fast>")
    fast = declared(
        Op("arith.mulf", x, y, attributes={"fastmath": "#arith.fastmath<fast>"})
    )  # fmt: skip
    assert count(applied(text, fast), "arith.mulf") == 1
    seen = []

    def look(match):
        seen.append((match.root.name, str(match["how"])))
        return False

    declared(Op("arith.*", None, results=None, attributes={"fastmath": Named("how")}), guard=look)
    applied(text, language.lookup("mine"))
    assert {name for name, _ in seen} == {"arith.mulf"}
    assert {how for _, how in seen} == {f"#arith.fastmath<{k}>" for k in ("fast", "none")}


def test_rewrites_start_from_what_others_make():
    def divided(match):
        one = arith.ConstantOp(match["x"].type, 1.0).result
        return arith.DivFOp(match["x"], arith.DivFOp(one, match["y"]).result)

    first = declared(Op("arith.mulf", x, y), divided)
    register("then", Op("arith.divf", constant("one"), Op("arith.divf", x, y)))(lambda m: m["x"])
    register("quotient", Op("arith.divf", x, Op("arith.divf", constant("one"), y)))(
        lambda match: arith.SubFOp(match["x"], match["y"])
    )
    module = applied(SQUARES, first, language.lookup("quotient"), language.lookup("then"))
    assert names(module) == {"arith.subf"}


def test_numbers_that_a_type_does_not_have():
    """Types of 8 bits stay wide, and the smallest integer has no opposite."""
    text = """\
func.func @f(%a: f8E4M3FN, %n: i32) -> (i1, i1) {
  %inf = arith.constant 0x7F800000 : f32
  %w = arith.extf %a : f8E4M3FN to f32
  %c = arith.cmpf olt, %w, %inf : f32
  %least = arith.constant -2147483648 : i32
  %d = math.absi %n : i32
  %e = arith.cmpi sgt, %d, %least : i32
  return %c, %e : i1, i1
}"""
    module = applied(text, *language.chosen())
    assert "arith.extf" in names(module) and "arith.subi" in names(module)


@pytest.mark.parametrize("twice", ["arith.addf %x, %x", "arith.mulf %x, %two"])
def test_the_example_of_the_page(twice):
    text = (Path(__file__).parents[3] / "docs" / "extending.md").read_text()
    start = text.index("    from neptune_mlir.ir")
    block = re.search(r"(?:^    .*\n|^\n)+", text[start:], re.M)[0]
    exec(textwrap.dedent(block).partition("[project")[0], {"__name__": "page"})
    module = applied(
        f"""func.func @f(%x: f32) -> f32 {{
          %one = arith.constant 1.0 : f32
          %two = arith.constant 2.0 : f32
          %t = {twice} : f32
          %g = math.exp %t : f32
          %a = arith.subf %g, %one : f32
          %b = arith.addf %g, %one : f32
          %q = arith.divf %a, %b : f32
          return %q : f32
        }}""",
        language.lookup("tanh-by-exponential"),
    )
    assert names(module) == {"math.tanh"}


@pytest.mark.parametrize("near", [abs, lambda x: nt.maximum(0 - x, x)])
def test_windows_of_notation_are_two_comparisons(near):
    p = nt.Program("window")
    i, j = p.axes("i j")
    x = p.input("x", i, j)
    p.output(nt.sum(nt.where(near(i - j) <= 64, x[i, j], 0), j), i)
    module = parse(p.to_mlir())
    with module.context:
        runner.run(module, common.IMPORT)
    assert "arith.maxsi" not in str(module) and "arith.andi" in str(module)


@pytest.mark.parametrize(
    ("rewrite", "message"),
    [
        (lambda match: 1 / 0, "pattern 'mine' fails: ZeroDivisionError"),
        (lambda match: match["z"], "pattern 'mine' fails: KeyError: 'z'"),
        (lambda match: [], "gives nothing for f32"),
        (lambda match: arith.ConstantOp(ir.F64Type.get(), 0.0), "gives f64 for f32"),
    ],
)
def test_failing_functions_have_a_place(rewrite, message):
    with pytest.raises(UsageError, match=message) as caught:
        applied(SQUARES, declared(Op("arith.mulf", x, y), rewrite))
    assert caught.value.loc.endswith(":2:8")
    if "fails" in message:
        with pytest.raises(UsageError, match=message):
            applied(SQUARES, declared(Op("arith.mulf", x, y), guard=rewrite))


def test_errors_of_ours_go_through():
    def refuse(match):
        raise InputError("not this one")

    with pytest.raises(InputError, match="not this one"):
        applied(SQUARES, declared(Op("arith.mulf", x, y), refuse))


def test_patterns_that_do_not_end(monkeypatch):
    monkeypatch.setattr("neptune_mlir.transforms.patterns.to_pdl.MOST_REWRITES", 50)
    assert MOST_REWRITES > 50
    again = declared(Op("arith.mulf", x, y), lambda m: arith.MulFOp(m["y"], m["x"]))
    with pytest.raises(UsageError, match="do not come to an end; the last one is 'mine'"):
        applied(SQUARES, again)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (x, "has no op as its root"),
        (OneOf(), "has no op as its root"),
        (Op("a.b", *[OneOf(x, Op("a.c", x))] * 6), "more than 50 spellings"),
    ],
)
def test_declarations_that_are_refused(pattern, message):
    with pytest.raises(UsageError, match=message):
        register("mine", pattern)


def test_what_is_no_mlir_is_said():
    bad = declared(Op("arith.mulf", x, y, attributes={"fastmath": "fast<"}))
    with pytest.raises(UsageError, match="pattern 'mine' cannot be said in MLIR"):
        applied(SQUARES, bad)


def test_names_on_the_command_line(tmp_path, capsys):
    (tmp_path / "in.mlir").write_text(SQUARES)
    assert opt.main([str(tmp_path / "in.mlir"), "--apply-patterns=only=distance"]) != 0
    printed = capsys.readouterr().err
    assert "no pattern 'distance'" in printed and "did you mean 'distances'?" in printed


def test_a_name_is_of_one_module():
    register("mine", Op("arith.mulf", x, x))(lambda match: match["x"])
    other = register("mine", Op("arith.mulf", x, x))
    with pytest.raises(UsageError, match="registers pattern 'mine', which"):
        other(applied_elsewhere())


def applied_elsewhere():
    def rewrite(match):
        return match["x"]

    rewrite.__module__ = "another.module"
    return rewrite
