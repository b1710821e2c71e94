# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of the `neptune` dialect for tile programs that warps share: asynchronous references.

An asynchronous reference (an *aref*, after Tawa, arXiv 2510.14719) is a ring of slots in shared
memory, each with room for a tile. The producer puts tiles, the consumers get and release them.
Rings advance in program order: the k-th tile that is put is the k-th that is got, and a put waits
until the consumers have released the tile that had its slot before. So no op names a slot, a
phase or a barrier; those are code generation's.
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
from typing import Any

from neptune_mlir.dialects import verify_aref
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.ir.bindings import ext, ir


class ArefType(Neptune.Type, name="aref"):
    """A ring of `slots` tiles: `!neptune.aref<tensor<128x64xf16>, 4 : i64>`."""

    tile: ir.TypeAttr
    slots: ir.IntegerAttr


class ArefCreateOp(Neptune.Operation, name="aref_create"):
    """A ring of slots in shared memory, empty at first.

    Several loops may use one ring, one after another, when their tiles are alike: each has a
    `neptune.aref_put` in the producer and a `neptune.aref_get` in the consumers' program, in the
    same order.

    Example: `%ring = "neptune.aref_create"() : () -> !neptune.aref<tensor<128x64xf16>, 4 : i64>`

    Rejected: use outside the body of an `scf.forall`; another type than a ring of 1 slot or more,
    of tiles of static shape; a ring that is put and never got, or got and never put.
    """

    result: ext.Result[ArefType]

    verify_invariants = staticmethod(verify_aref.create)


class ProducerOp(Neptune.Operation, name="producer", traits=[ir.NoTerminatorTrait]):
    """What the producer of a tile program does: loops, loads and puts. What stands beside it in
    the body of the `scf.forall` is the consumers' program; both start at the same time.

    The region needs nothing that the consumers compute: values from above the `scf.forall`, the
    grid's variables and rings are all that it takes from outside.

    Example:

        "neptune.producer"() ({
          scf.for %j = %c0 to %n step %c128 {
            %t = tensor.extract_slice %k[%j, 0] [128, 64] [1, 1] : ...
            "neptune.aref_put"(%ring, %t) : (!neptune.aref<...>, tensor<128x64xf16>) -> ()
          }
        }) : () -> ()

    Rejected: use outside the body of an `scf.forall`, a second producer, loops that carry values,
    other ops than loops, loads, puts, views of pages, reads of single numbers and index
    computations, values of the consumers.
    """

    body: ext.Region

    verify_invariants = staticmethod(verify_aref.producer)
    verify_region_invariants = staticmethod(verify_aref.producer_region)


class ArefPutOp(Neptune.Operation, name="aref_put"):
    """Waits until the ring's next slot is free, and starts the copy of a tile into it.

    The tile is a load (`tensor.extract_slice`, perhaps padded): it goes from global to shared
    memory and is in nobody's registers.

    Rejected: use outside a `neptune.producer`, a tile of another type than the ring's, one that
    is computed.
    """

    ring: ext.Operand[ArefType]
    tile: ext.Operand[Any]

    verify_invariants = staticmethod(verify_aref.put)


class ArefGetOp(Neptune.Operation, name="aref_get"):
    """Waits for the ring's next tile. It stays in its slot until `neptune.aref_release`.

    Rejected: use in a `neptune.producer`, a result of another type than the ring's tiles, a tile
    that is not released exactly once, in the block of the get, after all that read it.
    """

    ring: ext.Operand[ArefType]
    tile: ext.Result[Any]

    verify_invariants = staticmethod(verify_aref.get)


class ArefReleaseOp(Neptune.Operation, name="aref_release"):
    """The consumers have read a tile: its slot is free once each of them says so.

    Rejected: what no `neptune.aref_get` gave.
    """

    tile: ext.Operand[Any]

    verify_invariants = staticmethod(verify_aref.release)


__all__ = ["ArefCreateOp", "ArefGetOp", "ArefPutOp", "ArefReleaseOp", "ArefType", "ProducerOp"]
