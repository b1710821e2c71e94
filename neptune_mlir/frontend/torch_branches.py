# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`torch.cond`: both branches are computed, and a result is chosen. Branches of an exported program
write to nothing, so nobody sees the other one; a kernel computes the same for all numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any


def compute_both(torch: Any, exported: Any) -> None:
    """Let a program, and its loops, have no branches on tensors."""
    module = exported.graph_module
    if _in_parts(torch, module):
        module.graph.eliminate_dead_code()
        module.recompile()


def _in_parts(torch: Any, module: Any) -> bool:
    """Inner graphs first. Whether there was a branch."""
    parts = [p for p in module.children() if isinstance(p, torch.fx.GraphModule)]
    found = any([_in_parts(torch, part) for part in parts])
    for node in list(module.graph.nodes):
        if node.target is torch.ops.higher_order.cond and isinstance(node.args[0], torch.fx.Node):
            if isinstance(node.args[0].meta["val"], torch.Tensor):
                _choose(torch, module, node)
                found = True
    return found


def _choose(torch: Any, module: Any, node: Any) -> None:
    test, *branches, given = node.args
    graph, aten = module.graph, torch.ops.aten
    with graph.inserting_before(node):
        if test.meta["val"].dim():
            reshaped = graph.call_function(aten.reshape.default, (test, []))
            reshaped.meta = {"val": test.meta["val"].reshape([])}
            test = reshaped
        yes, no = (_written_out(torch, module, b, given) for b in branches)
        chosen = []
        for a, b in zip(yes, no, strict=True):
            if a is not b and isinstance(a, torch.fx.Node):
                made = graph.call_function(aten.where.self, (test, a, b))
                made.meta = {"val": a.meta["val"], "stack_trace": node.meta.get("stack_trace")}
                a = made
            chosen.append(a)
    for user in list(node.users):
        if user.target is operator.getitem:
            user.replace_all_uses_with(chosen[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def _written_out(torch: Any, module: Any, branch: Any, given: Sequence[Any]) -> list[Any]:
    """The results of a branch, whose operations are now in the graph that chose it."""
    part, graph = getattr(module, branch.target), module.graph
    inner = list(part.graph.nodes)
    places = [n for n in inner if n.op == "placeholder"]
    table: dict[Any, Any] = dict(zip(places, given, strict=True))
    for node in inner:
        if node.op == "get_attr":
            held = getattr(part, node.target)
            if isinstance(held, torch.Tensor):  # a number that the program writes
                table[node] = _filled(torch, graph, held)
                continue
            name = f"{branch.target}_{node.target}".replace(".", "_")  # a loop's graph
            setattr(module, name, held)
            table[node] = graph.get_attr(name)
        elif node.op == "call_function":
            table[node] = graph.node_copy(node, table.__getitem__)
    results = part.graph.output_node().args[0]
    listed = results if isinstance(results, (tuple, list)) else [results]
    return [table.get(r, r) for r in listed]


def _filled(torch: Any, graph: Any, held: Any) -> Any:
    if held.numel() != 1:
        raise NotImplementedError("a branch of 'torch.cond' that makes a tensor of several numbers")
    made = graph.call_function(
        torch.ops.aten.full.default, (list(held.shape), held.item()), {"dtype": held.dtype}
    )
    made.meta = {"val": held}
    return made
