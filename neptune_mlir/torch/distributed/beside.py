# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of a call that wait for others, and kernels that wait for none, side by side."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


class Beside:
    """Two streams for the kernels of a call: those on the second one wait for no other. They fill
    what the first ones leave of a GPU, at their ends and while they wait, for those come first
    wherever both could begin. Nothing on CPUs."""

    def __init__(self, device: torch.device):
        self._device = device
        self._streams: list[torch.cuda.Stream] = []
        if device.type == "cuda":
            self._streams = [torch.cuda.Stream(device, priority=p) for p in (-1, 0)]

    def begin(self) -> None:
        """Both follow the current stream."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(self._device))

    def first(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._streams[0]) if self._streams else nullcontext()

    def last(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._streams[1]) if self._streams else nullcontext()

    def follow(self, stream: torch.cuda.Stream) -> None:
        """Let the second one wait for what is on a stream."""
        if self._streams:
            self._streams[1].wait_stream(stream)

    def catch_up(self) -> None:
        """Let the second one follow what the first one has now."""
        if self._streams:
            self._streams[1].wait_stream(self._streams[0])

    def meet(self) -> None:
        """Let the current stream wait for both."""
        for stream in self._streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)
