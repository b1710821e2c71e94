#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write the reference in docs/ from the docstrings, and the dialect as IRDL from its classes;
`--check` only compares."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from gen_reference import MADE, PAGES, block  # noqa: E402

from neptune_mlir.dialects import (  # noqa: E402
    aref,
    attributes,
    gpu_attributes,
    matmul,
    neptune,
    paged,
    warps,
)
from neptune_mlir.dialects.attribute_types import Attribute  # noqa: E402
from neptune_mlir.dialects.context import make_context  # noqa: E402
from neptune_mlir.ir.bindings import ext, ir  # noqa: E402
from neptune_mlir.transforms import registry  # noqa: E402

IRDL_HEAD = """\
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The `neptune` dialect as IRDL; made by tools/gen_docs.py from the classes in this folder.
// What IRDL cannot say stands in attributes: `cpp.traits` and the first line of the description,
// `doc.summary`. cpp/irdl_to_ods.py makes C++ of this file.
"""
# traits as the C++ library calls them
TRAITS = {ir.IsTerminatorTrait: "Terminator", ir.NoTerminatorTrait: "NoTerminator",
          ext.Pure: "Pure"}  # fmt: skip


def passes() -> str:
    parts = ["# Passes", MADE, "`neptune-opt --NAME[=option=value,...]` runs one."]
    for name in registry.built_in():
        found = registry.lookup(name)
        text = inspect.getdoc(sys.modules[found.run.__module__]) or ""
        options = inspect.getdoc(found.run)
        parts += [f"## `{name}`", found.summary[0].upper() + found.summary[1:] + ".", block(text)]
        if found.options:
            kinds = ", ".join(f"`{k.replace('_', '-')}` ({v.__name__})"
                              for k, v in found.options.items())  # fmt: skip
            parts.append(f"Options: {kinds}.")
        if options:
            parts.append(block(options))
    return "\n\n".join(parts) + "\n"


def dialect() -> str:
    parts = ["# The `neptune` dialect", MADE]
    modules = (neptune, paged, aref, matmul, warps)
    parts += [block(inspect.getdoc(module) or "") for module in modules]
    for op in neptune.Neptune.operations:
        parts += [f"## `{op.OPERATION_NAME}`", block(inspect.getdoc(op) or "")]
    parts += ["## Attributes of passes", block(inspect.getdoc(attributes) or ""), _attributes()]
    return "\n\n".join(parts) + "\n"


def irdl() -> str:
    classes = {found.__name__: found for found in neptune.Neptune.types}
    classes = {c.type_name.split(".")[1]: c for c in classes.values()}
    classes |= {op.OPERATION_NAME.split(".")[1]: op for op in neptune.Neptune.operations}
    with make_context():
        module = neptune.Neptune._emit_module()
        (dialect,) = module.body.operations
        for definition in dialect.regions[0].blocks[0].operations:
            found = classes[definition.attributes["sym_name"].value]
            summary = " ".join((inspect.getdoc(found) or "").split("\n\n")[0].split())
            definition.attributes["doc.summary"] = ir.StringAttr.get(summary)
            traits = [ir.StringAttr.get(TRAITS[t]) for t in getattr(found, "_traits", ())]
            if traits:
                definition.attributes["cpp.traits"] = ir.ArrayAttr.get(traits)
        lines = str(dialect).splitlines()
    return IRDL_HEAD + "\n".join(line.rstrip() for line in lines) + "\n"


def _attributes() -> str:
    rows = ["| attribute | type | on | meaning | written by | read by |", "|" + "---|" * 6]
    for found in (*vars(attributes).values(), *vars(gpu_attributes).values()):
        if isinstance(found, Attribute):
            modules = (", ".join(f"`{m}`" for m in part) for part in (found.writers, found.readers))
            cells = [f"`{found}`", found.kind.text, found.holders, found.meaning, *modules]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> int:
    stale = []
    made = {"docs/passes.md": passes, "docs/dialect.md": dialect,
            **{f"docs/{name}": write for name, write in PAGES.items()},
            "neptune_mlir/dialects/neptune.irdl": irdl}  # fmt: skip
    for name, write in made.items():
        path, text = ROOT / name, write()
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print(f"out of date: {', '.join(stale)}; run tools/gen_docs.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
