# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs and shapes: what the sweep measures. docs/benchmark.md has the distribution.

A draw follows from its seed, its number and the device that it is for, and from nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from neptune_mlir.bench.problem import Problem
from neptune_mlir.bench.rows import Rows


@dataclass(frozen=True)
class DrawRoom:
    """What a draw may cost at most on a device, and its element types.

    Attributes:
        flops: operations of its products.
        elements: of its largest array, and of all scores where peers need a bias for a mask.
        length: of sequences.
        rows: lengths of a row.
    """

    flops: float
    elements: int
    length: int
    rows: tuple[int, int]
    dtypes: tuple[str, ...]


ROOM = {
    "gpu": DrawRoom(4e12, 1 << 28, 1 << 15, (64, 200_000), ("f16", "bf16")),
    "cpu": DrawRoom(1e10, 1 << 23, 1 << 12, (64, 200_000), ("f32", "f32", "bf16")),
}
KINDS = {"prefill": 6, "cross": 2, "decode": 3, "few": 3, "rows": 5, "norm_matmul": 2, "loss": 1}
ROW_PROGRAMS = ("softmax", "logsumexp", "rms_norm", "layer_norm", "cross_entropy")
MODIFIERS = ("window", "softcap", "alibi", "sink", "documents", "bias")
DIMS = range(32, 257, 8)


@dataclass(frozen=True)
class Draw:
    """`problem`: what is measured. `fixed`: whether the program of rows has their length compiled
    in. `kind`: of KINDS."""

    seed: int
    index: int
    kind: str
    problem: Problem | Rows
    fixed: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """What the bundle says of itself (`facts["bench"]`)."""
        p = self.problem
        kind = "rows" if isinstance(p, Rows) else "operator"
        return {
            "kind": kind, "suite": "sweep", "operator": p.operator, "dtype": p.dtype,
            "problem": p.as_json(), "drawn": self.kind, "fixed": self.fixed,
        }  # fmt: skip


def path_of(folder: Path, drawn: Draw) -> Path:
    """Of the bundle of a draw."""
    return folder / f"{drawn.problem.operator}.bundle"


def device_of(target: str) -> str:
    """The key of ROOM."""
    return "cpu" if target == "cpu" else "gpu"


def draws(seed: int, count: int, device: str) -> Iterator[Draw]:
    """The first draws of a seed for a device ("gpu" or "cpu")."""
    for index in range(count):
        yield draw(seed, index, device)


def draw(seed: int, index: int, device: str) -> Draw:
    random = Random(f"{seed}/{index}/{device}")
    (kind,) = random.choices(list(KINDS), list(KINDS.values()))
    room, name = ROOM[device], f"draw-{seed}-{index}"
    dtype = random.choice(room.dtypes)
    if kind in ("rows", "norm_matmul", "loss"):
        make = {"rows": _rows, "norm_matmul": _norm_matmul, "loss": _loss}[kind]
        fixed = random.random() < 0.5
        return Draw(seed, index, kind, make(random, room, name, dtype), fixed)
    return Draw(seed, index, kind, _attention(random, room, name, dtype, kind))


def log_uniform(random: Random, low: float, high: float) -> int:
    """A number of `low` to `high`, its logarithm uniform."""
    return round(math.exp(random.uniform(math.log(low), math.log(high))))


def extent(random: Random, low: int, high: int) -> int:
    """A third each: any number, a prime, a multiple of 64 (where it is over 64)."""
    n = log_uniform(random, low, high)
    how = random.randrange(3)
    if how == 1:
        return next((k for k in range(n, low - 1, -1) if is_prime(k)), n)
    return max(low, n // 64 * 64) if how == 2 and n > 64 else n


def is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))


