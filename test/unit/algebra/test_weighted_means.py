# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which inputs rise in the stress test: those of sums that read a mean which data weigh."""

from __future__ import annotations

import pytest

from neptune_mlir.algebra.numerics.stress_inputs import measured_from_weighted
from neptune_mlir.algebra.terms import ref as named
from support.chains import ZOO, cast, data_weighted, maximum, read, reduction, ref, u, v, where, x

total, mean = ref("l"), ref("mean")
QUOTIENTS = {
    "divided": mean / total,
    "times a reciprocal": mean * (1.0 / total),
    "scaled, of another type": cast(cast(mean, "f64") * 2.0 / cast(total, "f64"), "f32"),
    "kept from 0": mean / maximum(total + 1e-6, 1e-3),
    "of nothing": mean / where(total > 0.0, total, 1.0),
}
FROM_DATA = {
    "deviations from a mean that data weigh": {"x", "v"},
    "variance that data weigh": {"u", "x"},
    "covariance that data weigh": {"u", "x", "s"},
}


def found(chain):
    return measured_from_weighted(chain, {chain[-1].name: named(chain[-1].name)})


@pytest.mark.parametrize("quotient", QUOTIENTS.values(), ids=QUOTIENTS)
def test_a_weighted_mean_is_known_by_its_quotient(quotient):
    assert found(data_weighted(reduction("o", "add", (x - quotient) * v))) == {"x", "v"}


def test_weights_may_be_divided_first():
    first = [reduction("l", "add", u), reduction("mean", "add", u / total * x)]
    assert found([*first, reduction("o", "add", (x - mean) * v)]) == {"x", "v"}
    assert found([*first, reduction("o", "max", x)]) == set()  # nothing is measured from it


def test_other_means_are_none():
    """Of a count, of what exponents weigh, of numbers that have no weights in common; a root
    divides by the size of the numbers."""
    y = read("y", 0, 1)
    apart = [reduction("l", "add", y), reduction("mean", "add", u * x)]
    assert found([*apart, reduction("o", "add", (x - mean / total) * v)]) == set()
    assert {name: found(chain) for name, chain in ZOO.items() if found(chain)} == FROM_DATA
