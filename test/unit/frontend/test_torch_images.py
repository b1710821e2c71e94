# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Images whose elements look up what they are made of, beside torch's own."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.frontend.from_torch import from_torch  # noqa: E402
from neptune_mlir.frontend.torch_images import functions, resized  # noqa: E402

F = torch.nn.functional
OURS = functions(torch)
# size, kernel, dilation, padding, stride: places of no window, of one and of many
FOLDS = [
    ((6, 7), (3, 2), (1, 2), (1, 0), (2, 1)), ((8, 8), (2, 2), (1, 1), (0, 0), (2, 2)),
    ((7, 5), (1, 3), (1, 1), (0, 1), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "dilation", "padding", "stride"), FOLDS)
def test_fold(size, kernel, dilation, padding, stride):
    how = {"dilation": dilation, "padding": padding, "stride": stride}
    columns = torch.randn_like(F.unfold(torch.zeros(2, 3, *size), kernel, **how))
    got = OURS["col2im.default"](columns, size, kernel, dilation, padding, stride)
    torch.testing.assert_close(got, F.fold(columns, size, kernel, **how))


@pytest.mark.parametrize("rank", [2, 3])
def test_pools_that_random_numbers_place(rank):
    x, samples = torch.randn(2, 3, *(6, 9, 8)[:rank]), torch.rand(2, 3, rank)
    kernel, size = [2, 3, 2][:rank], [3, 4, 6][:rank]
    name = f"fractional_max_pool{rank}d"
    got = OURS[f"{name}.default"](x, kernel, size, samples)
    want = getattr(F, name)(x, kernel, size, _random_samples=samples, return_indices=True)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


def test_means_of_parts():
    x = torch.randn(2, 3, 6, 7, 5)
    for size in ((1, 2, 2), (4, 3, 5), (6, 9, 1)):
        got = OURS["_adaptive_avg_pool3d.default"](x, size)
        torch.testing.assert_close(got, F.adaptive_avg_pool3d(x, size))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased(mode):
    x = torch.randn(1, 2, 21, 16)
    x[0, 0, 20, 15] = torch.inf  # is in no mean that does not reach it
    for how in (
        {"size": (9, 5)}, {"scale_factor": 0.4}, {"scale_factor": (0.3, 1.7)},
        {"size": (30, 7), "align_corners": True},
        {"scale_factor": 0.4, "recompute_scale_factor": True},
    ):  # fmt: skip
        how = {"mode": mode, "antialias": True, **how}
        torch.testing.assert_close(resized(torch, x, **how), F.interpolate(x, **how))


def test_compiled():
    def program(x):
        pooled, at = F.max_pool2d(x, 2, return_indices=True)
        smaller = F.interpolate(x, size=(3, 5), mode="bilinear", antialias=True)
        return F.max_unpool2d(pooled, at, 2), F.fold(x.flatten(2), (4, 5), (2, 2)), smaller

    x = torch.randn(1, 4, 6, 2)
    module = from_torch(program, (x,))
    for got, want in zip(neptune_mlir.compile(module)(x), program(x), strict=True):
        torch.testing.assert_close(got, want)
    neptune_mlir.compile(module, target="sm_90a")  # without a loop
