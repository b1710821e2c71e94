#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write neptune_mlir/pipelines/upstream_passes.json: upstream's passes and their options.

The bindings have no list of registered passes, but say of a name whether it is one, and print a
pass with the defaults of its options. So every string in their library that looks like a name is
asked for. (A linker may store a name as the end of a longer string: ends count as well.)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from neptune_mlir.ir.bindings import PACKAGE, ir, module, passmanager  # noqa: E402

TABLE = ROOT / "neptune_mlir" / "pipelines" / "upstream_passes.json"


def candidates() -> set[str]:
    """Strings of the library, and their ends, that could name a pass."""
    folder = Path(module("_mlir_libs").__file__).parent
    found: set[str] = set()
    for library in folder.glob("*CAPI*.so"):
        for word in set(re.findall(rb"[a-z0-9-]{3,60}(?=\0)", library.read_bytes())):
            found |= {word[k:].decode() for k in range(len(word) - 2)}
    return {name for name in found if re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)}


def options_of(name: str) -> str | None:
    """The options of a pass with their defaults; None where no pass has that name."""
    try:
        text = str(passmanager.PassManager.parse(f"any({name})"))
    except ValueError:
        return None
    single = re.fullmatch(rf"any\({name}\{{(.*)\}}\)", text, re.DOTALL)
    return " ".join(single[1].split()) if single else ""


def main() -> int:
    with ir.Context():
        found = {name: options_of(name) for name in sorted(candidates())}
    table = {name: options for name, options in found.items() if options is not None}
    TABLE.write_text(json.dumps(table, indent=0, sort_keys=True) + "\n")
    print(f"{len(table)} passes of {PACKAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
