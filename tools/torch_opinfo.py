#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own samples of its operations (OpInfo) through `from_torch`, on CPUs.

    tools/torch_opinfo.py [--only REGEX] [--dtype float32] [--backend] [--samples 6] [--limit 60]

A sample is right, wrong, refused with the name of an operation, refused without one ("unnamed"),
or it dies. The samples of an operation share a process, and have one each where that one dies.
Without `--only`: reductions, norms, losses, views, scans, sorts, scatters, activations, softmax,
products of matrices and attention. With `--backend` they go through
`torch.compile(backend="neptune")`, and a row says how many calls of our kernels they made:
attention of any size is ours there, the rest is inductor's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

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
    "orders": r"sort|argsort|topk|kthvalue|msort|mode|nanmedian|cummax|cummin"
    r"|searchsorted|bucketize",
    "scatters": r"scatter\w*|index_(add|put|copy|fill|reduce\w*)|masked_(fill|scatter)|put|where"
    r"|nn_functional_(one_hot|embedding\w*)",
    "random": r"nn_functional_\w*dropout\w*|bernoulli|multinomial|normal\w*|rand\w*|uniform",
    "activations": r"nn_functional_(gelu|silu|mish|[a-z]*elu|glu|hard\w+|leaky_relu"
    r"|logsigmoid|prelu|relu6?|rrelu|soft(plus|shrink|sign)|tanhshrink|threshold|pad|pixel_\w+|interpolate|unfold|fold"
    r"|(adaptive_)?(avg|max)_pool\wd)|sigmoid|tanh|erf|special_\w+",
    "attention": r"nn_functional_scaled_dot_product_attention",
}
NAMES = "|".join(f"(?:{pattern})" for pattern in GROUPS.values())
PATIENCE = 100  # samples of an operation that are looked at


# of the norm of a result: what `torch.testing.assert_close` allows of an element
RELATIVE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1.6e-2}


def operations(only: str, dtype: str) -> list[str]:
    """Names of operations with samples of a type, each with its variant."""
    listed = (_name(op) for op in _database(dtype))
    return [name for name in listed if re.fullmatch(only, name.partition(":")[0])]


def _database(dtype: str) -> Iterator[Any]:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return (op for op in op_db if getattr(torch, dtype) in op.dtypes)


def _name(op: Any) -> str:
    name = op.name.replace(".", "_")
    return f"{name}:{op.variant_test_name}" if op.variant_test_name else name


def _samples(name: str, dtype: str, most: int) -> tuple[Any, list[Any]]:
    """An operation, and samples of it, evenly chosen."""
    import itertools

    import torch

    torch.manual_seed(0)
    op = next(op for op in _database(dtype) if _name(op) == name)
    made = list(itertools.islice(op.sample_inputs("cpu", getattr(torch, dtype)), PATIENCE))
    return op, made[:: max(1, -(-len(made) // most))]


def all_tried(name: str, dtype: str, most: int, by_backend: bool) -> dict[str, Any]:
    """All samples of an operation, one after the other."""
    op, samples = _samples(name, dtype, most)
    made = [tried(op, sample, dtype, by_backend) for sample in samples]
    return {"status": "done", "rows": made}


def one_tried(name: str, dtype: str, most: int, by_backend: bool, at: int) -> dict[str, Any]:
    """A sample by its number; "none" where there are not as many."""
    op, samples = _samples(name, dtype, most)
    return tried(op, samples[at], dtype, by_backend) if at < len(samples) else {"status": "none"}


def tried(op: Any, sample: Any, dtype: str, by_backend: bool) -> dict[str, Any]:
    """One sample: through torch in float64, then through the compiler."""
    import torch
    from torch.utils import _pytree as tree

    import neptune_mlir

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
    try:
        wide = [x.double() if x.is_floating_point() else x for x in tensors]
        wanted = _tensors(program(*wide))
        single = _tensors(program(*(x.clone() for x in tensors)))
    except RuntimeError:  # a number has a type of its own; or it looks behind what it is given
        wanted = single = _tensors(program(*tensors))
    try:
        run = _by_backend if by_backend else _by_kernel
        results, row["kernel calls"] = run(program, tensors)
    except neptune_mlir.errors.NeptuneError as error:
        text = str(error)
        named = op.name.rpartition(".")[2] in text or re.search(r"'[\w]+\.[\w.]+'|aten\.\w+", text)
        return {**row, "status": "refused" if named else "unnamed", "message": text}
    except Exception as error:
        return {**row, "status": "failed", "message": f"{type(error).__name__}: {error} {shown}"}
    results = results[len(results) - len(wanted) :]  # what it wrote to arguments comes first
    for got, *expected in zip(results, wanted, single, strict=True):
        if problem := difference(torch.as_tensor(got), *expected, relative=RELATIVE[dtype]):
            return {**row, "status": "wrong", "message": f"{problem} {shown}"}
    return {**row, "status": "right"}


def _by_kernel(program: Any, tensors: list[Any]) -> tuple[list[Any], int]:
    import neptune_mlir
    from neptune_mlir.frontend.from_torch import from_torch

    kernel = neptune_mlir.compile(from_torch(program, tensors))
    results = kernel(*tensors)
    listed = list(results) if isinstance(results, (tuple, list)) else [results]
    return listed, len(kernel.plan.launches)


def _by_backend(program: Any, tensors: list[Any]) -> tuple[list[Any], int]:
    import torch

    from neptune_mlir.torch import backend, op

    torch._dynamo.reset()
    with (
        torch.no_grad(), mock.patch.object(op, "run", wraps=op.run) as calls,
        mock.patch.object(backend, "is_worth_a_call", lambda *_: True),  # however small
    ):  # fmt: skip
        results = torch.compile(program, backend=backend.neptune, dynamic=False)(*tensors)
    return _tensors(results), calls.call_count


def _tensors(results: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as tree

    return [x for x in tree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def _rows(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """A row for each sample."""
    given = options.dtype, options.samples, options.backend
    names = operations(options.only, options.dtype)
    tasks = [(name, all_tried, (name, *given)) for name in names]
    for found in torch_children.run_all(tasks, options.limit * options.samples):
        name = found["name"]
        if found["status"] == "done":
            seconds = round(found["seconds"] / max(1, len(found["rows"])), 2)
            for k, row in enumerate(found["rows"]):
                yield {"name": f"{name} {k}", **row, "seconds": seconds}
            continue
        again = [(f"{name} {k}", one_tried, (name, *given, k)) for k in range(options.samples)]
        for row in torch_children.run_all(again, options.limit):
            if row["status"] != "none":
                yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=NAMES, help="a regular expression: whole names")
    parser.add_argument("--dtype", choices=RELATIVE, default="float32")
    parser.add_argument("--backend", action="store_true", help="through torch.compile")
    parser.add_argument("--samples", type=int, default=6, help="at most these of an operation")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    options = parser.parse_args()
    torch_children.PRELOADED.append("torch.testing._internal.common_methods_invocations")
    rows = torch_children.report(_rows(options), options.out)
    return 0 if {row["status"] for row in rows} <= {"right", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main())
