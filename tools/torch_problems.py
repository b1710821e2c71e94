#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole PyTorch programs against torch: files that each define `Model`, `get_inputs()` and
`get_init_inputs()`, as the public KernelBench has them.

    tools/torch_problems.py DIRECTORY... [--parameters constants] [--targets sm_90a] [--largest 16]
    tools/torch_problems.py DIRECTORY... --backend

The first form exports each model, compiles it for CPUs, compares a call with torch in float64, and
compiles for the other targets. The second runs `torch.compile(backend="neptune")` beside inductor.
Numbers of a file that stand outside of its classes are halved until none is above `--largest`, so
that a problem runs in seconds; the bound doubles while torch itself refuses the shapes that come
out. Models of transformers that a file names are small ones of their kind with random weights, so
nothing is loaded from elsewhere. Each problem runs in a process of its own. A line of `--out` is
the JSON object of a problem.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch_children

RELATIVE = 1e-5  # of the norm of a result in float64
CANCELLED = 1e-6  # of an element of a result that is the difference of numbers near 1

FEW = 4  # of what a name with "batch" in it counts


_TOKENS = {"vocab_size": 100, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_LAYERS = {
    **_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
# by what a name of transformers' hub has in it: a kind of model, and a small configuration
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-neo": ("gpt_neo", {
        **_TOKENS, "hidden_size": 32, "num_layers": 2,
        "attention_types": [[["global", "local"], 1]], "num_heads": 4,
        "max_position_embeddings": 64, "window_size": 8,
    }),
    "opt": ("opt", {**_LAYERS, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bart": ("bart", {
        **_TOKENS, "d_model": 32, "decoder_layers": 2, "decoder_ffn_dim": 64,
        "decoder_attention_heads": 4, "max_position_embeddings": 64,
    }),
    "bigbird": ("big_bird", {**_LAYERS, "block_size": 2, "num_random_blocks": 1}),
    "electra": ("electra", {**_LAYERS, "embedding_size": 16}),
    "reformer": ("reformer", {
        **_LAYERS, "attention_head_size": 8, "attn_layers": ["local", "lsh"],
        "feed_forward_size": 64, "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [4, 4],
        "is_decoder": True, "local_attn_chunk_length": 4, "lsh_attn_chunk_length": 4,
        "num_buckets": 4,
    }),
    "gpt2": ("gpt2", {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
}  # fmt: skip


class _Smaller(ast.NodeTransformer):
    """Numbers halved until none is above a bound; classes stay as they are."""

    def __init__(self, largest: int, few: int):
        self.largest, self.few = largest, few

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        batch = any(isinstance(t, ast.Name) and "batch" in t.id for t in node.targets)
        if batch and isinstance(node.value, ast.Constant) and self.largest > self.few:
            return _Smaller(self.few, self.few).visit(node)
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if type(value) is not int:
            return node
        while value > self.largest:
            value //= 2
        return ast.copy_location(ast.Constant(value), node)


def load(path: Path, largest: int) -> tuple[Any, list[Any], int]:
    """A problem's model in evaluation mode, its inputs, and the bound that was used."""
    text = path.read_text()
    error: Exception | None = None
    sizes = [2**k * largest for k in range(7) if 2**k * largest <= 1024]
    for few in (FEW, 1 << 20):  # some problems have as many rows as columns
        for size in sizes:
            tree = ast.fix_missing_locations(_Smaller(size, few).visit(ast.parse(text)))
            code = compile(tree, str(path), "exec")
            try:
                with _small_models() if "from_pretrained" in text else contextlib.nullcontext():
                    return (*_made(code, path.stem), size)
            except Exception as failed:
                error = failed
    raise ValueError(f"torch runs it at no size: {error}")


@contextlib.contextmanager
def _small_models() -> Iterator[None]:
    """transformers loads nothing, and makes small models with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def small(name: str) -> Any:
        kind, values = next(found for part, found in SMALL.items() if part in name.lower())
        return AutoConfig.for_model(kind, **values)

    def model(name: str, config: Any) -> Any:
        return AutoModelForCausalLM.from_config(config)

    with (
        mock.patch.object(AutoConfig, "from_pretrained", small),
        mock.patch.object(AutoModelForCausalLM, "from_pretrained", model),
    ):
        yield


def _made(code: Any, name: str) -> tuple[Any, list[Any]]:
    """A model and its inputs, which torch takes and makes something of."""
    import torch

    scope: dict[str, Any] = {"__name__": name}
    exec(code, scope)
    torch.manual_seed(0)
    model = scope["Model"](*scope["get_init_inputs"]()).eval()
    inputs = scope["get_inputs"]()
    with torch.no_grad():
        out = model(*inputs)
    if not all(x.numel() for x in _flat(out)):
        raise ValueError("a result has no elements")
    return model, inputs


def _flat(results: Any) -> list[Any]:
    import torch

    listed = results if isinstance(results, (tuple, list)) else [results]
    return [x if isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in listed]


def _wanted(model: Any, inputs: list[Any]) -> list[Any]:
    """What torch computes in float64."""
    import copy

    import torch

    def double(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    with torch.no_grad():
        try:
            return _flat(copy.deepcopy(model).double()(*map(double, inputs)))
        except RuntimeError:  # it makes float32 tensors of its own
            return _flat(model(*inputs))


def difference(got: Any, wanted: Any, single: Any = None, relative: float = RELATIVE) -> str | None:
    """What is wrong with a result.

    Args:
        wanted: the result in float64.
        single: torch's own in float32. Where its rounding is all that is left of a result, ours
            may be off by as much.
        relative: how far it may be off, of the norm of the result.
    """
    import torch

    if tuple(got.shape) != tuple(wanted.shape):
        return f"shape {tuple(got.shape)} for {tuple(wanted.shape)}"
    if not wanted.is_floating_point():
        return None if torch.equal(got.to(wanted.dtype), wanted) else "other integers"
    got, wanted = got.double(), wanted.double()
    odd = ~(got.isfinite() & wanted.isfinite())
    if not ((got == wanted) | (got.isnan() & wanted.isnan()))[odd].all():
        return "other infinities or NaN"
    got, wanted = got[~odd], wanted[~odd]
    off, norm = (got - wanted).norm().item(), wanted.norm().item()
    if off <= relative * norm or off <= CANCELLED * wanted.numel() ** 0.5:
        return None
    if single is not None and off <= 2 * (single.double()[~odd] - wanted).norm().item():
        return None
    return f"relative error {off / norm if norm else float('inf'):.2e}"


def _differences(results: list[Any], model: Any, inputs: list[Any]) -> str | None:
    import torch

    with torch.no_grad():
        single = _flat(model(*inputs))
    listed = zip(results, _wanted(model, inputs), single, strict=True)
    return next(filter(None, (difference(*three) for three in listed)), None)


def exported(path: Path, parameters: str, targets: list[str], largest: int) -> dict[str, Any]:
    """A problem through `from_torch`, for CPUs and for other targets."""
    import torch

    import neptune_mlir
    from neptune_mlir.frontend.from_torch import from_torch

    model, inputs, largest = load(path, largest)
    row: dict[str, Any] = {"largest": largest}
    program, arguments = model, tuple(inputs)
    if parameters == "inputs":
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        named = {n: x for n, x in named.items() if x.is_floating_point()}

        def program(*given: Any) -> Any:
            values = dict(zip(named, given, strict=False))
            return torch.func.functional_call(model, values, given[len(named) :])

        arguments = (*(x.detach() for x in named.values()), *inputs)
    clock = _Clock(row)
    try:
        module = from_torch(program, arguments)
        clock.lap("import")
        kernel = neptune_mlir.compile(module)
        clock.lap("compile")
        row["launches"] = len(kernel.plan.launches)
        results = kernel(*arguments)
        clock.lap("call")
        if problem := _differences(_flat(results), model, inputs):
            return {**row, "status": "wrong", "message": problem}
        for target in targets:
            bundle = neptune_mlir.compile(module, target=target).bundle
            row[f"launches {target}"] = len(bundle.plan.launches)
            clock.lap(target)
    except neptune_mlir.errors.NeptuneError as error:
        return {**row, "status": "refused", "message": str(error)}
    return {**row, "status": "right"}


class _Clock:
    """Seconds since the last lap, into a row."""

    def __init__(self, row: dict[str, Any]):
        self.row, self.last = row, time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.row[f"{name} s"], self.last = round(now - self.last, 3), now


def compiled(path: Path, largest: int) -> dict[str, Any]:
    """A problem through `torch.compile`, by our backend and by inductor."""
    import torch

    from neptune_mlir.torch.backend import neptune

    model, inputs, largest = load(path, largest)
    row: dict[str, Any] = {"largest": largest}
    programs = [torch.compile(model, backend=neptune), torch.compile(model)]
    with torch.no_grad():
        ours, _ = [_flat(program(*inputs)) for program in programs]
        if problem := _differences(ours, model, inputs):
            return {**row, "status": "wrong", "message": problem}
        best = [float("inf")] * 2
        for _ in range(20):
            for k, program in enumerate(programs):
                started = time.perf_counter()
                program(*inputs)
                best[k] = min(best[k], time.perf_counter() - started)
    row |= {"neptune us": best[0] * 1e6, "inductor us": best[1] * 1e6, "ratio": best[0] / best[1]}
    return {**row, "status": "right", "message": f"{row['ratio']:.2f} of inductor's time"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("where", nargs="+", type=Path, help="directories or files of problems")
    parser.add_argument("--parameters", choices=("constants", "inputs"), default="constants")
    parser.add_argument("--targets", default="", help="compile for these, too: sm_90a,gfx942")
    parser.add_argument("--backend", action="store_true", help="torch.compile beside inductor")
    parser.add_argument("--largest", type=int, default=16)
    parser.add_argument("--limit", type=float, default=120, help="seconds for each")
    parser.add_argument("--only", default="", help="a regular expression on names")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    options = parser.parse_args()
    listed = [f for p in options.where for f in (sorted(p.glob("*.py")) if p.is_dir() else [p])]
    chosen = [f for f in listed if re.search(options.only, f.stem)]
    targets = [t for t in options.targets.split(",") if t]
    tasks: list[torch_children.Task] = [
        (f"{f.parent.name}/{f.stem}", compiled, (f, options.largest)) if options.backend else
        (f"{f.parent.name}/{f.stem}", exported, (f, options.parameters, targets, options.largest))
        for f in chosen
    ]  # fmt: skip
    rows = torch_children.report(torch_children.run_all(tasks, options.limit), options.out)
    return 0 if {row["status"] for row in rows} <= {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
