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
        gpu: it runs on GPUs alone.
    """

    can: Callable[[Any], bool]
    make: Callable[[Any, Any], Call]
    compiles: str = ""
    tunes: bool = False
    needs: str = ""
    gpu: bool = False

    @property
    def installed(self) -> bool:
        try:
            return not self.needs or importlib.util.find_spec(self.needs) is not None
        except ModuleNotFoundError:
            return False


def _is_attention(p: Any) -> bool:
    return isinstance(p, Problem)


def _has(p: Problem, *names: str) -> bool:
    return any(p.settings.get(name) for name in names)


def _is_plain(p: Any) -> bool:
    """Attention without modifiers; a causal mask may be aligned at the end."""
    modified = ("alibi", "softcap", "window", "sink", "documents", "bias")
    return _is_attention(p) and p.dtype != "f32" and not _has(p, *modified)


def _is_of_rows(p: Any) -> bool:
    return isinstance(p, Rows)


def _is_masked(p: Problem) -> bool:
    """Whether some query does not see all keys for its position alone."""
    return _has(p, "window") or (_has(p, "causal") and not p.is_decode)


def _for_cudnn(p: Any) -> bool:
    if not _is_attention(p) or _has(p, "alibi", "softcap", "window", "sink", "documents", "lse"):
        return False
    return not _is_masked(p) or p.queries == p.keys


def flash2(p: Problem, arrays: Any) -> Call:
    """As torch calls it; with the log-sum-exp, or a causal mask that is aligned at the end, by the
    operator below."""
    import torch
    from torch.nn.attention import SDPBackend

    causal = _is_masked(p)
    if not _has(p, "lse") and (not causal or p.queries == p.keys):
        return _sdpa(p, arrays, SDPBackend.FLASH_ATTENTION)
    run = torch.ops.aten._scaled_dot_product_flash_attention

    def call() -> Any:
        out, sums, *_ = run(*arrays[:3], 0.0, causal, False)
        return (out, sums) if _has(p, "lse") else out

    return call


def cudnn(p: Problem, arrays: Any) -> Call:
    from torch.nn.attention import SDPBackend

    return _sdpa(p, arrays, SDPBackend.CUDNN_ATTENTION)


def sdpa(p: Problem, arrays: Any) -> Call:
    """What torch chooses; whatever is added to scores or hides them is one bias, made before."""
    return _sdpa(p, arrays, None)


def _for_sdpa(p: Any) -> bool:
    return _is_attention(p) and not _has(p, "softcap", "sink", "lse")


def _sdpa(p: Problem, arrays: Any, backend: Any) -> Call:
    from contextlib import nullcontext

    import torch.nn.functional as F
    from torch.nn.attention import sdpa_kernel

    q, k, v = arrays[:3]
    square = p.queries == p.keys  # torch aligns a causal mask at the start
    alone = not _has(p, "window", "alibi", "documents", "bias")
    causal = _is_masked(p) and square and alone
    bias = None if causal else bias_of(p, arrays)

    def call() -> Any:
        with nullcontext() if backend is None else sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, is_causal=causal, enable_gqa=p.heads != p.kv_heads
            )

    return call


def bias_of(p: Problem, arrays: Any) -> Any:
    """What is added to the scores before the softmax as one tensor; None: nothing."""
    import torch

    extra = p.extra(arrays)
    found = extra["bias"][None] if "bias" in extra else None
    q = arrays[0]
    position = torch.arange(p.queries, device=q.device)[:, None] + (p.keys - p.queries)
    if "alibi" in extra:
        distance = torch.arange(p.keys, device=q.device)[None, :] - position
        slopes = (extra["alibi"][:, None, None] * distance).to(q.dtype)[None]
        found = slopes if found is None else found + slopes
    if _is_masked(p) or "documents" in extra:
        hidden = p.hidden(position, extra)
        found = torch.zeros_like(hidden, dtype=q.dtype)[None, None] if found is None else found
        found = found.masked_fill(hidden, float("-inf"))
    return found


def flex(p: Problem, arrays: Any) -> Call:
    """FlexAttention compiled for these extents, with a block mask where one helps."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # or every call would check the guards of all problems before
    q, k, v = arrays[:3]
    extra = p.extra(arrays)
    slope, bias, document = (extra.get(name) for name in ("alibi", "bias", "documents"))
    cap, window = p.settings.get("softcap"), p.settings.get("window")
    offset, causal = p.keys - p.queries, p.settings.get("causal")

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if cap:
            s = cap * torch.tanh(s / cap)
        if slope is not None:
            s = s + slope[h] * (j - i - offset)
        return s + bias[h, i, j] if bias is not None else s

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        seen = j <= i + offset if causal else j >= 0
        if document is not None:
            seen = seen & (document[b, i + offset] == document[b, j])
        return seen & (i + offset - j < window) if window else seen

    block_mask = None
    if _is_masked(p) or document is not None:
        batch = p.batch if document is not None else None
        block_mask = create_block_mask(mask, batch, None, p.queries, p.keys, device=q.device)
    modified = cap or slope is not None or bias is not None
    sums, sink = _has(p, "lse"), extra.get("sink")

    def attention(q: Any, k: Any, v: Any) -> Any:
        made = flex_attention(
            q, k, v, score_mod=score if modified else None, block_mask=block_mask,
            enable_gqa=p.heads != p.kv_heads, return_lse=sums or sink is not None,
        )  # fmt: skip
        if sink is None:
            return made
        out, of_keys = made
        out = out * torch.sigmoid(of_keys - sink[:, None])[..., None].to(out.dtype)
        return (out, torch.logaddexp(of_keys, sink[:, None])) if sums else out

    fast = torch.compile(attention, dynamic=False)
    return lambda: fast(q, k, v)


