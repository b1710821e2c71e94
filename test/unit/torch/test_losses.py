# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune_mlir.torch.linear_cross_entropy` beside torch's cross-entropy of a linear layer."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from neptune_mlir.errors import UsageError  # noqa: E402
from neptune_mlir.torch import linear_cross_entropy, losses  # noqa: E402
from neptune_mlir.torch.pieces import kept_at, kept_sizes, piece_sizes  # noqa: E402

ROWS, WIDTH, CLASSES, CHUNK = (3, 7), 24, 40, 24


def tensors():
    torch.manual_seed(0)
    x = torch.randn(*ROWS, WIDTH).requires_grad_()
    weight = torch.randn(CLASSES, WIDTH).requires_grad_()
    target = torch.randint(CLASSES, ROWS)
    target[0, 2:4] = -100
    return x, weight, target


def by_torch(x, weight, target, reduction="mean"):
    logits = (x @ weight.mT).view(-1, CLASSES)
    loss = torch.nn.functional.cross_entropy(logits, target.view(-1), reduction=reduction)
    return loss.view(target.shape) if reduction == "none" else loss


def test_loss_and_gradients():
    """Pieces of 24 and 16 classes; ignored rows have none."""
    x, weight, target = tensors()
    for reduction in ("mean", "none"):
        ours = linear_cross_entropy(x, weight, target, reduction=reduction, chunk=CHUNK)
        wanted = by_torch(x, weight, target, reduction)
        torch.testing.assert_close(ours, wanted)
        cotangent = torch.randn_like(wanted)
        found = torch.autograd.grad(ours, (x, weight), cotangent)
        for ours_of, torchs in zip(
            found, torch.autograd.grad(wanted, (x, weight), cotangent), strict=True
        ):
            torch.testing.assert_close(ours_of, torchs, rtol=1e-4, atol=1e-5)
    assert (found[0][0, 2:4] == 0).all()


@pytest.mark.usefixtures("small_tiles")
def test_kept_logits():
    """Two passes through one graph: what was kept is gone after the first one."""
    torch.manual_seed(0)
    x, weight = torch.randn(24, 24).requires_grad_(), torch.randn(210, 24).requires_grad_()
    target = torch.randint(210, (24,))
    target[2:4] = -100
    logits = x @ weight.mT
    wanted = torch.nn.functional.cross_entropy(logits, target)
    gradients = torch.autograd.grad(wanted, (x, weight))
    assert kept_sizes(210, 512, 24, 24) == [64, 64]  # and 82 others
    for chunk, first, count in ((512, kept_at(24 * 210, 24, 64), 64), (0, 0, 210)):
        kept = torch.ops.neptune.linear_cross_entropy(x, weight, target, chunk, True)[2]
        there = kept.view(-1)[first : first + 24 * count].view(24, count)
        torch.testing.assert_close(there, logits[:, 64:128] if chunk else logits)
        ours = linear_cross_entropy(x, weight, target, chunk=chunk)
        torch.testing.assert_close(ours, wanted)
        for _ in range(2):
            found = torch.autograd.grad(ours, (x, weight), retain_graph=True)
            for one, other in zip(found, gradients, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_kept_logits_are_apart():
    """The gradient of each piece is written before the logits that are read then or later."""
    for rows, width in ((8192, 4096), (1024, 4096), (4096, 4096), (1000, 7), (21, 24)):
        for classes, chunk in ((128256, 4096), (300, 24), (64, 8), (40, 4096), (5003, 512)):
            sizes = kept_sizes(classes, chunk, rows, width)
            rest, done = sum(sizes), 0
            assert all(size > 0 for size in sizes) and rest < classes
            for size in sizes:
                at = kept_at(classes * width, rows, rest)
                assert at % 64 == 0 and (done + size) * width <= at
                assert at + rows * size <= kept_at(classes * width, rows, rest - size)
                done, rest = done + size, rest - size
    sizes = kept_sizes(128256, 4096, 8192, 4096)
    assert sum(sizes) > 0.49 * 128256 and len(sizes) <= 12
    assert kept_sizes(40, 0, 3, 24) == [40] and kept_sizes(40, 0, 0, 24) == []


def test_one_gradient_alone_and_a_compiled_graph():
    x, weight, target = tensors()
    (wanted,) = torch.autograd.grad(by_torch(x, weight, target), (x,))
    frozen = weight.detach()
    (found,) = torch.autograd.grad(linear_cross_entropy(x, frozen, target, chunk=0), (x,))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    graph = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    (found,) = torch.autograd.grad(graph(x, frozen, target, chunk=0), (x,))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_second_derivative_is_refused():
    x, weight, target = tensors()
    loss = linear_cross_entropy(x, weight.detach(), target, chunk=0)
    (first,) = torch.autograd.grad(loss, (x,), create_graph=True)
    with pytest.raises(UsageError, match="second derivative"):
        first.sum().backward()


@pytest.mark.parametrize(("change", "says"), [
    ({"reduction": "max"}, "reduction"), ({"chunk": -1}, "chunk"),
    ({"target": torch.zeros(3, dtype=torch.int64)}, "target"),
    ({"weight": torch.zeros(CLASSES, WIDTH, dtype=torch.float64)}, "weight"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(change, says):
    x, weight, target = tensors()
    with pytest.raises(UsageError, match=says):
        linear_cross_entropy(**{"x": x, "weight": weight, "target": target, **change})


def test_many_pieces_lose_no_digits():
    """A sum of 64 parts in bf16 is off by 4 units in the last place; what is rounded is kept."""
    torch.manual_seed(0)
    x, weight = torch.randn(32, 24), 0.3 * torch.randn(512, 24)
    target = torch.randint(512, (32,))
    x, weight = (t.bfloat16().requires_grad_() for t in (x, weight))
    exact = x.double().detach().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(exact @ weight.double().mT, target)
    wanted.backward()
    loss = linear_cross_entropy(x, weight.detach(), target, chunk=8)
    (found,) = torch.autograd.grad(loss, (x,))
    assert (found.double() - exact.grad).norm() < 2.5e-3 * exact.grad.norm()


def test_sizes_of_pieces():
    """All of the classes, each once. The logits of a piece, 8192 rows for each class, find room in
    the gradient of the weight of those that follow, or it is small."""
    for classes in (1, 40, 4096, 10000, 32000, 128256):
        sizes = piece_sizes(classes, 4096, 8192, 4096)
        assert sum(sizes) == classes and min(sizes) > 0
        rest = classes
        for size in sizes:
            rest -= size
            assert 8192 * size <= rest * 4096 or size <= 512 or classes <= 4096
    assert len(piece_sizes(128256, 4096, 8192, 4096)) <= 20  # each one adds to a gradient
    assert piece_sizes(40, 24, 0, 24) == [24, 16] and piece_sizes(40, 40, 10**6, 24) == [40]


@pytest.mark.parametrize(("device", "kernels"), [("cuda", 1), ("cpu", 2)])
def test_pieces_of_all_sizes_share_a_kernel_on_gpus(device, kernels):
    """36 kernels, a minute and a half, were the first call of a loss with 128256 classes."""

    class Rows:
        shape, dtype, device = (8, 24), torch.bfloat16, None

    Rows.device = torch.device(device)
    assert len({losses._piece(Rows, size) for size in (64, 128)}) == kernels
