# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains: solved, proved and numerically right, or left alone with a reason."""

from __future__ import annotations

import os
import random

import pytest

from neptune_mlir.algebra.numerics.stress import stress
from neptune_mlir.algebra.solver import Unsolvable, solve_chain
from neptune_mlir.algebra.terms import show
from support.chains import (
    AXIS,
    E,
    absolute,
    cast,
    exp,
    i,
    j,
    log,
    maximum,
    n,
    read,
    reduction,
    ref,
    tanh,
    where,
)


class Grammar:
    """Bodies over data and earlier reductions; every choice comes from one seeded generator."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.earlier: list[str] = []

    def pick(self, *options):
        return self.rng.choice(options)()

    def data(self) -> E:
        return self.pick(
            lambda: read("x", 0, 1),
            lambda: read("x", 0, 1),
            lambda: read("y", 0, 1),
            lambda: read("u", 1) * read("y", 0, 1),
            lambda: read("x", 0, 1) * self.rng.choice([0.5, -1.0, 2.0]),
            lambda: tanh(read("y", 0, 1) / 2.0),
            lambda: read("x", 0, 1) + cast(j - i, "f32") * 0.1,
            lambda: absolute(read("x", 0, 1)),
        )

    def scalar(self) -> E:
        """Something made of one earlier reduction."""
        r = ref(self.rng.choice(self.earlier))
        return self.pick(
            lambda: r,
            lambda: r,
            lambda: r / n,
            lambda: r * 0.25,
            lambda: log(absolute(r) + 1.0),
            lambda: 1.0 / (absolute(r) + 1.0),
            lambda: tanh(r),
        )

    def mixed(self) -> E:
        d, r = self.data(), self.scalar()
        return self.pick(
            lambda: exp(d - r),
            lambda: exp(d - r) * self.data(),
            lambda: exp(d - r) / (absolute(self.scalar()) + 1.0),
            lambda: (d - r) * (d - r),
            lambda: (d - r) * self.data(),
            lambda: (d - r) * (self.data() - self.scalar()),
            lambda: d * r,
            lambda: d / (absolute(r) + 1.0),
            lambda: d + r,
            lambda: absolute(d - r),
            lambda: maximum(d - r, 0.0),
            lambda: tanh(d - r),
            lambda: exp(tanh(d) * 3.0 - r) + 0.5,
            lambda: d * r + self.data() * self.scalar(),
            lambda: exp(d * tanh(r)),
        )

    def body(self) -> E:
        plain = not self.earlier or self.rng.random() < 0.2
        found = self.data() if plain else self.mixed()
        if self.rng.random() < 0.25:
            found = where(j <= i, found, 0.0)
        return found

    def chain(self):
        found = []
        for k in range(self.rng.randint(2, 4)):
            name = f"r{k}"
            combiner = self.rng.choice(["add", "add", "add", "max", "max", "min"])
            found.append(reduction(name, combiner, self.body()))
            self.earlier.append(name)
        return found


def check(seed: int, deferral: bool = True) -> str:
    chain = Grammar(seed).chain()
    text = "; ".join(f"{r.name} = {r.combiner} {show(r.body)}" for r in chain)
    try:
        solution = solve_chain(chain, AXIS, deferral=deferral)
    except Unsolvable as reason:
        assert reason.hint and reason.obligation in ("re-basing", "homomorphism", "range")
        assert reason.reduction in {r.name for r in chain}
        return "unfused"
    unproved = [str(o) for o in solution.obligations if o.status != "proved"]
    assert not unproved, f"seed {seed}: {text}: {unproved}"
    report = stress(
        chain, solution, AXIS, length=7, plans=((1, 1), (3, 1), (4, 2), (4, 7)), single=False,
        cases=("normal", "ties", "weights positive", "weights all the same", "rising"),
    )  # fmt: skip
    assert report.ok, f"seed {seed}: {text}: {report.failure}"
    return "fused"


def test_random_chains():
    outcomes = [check(seed) for seed in range(100)]
    assert outcomes.count("fused") > 30


def test_random_chains_corrected_inside_the_loop():
    outcomes = [check(seed, deferral=False) for seed in range(50)]
    assert outcomes.count("fused") > 15


@pytest.mark.nightly
def test_random_chains_by_the_thousand():
    count = int(os.environ.get("NEPTUNE_RANDOM_CHAINS", "2000"))
    outcomes = [check(seed) for seed in range(1000, 1000 + count)]
    assert outcomes.count("fused") > count // 4
