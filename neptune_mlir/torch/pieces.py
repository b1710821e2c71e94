# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many classes a loss takes at a time, and where their logits are.

    gradient of a weight    | rows of classes that are done | free | logits that are kept      |

The forward pass keeps logits in the memory of the gradient of the weight. The backward pass takes
them from the front: when it has made the gradient of a piece's logits in their place, it writes
this piece's rows of the gradient of the weight before them. `rows` logits of a class are more, as
a rule, than `width` numbers of its gradient, so room grows. Classes whose logits are not kept are
computed again afterwards, when no logits are in the way.
"""

from __future__ import annotations

CHUNK = 4096  # classes: matmuls that fill a GPU, and logits that take less memory than the weight
_SMALL = 8  # of a chunk: pieces whose logits have memory of their own
_UNIT = 64  # classes: rows of logits begin where any kernel can load them
_TILE = 128  # classes of a program of a matmul


def kept_sizes(classes: int, chunk: int, rows: int, width: int) -> list[int]:
    """How many classes each piece has whose logits are kept, from the first class on.

    They are all classes if `chunk` is 0. Else they are as many as leave room for the gradient of
    the first piece: an eighth of `chunk`.
    """
    if not chunk or not rows:
        return [classes] * (rows > 0 and classes > 0)
    least = -(-chunk // (_SMALL * _UNIT)) * _UNIT
    most = classes - least - 1  # 1: for the alignment
    rest = max(0, min(most, most * width // rows)) // _UNIT * _UNIT
    sizes: list[int] = []
    while rest:
        room = kept_at(classes * width, rows, rest) // width - sum(sizes)
        sizes.append(min(max(_UNIT, room // _TILE * _TILE), rest))
        rest -= sizes[-1]
    return sizes


def kept_at(elements: int, rows: int, rest: int) -> int:
    """The first element of the logits of the last `rest` kept classes, at the end of memory."""
    return elements - rows * rest - (elements - rows * rest) % _UNIT


def piece_sizes(classes: int, chunk: int, rows: int, width: int) -> list[int]:
    """How many classes each piece has whose logits are computed again. On GPUs (`rows`: of x, else
    0) as many as have their logits in the gradient of the weight that later pieces write; small
    ones if less than a part of `chunk` has."""
    sizes: list[int] = []
    rest = classes
    while rest:
        size = min(chunk, rest)
        if chunk < classes and rows:
            room = rest * width // (rows + width)  # rows * room <= (rest - room) * width
            size = min(max(-(-chunk // _SMALL), room // _TILE * _TILE), rest)
        sizes.append(size)
        rest -= size
    return sizes
