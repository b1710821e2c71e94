# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to PTX, through llvmlite, in a child process: LLVM aborts on what it cannot select.

The child reads the module on standard input and writes PTX on standard output. It imports
llvmlite and the text rewriter only, so it starts in a fraction of a second.
"""

from __future__ import annotations

import re
import subprocess
import sys

from neptune_mlir.errors import ToolError
from neptune_mlir.targets.nvidia import NvidiaTarget

_INTRINSIC = re.compile(r"\.extern\s+\.func[^;]*?\b(llvm\.[\w.]+)")


def ptx(text: str, target: NvidiaTarget, *, timeout: float = 300) -> str:
    """The PTX of an LLVM IR module, optimised for `target`.

    Raises:
        ToolError: LLVM refuses the module, dies on it, or leaves an intrinsic unselected.
    """
    command = [sys.executable, "-m", "neptune_mlir.codegen.nvptx", target.name, target.ptx]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"LLVM did not finish in {timeout:g} s for {target.name}") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()
        status = f"signal {-done.returncode}" if done.returncode < 0 else "an error"
        raise ToolError(
            f"LLVM's NVPTX code generator stopped with {status} for {target.name}: "
            + (reason[-1] if reason else "no message")
        )
    missing = sorted(set(_INTRINSIC.findall(done.stdout)))
    if missing:
        raise ToolError(
            f"LLVM's NVPTX code generator does not know {', '.join(missing)}",
            hint="install a newer llvmlite",
        )
    return done.stdout


def _generate(text: str, chip: str, features: str) -> str:
    import llvmlite.binding as llvm

    from neptune_mlir.codegen.llvm_text import downgrade

    # shared-memory addresses as 32-bit numbers: half the registers for address arithmetic
    llvm.set_option("neptune", "--nvptx-short-ptr")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=chip, features=features, opt=3
    )
    module = llvm.parse_assembly(downgrade(text))
    module.triple = "nvptx64-nvidia-cuda"
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.slp_vectorization = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return str(machine.emit_assembly(module))


def main() -> int:
    _, chip, features = sys.argv
    try:
        sys.stdout.write(_generate(sys.stdin.read(), chip, features))
    except RuntimeError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
