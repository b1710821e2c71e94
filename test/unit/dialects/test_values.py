# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Keys for MLIR values, whose addresses are used again."""

import pytest

from neptune_mlir.dialects.nests import Values
from neptune_mlir.ir.bindings import ir


@pytest.fixture
def made():
    """Makes a constant at the end of a module."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        i32 = ir.IntegerType.get_signless(32)

        def constant(number):
            value = ir.IntegerAttr.get(i32, number)
            with ir.InsertionPoint(module.body):
                return ir.Operation.create("arith.constant", [i32], [], {"value": value}).result

        yield constant


def test_a_key_is_not_that_of_an_erased_op(made):
    values = Values()
    met = 0
    for k in range(50):
        old = made(k)
        key = values.key(old)
        old.owner.erase()
        new = made(k)
        if new == old:  # it has the address of the one that is gone
            met += 1
            assert not values.knows(new)
            assert values.key(new) != key
        assert values[values.key(new)] == new
    assert met


def test_a_key_goes_over_to_another_value(made):
    values = Values()
    old, new = made(1), made(2)
    key = values.key(old, "x")
    values.rebind(key, new)
    assert values.key(new) == key and not values.knows(old)
    assert values.key(old) != key
