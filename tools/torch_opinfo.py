#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own samples of its operations (OpInfo, float32) through `from_torch`, on CPUs.

    tools/torch_opinfo.py [--only REGEX] [--samples 6] [--limit 60] [--out rows.jsonl]

A sample is right, wrong, refused with the name of an operation, refused without one ("unnamed"), or
it dies. Each runs in a process of its own. Without `--only`: reductions, norms, losses, views,
softmax, products of matrices and attention.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch_children
from torch_problems import difference

GROUPS = {
    "reductions": r"sum|mean|prod|amax|amin|aminmax|max_reduction\w*|min_reduction\w*|std|var"
    r"|std_mean|var_mean|any|all|argmax|argmin|count_nonzero|nansum|nanmean|norm|linalg_norm"
    r"|linalg_vector_norm|dist|trace|cumsum|cumprod|logcumsumexp|median|sum_to_size",
    "norms": r"nn_functional_(layer|group|batch|instance|rms)_norm|native_layer_norm"
    r"|nn_functional_normalize|nn_functional_local_response_norm|renorm",
    "losses": r"nn_functional_\w*(loss|cross_entropy|binary_cross_entropy\w*|kl_div|nll)\w*",
    "views": r"view|reshape|expand|expand_as|permute|transpose|movedim|squeeze|unsqueeze|flatten"
    r"|unflatten|narrow|select|split|split_with_sizes|chunk|unbind|cat|stack|[hvd]stack|flip|roll"
    r"|rot90|tile|repeat|diagonal|diag|tril|triu|unfold|as_strided|swapaxes|T|mT|t|ravel"
    r"|broadcast_to|tensor_split|slice|select_scatter|slice_scatter|gather|index_select|take",
    "softmax": r"softmax|log_softmax|logsumexp|softmin|nn_functional_softmin"
    r"|masked_(log_)?softmax|nn_functional_softmax\w*",
    "matmul": r"matmul|mm|bmm|addmm|baddbmm|addbmm|addmv|addr|mv|dot|vdot|inner|outer|einsum"
    r"|tensordot|__rmatmul__|linalg_multi_dot|linalg_vecdot|nn_functional_(bi)?linear|kron|cross",
    "attention": r"nn_functional_scaled_dot_product_attention",
}
NAMES = "|".join(f"(?:{pattern})" for pattern in GROUPS.values())
PATIENCE = 100  # samples of an operation that are looked at


def operations(only: str) -> list[str]:
    """Names of operations with float32 samples, each with its variant."""
    return [_name(op) for op in _database() if re.fullmatch(only, _name(op).partition(":")[0])]


def _database() -> Iterator[Any]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return (op for op in op_db if torch.float32 in op.dtypes)


def _name(op: Any) -> str:
    name = op.name.replace(".", "_")
    return f"{name}:{op.variant_test_name}" if op.variant_test_name else name


def _samples(name: str, most: int) -> list[Any]:
    """Samples of an operation, evenly chosen."""
    import itertools

    import torch

    torch.manual_seed(0)
    op = next(op for op in _database() if _name(op) == name)
    made = list(itertools.islice(op.sample_inputs("cpu", torch.float32), PATIENCE))
    step = max(1, -(-len(made) // most))
    return [(op, sample) for sample in made[::step]]


def count(name: str, most: int) -> dict[str, Any]:
    return {"status": "counted", "samples": len(_samples(name, most))}


def tried(name: str, most: int, number: int) -> dict[str, Any]:
    """One sample: through torch, then through the compiler."""
    import torch
    from torch.utils import _pytree as tree

    import neptune_mlir
    from neptune_mlir.frontend.from_torch import from_torch

    op, sample = _samples(name, most)[number]
    leaves, structure = tree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[k].detach() for k in places]

    def program(*given: Any) -> Any:
        values = list(leaves)
        for place, x in zip(places, given, strict=True):
            values[place] = x
        first, arguments, named = tree.tree_unflatten(values, structure)
        return op.op(first, *arguments, **named)

    shown = str([tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in leaves])[:300]
    row: dict[str, Any] = {"sample": shown}
    wide = [x.double() if x.is_floating_point() else x for x in tensors]
    wanted = [x for x in tree.tree_leaves(program(*wide)) if isinstance(x, torch.Tensor)]
    try:
        kernel = neptune_mlir.compile(from_torch(program, tensors))
        results = kernel(*tensors)
    except neptune_mlir.errors.NeptuneError as error:
        text = str(error)
        named = op.name.rpartition(".")[2] in text or re.search(r"'[\w]+\.[\w.]+'|aten\.\w+", text)
        return {**row, "status": "refused" if named else "unnamed", "message": text}
    listed = list(results) if isinstance(results, (tuple, list)) else [results]
    results = listed[len(listed) - len(wanted) :]  # what it wrote to arguments comes first
    for got, expected in zip(results, wanted, strict=True):
        if problem := difference(torch.as_tensor(got), expected):
            return {**row, "status": "wrong", "message": f"{problem} {shown}"}
    return {**row, "status": "right"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=NAMES, help="a regular expression: whole names")
    parser.add_argument("--samples", type=int, default=6, help="at most these of an operation")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    options = parser.parse_args()
    torch_children.PRELOADED.append("torch.testing._internal.common_methods_invocations")
    names = operations(options.only)
    counted = torch_children.run_all(
        ((name, count, (name, options.samples)) for name in names), options.limit
    )
    tasks: Iterator[torch_children.Task] = (
        (f"{row['name']} {k}", tried, (row["name"], options.samples, k))
        for row in counted
        for k in range(row.get("samples", 0))
    )
    rows = torch_children.report(torch_children.run_all(tasks, options.limit), options.out)
    return 0 if {row["status"] for row in rows} <= {"right", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main())
