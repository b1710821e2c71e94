#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stock mlir-opt with the plug-in: parses, verifies, prints and rewrites the dialect's programs,
as text and as bytecode, and refuses wrong ones.

    plugin_test.py MLIR-OPT PLUGIN [FUSED.mlir ...]

The programs are those of test/lit/dialects, attention as `neptune compile --emit fused` prints it
(cpp/test/attention_fused.mlir), and any that are given.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIT = HERE.parents[1] / "test" / "lit" / "dialects"
PROGRAMS = [*(LIT / f"{name}.mlir" for name in ("fused", "arefs", "matmuls", "warps")),
            HERE / "attention_fused.mlir"]  # fmt: skip
REWRITES = ("--canonicalize", "--cse")


def main(mlir_opt: str, plugin: str, *given: str) -> int:
    def opt(*arguments: str | Path, text: bytes | None = None) -> bytes:
        command = [mlir_opt, f"--load-dialect-plugin={plugin}", *map(str, arguments)]
        done = subprocess.run(command, input=text, capture_output=True)
        if done.returncode or b"Request ignored" in done.stderr:
            print(" ".join(command), done.stderr.decode(), sep="\n", file=sys.stderr)
            raise SystemExit(1)
        return done.stdout

    for program in [*PROGRAMS, *map(Path, given)]:
        printed = opt(program, "--split-input-file")
        count = printed.count(b'"neptune.')
        assert count, f"{program}: no op of the dialect came out"
        assert opt("-", "--split-input-file", text=printed) == printed, f"{program}: other text"
        if b"// -----" not in printed:
            opt(program, "--verify-roundtrip")
            bytecode = opt("-", "--emit-bytecode", text=printed)
            assert opt("-", text=bytecode) == printed, f"{program}: other text from bytecode"
        opt(program, "--split-input-file", *REWRITES)
        print(f"{program.name}: {count} ops")
    # what nobody uses goes: the ops are pure as far as mlir-opt can see
    unused = b"""func.func @f(%x: tensor<4xf32>) {
      %m = "neptune.map"() ({
        %a = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<4xf32>) -> f32
        "neptune.yield"(%a) : (f32) -> ()
      }) {domain = array<i64: 4>, result_axes = array<i64: 0>} : () -> tensor<4xf32>
      return
    }"""
    assert b"neptune" not in opt("-", "--cse", text=unused)
    opt(HERE / "invalid.mlir", "--split-input-file", "--verify-diagnostics")
    print("invalid.mlir: refused as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
