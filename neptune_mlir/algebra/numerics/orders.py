# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Orders of the sums of a program: nothing says in which order a sum adds up its elements.

Where two sums are added up alike, their errors may be alike too, and cancel in what is made of
both; in another order of one of them they do not. What a program owes to that is luck, and no
fused program has to have the same luck (`judge`). So each sum of a program gets an order of its
own: it starts somewhere in the middle, and goes forwards or backwards. One order adds up in blocks,
as tiles do, which has fewer outcomes than one element after the other; the last one every other
element, and then what is left, as vector units do: five equal numbers are 3 c + 2 c there, each
rounded.

Whether a sum of large numbers overflows on its way is luck, too. In one order more, in which no
error is measured, all numbers above 0 come first, beside all below: it overflows where any does.

In the last order there is no luck at all: what is added up is exact, and rounded once (`EXACT`).
"""

from __future__ import annotations

ORDERS = 5  # beside that of the program
SIGNS = ORDERS + 1  # what is above 0, and what is below
FURTHER_ORDERS = range(SIGNS + 1, SIGNS + 17)  # for what is wrong beside all of these
EXACT = FURTHER_ORDERS.stop + 1  # (an even number: products are rounded)
PARTS = 16  # where a sum may start
BLOCKS, HALVES = 4, 5  # orders that add up in parts
BLOCK = 4  # elements of a block
_STEPS = 0.6180339887, 0.4142135624  # irrational, so that no two sums of an order are alike


def way_of(sum_: int, order: int) -> tuple[int, bool]:
    """Where the sum of this number starts, in parts of its length, and whether it goes backwards.

    Args:
        order: 0 is that of the program.
    """
    if order in (0, HALVES, SIGNS, EXACT):
        return 0, False
    start, back = ((sum_ + 1) * order * step % 1.0 for step in _STEPS)
    return int(start * PARTS), back < 0.5


def block_of(order: int) -> int:
    """How many elements an order adds up before it adds what they make to the sum."""
    return BLOCK if order == BLOCKS else 1
