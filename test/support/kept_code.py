# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What LLVM and ptxas make of a text, kept for a session by the content of the text.

Many tests compile the same program, and half of the time is LLVM's. A code generator gives the same
code for the same text, so each text is given to it once, by whichever process comes first: a worker
of pytest-xdist or the server of the lit tests. Errors are not kept. Where a test has put something
in place of the functions below a code generator, it is called again.

The tests of a session also fuse the same programs again, for other targets, shapes and tiles.
`keep_fused` keeps what a schedule's first part makes of a module, for the workers alone.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest import MonkeyPatch

ENVIRONMENT = "NEPTUNE_TEST_CODE"  # the folder

_LIBRARY = "neptune_mlir.transforms.schedule.library"  # its scripts are in the key
_OF_FUSION = tuple(
    f"neptune_mlir.{name}" for name in ("algebra", "analysis", "dialects", "ir", "transforms")
)
_patched: set[int] = set()  # the live MonkeyPatches that put something into what fuses


def install() -> None:
    """Keep what the code generators make in the folder that the environment names."""
    if not os.environ.get(ENVIRONMENT) or importlib.util.find_spec("llvmlite") is None:
        return  # (a GPU's machine runs bundles, and compiles none)
    import llvmlite.binding as llvm

    from neptune_mlir.codegen import llvm_child
    from neptune_mlir.codegen.cpu import native
    from neptune_mlir.codegen.nvidia import ptxas

    folder = Path(os.environ[ENVIRONMENT])
    run, parse = subprocess.run, llvm.parse_assembly

    def untouched() -> bool:
        return subprocess.run is run and llvm.parse_assembly is parse

    native.object_code = _keeping(folder, native.object_code, untouched)
    llvm_child.generate = _keeping(folder, llvm_child.generate, untouched)
    # which assembler it is counts, and whether there is one
    ptxas.assemble = _keeping(folder, ptxas.assemble, untouched, lambda: ptxas.find_ptxas())


def keep_fused() -> None:
    """Keep what `Lowering.fuse` makes, by the text of the module and of the schedule.

    What a program is fused into is cloned before anything else happens to it, so a module that was
    read gives the same code as one that was made. Nothing is kept while a test counts calls, or has
    something of its own in place of a part of the compiler that fuses.
    """
    if not os.environ.get(ENVIRONMENT):
        return
    from neptune_mlir.algebra import combiners
    from neptune_mlir.ir.bindings import ir
    from neptune_mlir.pipelines.lowering import Lowering
    from neptune_mlir.transforms.patterns import language
    from neptune_mlir.transforms.schedule import library

    _note_patches()
    original = Lowering.fuse

    def fuse(self: Any, schedule: str) -> None:
        folder = os.environ.get(ENVIRONMENT)
        if not folder or _patched or sys.getprofile() or os.environ.get("NEPTUNE_DUMP"):
            return original(self, schedule)
        said = [self.facts.get(name, []) for name in ("remarks", "missed")]
        text = self.module.operation.get_asm(enable_debug_info=True)
        asked = (
            text, schedule, library.read(schedule), said, self.done,
            combiners.names(), language.names(),
        )  # fmt: skip
        name = f"{hashlib.sha256(repr(asked).encode()).hexdigest()}.fused"
        path = Path(folder) / name
        if path.exists():
            code, facts, self.done = pickle.loads(path.read_bytes())
            self.facts.update(facts)
            with self.module.context:
                self.module = ir.Module.parse(code)
            return None
        original(self, schedule)
        code = io.BytesIO()
        self.module.operation.write_bytecode(code)
        facts = {key: self.facts[key] for key in ("schedule", "remarks", "missed")}
        _put(path, (code.getvalue(), facts, self.done))
        return None

    Lowering.fuse = fuse  # type: ignore[method-assign]


def _note_patches() -> None:
    """Have pytest's MonkeyPatch say whether one is live in what fuses."""
    setattr_, setitem, undo = MonkeyPatch.setattr, MonkeyPatch.setitem, MonkeyPatch.undo

    def set_attribute(self: Any, target: Any, *rest: Any, **named: Any) -> None:
        if isinstance(target, str):
            owner = target.rpartition(".")[0]
        else:
            owner = getattr(target, "__module__", None) or getattr(target, "__name__", "")
        if owner.startswith(_OF_FUSION) and owner != _LIBRARY:
            _patched.add(id(self))
        setattr_(self, target, *rest, **named)

    def set_item(self: Any, *arguments: Any) -> None:  # a table says not whose it is
        if arguments[0] is not os.environ:
            _patched.add(id(self))
        setitem(self, *arguments)

    def end(self: Any) -> None:
        undo(self)
        _patched.discard(id(self))

    MonkeyPatch.setattr = set_attribute  # type: ignore[method-assign,assignment]
    MonkeyPatch.setitem = set_item  # type: ignore[method-assign,assignment]
    MonkeyPatch.undo = end  # type: ignore[method-assign]


def _put(path: Path, found: Any) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(found, file)
    os.replace(temporary, path)


def _keeping(
    folder: Path, make: Callable[..., Any], untouched: Callable[[], bool],
    tool: Callable[[], Any] = lambda: "",
) -> Callable[..., Any]:  # fmt: skip
    def made(*arguments: Any, **named: Any) -> Any:
        if not untouched():
            return make(*arguments, **named)
        asked = make.__module__, str(tool()), arguments, sorted(named.items())
        path = folder / hashlib.sha256(repr(asked).encode()).hexdigest()
        if path.exists():
            return pickle.loads(path.read_bytes())
        found = make(*arguments, **named)
        _put(path, found)
        return found

    return made
