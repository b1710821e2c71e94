# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Commands that stand in the pages as indented lines, or in the text with the files that they
read: the parsers know all that they say, and those that need no GPU run. (Blocks in fences run in
test_tutorial.py, those of examples/plugin in test_plugins.py.)"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from neptune_mlir import ops
from neptune_mlir.cli import main, opt
from neptune_mlir.cli.opt_options import make_parser
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.errors import ToolError
from neptune_mlir.transforms import registry
from neptune_mlir.transforms.schedule import library

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*/README.md")),
         ROOT / "README.md", ROOT / "CONTRIBUTING.md"]  # fmt: skip
LINE = re.compile(r"^ {4,}((?:neptune|neptune-opt) .*(?:\n.*)*?(?<!\\))$", re.M)
INLINE = re.compile(r"`((?:neptune|neptune-opt) [^`|]*\.(?:mlir|bundle)\b[^`|]*)`")
WORDS = {"LEVEL": "tile", "FILE": "my.mlir", "N": "40", "S": "1", "OUT": "out"}
OURS = {"whole-powers"}  # passes of examples/plugin


def commands(page):
    """The commands of a page without what explains them: text behind several blanks, or a #."""
    text = page.read_text()
    if page.parent.name != "notebook":  # what was run at some time
        yield from (re.sub(r"\s+", " ", line) for line in INLINE.findall(text))
    for found in LINE.findall(text):
        line = re.sub(r"\\\n\s*", "", found)
        if re.search(r"[;=]|\) \{", line.split(" ")[1]):  # a declaration in C
            continue
        yield re.split(r" {3,}| # | >", line)[0]


def words_of(line):
    """With numbers and names in place of what a reader fills in; what is optional is there."""
    filled = re.sub(rf"\b({'|'.join(WORDS)})\b", lambda found: WORDS[found[0]], line)
    return shlex.split(re.sub(r"[][]", "", filled))


def test_there_are_commands():
    found = {page.name: list(commands(page)) for page in PAGES}
    assert "neptune inspect attention.bundle" in found["runtime.md"]
    assert sum(map(len, found.values())) > 30


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p))],
                         ids=lambda p: f"{p.parent.name}-{p.stem}")  # fmt: skip
def test_parsers_know_what_is_said(page):
    for line in commands(page):
        tool, *arguments = words_of(line)
        if tool == "neptune-opt":
            _, unknown = make_parser().parse_known_args(arguments)
            names = {name.lstrip("-").partition("=")[0] for name in unknown if name[:2] == "--"}
            assert names <= {*registry.names(), *OURS}, line
            continue
        command, *rest = arguments
        parser = main.parser_of(command)
        complete = getattr(main.importlib.import_module(f"neptune_mlir.cli.{command}"),
                           "complete", list)  # fmt: skip
        try:
            _, unknown = parser.parse_known_args(complete(rest))
        except SystemExit:
            pytest.fail(line)
        assert not unknown, line


# They measure on a GPU, or read what that wrote; or they need the package triton.
ELSEWHERE = (
    "neptune bench run", "neptune bench show", "neptune bench --suite sweep --seed",
    "neptune tune run", "neptune tune record", "neptune tune PROGRAM.mlir",
    "neptune tune search PROGRAM.mlir --target sm_80",
    "neptune compile program.mlir --target triton:sm_90a -o",
    "neptune explain IN.mlir --html OUT.html --profile",
)  # fmt: skip
# Minutes as they stand, where what is added does not keep them short; or much as others.
LONG = {
    "neptune run examples/attention.mlir --check": "",
    "neptune compile examples/attention.mlir -o attention.bundle": "",
    "neptune compile program.mlir --target sm_90a --emit tile -o tiles.mlir": "",
    "neptune compile attention.mlir --target sm_80,sm_90a": "",
    "neptune bench --suite sweep --target cpu": "--count 1 --peers none",
    "neptune bench build DIR": "--count 1 --suite sweep",
    "neptune bench build DIR --suite prefill": "--only causal_d64 --dtype f16",
    "neptune tune build": "--only causal_d64 --knob rows=192 --knob stream=64",
    "neptune tune search PROGRAM.mlir": "--extent q.0=1,q.1=2 --lengths 40 --evaluations 2"
    " --rounds 2 --table t.json",
}
ASSEMBLED = re.compile(r"--target sm_\S+(?!.*--emit)|bench build|tune build")


ROWS = """
func.func @evidence(%x: tensor<?x2000xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x2000xf32>
  %e = tensor.empty(%rows) : tensor<?xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %m = linalg.reduce { arith.maximumf } ins(%x : tensor<?x2000xf32>) outs(%f : tensor<?xf32>)
      dimensions = [1]
  %g = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                       affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x, %m : tensor<?x2000xf32>, tensor<?xf32>) outs(%g : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32, %sum: f32):
      %d = arith.subf %a, %b : f32
      %w = math.exp %d : f32
      %next = arith.addf %sum, %w : f32
      linalg.yield %next : f32
  } -> tensor<?xf32>
  return %s : tensor<?xf32>
}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files that commands read, in a folder with one above it, as pages have it."""
    above = tmp_path_factory.mktemp("pages")
    work = above / "work"
    (work / "examples").mkdir(parents=True)
    for folder in (above, work, work / "examples"):
        shutil.copy(ROOT / "examples" / "attention.mlir", folder)
    for name in ("IN.mlir", "mean.mlir"):
        (work / name).write_text(ROWS)
    for name, dtype in (("PROGRAM.mlir", "f32"), ("program.mlir", "f16")):
        (work / name).write_text(ops.attention(head_dim=64, dtype=dtype).to_mlir())
    for name in ("my.mlir", "mine.mlir"):
        (work / name).write_text(library.read("streamed"))
    tiles = ["--target", "sm_90a", "--emit", "tile", "-o", str(work / "tiles.mlir")]
    assert main.main(["compile", str(work / "program.mlir"), *tiles]) == 0
    for name in ("attention", "tempered", "out"):
        bundle = str(work / f"{name}.bundle")
        assert main.main(["compile", str(work / "IN.mlir"), "-o", bundle]) == 0
    return work


def runnable():
    seen = set()
    for page in PAGES:
        lines = commands(page) if page.parent.name != "notebook" else ()
        for line in lines:
            if page.parent.name == "plugin" or line.startswith(ELSEWHERE) or line in seen:
                continue
            seen.add(line)
            limits = next((LONG[start] for start in sorted(LONG, reverse=True)
                           if line.startswith(start)), None)  # fmt: skip
            yield pytest.param(line, limits or "", id=f"{page.stem}: {line}",
                               marks=pytest.mark.nightly if limits is not None else ())  # fmt: skip


@pytest.mark.parametrize(("line", "limits"), list(runnable()))
def test_commands_run(made, tmp_path, monkeypatch, capsys, line, limits):
    if ASSEMBLED.search(line):
        try:
            ptxas.find_ptxas()
        except ToolError:
            pytest.skip("no ptxas here")
    monkeypatch.chdir(shutil.copytree(made.parent, tmp_path / "above") / made.name)
    monkeypatch.setenv("NEPTUNE_TUNING", "none")
    tool, *words = words_of(line)
    words += limits.split()
    entry = {"neptune": main.main, "neptune-opt": opt.main}[tool]
    assert entry(words) == 0, capsys.readouterr().err
