# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What people are used to type after `mlir-opt`, typed after `neptune-opt`.

The bindings' wheel carries an `mlir-opt` of the same MLIR (`torch-mlir-opt`): both run, and have
to print the same. Blank lines do not count, nor do figures in reports of times.
"""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from neptune_mlir.cli import opt
from neptune_mlir.ir.bindings import module
from neptune_mlir.transforms import registry

STOCK = Path(module("_mlir_libs").__file__).parent / "torch-mlir-opt"
pytestmark = pytest.mark.skipif(not STOCK.exists(), reason="the bindings bring no mlir-opt")

TWICE = """\
func.func @twice(%x: i32) -> (i32, i32) {
  %zero = arith.constant 0 : i32
  %a = arith.addi %x, %x : i32 loc("sum")
  %b = arith.addi %x, %x : i32
  %c = arith.addi %b, %zero : i32
  return %a, %c : i32, i32
}
func.func private @unused(%x: i32)
"""
ELEMENTS = """\
func.func @f() -> (tensor<4xi32>, tensor<2xf32>) {
  %a = arith.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %b = arith.constant dense_resource<blob> : tensor<2xf32>
  return %a, %b : tensor<4xi32>, tensor<2xf32>
}
{-#
  dialect_resources: { builtin: { blob: "0x04000000000000000000000000000000" } }
#-}
"""
PIECES = "func.func @f() {\n  return\n}\n// -----\nfunc.func @g() {\n  return\n}\n"
OTHER_MARK = PIECES.replace("// -----", "// ~~~")
STRANGE = 'func.func @f() {\n  "strange.op"() : () -> ()\n  return\n}\n'
UNDECLARED = "func.func @f() -> i32 {\n  return %nobody : i32\n}\n"
WRONG_TYPE = "func.func @f(%x: i32) -> i64 {\n  // MARK\n  return %x : i32\n}\n"
EXPECTED = WRONG_TYPE.replace(
    "MARK", "expected-error@+1 {{type of return operand 0 ('i32') doesn't match}}"
)
NOT_PRODUCED = TWICE.replace("  %zero", "  // expected-error@+1 {{no such}}\n  %zero")
IRDL = """\
irdl.dialect @strange {
  irdl.operation @op {
    %0 = irdl.is i32
    irdl.operands(x: %0)
  }
}
"""
NESTED = """\
module @outer {
  module @inner {
    func.func @f(%x: i32) -> i32 {
      %a = arith.addi %x, %x : i32
      %b = arith.addi %x, %x : i32
      %c = arith.muli %a, %b : i32
      return %c : i32
    }
  }
}
"""
AGAIN = "func.func @f() {\n  return\n}\n" * 2
FAILING = PIECES.replace("// -----\n", "// -----\n" + WRONG_TYPE + "// -----\n")
KNOWN = "func.func @f(%x: i32) -> i64 {\n  COMMENT\n  return %x : i32LATER\n}\n"


def expecting(comment="// nothing", later=""):
    return KNOWN.replace("COMMENT", comment).replace("LATER", later)


ALONE = TWICE[: TWICE.index("func.func private")]

OUT, ERR, BOTH = "out", "err", "both"

HABITS = {
    "print": (TWICE, [], OUT),
    "one dash": (TWICE, ["-cse"], OUT),
    "two passes": (TWICE, ["--cse", "--canonicalize"], OUT),
    "options of a pass": (TWICE, ["--canonicalize=max-iterations=1 top-down=false"], OUT),
    "pipeline": (TWICE, ["--pass-pipeline=builtin.module(cse,symbol-dce)"], OUT),
    "pipeline, short": (TWICE, ["-p", "builtin.module(cse)"], OUT),
    "nested pipeline": (TWICE, ["-pass-pipeline", "builtin.module(func.func(cse))"], OUT),
    "options in a pipeline": (
        TWICE, ["--pass-pipeline=builtin.module(canonicalize{top-down=false max-iterations=2})"],
        OUT,
    ),
    "pipeline for any op": (TWICE, ["--pass-pipeline=any(cse)"], OUT),
    "inline": (TWICE, ["--inline=inlining-threshold=10", "--symbol-dce"], OUT),
    "generic form": (TWICE, ["--mlir-print-op-generic"], OUT),
    "locations": (TWICE, ["-mlir-print-debuginfo"], OUT),
    "locations for people": (TWICE, ["--mlir-pretty-debuginfo", "--mlir-print-debuginfo"], OUT),
    "locations inline": (TWICE, ["--mlir-print-debuginfo", "--mlir-print-local-scope"], OUT),
    "names from locations": (TWICE, ["--mlir-use-nameloc-as-prefix"], OUT),
    "long attributes": (ELEMENTS, ["--mlir-elide-elementsattrs-if-larger=2"], OUT),
    "long attributes, apart": (ELEMENTS, ["--mlir-elide-elementsattrs-if-larger", "2"], OUT),
    "long resources": (ELEMENTS, ["--mlir-elide-resource-strings-if-larger=4"], OUT),
    "no regions": (TWICE, ["--mlir-print-skip-regions"], OUT),
    "assume verified": (TWICE, ["--mlir-print-assume-verified"], OUT),
    "no module": (ALONE, ["--no-implicit-module"], OUT),
    "a pipeline without module": (
        ALONE, ["--no-implicit-module", "--pass-pipeline=func.func(cse)"], OUT,
    ),
    "pieces": (PIECES, ["--split-input-file"], OUT),
    "pieces by another mark": (OTHER_MARK, ["--split-input-file=// ~~~"], OUT),
    "pieces of output": (PIECES, ["-split-input-file", "-output-split-marker=// ==="], OUT),
    "unregistered ops": (STRANGE, ["-allow-unregistered-dialect"], OUT),
    "unregistered ops refused": (STRANGE, [], ERR),
    "parse error": (UNDECLARED, [], ERR),
    "verifier error": (WRONG_TYPE, [], ERR),
    "op of an error": (WRONG_TYPE, ["--mlir-print-op-on-diagnostic=false"], ERR),
    "errors only": (WRONG_TYPE, ["--mlir-diagnostic-verbosity-level=errors"], ERR),
    "expected errors": (EXPECTED, ["--verify-diagnostics"], BOTH),
    "expected errors only": (EXPECTED, ["--verify-diagnostics=only-expected"], BOTH),
    "expected below": (
        expecting("// expected-error@below {{type of return operand 0 ('i32')}}\n  // (below)"),
        ["--verify-diagnostics"], BOTH,
    ),
    "expected above": (
        expecting(later="\n  // expected-error@above {{type of return}}"), ["--verify-diagnostics"],
        BOTH,
    ),
    "expected expressions": (
        expecting(later=" // expected-error-re {{operand {{[0-9]+}} ({{.*}}) doesn't match}}"),
        ["--verify-diagnostics"], BOTH,
    ),
    "an expression outside of braces": (
        expecting(later=" // expected-error-re {{type of .* operand}}"), ["--verify-diagnostics"],
        BOTH,
    ),
    "two expectations on a line": (
        expecting(later=" // expected-error {{type of}} expected-note {{see}}"),
        ["--verify-diagnostics"], BOTH,
    ),
    "a note that is not produced": (
        expecting("// expected-error@below {{type}}\n  // expected-note@below {{see current}}"),
        ["--verify-diagnostics"], BOTH,
    ),
    "a count, which there is not": (
        expecting("// expected-error@+1 1 {{type of return}}"), ["--verify-diagnostics"], BOTH,
    ),
    "an expected remark": (NOT_PRODUCED.replace("error", "remark"), ["--verify-diagnostics"], BOTH),
    "expected errors in pieces": (
        FAILING.replace("MARK", "expected-error@+1 {{type of return}}"),
        ["--split-input-file", "--verify-diagnostics"], BOTH,
    ),
    "a piece that fails": (FAILING, ["--split-input-file", "--canonicalize"], BOTH),
    "a symbol that is there": (AGAIN, [], ERR),
    "a file that is written": (FAILING, ["--split-input-file", "-o", "out.mlir"], BOTH),
    "output named twice": (TWICE, ["-o", "a.mlir", "-o", "b.mlir"], OUT),
    "modules in modules": (
        NESTED, ["--pass-pipeline=builtin.module(builtin.module(func.func(cse)))"], OUT,
    ),
    "blanks in a pipeline": (TWICE, ["--pass-pipeline= builtin.module( cse , symbol-dce ) "], OUT),
    "empty file": ("", ["--cse"], BOTH),
    "nested, after all": (
        TWICE, ["--pass-pipeline=builtin.module(func.func(cse,canonicalize),symbol-dce)",
                "--mlir-print-ir-after-all", "--mlir-disable-threading"], BOTH,
    ),
    "nested, dumped": (
        TWICE, ["--pass-pipeline=builtin.module(func.func(cse,canonicalize),symbol-dce)",
                "--dump-pass-pipeline"], ERR,
    ),
    "generic form with locations": (
        TWICE, ["--mlir-print-op-generic", "--mlir-print-debuginfo", "--mlir-print-local-scope"],
        OUT,
    ),
    "statistics of ops": (TWICE, ["--print-op-stats=json"], OUT),
    "snapshot of locations": (
        TWICE, ["--snapshot-op-locations=filename=s.mlir", "--mlir-print-debuginfo"], OUT,
    ),
    "before all": (TWICE, ["--cse", "--symbol-dce", "--mlir-print-ir-before-all"], BOTH),
    "after all": (TWICE, ["--cse", "--symbol-dce", "--mlir-print-ir-after-all"], BOTH),
    "before one": (TWICE, ["-cse", "-canonicalize", "--mlir-print-ir-before=canonicalize"], BOTH),
    "after one": (TWICE, ["-cse", "-canonicalize", "--mlir-print-ir-after=cse"], BOTH),
    "after some": (TWICE, ["-cse", "-symbol-dce", "--mlir-print-ir-after=cse,symbol-dce"], BOTH),
    "after change": (
        TWICE, ["-cse", "-cse", "--mlir-print-ir-after-all", "--mlir-print-ir-after-change"], BOTH,
    ),
    "whole module": (
        ALONE, ["--pass-pipeline=builtin.module(func.func(cse))", "--mlir-disable-threading",
                "--mlir-print-ir-module-scope", "--mlir-print-ir-after-all"], BOTH,
    ),
    "statistics": (TWICE, ["--cse", "--canonicalize", "--mlir-pass-statistics"], BOTH),
    "statistics as a list": (
        TWICE, ["-cse", "-mlir-pass-statistics", "-mlir-pass-statistics-display=list"], BOTH,
    ),
    "unverified": (TWICE, ["--cse", "--verify-each=false"], OUT),
    "round trip": (ELEMENTS, ["--verify-roundtrip"], OUT),
    "one thread": (TWICE, ["--canonicalize", "-mlir-disable-threading"], OUT),
    "dump of the pipeline": (
        TWICE, ["--cse", "--canonicalize=top-down=false", "--dump-pass-pipeline"], ERR,
    ),
}  # fmt: skip


def lines(text):
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def normal(text):
    """Without blank lines, and pipelines on one line."""
    flat = re.sub(r"\(\s+", "(", re.sub(r",\s+", ",", re.sub(r"\s+\)", ")", text)))
    return [re.sub(r"[ \t]+", " ", line) for line in lines(flat)]


@pytest.fixture
def both(tmp_path, monkeypatch, capfd):
    """Runs the same arguments through both; gives (exit code, stdout, stderr) of each."""
    monkeypatch.chdir(tmp_path)

    def run(text, arguments, name="in.mlir"):
        mode = "wb" if isinstance(text, bytes) else "w"
        with open(name, mode) as file:
            file.write(text)
        done = subprocess.run([STOCK, name, *arguments], capture_output=True)
        stock = (done.returncode, done.stdout.decode(), done.stderr.decode())
        capfd.readouterr()
        code = opt.main([name, *arguments])
        captured = capfd.readouterr()
        return (code, captured.out, captured.err), stock

    return run


@pytest.mark.parametrize("habit", HABITS)
def test_habit(both, habit):
    text, arguments, streams = HABITS[habit]
    ours, stock = both(text, arguments)
    assert bool(ours[0]) == bool(stock[0]), ours[2] + stock[2]
    if streams != ERR:
        assert normal(ours[1]) == normal(stock[1])
    if streams != OUT:
        assert normal(ours[2]) == normal(stock[2])


# An mlir-opt of another version (Debian's): what LLVM changed since. Dumps named passes otherwise
# before LLVM 23, and canonicalize had fewer options.
NEWER = {"before all", "after all", "before one", "after one", "after some", "after change",
         "whole module", "dump of the pipeline", "nested, after all", "nested, dumped"}  # fmt: skip
NEWER_THAN_19 = NEWER | {
    "names from locations", "errors only", "expected errors only", "a piece that fails",
    "a file that is written", "snapshot of locations",
}  # fmt: skip
LOOP = """\
func.func @s(%m: memref<8xf32>, %c: f32) {
  affine.for %i = 0 to 8 {
    %v = affine.load %m[%i] : memref<8xf32>
    %w = arith.addf %v, %c : f32
    affine.store %w, %m[%i] : memref<8xf32>
  }
  return
}
"""
MATMUL = """\
module attributes {transform.with_named_sequence} {
  func.func @f(%a: tensor<8x8xf32>, %c: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %r = linalg.matmul ins(%a, %a : tensor<8x8xf32>, tensor<8x8xf32>)
                       outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
    return %r : tensor<8x8xf32>
  }
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["linalg.matmul"]} in %m
        : (!transform.any_op) -> !transform.any_op
    %1, %l = transform.structured.tile_using_for %0 tile_sizes [4]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
"""
BUFFERIZE = "--one-shot-bufferize=bufferize-function-boundaries"
UNROLL = "builtin.module(func.func(affine-loop-unroll{unroll-factor=2}))"
# passes that the bindings' own tool does not have
LOWERING = {
    "lower": (LOOP, ["--lower-affine", "--convert-scf-to-cf"], OUT),
    "unroll": (LOOP, [f"--pass-pipeline={UNROLL}"], OUT),
    "invariant code": (LOOP, ["--loop-invariant-code-motion"], OUT),
    "bufferize": (MATMUL, [BUFFERIZE, "--convert-linalg-to-loops"], OUT),
    "bufferize with identity layouts": (
        MATMUL, [f"{BUFFERIZE} function-boundary-type-conversion=identity-layout-map"], OUT,
    ),
    "transform": (MATMUL, ["--transform-interpreter", "--canonicalize", "--cse"], OUT),
    "generalize": (MATMUL, ["--linalg-generalize-named-ops", "--linalg-fuse-elementwise-ops"], OUT),
    "constants": (TWICE, ["--sccp", "--symbol-privatize=exclude=twice"], OUT),
}  # fmt: skip
OTHERS = {path: newer for path, newer in {
    Path("/usr/lib/llvm-19/bin/mlir-opt"): NEWER_THAN_19,
    Path("/usr/lib/llvm-22/bin/mlir-opt"): NEWER,
}.items() if path.exists()}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.skipif(not OTHERS, reason="no other mlir-opt is installed (mlir-19-tools)")
@pytest.mark.parametrize("other", OTHERS, ids=lambda p: p.parent.parent.name)
def test_habits_of_another_mlir_opt(both, monkeypatch, other):
    monkeypatch.setattr(sys.modules[__name__], "STOCK", other)
    monkeypatch.setattr(sys.modules[__name__], "HABITS", HABITS | LOWERING)
    for habit in HABITS.keys() - OTHERS[other]:
        test_habit(both, habit)
    assert len(HABITS) - len(OTHERS[other]) >= 59


def test_there_are_forty():
    assert len(HABITS) >= 40


@pytest.mark.parametrize("text", [NOT_PRODUCED, WRONG_TYPE])
def test_diagnostics_that_differ_from_what_is_expected(both, text):
    ours, stock = both(text, ["--verify-diagnostics"])
    assert ours[0] == stock[0] == 1
    assert ours[2] and stock[2]


def test_from_stdin_and_from_files_of_arguments(both, tmp_path, capfd, monkeypatch):
    (tmp_path / "arguments").write_text("--cse\n--mlir-print-debuginfo 'in.mlir'")
    both(TWICE, [])
    for arguments in (["@arguments"], ["--cse"], ["-", "--cse"]):
        done = subprocess.run([STOCK, *arguments], input=TWICE.encode(), capture_output=True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TWICE.encode())))
        assert opt.main(arguments) == done.returncode == 0
        assert normal(capfd.readouterr().out) == normal(done.stdout.decode())


def test_a_file_of_a_failure_is_not_written(both, tmp_path):
    for tool in ("ours", "stock"):
        (tmp_path / "out.mlir").unlink(missing_ok=True)
        both(FAILING, ["--split-input-file", "-o", "out.mlir"])
        assert not (tmp_path / "out.mlir").exists(), tool


def test_times(both):
    tree = ["--mlir-timing", "--mlir-timing-display=tree"]
    ours, stock = both(TWICE, ["--cse", "--canonicalize", *tree])

    def passes(text):
        rows = [line.rpartition(") ")[2].strip() for line in lines(text)]
        return [name for name in rows if name.endswith("Pass")]

    assert passes(ours[2]) == passes(stock[2]) == ["CSEPass", "CanonicalizerPass"]
    assert ours[1].split() == stock[1].split()
    ours, _ = both(TWICE, ["--mlir-timing"])  # of no pass
    assert ours[0] == 0


def test_only_the_pass_that_fails(both):
    registry.register("fail-there", "raises")(lambda module: 1 / 0)
    flags = ["--mlir-print-ir-after-all", "--mlir-print-ir-after-failure"]
    ours, _ = both(TWICE, ["--cse", "--fail-there", *flags])
    assert [x for x in ours[2].splitlines() if "IR Dump" in x] == [
        "// -----// IR Dump After FailThere Failed: fail-there //----- //"
    ]


def test_tree_of_files(both, tmp_path):
    arguments = ["--cse", "--symbol-dce", "--mlir-print-ir-after-all", "--mlir-print-ir-tree-dir"]

    def tree(name):
        files = sorted((tmp_path / name).rglob("*.mlir"))
        return {str(p.relative_to(tmp_path / name)): lines(p.read_text()) for p in files}

    subprocess.run([STOCK, "-", *arguments, "stock"], input=TWICE.encode(), check=True,
                   capture_output=True)  # fmt: skip
    both(TWICE, [*arguments, "ours"])
    assert tree("ours") == tree("stock") != {}


def test_bytecode_goes_both_ways(both, tmp_path):
    for command in (opt.main, lambda given: subprocess.run([STOCK, *given], check=True)):
        (tmp_path / "x.mlir").write_text(TWICE)
        command(["x.mlir", "--emit-bytecode", "-o", "x.mlirbc"])
        data = (tmp_path / "x.mlirbc").read_bytes()
        assert data.startswith(opt.BYTECODE)
        ours, stock = both(data, ["--cse"], "y.mlirbc")
        assert ours[0] == 0
        assert normal(ours[1]) == normal(stock[1])


def test_a_version_of_bytecode(both, capfd):
    ours, stock = both(TWICE, ["--emit-bytecode", "--emit-bytecode-version=99"])
    assert ours[0] and stock[0]
    assert "cannot write bytecode" in ours[2]


def test_irdl_file(both, tmp_path, capfd):
    (tmp_path / "strange.irdl").write_text(IRDL)
    taken = 'func.func @f(%x: i32) {\n  "strange.op"(%x) : (i32) -> ()\n  return\n}\n'
    ours, stock = both(taken, ["--irdl-file=strange.irdl"])
    assert ours[0] == stock[0] == 0
    assert normal(ours[1]) == normal(stock[1])
    ours, stock = both(taken.replace("i32", "i64"), ["--irdl-file=strange.irdl"])
    assert ours[0] == stock[0] == 1
    assert normal(ours[2]) == normal(stock[2])
    (tmp_path / "bad.irdl").write_text("irdl.dialect @x {")
    ours, stock = both(taken, ["--irdl-file=bad.irdl"])
    assert ours[0] == stock[0] == 1
    assert "bad.irdl:1:" in ours[2]
    assert "func.func" not in ours[2]  # the line of another file
    for name in ("arith", "neptune"):
        (tmp_path / "again.irdl").write_text(IRDL.replace("strange", name))
        assert opt.main(["in.mlir", "--irdl-file=again.irdl"]) == 1  # (a stock one aborts)
        assert f"defines the dialect '{name}', which is there" in capfd.readouterr().err


def test_no_notes(both):
    """(The stock tool keeps the note with the op.)"""
    shown, _ = both(WRONG_TYPE, [])
    hidden, _ = both(WRONG_TYPE, ["--mlir-disable-diagnostic-notes"])
    assert "note:" in shown[2]
    assert hidden[0] == 1
    assert [line for line in lines(shown[2]) if "note:" not in line] == lines(hidden[2])


def test_reproducer(both, tmp_path, capfd):
    both(TWICE, ["--cse", "--symbol-dce", "--mlir-generate-reproducer=again.mlir"])
    text = (tmp_path / "again.mlir").read_text()
    ours, stock = both(text, ["--run-reproducer"])
    assert ours[0] == stock[0] == 0
    assert ours[2] == stock[2] == ""
    assert "@unused" not in ours[1]
    assert [x for x in normal(ours[1]) if "reproducer" not in x][:8] == normal(stock[1])[:8]
    registry.register("fail-here", "raises")(lambda module: 1 / 0)
    ours, _ = both(TWICE, ["--cse", "--fail-here",
                           "--mlir-pass-pipeline-crash-reproducer=crash.mlir"])  # fmt: skip
    assert ours[0] == 1
    ours, _ = both((tmp_path / "crash.mlir").read_text(), ["--run-reproducer"])
    assert "ZeroDivisionError" in ours[2]


def test_questions(capsys):
    for question, *answers in (
        ("--help", "--mlir-timing", "--rolling-update", "--convert-linalg-to-loops", "--schedule"),
        ("-h", "--privatize", "[chunks=int programs=int"),
        ("--help-hidden", "--load-pass-plugin", "--mlir-print-value-users"),
        ("--list-passes", "--canonicalize", "max-iterations=10"),
        ("--show-dialects", "Available Dialects: ", "linalg,", "neptune,", "vector,"),
        ("--version", "neptune-mlir ", "MLIR bindings: "),
    ):
        assert opt.main([question]) == 0
        printed = capsys.readouterr().out
        assert [a for a in answers if a not in printed] == []


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--mlir-timming"], "unknown option or pass '--mlir-timming'", "'mlir-timing'"),
        (["--csee"], "unknown option or pass '--csee'", "'cse'"),
        (["--rolling-updat"], "unknown option or pass", "'rolling-update'"),
        (["--pass-pipeline=builtin.module(csee)"], "error: unknown pass 'csee'", "'cse'"),
        (["--mlir-timing-display=list"], "'list' is refused", "print times as a tree"),
        (["--privatize=chunk=2"], "no option 'chunk=2'", "'chunks'"),
        (["--load-pass-plugin=x.so"], "cannot work here", "entry points"),
        (["--mlir-print-value-users"], "cannot work here", "no access"),
        (["--mlir-timing=maybe"], "is not true or false", "--help"),
        (["--mlir-elide-elementsattrs-if-larger=many"], "is not a number", "--help"),
        (["--emit-bytecode", "--split-input-file"], "works on text only", ""),
        (["--run-reproducer"], "holds no mlir_reproducer", "--run-reproducer"),
        (["--cse", "--no-implicit-module", "--tile"], "runs on builtin.module", "outside"),
        (["--pass-pipeline=func.func(rolling-update)"], "not on func.func", "outside"),
        (["--affine-loop-unroll"], "unable to schedule pass", "nest it, as in 'func.func(affine-"),
        (["--cse", "--mlir-print-ir-after=csee"], "error: unknown pass 'csee'", "'cse'"),
        (["--color"], "cannot work here", "no colours"),
        (["--irdl-file=nowhere.irdl"], "cannot open input file 'nowhere.irdl'", ""),
    ],
)
def test_what_cannot_be_is_said(tmp_path, capfd, arguments, message, hint):
    (tmp_path / "in.mlir").write_text(ALONE)
    assert opt.main([str(tmp_path / "in.mlir"), *arguments]) in (1, 2)
    printed = capfd.readouterr().err
    assert message in printed
    assert hint in printed
    assert "Traceback" not in printed
