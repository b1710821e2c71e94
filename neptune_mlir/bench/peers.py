# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The candidates beside ours: which can express a problem, and how each is called.

Of programs over rows, `eager` runs torch's kernels one by one (a matrix product of cuBLAS beside a
norm or a loss), `compiled` what torch.compile makes of the same, `autotuned` what it makes with
kernels of its own for matrix products to choose from.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neptune_mlir.bench.problem import Problem
from neptune_mlir.bench.rows import Rows

Call = Callable[[], Any]


@dataclass(frozen=True)
class Peer:
    """`make` gives a call for a problem that it `can` express.

    Attributes:
        compiles: what a compilation serves: "" (nothing is compiled), "operator" (one serves all
            lengths and batches) or "problem".
        tunes: the first call measures variants, so it must have the GPU to itself.
        needs: a module beside torch.
    """

    can: Callable[[Any], bool]
    make: Callable[[Any, Any], Call]
    compiles: str = ""
    tunes: bool = False
    needs: str = ""

    @property
    def installed(self) -> bool:
        try:
            return not self.needs or importlib.util.find_spec(self.needs) is not None
        except ModuleNotFoundError:
            return False


def _is_attention(p: Any) -> bool:
    return isinstance(p, Problem)


def _is_plain(p: Any) -> bool:
    return _is_attention(p) and not any(p.settings.get(x) for x in ("alibi", "softcap", "window"))


def _is_of_rows(p: Any) -> bool:
    return isinstance(p, Rows)


def flash2(p: Problem, arrays: Any) -> Call:
    from torch.nn.attention import SDPBackend

    return _sdpa(p, arrays, SDPBackend.FLASH_ATTENTION)


def cudnn(p: Problem, arrays: Any) -> Call:
    from torch.nn.attention import SDPBackend

    return _sdpa(p, arrays, SDPBackend.CUDNN_ATTENTION)


def _sdpa(p: Problem, arrays: Any, backend: Any) -> Call:
    import torch.nn.functional as F
    from torch.nn.attention import sdpa_kernel

    q, k, v = arrays
    # torch aligns a causal mask at the start; for one last query there is none
    causal = bool(p.settings.get("causal")) and not p.is_decode

    def call() -> Any:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=p.heads != p.kv_heads
            )

    return call


def flex(p: Problem, arrays: Any) -> Call:
    """FlexAttention compiled for these extents, with a block mask where one helps."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # or every call would check the guards of all problems before
    q, k, v = arrays[:3]
    slope = arrays[3] if p.settings.get("alibi") else None
    cap, window = p.settings.get("softcap"), p.settings.get("window")
    offset = p.keys - p.queries

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if cap:
            s = cap * torch.tanh(s / cap)
        return s + slope[h] * (j - i - offset) if slope is not None else s

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        seen = j <= i + offset
        return seen & (i + offset - j < window) if window else seen

    masked = bool(p.settings.get("causal")) and (not p.is_decode or window)
    block_mask = (
        create_block_mask(mask, None, None, p.queries, p.keys, device=q.device) if masked else None
    )
    compiled = torch.compile(flex_attention, dynamic=False)
    score_mod = score if cap or slope is not None else None
    grouped = p.heads != p.kv_heads
    return lambda: compiled(q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=grouped)


def triton_by_hand(p: Problem, arrays: Any) -> Call:
    from neptune_mlir.bench import triton_peer

    return triton_peer.attention(p, arrays)


def flash4(p: Problem, arrays: Any) -> Call:
    from neptune_mlir.bench import flash4_peer

    return flash4_peer.attention(p, arrays)


def eager(p: Rows, arrays: Any) -> Call:
    return lambda: p.plain(arrays)


def compiled(p: Rows, arrays: Any, mode: str = "default") -> Call:
    import torch

    torch._dynamo.reset()
    fast = torch.compile(lambda *given: p.plain(given), dynamic=False, mode=mode)
    return lambda: fast(*arrays)


def autotuned(p: Rows, arrays: Any) -> Call:
    return compiled(p, arrays, "max-autotune-no-cudagraphs")


PEERS: dict[str, Peer] = {
    "flash2": Peer(_is_plain, flash2),
    "cudnn": Peer(_is_plain, cudnn),
    "flex": Peer(_is_attention, flex, compiles="problem"),
    "triton": Peer(lambda p: _is_attention(p) and not p.is_decode and p.queries % 128 == 0,
                   triton_by_hand, compiles="operator", tunes=True, needs="triton"),
    "flash4": Peer(_is_attention, flash4, compiles="operator", needs="flash_attn.cute"),
    "eager": Peer(_is_of_rows, eager),
    "compiled": Peer(_is_of_rows, compiled, compiles="problem"),
    "autotuned": Peer(_is_of_rows, autotuned, compiles="problem", tunes=True),
}  # fmt: skip
