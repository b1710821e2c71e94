# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modifiers in the style of the public collections for FlexAttention, and what they mean.

`SCORE_MODS` and `MASK_MODS` map names to functions; `definition` applies them to one element at a
time, as Python runs them: no tracer, no vmap, no kernel.
"""

import itertools

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 4, 11, 13, 8
functional = torch.nn.functional
generator = torch.Generator().manual_seed(0)
slopes = torch.rand(HEADS, generator=generator)
holes = torch.where(torch.arange(HEADS) % 2 == 0, float("nan"), slopes)
temperature = torch.tensor(0.7)
documents = torch.sort(torch.randint(0, 3, (BATCH, KEYS + 3), generator=generator))[0].int()
distances = torch.rand(HEADS, QUERIES + KEYS, generator=generator)
pairs = torch.rand(1, HEADS, QUERIES, KEYS, generator=generator).bfloat16()
rope_q = torch.rand(BATCH, HEADS, QUERIES, 3, generator=generator)
rope_k = torch.rand(BATCH, 1, KEYS, 3, generator=generator)
offsets = torch.tensor([0, 4, 9, 16])
document_of = torch.repeat_interleave(torch.arange(3), offsets.diff())
prefixes = torch.tensor([3, 6], dtype=torch.int32)
intervals = torch.tensor([[0, 5], [2, 6], [4, 11], [1, 3]], dtype=torch.int32)
image_of = torch.repeat_interleave(torch.arange(4), 4)
modalities = torch.tensor([[[0, 3, 4], [1, 8, 2]], [[0, 1, 5], [1, 7, 3]]])
lengths = torch.tensor([9, 12], dtype=torch.uint8)


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv, width=4):
    return q - kv <= width


def document(b, h, q, kv):
    return documents[b, q] == documents[b, kv]


def ragged(mask_mod):
    """Documents one after the other, each with positions of its own."""

    def inner(b, h, q, kv):
        start_q, start_kv = offsets[document_of[q]], offsets[document_of[kv]]
        same = document_of[q] == document_of[kv]
        return same & mask_mod(b, h, q - start_q, kv - start_kv)

    return inner


def natten(b, h, q, kv, width=4, reach=1):
    center_x = (q // width).clamp(reach, width - 1 - reach)
    center_y = (q % width).clamp(reach, width - 1 - reach)
    near_x = (center_x - kv // width).abs() <= reach
    return near_x & ((center_y - kv % width).abs() <= reach)


def _unwoven(code):
    code = code & 0x5555
    code = (code | (code >> 1)) & 0x3333
    return (code | (code >> 2)) & 0x0F0F


def morton_natten(b, h, q, kv):
    near = (_unwoven(q).clamp(1, 2) - _unwoven(kv)).abs() <= 1
    return near & ((_unwoven(q >> 1).clamp(1, 2) - _unwoven(kv >> 1)).abs() <= 1)


def dilated(b, h, q, kv):
    distance = torch.abs(q - kv)
    return (distance <= 6) & (distance % 2 == 0)


def flamingo(b, h, q, kv):
    interval = intervals[image_of[kv]]
    return (q >= interval[0]) & (q < interval[1])


def transfusion(b, h, q, kv):
    seen = q >= kv
    for _, start, length in modalities[b]:
        seen = seen | ((q >= start) & (q < start + length) & (kv >= start) & (kv < start + length))
    return seen


def transfusion_at_once(b, h, q, kv):
    start, end = modalities[b, :, 1], modalities[b, :, 1] + modalities[b, :, 2]
    return (q >= kv) | torch.any((q >= start) & (q < end) & (kv >= start) & (kv < end))


def padded(b, h, q, kv):
    return kv < lengths[b]


class Window:
    """A modifier with state: no closure to look into."""

    def __init__(self, width):
        self.width = width

    def __call__(self, b, h, q, kv):
        return (q - kv).abs() < self.width


MASK_MODS = {
    "causal": causal, "noop": noop_mask, "document": document, "ragged": ragged(causal),
    "natten": natten, "morton natten": morton_natten, "dilated": dilated, "flamingo": flamingo,
    "transfusion": transfusion, "transfusion at once": transfusion_at_once, "padded": padded,
    "prefix": or_masks(causal, lambda b, h, q, kv: kv < prefixes[b]),
    "window": and_masks(causal, window), "object": Window(3),
    "sink": and_masks(causal, or_masks(window, lambda b, h, q, kv: kv < 2)),
    "dead rows": lambda b, h, q, kv: (q > 3) & (kv < q),
    "not": lambda b, h, q, kv: ~((q % 3 == 0) ^ (kv % 2 == 0)),
    "by head": lambda b, h, q, kv: torch.where(h < 2, q >= kv, q <= kv),
}  # fmt: skip

SCORE_MODS = {
    "alibi": lambda s, b, h, q, kv: s + (q - kv) * torch.exp2(-((h + 1) * 8.0 / HEADS)),
    "slopes": lambda s, b, h, q, kv: s + slopes[h] * (kv - q),
    "shared slopes": lambda s, b, h, q, kv: s + slopes[h // 2] * (kv - q),
    "softcap": lambda s, b, h, q, kv: 2 * torch.tanh(s / 2),
    "temperature": lambda s, b, h, q, kv: s * temperature + torch.tensor(0.5) * h,
    "symmetric": lambda s, b, h, q, kv: s - slopes[h] * (q - kv).abs(),
    "distances": lambda s, b, h, q, kv: s + distances[h, q - kv + KEYS],
    "pairs": lambda s, b, h, q, kv: s + pairs[0, h, q, kv],
    "rope": lambda s, b, h, q, kv: s + 0.3 * torch.dot(rope_q[b, h, q], rope_k[b, h // 4, kv]),
    "gelu": lambda s, b, h, q, kv: functional.gelu(s) - functional.gelu(s, approximate="tanh") / 2,
    "soft": lambda s, b, h, q, kv: functional.softplus(s, 2, 1) - functional.elu(s, 0.5),
    "hard": lambda s, b, h, q, kv: functional.hardtanh(s) + functional.hardswish(2 * s),
    "leaky": lambda s, b, h, q, kv: functional.leaky_relu(s) - functional.threshold(s, 0.1, 0.2),
    "logit": lambda s, b, h, q, kv: torch.logit(torch.sigmoid(s), 0.3) + functional.hardsigmoid(s),
    "between": lambda s, b, h, q, kv: torch.lerp(s, s * s, 0.7) + torch.square(s),
    "multiplied": lambda s, b, h, q, kv: torch.addcmul(s, s, slopes[h], value=2).addcdiv(s, s + 9),
    "silu": lambda s, b, h, q, kv: functional.silu(s) - torch.sigmoid(s),
    "nan": lambda s, b, h, q, kv: torch.where(torch.isnan(holes[h]), s, holes[h] * s),
    "in place": lambda s, b, h, q, kv: s.clone().add_(q % (kv + 1)),
    "where": lambda s, b, h, q, kv: torch.where(q >= kv, s, -float("inf")),
    "constant": lambda s, b, h, q, kv: 1.0,
}  # fmt: skip


def definition(q, k, v, scale, score_mod=None, mask_mod=None):
    """Output and log-sum-exp in float64, modifiers called on one element at a time."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = scale * q @ k.mT
    for at in itertools.product(*map(range, s.shape)):
        place = [torch.tensor(n, dtype=torch.int32) for n in at]
        if score_mod:
            s[at] = score_mod(s[at].clone(), *place)
        if mask_mod and not mask_mod(*place):
            s[at] = -torch.inf
    lse = torch.logsumexp(s, -1)
    return torch.exp(s - lse[..., None]).nan_to_num(0.0) @ v, lse


def tensors(dtype=torch.float32, queries=QUERIES, keys=KEYS, kv_heads=HEADS):
    """q, k and v with a seed of their own."""
    made = torch.Generator().manual_seed(1)
    shapes = [(BATCH, HEADS, queries, DIM)] + [(BATCH, kv_heads, keys, DIM)] * 2
    return [torch.randn(shape, generator=made, dtype=torch.float64).to(dtype) for shape in shapes]
