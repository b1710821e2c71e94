# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How results of decompositions lie in memory: as those of torch's own kernels. A program may view
them, and torch checks the view when it writes the program out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def functions(torch: Any, table: dict[Any, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Decompositions of torch's own whose results lie otherwise, by the names of operations."""
    return {
        # as what is put in
        "select_scatter.default": table[torch.ops.aten.select_scatter.default],
        "_scaled_dot_product_flash_attention_for_cpu.default": functools.partial(_attention, torch),
    }


def laid_out(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition whose results lie in memory as torch's own: row by row, where its first
    tensor does. A program may view these, and torch checks that when it writes the program out."""

    def known(x: Any) -> bool:
        return isinstance(x, torch.Tensor) and all(isinstance(n, int) for n in x.shape)

    @functools.wraps(function)
    def in_rows(*given: Any, **options: Any) -> Any:
        made = function(*given, **options)
        first = next((x for x in given if isinstance(x, torch.Tensor)), None)
        if not (known(first) and first.is_contiguous()):
            return made
        results = made if isinstance(made, tuple) else (made,)
        plain = tuple(x.contiguous() if known(x) else x for x in results)
        return plain if isinstance(made, tuple) else plain[0]

    return in_rows


def _attention(torch: Any, q: Any, *given: Any, **options: Any) -> Any:
    """Attention whose results lie in memory as torch's kernel has them, like the queries. torch's
    decomposition has the batch between positions and heads, where no view has both as rows."""
    name = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    made, sums = torch._decomp.decomposition_table[name](q, *given, **options)
    order = sorted(range(q.dim()), key=q.stride, reverse=True)
    plain = made.permute(order).contiguous()
    return plain.permute([order.index(k) for k in range(q.dim())]), sums
