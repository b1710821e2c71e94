# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inverses, systems, determinants and Cholesky factors of torch, as scans over columns: torch calls
LAPACK. A matrix that has none gives infinities or NaN where torch raises an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from neptune_mlir.frontend.torch_special import solved_by_blocks

MOST = 256  # columns: as many steps as GPUs write out


def functions(torch: Any) -> dict[Any, Callable[..., Any]]:
    """What a program calls ours for."""
    linalg, tensor = torch.linalg, torch.Tensor
    named: tuple[tuple[Callable[..., Any], Sequence[Any]], ...] = (
        (_inverse, (linalg.inv, torch.inverse, tensor.inverse)),
        (_solution, (linalg.solve,)),
        (_determinant, (linalg.det, torch.det, tensor.det)),
        (_sign_and_logarithm, (linalg.slogdet, torch.slogdet, tensor.slogdet)),
        (_logarithm, (torch.logdet, tensor.logdet)),
        (_factor, (linalg.cholesky, torch.cholesky, tensor.cholesky)),
        (_solution_by_factor, (torch.cholesky_solve, tensor.cholesky_solve)),
        (_inverse_by_factor, (torch.cholesky_inverse, tensor.cholesky_inverse)),
    )
    return {function: ours for ours, several in named for function in several}


def _is_taken(a: Any) -> bool:
    n = a.shape[-1]
    return isinstance(n, int) and 0 < n <= MOST and a.shape[-2] == n and a.is_floating_point()


def _scan(step: Callable[..., Any], first: list[Any], count: int, device: Any, torch: Any) -> Any:
    scan = importlib.import_module("torch._higher_order_ops.scan").scan_op
    return scan(step, first, [torch.arange(count, device=device)], ())


def _eliminated(torch: Any, a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """The inverse of a times b; a's determinant, its sign, and its size as a logarithm. By Gauss
    and Jordan, with the largest element of a column as its pivot."""
    n = a.shape[-1]
    both = a if b is None else torch.cat([a, b.expand(*a.shape[:-2], *b.shape[-2:])], -1)
    sign = torch.ones_like(a[..., 0, 0])

    def step(matrix: Any, whole: Any, sign: Any, size: Any, k: Any) -> list[Any]:
        rows = torch.arange(n, device=matrix.device)
        columns = torch.arange(matrix.shape[-1], device=matrix.device)
        column = torch.where(columns == k, matrix, 0.0).sum(-1)
        place = torch.where(rows >= k, column.abs(), -1.0).argmax(-1, keepdim=True)
        chosen, here = rows == place, rows == k
        upper = torch.where(chosen.unsqueeze(-1), matrix, 0.0).sum(-2)
        lower = torch.where(here.unsqueeze(-1), matrix, 0.0).sum(-2, keepdim=True)
        pivot = torch.where(chosen, column, 0.0).sum(-1)
        other = torch.where(here, column, 0.0).sum(-1, keepdim=True)
        column = torch.where(chosen, other, column)  # (that of the pivot's own row is not read)
        matrix = torch.where(chosen.unsqueeze(-1), lower, matrix)
        upper = (upper / pivot.unsqueeze(-1)).unsqueeze(-2)
        rest = matrix - column.unsqueeze(-1) * upper
        matrix = torch.where(here.unsqueeze(-1), upper, rest)
        flips = (place.squeeze(-1) != k) != (pivot < 0)
        sign = torch.where(pivot == 0, 0.0, torch.where(flips, -sign, sign))
        return [matrix, whole * pivot.abs(), sign, size + pivot.abs().log(), k.clone()]

    first = [both + 0.0, sign.clone(), sign, torch.zeros_like(sign)]
    made, whole, sign, size, _ = _scan(step, first, n, a.device, torch)
    return made[..., n:], torch.where(sign == 0, 0.0, whole * sign), sign, size


def _inverse(torch: Any, a: Any) -> Any:
    if not _is_taken(a):
        return NotImplemented
    return _eliminated(torch, a, torch.eye(a.shape[-1], dtype=a.dtype, device=a.device))[0]


def _solution(torch: Any, a: Any, b: Any, *, left: bool = True) -> Any:
    if not _is_taken(a):
        return NotImplemented
    if not left:
        made = _solution(torch, a.mT, b.mT)
        return made.mT
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    b = b.unsqueeze(-1) if vector else b
    outer = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (t.expand(*outer, *t.shape[-2:]) for t in (a, b))
    made = _eliminated(torch, a, b)[0]
    return made.squeeze(-1) if vector else made


def _determinant(torch: Any, a: Any) -> Any:
    if not _is_taken(a):
        return NotImplemented
    return _eliminated(torch, a, None)[1]


def _sign_and_logarithm(torch: Any, a: Any) -> Any:
    if not _is_taken(a):
        return NotImplemented
    *_, sign, size = _eliminated(torch, a, None)
    return torch.return_types.linalg_slogdet((sign, torch.where(sign == 0, -torch.inf, size)))


def _logarithm(torch: Any, a: Any) -> Any:
    found = _sign_and_logarithm(torch, a)
    if found is NotImplemented:
        return found
    return torch.where(found[0] < 0, torch.nan, found[1])


def _factor(torch: Any, a: Any, upper: bool = False) -> Any:
    if not _is_taken(a):
        return NotImplemented
    n = a.shape[-1]

    def step(matrix: Any, made: Any, k: Any) -> list[Any]:
        at = torch.arange(n, device=matrix.device)
        column = torch.where(at == k, matrix, 0.0).sum(-1)
        pivot = torch.where(at == k, column, 0.0).sum(-1, keepdim=True)
        column = torch.where(at >= k, column * pivot.rsqrt(), 0.0).unsqueeze(-1)
        return [matrix - column * column.mT, torch.where(at == k, column, made), k.clone()]

    lower = a.mT if upper else a
    made = _scan(step, [lower + 0.0, torch.zeros_like(a)], n, a.device, torch)[1]
    return made.mT if upper else made


def _solution_by_factor(torch: Any, b: Any, factor: Any, upper: bool = False) -> Any:
    if not _is_taken(factor):
        return NotImplemented
    first, second = (factor.mT, factor) if upper else (factor, factor.mT)
    half = solved_by_blocks(torch, first, b, upper=False)
    return solved_by_blocks(torch, second, half, upper=True)


def _inverse_by_factor(torch: Any, factor: Any, upper: bool = False) -> Any:
    one = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return _solution_by_factor(torch, one, factor, upper)
