# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs of the GPU tests. Where the compiler is, they are built when a test asks for them;
`tools/gpu_tests.py` builds them beforehand for machines that have a GPU and no compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.targets import tuned
from neptune_mlir.targets.tuned import Choice, Entry, Shape, Table
from support import gpu_hostile as hostile
from support import math_functions

INPUTS = Path(__file__).parents[1] / "inputs"
FOLDER = "NEPTUNE_GPU_BUNDLES"  # the environment variable that names the folder of built bundles


def _compile(
    program: Callable[[], Any], shapes: Any, target: str = "sm_80,sm_90a",
    choice: Choice | None = None, knobs: str = "",
) -> Bundle:  # fmt: skip
    """Kernels for any call. `shapes`, of the arguments, is for those who make up inputs: "b" is the
    batch, "n" the length. `choice`: for products that sum over nothing but the stream."""
    plain = Shape(1, 0, False, True)
    table = Table((Entry(target, plain, 0, choice),)) if choice else Table()
    with tuned.using(table):
        return _whole(lambda: program().to_mlir(), shapes, target, cases=False, knobs=knobs)


def _whole(
    text: Callable[[], str], shapes: Any, target: str = "sm_80,sm_90a", **options: Any
) -> Bundle:
    """As users compile it: by the ways that suit each chip."""
    from neptune_mlir.driver import compiler

    made: Bundle = compiler.compile_text(text(), "test", target, None, None, **options)
    made.facts["shapes"] = shapes
    return made


def _attention(
    head: int, *, options: dict[str, Any] | None = None, **settings: Any
) -> Callable[[], Bundle]:
    from neptune_mlir import ops

    heads = settings.get("heads", 2)
    b = settings.get("batch", "b")
    q = [b, heads * settings.get("group", 1), settings.get("q_len", "n"), head]
    shapes = [q, [b, heads, "n", head], [b, heads, "n", head]]
    program = partial(ops.attention, head_dim=head, **{"dtype": "f16", **settings})
    return partial(_compile, program, shapes, **(options or {}))


def _masked(head: int, dtype: str, causal: bool) -> str:
    return str(hostile.attention(head, dtype, causal=causal).to_mlir())


def _rows(name: str) -> str:
    return str(hostile.row_program(name).to_mlir())


def _builders() -> dict[str, Callable[[], Bundle]]:
    from neptune_mlir import ops

    portable = {"knobs": "warp_groups:0"}
    found = {
        f"d{head}{'-causal' if causal else ''}": _attention(head, causal=causal, options=portable)
        for head in (64, 80, 128, 256)
        for causal in (False, True)
    }
    return found | {
        "d128-causal-bf16": _attention(128, causal=True, dtype="bf16", options=portable),
        "d64-causal-grouped": _attention(64, causal=True, group=4, options=portable),
        # few results of long sums: cut into chunks that a second kernel joins, by way of a
        # workspace
        "decode": _attention(128, q_len=1, batch=1, heads=4, kv_heads=4),
        "d64-hopper": _attention(64),
        "d128-causal-hopper": _attention(128, causal=True),
        # panels that are partly filled; a depth that is padded
        "d80-hopper": _attention(80),
        "d72-causal-hopper": _attention(72, causal=True),
        "rms_norm": partial(_compile, partial(ops.rms_norm, cols=1024), [["n", 1024], [1024]]),
        # panels of one row each, several a tile
        "norm-product": partial(
            _compile, partial(ops.rms_norm_matmul, cols=1024, out=1024, dtype="f16"),
            [["n", 1024], [1024], [1024, 1024]], target="sm_90a",
            choice=Choice(128, 128, columns=128),
        ),
        # a norm before a product, a loss of deep products: the last tiles are not full
        "rms_norm_matmul": partial(
            _whole, lambda: ops.rms_norm_matmul(cols=1024, out=320, dtype="f16").to_mlir(),
            [["n", 1024], [1024], [1024, 320]],
        ),
        "linear_loss": partial(
            _whole,
            lambda: ops.linear_cross_entropy(width=1024, classes=700, dtype="f16").to_mlir(),
            [["n", 1024], [700, 1024], ["n"]],
        ),
        "linear_loss_any": partial(  # classes that only a call knows: loops within loops
            _whole, lambda: ops.linear_cross_entropy(width=1024, dtype="f16").to_mlir(),
            [["n", 1024], [700, 1024], ["n"]],
        ),
        # ops that no nest models, around a fused kernel
        "lookup": partial(
            _whole, (INPUTS / "lookup_attention_argmax.mlir").read_text,
            [[11, 16], ["n"], ["n", 16], ["n", 16]],
        ),
        **{
            f"math-{kind}": partial(_whole, partial(math_functions.program, kind), [["n"], ["n"]])
            for kind in ("f32", "f16", "bf16")
        },
        # masks that are added to scores, rows far from 0
        **{
            f"mask-{dtype}-{head}{'-causal' if causal else ''}": partial(
                _whole, partial(_masked, head, dtype, causal),
                [*[["b", "h", "n", head]] * 3, ["b", "n", "n"]],
            )
            for dtype, head, causal in (
                ("f16", 64, False), ("f16", 64, True), ("f16", 128, False), ("f32", 64, False)
            )
        },
        **{
            name: partial(_whole, partial(_rows, name), [["n", 1000]]) for name in hostile.UNFUSED
        },
        "ampere": _attention(64, options={"target": "sm_80"}),
    }


def build() -> Iterator[tuple[str, Bundle]]:
    """Every program, by name."""
    for name, make in _builders().items():
        yield name, make()


@cache
def bundle(name: str) -> Bundle:
    """One of the programs, built or read."""
    folder = os.environ.get(FOLDER)
    if folder:
        return Bundle.from_bytes((Path(folder) / f"{name}.bundle").read_bytes())
    return _builders()[name]()
