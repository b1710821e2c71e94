# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`inline-maps`: put the body of every map into the nests that read it.

    %x = map  [i, j]  s[i, j] * 0.125              %m = reduce max [i, j]  s[i, j] * 0.125
    %m = reduce max [i, j]  x[i, j]         ->

After it a nest reads function arguments, results of reductions, and nothing that another
map made. A map that something else still needs (a return, an op outside the dialect) stays;
one that nobody needs is erased.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.algebra import terms as T
from neptune_mlir.algebra.terms import Term
from neptune_mlir.transforms.program import Program, erase_dead, functions
from neptune_mlir.transforms.registry import register


def inlined(program: Program, body: Term) -> Term:
    """`body` with every read of a map replaced by that map's body at the read's position."""

    def rule(node: Term) -> Term | None:
        nest = program.nests.get(node.attr) if node.op == "read" else None
        if nest is None or nest.kind != "map":
            return None
        at = {loop: node.args[dim] for dim, loop in enumerate(nest.result_axes)}
        return T.rename_axes(nest.body, at)

    return T.rewrite(body, rule)


@register("inline-maps", "inline elementwise nests into the nests that read them")
def inline_maps(module: Any) -> None:
    for function in functions(module):
        program = Program(function)
        for key, nest in program.nests.items():  # producers come first, so one sweep is enough
            body = inlined(program, nest.body)
            if body is not nest.body:
                program.replace_body(key, body)
        erase_dead(program.block)
