# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What LLVM and ptxas make of a text, and what tests by numbers said of chains and of programs,
kept for a session by the content of the text or the test.

Many tests compile the same program, and half of the time is LLVM's. A code generator gives the same
code for the same text, so each text is given to it once, by whichever process comes first: a worker
of pytest-xdist or the server of the lit tests. Errors are not kept. Where a test has put something
in place of the functions below a code generator, or of the stress test, it is called again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neptune_mlir.algebra.numerics import alike
from neptune_mlir.algebra.numerics.remembered import store

ENVIRONMENT = "NEPTUNE_TEST_CODE"  # the folder


def install() -> None:
    """Keep what the code generators make in the folder that the environment names."""
    if not os.environ.get(ENVIRONMENT) or importlib.util.find_spec("llvmlite") is None:
        return  # (a GPU's machine runs bundles, and compiles none)
    import llvmlite.binding as llvm

    from neptune_mlir.codegen import llvm_child
    from neptune_mlir.codegen.cpu import native
    from neptune_mlir.codegen.nvidia import ptxas
    from neptune_mlir.targets.cpu import EFFORT

    folder = Path(os.environ[ENVIRONMENT])
    run, parse = subprocess.run, llvm.parse_assembly

    def untouched() -> bool:
        return subprocess.run is run and llvm.parse_assembly is parse

    native.object_code = _keeping(folder, native.object_code, untouched, lambda: EFFORT.get())
    llvm_child.generate = _keeping(folder, llvm_child.generate, untouched)
    # which assembler it is counts, and whether there is one
    ptxas.assemble = _keeping(folder, ptxas.assemble, untouched, lambda: ptxas.find_ptxas())
    store.set(_Verdicts(folder, alike.stress))


class _Verdicts:
    """A store of `remembered` for one session and one stress test. (That of the product,
    `driver/verdicts.py`, is asked by the tests of it alone.)"""

    def __init__(self, folder: Path, stress: Callable[..., Any]) -> None:
        self._folder, self._stress = folder, stress

    def load(self, content: str) -> Any:
        path = self._folder / f"{content}.verdict"
        if alike.stress is not self._stress or not path.exists():
            return None
        return pickle.loads(path.read_bytes())

    def keep(self, content: str, found: Any) -> None:
        if alike.stress is self._stress:
            _write(self._folder / f"{content}.verdict", found)


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
        _write(path, found)
        return found

    return made


def _write(path: Path, found: Any) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        pickle.dump(found, file)
    os.replace(temporary, path)  # whoever reads now has all of one of the two
