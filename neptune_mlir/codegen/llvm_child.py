# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text to machine code, through llvmlite, in a child process: LLVM aborts on what it cannot
select, and the caller is to get an error message.

The child reads the module on standard input and writes assembly or an object file on standard
output. It is a fork of a process that has imported llvmlite and the text rewriter; as a command it
does the same.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from neptune_mlir import child
from neptune_mlir.errors import ToolError

NAME = "neptune_mlir.codegen.llvm_child"


def generate(
    text: str, triple: str, chip: str, features: str = "", *, form: str, option: str = "",
    unroll: bool = True, timeout: float = 300,
) -> bytes:  # fmt: skip
    """The code of an LLVM IR module, optimised for `chip`.

    Args:
        form: "assembly" (UTF-8 text) or "object".
        option: a command-line option of LLVM.
        unroll: whether loops are unrolled.

    Raises:
        ToolError: LLVM refuses the module or dies on it.
    """
    arguments = [triple, chip, features, form, option, "unroll" if unroll else ""]
    if _here.get():
        return _generate(text, *arguments)
    late = f"LLVM did not finish in {timeout:g} s for {chip}"
    ended = child.forked(NAME, arguments, text.encode(), timeout, late)
    if ended.status:
        reason = ended.said.strip().splitlines()
        status = f"signal {-ended.status}" if ended.signal else "an error"
        family = {"nvptx64": "NVPTX", "amdgcn": "AMDGPU"}[triple.split("-")[0]]
        raise ToolError(
            f"LLVM's {family} code generator stopped with {status} for {chip}: "
            + (reason[-1] if reason else "no message")
        )
    return ended.made


_here: ContextVar[bool] = ContextVar("here", default=False)


@contextlib.contextmanager
def here() -> Iterator[None]:
    """Within, LLVM runs in this process, which may die of it."""
    token = _here.set(True)
    try:
        yield
    finally:
        _here.reset(token)


def start() -> None:
    """Have what `generate` needs imported, while something else is done."""
    child.start(NAME)


def _generate(
    text: str, triple: str, chip: str, features: str, form: str, option: str, unroll: str
) -> bytes:  # fmt: skip
    import llvmlite.binding as llvm

    from neptune_mlir.codegen.llvm_text import downgrade

    _set(option)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=chip, features=features, opt=3
    )
    module = llvm.parse_assembly(downgrade(text))
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # AMD's processors have instructions on pairs of f32 and of 16-bit floats, LLVM finds the pairs
    options.slp_vectorization = triple.startswith("amdgcn")
    options.loop_unrolling = bool(unroll)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    if form == "object":
        return bytes(machine.emit_object(module))
    return str(machine.emit_assembly(module)).encode()


@functools.cache
def _set(option: str) -> None:
    """Give LLVM an option, which it takes once."""
    import llvmlite.binding as llvm

    if option:
        llvm.set_option("neptune", option)


def prepare() -> None:
    """Import what a child needs."""
    with contextlib.suppress(ImportError):  # the child says so
        import llvmlite.binding as llvm

        import neptune_mlir.codegen.llvm_text  # noqa: F401

        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


def main(arguments: Sequence[str]) -> int:
    try:
        sys.stdout.buffer.write(_generate(sys.stdin.buffer.read().decode(), *arguments))
    except RuntimeError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