def triton_by_hand(p: Problem, arrays: Any) -> Call:
    from neptune_mlir.bench.kernels import by_hand

    return by_hand.attention(p, arrays)


def flash4(p: Problem, arrays: Any) -> Call:
    from neptune_mlir.bench.kernels import flash4 as kernel

    return kernel.attention(p, arrays)


def quack(p: Rows, arrays: Any) -> Call:
    """Kernels of the package of this name."""
    from quack.cross_entropy import cross_entropy
    from quack.rmsnorm import layernorm_fwd, rmsnorm
    from quack.softmax import softmax

    x, *others = arrays
    wide = [a.float() for a in others] if p.program == "layer_norm" else others
    calls: dict[str, Call] = {
        "softmax": lambda: softmax(x),
        "rms_norm": lambda: rmsnorm(x, *others, eps=1e-6),
        "layer_norm": lambda: layernorm_fwd(x, *wide, eps=1e-5),
        "cross_entropy": lambda: cross_entropy(x, *others, reduction="none"),
    }
    return calls[p.program]


def eager(p: Rows, arrays: Any) -> Call:
    return lambda: p.plain(arrays)


def compiled(p: Rows, arrays: Any, mode: str = "default") -> Call:
    import torch

    torch._dynamo.reset()
    fast = torch.compile(lambda *given: p.plain(given), dynamic=False, mode=mode)
    return lambda: fast(*arrays)


def autotuned(p: Rows, arrays: Any) -> Call:
    return compiled(p, arrays, "max-autotune-no-cudagraphs")


def _by_hand(p: Any) -> bool:
    """What the kernel by hand in Triton was written for."""
    other = ("sink", "documents", "bias", "lse", "v_dim")
    return (_is_attention(p) and not p.is_decode and p.queries % 128 == 0
            and not _has(p, *other) and not p.head_dim & (p.head_dim - 1))  # fmt: skip


def _for_flash4(p: Any) -> bool:
    return _is_attention(p) and not _has(p, "documents", "bias")


def _for_quack(p: Any) -> bool:
    known = ("softmax", "rms_norm", "layer_norm", "cross_entropy")
    return _is_of_rows(p) and p.program in known and p.settings["cols"] % 8 == 0


PEERS: dict[str, Peer] = {
    "flash2": Peer(_is_plain, flash2, gpu=True),
    "cudnn": Peer(_for_cudnn, cudnn, gpu=True),
    "sdpa": Peer(_for_sdpa, sdpa),
    "flex": Peer(_is_attention, flex, compiles="problem"),
    "triton": Peer(_by_hand, triton_by_hand, compiles="operator", tunes=True, needs="triton",
                   gpu=True),
    "flash4": Peer(_for_flash4, flash4, gpu=True, compiles="operator", needs="flash_attn.cute"),
    "eager": Peer(_is_of_rows, eager),
    "compiled": Peer(_is_of_rows, compiled, compiles="problem"),
    "autotuned": Peer(lambda p: _is_of_rows(p) and p.flops > 0, autotuned, compiles="problem",
                      tunes=True, gpu=True),
    "quack": Peer(_for_quack, quack, compiles="problem", needs="quack", gpu=True),
}  # fmt: skip
