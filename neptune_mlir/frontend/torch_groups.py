# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products in groups (mixtures of experts), by masks: torch's own look at the offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def functions(torch: Any) -> dict[Any, Callable[..., Any]]:
    """What a program calls ours for: torch's own takes bfloat16 alone while it is exported."""
    named = (getattr(torch.nn.functional, "grouped_mm", None), getattr(torch, "_grouped_mm", None))
    return {function: product for function in named if function is not None}


def decompositions(torch: Any) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """The operations that graphs have: torch's, and that of a library where it is imported."""
    for library, name in (("aten", "_grouped_mm"), ("transformers", "grouped_mm_fallback")):
        found = getattr(getattr(torch.ops, library), name, None)
        if found is not None:
            yield found.default, lambda *given, **options: product(torch, *given, **options)


def product(
    torch: Any, x: Any, y: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """`x @ y`, where an operand without an axis of groups has their rows one behind the other.

    Args:
        offs: where each group ends: a group of rows of x, of columns of y, or of what is summed.
    """
    if offs is None:
        made = x @ y
    elif x.dim() == 2 and y.dim() == 3:
        made = _of_rows(torch, x, y, offs)
    elif x.dim() == 3 and y.dim() == 2:
        made = _of_rows(torch, y.mT, x.mT, offs).mT
    elif x.dim() == 2 and y.dim() == 2:
        mine = _members(torch, x.shape[1], offs)
        # what is in no group may be NaN, and 0 times that is NaN
        made = torch.where(mine.unsqueeze(1), x, 0.0) @ torch.where(mine.unsqueeze(2), y, 0.0)
    else:
        return NotImplemented
    if bias is not None:
        made = made + bias
    return made if out_dtype is None else made.to(out_dtype)


def _of_rows(torch: Any, x: Any, y: Any, offs: Any) -> Any:
    """Few rows look up a matrix each, which is stored for them; many multiply all of them, and one
    product stays. Rows beyond the last group give 0, as torch has not said what they give."""
    rows, groups = x.shape[0], y.shape[0]
    if isinstance(rows, int) and rows <= groups:
        group = _group(torch, rows, offs)
        made = (x.unsqueeze(1) @ y[group.clamp(max=groups - 1)]).squeeze(1)
        return torch.where((group < groups).unsqueeze(1), made, torch.zeros_like(made))
    made, mine = x.unsqueeze(0) @ y, _members(torch, rows, offs).unsqueeze(2)
    return torch.where(mine, made, torch.zeros_like(made)).sum(0)


def _group(torch: Any, rows: Any, offs: Any) -> Any:
    at = torch.arange(rows, device=offs.device)
    return (at.unsqueeze(1) >= offs).to(torch.int64).sum(1)


def _members(torch: Any, rows: Any, offs: Any) -> Any:
    """[groups, rows]: whether a row is one of a group."""
    groups = torch.arange(offs.shape[0], device=offs.device).unsqueeze(1)
    return _group(torch, rows, offs) == groups