def _attention(random: Random, room: DrawRoom, name: str, dtype: str, kind: str) -> Problem:
    head_dim = random.choice(DIMS)
    v_dim = random.choice(DIMS) if random.random() < 0.125 else head_dim
    group = 1 if random.random() < 0.4 else random.randint(2, 16)
    kv_heads = log_uniform(random, 1, 32)
    keys = _length(random, room)
    queries = keys
    if kind == "cross":
        queries = _length(random, room)
    elif kind != "prefill":
        keys = max(keys, extent(random, 256, room.length))  # few queries look at many keys
        queries = 1 if kind == "decode" else random.randint(2, 16)
    settings: dict[str, Any] = {"heads": kv_heads * group, "kv_heads": kv_heads}
    if v_dim != head_dim:
        settings["v_dim"] = v_dim
    if 1 < queries <= keys and random.random() < 0.6:
        settings["causal"] = True
    for modifier in random.sample(MODIFIERS, random.choices((0, 1, 2), (5, 4, 1))[0]):
        settings |= _modifier(random, modifier, queries, keys)
    if random.random() < 0.125:
        settings["lse"] = True
    batch = log_uniform(random, 1, 64)
    return _fitted(Problem(name, dtype, queries, keys, settings, head_dim, batch), room)


def _length(random: Random, room: DrawRoom) -> int:
    """One in eight is 64 at most."""
    return extent(random, 1, 64) if random.random() < 0.125 else extent(random, 64, room.length)


def _modifier(random: Random, name: str, queries: int, keys: int) -> dict[str, Any]:
    """What a modifier adds to the settings; nothing where it means nothing."""
    if name == "window":
        found = {"causal": True, "window": log_uniform(random, 16, 4096)}
        return found if queries <= keys else {}
    if name == "softcap":
        return {"softcap": float(random.choice((20, 30, 50)))}
    if name == "documents":
        return {"documents": log_uniform(random, 64, 4096)} if queries == keys else {}
    return {name: True}


def _fitted(p: Problem, room: DrawRoom) -> Problem:
    """The problem, smaller until the device has room: batches, then heads, then lengths."""
    while p.flops > room.flops or _largest(p) > room.elements:
        settings = p.settings
        if p.batch > 1:
            p = replace(p, batch=p.batch // 2)
        elif p.kv_heads > 1:
            group, kv_heads = p.heads // p.kv_heads, p.kv_heads // 2
            p = replace(p, settings={**settings, "heads": kv_heads * group, "kv_heads": kv_heads})
        else:
            same = p.queries == p.keys
            keys = p.keys // 2 + 1
            p = replace(p, keys=keys, queries=keys if same else min(p.queries, p.keys // 2 + 1))
    return p


def _largest(p: Problem) -> int:
    rows = p.heads * p.queries
    dense = any(p.settings.get(x) for x in ("bias", "alibi", "documents", "window"))
    widest = max(p.head_dim, p.v_dim)
    return max(
        p.batch * rows * widest, p.batch * p.kv_heads * p.keys * widest,
        rows * p.keys if dense else 0,
    )  # fmt: skip


def _rows(random: Random, room: DrawRoom, name: str, dtype: str) -> Rows:
    program = random.choice(ROW_PROGRAMS)
    cols = extent(random, *room.rows)
    if random.random() < 0.25:
        cols |= 1
    elements = log_uniform(random, room.elements >> 8, room.elements >> 1)
    return Rows(name, program, dtype, max(1, elements // cols), {"cols": cols})


def _norm_matmul(random: Random, room: DrawRoom, name: str, dtype: str) -> Rows:
    program = random.choice(("rms_norm_matmul", "layer_norm_matmul"))
    cols, out = (64 * log_uniform(random, 4, 128) for _ in range(2))
    return _with_room(Rows(name, program, dtype, extent(random, 1, 8192),
                           {"cols": cols, "out": out}), room)  # fmt: skip


def _loss(random: Random, room: DrawRoom, name: str, dtype: str) -> Rows:
    settings = {"width": 64 * log_uniform(random, 4, 64), "classes": extent(random, 1000, 131072)}
    return _with_room(
        Rows(name, "linear_cross_entropy", dtype, extent(random, 64, 8192), settings), room
    )


def _with_room(p: Rows, room: DrawRoom) -> Rows:
    """Fewer rows, then narrower ones, until the device has room."""
    inner = "cols" if "cols" in p.settings else "width"
    while p.flops > room.flops:
        if p.keys > 16:
            p = replace(p, keys=p.keys // 2)
        else:
            p = replace(p, settings={**p.settings, inner: p.settings[inner] // 2})
    return p
