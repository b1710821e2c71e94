# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floats of 8 bits in programs of torch: what is too large for them, and those that are none here.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.errors import InputError

_LARGEST = 448.0  # number of float8_e4m3fn


def saturate(torch: Any, graph: Any, line_of_node: Any) -> None:
    """What is too large for float8_e4m3fn becomes its largest number where torch has it so (from
    2.13 on on CPUs; NaN before), as `arith.truncf` makes NaN of it.

    Raises:
        InputError: another float of 8 bits.
    """
    small = {getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}
    kind = torch.float8_e4m3fn
    cuts = not torch.tensor([1e9] * 2).to(kind).float().isnan().any()
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dtype not in small:
            continue
        if value.dtype != kind:
            raise InputError(
                f"'{node.target}' makes numbers of {value.dtype}, which nothing here holds",
                loc=line_of_node(node), hint="float8_e4m3fn and 16 bits are known",
            )  # fmt: skip
        source = _wide_source(torch, node)
        if cuts and source is not None:
            with graph.inserting_before(node):
                cut = source
                for test, end in ((torch.ops.aten.lt, -_LARGEST), (torch.ops.aten.gt, _LARGEST)):
                    cut = _bounded(torch, graph, cut, test.Tensor, end)
            node.replace_input_with(source, cut)


def _bounded(torch: Any, graph: Any, x: Any, test: Any, end: float) -> Any:
    """Numbers up to an end of their range; NaN stays."""
    aten, value = torch.ops.aten, x.meta["val"]

    def added(target: Any, *arguments: Any, **options: Any) -> Any:
        node = graph.call_function(target, arguments, options)
        given = torch.fx.node.map_arg(arguments, lambda n: n.meta["val"])
        with value.fake_mode:
            node.meta = {"val": target(*given, **options),
                         "stack_trace": x.meta.get("stack_trace")}  # fmt: skip
        return node

    options = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    number = added(aten.full.default, [], end, **options)
    return added(aten.where.self, added(test, x, number), number, x)


def _wide_source(torch: Any, node: Any) -> Any:
    """The wider floats that a node converts, None where it converts none."""
    names = {torch.ops.prims.convert_element_type.default: 0, torch.ops.aten._to_copy.default: 0,
             torch.ops.aten.copy.default: 1}  # fmt: skip
    if node.target not in names:
        return None
    source = node.args[names[node.target]]
    dtype = source.meta["val"].dtype
    return source if dtype.is_floating_point and dtype != node.meta["val"].dtype else None
