# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Blocks of ONNX images as channels and back, where torch-mlir has them wrong or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def ordered_for_blocks(w: Any, name: str, given: Mapping[str, Any]) -> Sequence[str] | None:
    """`DepthToSpace` of channels that are the outer dimension (PixelShuffle), by that of channels
    that are the inner one: torch-mlir takes each for the latter. None for these."""
    if given.get("mode") != b"CRD":
        return None
    size = given["blocksize"]
    channels = w.op("Reshape", _channels_last(w, name), w.constant([0, 0, 0, -1, size**2]))
    whole = w.op(
        "Reshape", w.op("Transpose", channels, perm=[0, 1, 2, 4, 3]), w.constant([0, 0, 0, -1])
    )
    return [w.op("DepthToSpace", _channels_first(w, whole), blocksize=size, mode="DCR")]


def channels_of_blocks(w: Any, name: str, given: Mapping[str, Any]) -> Sequence[str]:
    """`SpaceToDepth`, also of images whose extents calls know."""
    size = given["blocksize"]
    columns = w.op("Reshape", name, w.constant([0, 0, 0, -1, size]))
    across = w.op("Transpose", columns, perm=[0, 1, 3, 4, 2])
    blocks = w.op("Reshape", across, w.constant([0, 0, 0, 0, -1, size]))
    whole = w.op(
        "Reshape", w.op("Transpose", blocks, perm=[0, 4, 2, 5, 3, 1]), w.constant([0, 0, 0, -1])
    )
    return [_channels_first(w, whole)]


def _channels_last(w: Any, name: str) -> str:
    return str(w.op("Transpose", name, perm=[0, 2, 3, 1]))


def _channels_first(w: Any, name: str) -> str:
    return str(w.op("Transpose", name, perm=[0, 3, 1, 2]))
