# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judges what an older tree makes of a program, by the rule of `--check=hostile` of this one.

    git worktree add ../old 92b0b4e
    python tools/judge_old_tree.py ../old cpu test/inputs/hostile/*.mlir

The older compiler runs in a process of its own, which gets arguments through a pipe. For a GPU it
lowers programs to tiles and runs them on its own simulator. A kind of inputs (masks, means,
magnitudes) is given up at its first failure.
"""

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
FEWER = 20  # inputs on a simulator


def serve(tree: str, file: str, target: str) -> None:
    """In the older tree: say what went wrong, or nothing, then run what is asked for."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr
    sys.path[:0] = [f"{tree}/test/unit/nvvm", f"{tree}/test/unit/pipelines", f"{tree}/test"]
    os.environ["NEPTUNE_CACHE_DIR"] = tempfile.mkdtemp()

    def said(value: object) -> None:
        pickle.dump(value, out)
        out.flush()

    try:
        run = compiled(Path(file).read_text(), target)
        said("")
    except BaseException as error:
        said(f"{type(error).__name__}: {error}")
        return
    while True:
        try:
            arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        found = run(*arguments)
        said(tuple(found) if isinstance(found, list) else found)


def compiled(text: str, target: str):
    """By names that modules had at some time."""
    if target == "cpu":
        return importlib.import_module("neptune_mlir").compile(text)
    compiler = first("neptune_mlir.compiler", "neptune_mlir.driver.compiler")
    made = compiler.lower_text(text, "program", target, None, "tile")
    module = made[0] if isinstance(made, tuple) else made
    return first("run_kernels", "support.chips.run_kernels").Simulated(module, target=target)


def first(*names: str):
    """The first module of some that there is."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(names[-1])


def judged(tree: str, target: str, file: str) -> str:
    """What this tree says of it."""
    sys.path[:0] = [str(TREE), str(TREE / "test")]
    from neptune_mlir.dialects.context import parse
    from neptune_mlir.driver.compiler import compile_text, compile_unfused
    from neptune_mlir.driver.kernel import Source
    from neptune_mlir.driver.three_ways import three_ways
    from support.hostile_runs import cases_of, failures

    command = [sys.executable, __file__, "--serve", tree, file, target]
    environment = {**os.environ, "PYTHONPATH": tree}
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
        command, env=environment, cwd=tempfile.gettempdir(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=errors,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        wrong = pickle.load(process.stdout)
        if wrong:
            return f"refused: {wrong}"
        asked, given = process.stdin, process.stdout

        def run(*arguments):
            pickle.dump(arguments, asked)
            asked.flush()
            return pickle.load(given)

        text = Path(file).read_text()
        plan = compile_text(text, "program", "cpu", None, None).plan
        unfused = compile_unfused(text, "program", None, vectorize=False)
        programs, missing = three_ways(Source(text, "program"), None, run, unfused, plan)
        assert not missing, missing
        module = parse(text)
        function = next(o for o in module.body.operations if o.operation.name == "func.func")
        cases = cases_of(programs, [tuple(t.shape) for t in function.type.inputs])
        if target != "cpu":
            cases = cases[:: max(1, len(cases) // FEWER)]
        bad: dict[str, str] = {}
        for case in cases:
            if case.kind not in bad and (found := failures(programs, [case], 1)):
                bad[case.kind] = str(found[0])
        asked.close()
        kinds = {case.kind for case in cases}
        return "; ".join([f"wrong on {len(bad)} of {len(kinds)} kinds of inputs", *bad.values()])


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
    else:
        old, chip, *files = sys.argv[1:]
        for name in files:
            print(f"{name}: {judged(str(Path(old).resolve()), chip, str(Path(name).resolve()))}",
                  flush=True)  # fmt: skip
