# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs of the kinds that collections of kernels for models have, small.

`PROGRAMS`: by name, a function or module and its arguments. Weights are constants.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Chain(nn.Module):
    """A function of tensors and of layers, which have weights."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *tensors):
        return self.function(*tensors, *self.layers)


def randn(*shape):
    return torch.randn(*shape, generator=_GENERATOR)


def linear(width=8):
    return nn.Linear(17, width)


_GENERATOR = torch.Generator().manual_seed(0)
torch.manual_seed(0)
ROWS, IMAGE, BATCH = randn(6, 33), randn(2, 4, 5, 6), randn(4, 17)
CLASSES = torch.randint(0, 10, (9,), generator=_GENERATOR)
MASK = torch.randint(0, 2, (6, 33), generator=_GENERATOR).bool()


def _of_rows(function):
    return function, (ROWS,)


def _of_image(module):
    return module.eval(), (IMAGE,)


def _of_linear(function, *more):
    return Chain(function, linear(), *more).eval(), (BATCH,)


ACTIVATIONS = {
    f.__name__: _of_rows(f)
    for f in (F.relu, F.gelu, F.softplus, F.softsign, F.elu, F.selu, F.hardtanh, F.hardsigmoid,
              F.hardswish, F.mish, F.silu, F.leaky_relu)
}  # fmt: skip
NORMS = {
    "softmax": _of_rows(lambda x: F.softmax(x, 1)),
    "log_softmax": _of_rows(lambda x: F.log_softmax(x, 1)),
    "l1_norm": _of_rows(lambda x: x / x.abs().sum(1, keepdim=True)),
    "l2_norm": _of_rows(lambda x: x / torch.norm(x, p=2, dim=1, keepdim=True)),
    "frobenius_norm": _of_rows(lambda x: x / torch.norm(x, p="fro")),
    "rms_norm": _of_rows(lambda x: x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-5)),
    "batch_norm": _of_image(nn.BatchNorm2d(4)),
    "instance_norm": _of_image(nn.InstanceNorm2d(4)),
    "group_norm": _of_image(nn.GroupNorm(2, 4)),
    "layer_norm": _of_image(nn.LayerNorm((4, 5, 6))),
}
REDUCTIONS = {
    "sum": _of_rows(lambda x: x.sum(1, keepdim=True)), "mean": _of_rows(lambda x: x.mean(0)),
    "max": _of_rows(lambda x: x.max(1)[0]), "argmax": _of_rows(lambda x: x.argmax(1)),
    "argmin": _of_rows(lambda x: x.argmin(0)), "cumsum": _of_rows(lambda x: x.cumsum(1)),
    "cumprod": _of_rows(lambda x: x.cumprod(1)),
    "cumsum_reversed": _of_rows(lambda x: x.flip(1).cumsum(1).flip(1)),
    "cumsum_beside_its_end": (  # Mamba 2: what an element leaves at the end of its chunk
        lambda a, x, b: torch.einsum(
            "bln,bhl,blhp->bhpn", b, ((t := a.cumsum(-1))[..., -1:] - t).exp(), x),
        (-randn(3, 8, 8).abs(), randn(3, 8, 8, 8), randn(3, 8, 8))),
    "cumsum_masked": (lambda x, mask: torch.cumsum(x * mask, 1), (ROWS, MASK)),
}  # fmt: skip
LOSSES = {
    "mse": (lambda x, y: ((x - y) ** 2).mean(), (ROWS, randn(6, 33))),
    "huber": (F.smooth_l1_loss, (ROWS, randn(6, 33))),
    "cross_entropy": (F.cross_entropy, (randn(9, 10), CLASSES)),
    "kl": (lambda x, y: F.kl_div(x.log(), y, reduction="batchmean"),
           (ROWS.softmax(1), randn(6, 33).softmax(1))),
    "triplet": (F.triplet_margin_loss, (ROWS, randn(6, 33), randn(6, 33))),
    "hinge": (lambda x, y: torch.clamp(1 - x * y, min=0).mean(), (randn(33), randn(33).sign())),
    "cosine": (lambda x, y: (1 - F.cosine_similarity(x, y, 1)).mean(), (ROWS, randn(6, 33))),
}  # fmt: skip
PRODUCTS = {
    "matmul": (torch.matmul, (randn(9, 17), randn(17, 11))),
    "bmm": (torch.bmm, (randn(2, 9, 17), randn(2, 17, 11))),
    "transposed": (lambda a, b: a.T @ b.T, (randn(17, 9), randn(11, 17))),
    "triangular": (lambda a, b: torch.tril(a @ b), (randn(9, 9), randn(9, 9))),
    "tensor_4d": (lambda a, b: torch.einsum("bijl,lk->bijk", a, b), (IMAGE, randn(6, 5))),
    "attention": (F.scaled_dot_product_attention, tuple(randn(1, 2, 9, 16) for _ in range(3))),
    "multihead": (Chain(lambda x, m: m(x, x, x, need_weights=False)[0],
                        nn.MultiheadAttention(16, 2, batch_first=True)).eval(), (randn(2, 7, 16),)),
}  # fmt: skip
AFTER_LINEAR = {
    "leaky": _of_linear(lambda x, m: F.leaky_relu(m(x) * 2, 0.1)),
    "sum_scale": _of_linear(lambda x, m: (m(x) / 2).sum(1, keepdim=True) * 1.5),
    "sigmoid_logsumexp": _of_linear(
        lambda x, m, n: torch.logsumexp(n(torch.sigmoid(m(x))), 1), nn.Linear(8, 5)
    ),
    "logsumexp_gelu": _of_linear(lambda x, m: F.gelu(torch.logsumexp(m(x), 1, keepdim=True))),
    "swish_clamp": _of_linear(lambda x, m: torch.clamp(torch.tanh(F.silu(m(x)) / 2), -0.5, 0.5)),
    "group_norm_hardtanh": _of_linear(lambda x, m, g: F.hardtanh(g(m(x))), nn.GroupNorm(2, 8)),
    "group_norm_min": _of_linear(
        lambda x, m, g: g(m(x)).min(1, keepdim=True)[0] + 1, nn.GroupNorm(2, 8)
    ),
    "batch_norm_gelu": _of_linear(lambda x, m, b: F.gelu(b(m(x))), nn.BatchNorm1d(8)),
    "batch_norm_softmax": _of_linear(lambda x, m, b: F.softmax(b(m(x)), 1), nn.BatchNorm1d(8)),
    "max_minus_mean": _of_linear(lambda x, m: F.gelu(m(x).max(1)[0] - m(x).mean(1))),
    "mish_twice": _of_linear(lambda x, m: F.mish(F.mish(m(x)))),
    "sigmoid_residual": _of_linear(lambda x, m: torch.sigmoid(m(x)) * 2 + m(x)),
    "perceptron": _of_linear(lambda x, m, n: n(F.relu(m(x))), nn.Linear(8, 5)),
}
PROGRAMS = ACTIVATIONS | NORMS | REDUCTIONS | LOSSES | PRODUCTS | AFTER_LINEAR
