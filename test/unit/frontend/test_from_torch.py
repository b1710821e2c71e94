# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs beyond maps and reductions: scans, sorts, scatters, state, nothing at all."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_mlir")

import neptune_mlir  # noqa: E402
from neptune_mlir.driver import compiler  # noqa: E402
from neptune_mlir.errors import InputError, NeptuneError  # noqa: E402
from neptune_mlir.frontend.from_torch import BUFFER, from_torch  # noqa: E402
from neptune_mlir.ir.bindings import location_text  # noqa: E402

torch.manual_seed(0)
X = torch.randn(3, 9)
HOSTILE = X.clone()
HOSTILE[0, 2], HOSTILE[0, 5], HOSTILE[1, :4], HOSTILE[2, 7] = torch.nan, torch.inf, 1.0, -0.0


def run(program, *arguments):
    kernel = neptune_mlir.compile(from_torch(program, arguments, raised=False))
    found = kernel(*(a.numpy() for a in arguments))
    return found if isinstance(found, tuple) else (found,)


def test_scans():
    """Sums of at most 9, and of 90 in blocks, of numbers about 1: within 1e-5 of float64."""
    long = torch.randn(2, 90)

    def program(x, long):
        return x.cumsum(1), x.cumprod(0), long.cumsum(1)

    wanted = program(X.double(), long.double())
    for got, want in zip(run(program, X, long), wanted, strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-5)


def test_sorts_are_stable_and_have_nans_last():
    def program(x):
        return *torch.sort(x, 1), *torch.sort(x, 1, True), torch.topk(x, 2, 1)[0]

    rising = torch.sort(HOSTILE, dim=1, stable=True)
    falling = torch.sort(HOSTILE, dim=1, descending=True, stable=True)
    wanted = (*rising, *falling, falling[0][:, :2])
    for got, want in zip(run(program, HOSTILE), wanted, strict=True):
        np.testing.assert_array_equal(got, want.numpy())
        if got.dtype == np.float32:
            np.testing.assert_array_equal(np.signbit(got), torch.signbit(want).numpy())


def test_scatters():
    at, new, long = torch.tensor([2, 0, 2, 1]), torch.randn(4, 9), torch.randn(40000)

    def program(x, at, new, long):
        return (
            x.index_add(0, at, new), x.index_put((at[:2],), new[:2]),
            long.index_put((at[:2],), new[0, :2]),  # in order: too many pairs to compare
        )  # fmt: skip

    for got, want in zip(run(program, X, at, new, long), program(X, at, new, long), strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-6)
    text = str(from_torch(program, (X, at, new, long), raised=False))
    with pytest.raises(NeptuneError, match=r"'scf\.for' outside of any kernel") as caught:
        compiler.compile_text(text, "f.mlir", "sm_80", None, None)
    assert "on the CPU alone" in caught.value.hint


def test_tensors_without_elements():
    def program(x):
        empty = x[:, :0]
        return empty.reshape(0, 3), empty.flatten().sum(), torch.cat([x, empty], 1)

    for got, want in zip(run(program, X), program(X), strict=True):
        assert got.shape == tuple(want.shape)
        np.testing.assert_array_equal(got, want.numpy())


def test_tensors_without_dimensions():
    """Along their only dimension: torch-mlir refuses the scan, and never ends with the softmax."""

    def program(x):
        norms = torch.logsumexp(x, 0, True), torch.linalg.norm(x)
        return torch.softmax(x, 0), x.cumsum(-1), *torch.sort(x, 0), *norms, torch.argmax(x)

    number = torch.tensor(0.75)
    wanted = (1.0, 0.75, 0.75, 0, 0.75, 0.75, 0)
    for got, want in zip(run(program, number), wanted, strict=True):
        assert got.shape == () and got == want


def test_variances_and_rolls():
    """Sums of at most 45 squares about 1, in float32: within 1e-5 of float64."""
    x = torch.randn(5, 9)
    x[:, 3] = torch.tensor([100.0, -torch.inf, 200.0, torch.inf, -50.0])

    def program(x):
        y = x[:, :3]
        return (
            *torch.var_mean(y, 1), y.std(correction=0), y.var(0, correction=3),
            torch.roll(x, -1), torch.roll(x, (0, 2), (0, 1)), x[:0].var(),
            torch.linalg.norm(y, 1), torch.linalg.norm(y, -torch.inf), torch.dist(y, 2 * y),
        )  # fmt: skip

    assert "f64" not in str(from_torch(program, (x,), raised=False))
    for got, want in zip(run(program, x), program(x.double()), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)
    (got,) = run(lambda x: torch.logcumsumexp(x, 0), x)
    np.testing.assert_allclose(got, torch.logcumsumexp(x.double(), 0).numpy(), rtol=1e-5)


def test_group_norms():
    """Normalised numbers, of 30 each: within 1e-5."""
    torch.manual_seed(0)
    norm = torch.nn.GroupNorm(4, 12)
    torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 12, 5, 2)
    module = from_torch(norm, (x,))
    assert "f64" not in str(module) and "linalg.generic" not in str(module)
    wanted = norm.double()(x.double()).detach().numpy()
    np.testing.assert_allclose(neptune_mlir.compile(module)(x.numpy()), wanted, atol=1e-5)


def test_written_arguments_are_named():
    def program(x, running):
        return x - running.add_(x.sum(0))

    with pytest.warns(UserWarning, match="result 0 is buffer 'args_1'"):
        from_torch(program, (X, torch.zeros(9)), raised=False)


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(9))

    def forward(self, x):
        self.seen.add_(x.sum(0))
        return x - self.seen


def test_written_buffers_are_named():
    with pytest.warns(UserWarning, match="result 0 is buffer 'seen'"):
        module = from_torch(Counts(), (X,), raised=False)
    assert f'{BUFFER} = "seen"' in str(module)
    seen, moved = neptune_mlir.compile(module)(X.numpy())
    np.testing.assert_allclose(seen, X.sum(0).numpy(), atol=1e-5)
    np.testing.assert_allclose(moved, (X - X.sum(0)).numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        # a number, or a constant, is what the lowering stumbles over
        (torch.fft.fft, "torch.aten.fft_fft"),
        (torch.unique_consecutive, "torch.aten.unique_consecutive"),
        (lambda x: torch.combinations(x[:1], r=1), "torch.aten.masked_select"),
        (lambda x: x[x > 0], "torch.aten.index.Tensor"),  # torch-mlir does not end
        # what torch cannot export
        (lambda x: torch.ctc_loss(
            x[:, None, None].expand(5, 1, 3), x[None, :2].long(), x[:1].long(), x[:1].long()
        ), "aten.ctc_loss.Tensor"),
        # what we do not write as other operations
        (lambda x: torch.linalg.norm(x[None] * x[:, None], 2), "aten.linalg_norm"),
    ],
)
def test_a_refusal_names_the_operation(program, name):
    with pytest.raises(InputError) as caught:
        from_torch(program, (torch.randn(5),))
    assert f"'{name}'" in str(caught.value) and caught.value.loc


def test_weights_of_bags_count():
    """torch-mlir loses them."""
    table, weights = torch.randn(10, 5), torch.rand(5)
    indices, bags = torch.tensor([1, 4, 2, 7, 4]), torch.tensor([0, 3])

    def program(indices, table, bags, weights):
        return torch.nn.functional.embedding_bag(
            indices, table, bags, mode="sum", per_sample_weights=weights
        )

    given = indices, table, bags, weights
    found = neptune_mlir.compile(from_torch(program, given))(*given)
    torch.testing.assert_close(torch.as_tensor(found), program(*given))


def dropping():
    return torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.Dropout(0.3), torch.nn.ReLU())


def noisy_attention(x):
    x = x[None, None]
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (dropping(), "dropout"),
        (noisy_attention, "scaled_dot_product_attention"),
        (lambda x: x + torch.rand_like(x), "rand_like"),
        (torch.bernoulli, "bernoulli"),
        (torch.nn.functional.gumbel_softmax, "gumbel_softmax"),
    ],
)
def test_random_numbers_are_refused_by_name(program, name):
    with pytest.raises(InputError, match=f"'{name}' draws random numbers") as caught:
        from_torch(program, (X,), raised=False)
    assert caught.value.loc and "eval()" in caught.value.hint


STATE = """
ml_program.global private mutable @seed(dense<0> : tensor<i64>) : tensor<i64>
func.func @main() -> tensor<i64> {
  %0 = ml_program.global_load @seed : tensor<i64>
  return %0 : tensor<i64>
}
"""


def test_state_of_another_importer_is_named():
    with pytest.raises(InputError, match=r"'ml_program\.global_load' keeps state") as caught:
        neptune_mlir.compile(STATE)
    assert caught.value.loc and "pass them" in caught.value.hint


def test_a_module_is_imported_in_its_mode_and_keeps_it():
    module = dropping()
    module[1].eval()  # as a model of which parts are frozen
    assert "linalg" in str(from_torch(module, (X,), raised=False))
    assert module.training and not module[1].training
    norm = torch.nn.BatchNorm1d(9)
    with pytest.warns(UserWarning, match="is buffer 'running_mean'"):
        made = neptune_mlir.compile(from_torch(norm, (X,)))(X.numpy())
    assert len(made) == 4, "what training writes, too"
    np.testing.assert_allclose(made[-1], norm(X).detach(), atol=1e-5)
    assert len(from_torch(norm.eval(), (X,)).operation.regions[0].blocks[0].operations) == 1


def test_ops_without_lowering_are_named():
    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    with pytest.raises(InputError, match=r"cannot lower 'torch\.aten\.special_airy_ai'") as caught:
        from_torch(Module(), (X,), raised=False)
    line = inspect.getsourcelines(Module.forward)[1] + 1
    assert caught.value.loc == f"{__file__}:{line}" and caught.value.hint
    with pytest.raises(InputError, match=r"'aten\.linalg_norm' of order 2 needs singular"):
        from_torch(lambda x: torch.linalg.norm(x, 2), (X,), raised=False)


def pooled(x):
    y = torch.relu(x)
    return torch.nn.functional.avg_pool3d(y, (2, 2, 2), (), (0,), False, True, -2)


def test_what_an_operation_became_is_refused_by_its_name_and_line():
    """torch-mlir takes no strides for strides of 1, and says so of a cast of its own."""
    line = inspect.getsourcelines(pooled)[1] + 2
    with pytest.raises(InputError, match=r"'tensor\.cast' op operand") as caught:
        from_torch(pooled, (torch.randn(1, 1, 4, 4, 4),), raised=False)
    assert caught.value.loc == f"{__file__}:{line} ('torch.aten.avg_pool3d')"
    assert caught.value.hint and "loc(" not in caught.value.message


def test_ops_that_are_lowered_keep_the_name_and_the_line_of_their_operation():
    scale = 2.0

    def program(x, *, offset=1.0):
        return torch.exp(x * scale + offset)

    made = from_torch(program, (X,)).operation
    line = inspect.getsourcelines(program)[1] + 1
    (function,) = made.regions[0].blocks[0].operations
    nest = function.regions[0].blocks[0].operations[0]
    assert location_text(nest.location).startswith(f"{__file__}:{line} ('torch.aten.")
    text = made.get_asm(enable_debug_info=True)
    assert "exp'" in text and "/frontend/from_torch.py" not in text


def test_a_bundle_knows_no_lines():
    def first(x):
        return torch.softmax(x * 2, -1)

    def second(x):
        return torch.softmax(x * 2, -1)

    made = [from_torch(f, (X,)).operation.get_asm(enable_debug_info=True) for f in (first, second)]
    one, two = (compiler.compile_text(t, "x", "cpu", None, None).to_bytes() for t in made)
    assert made[0] != made[1] and one == two and b"test_from_torch" not in one
    assert neptune_mlir.compile(made[0]) and neptune_mlir.compile(made[1]).cached


def test_lines_of_programs_that_torch_cannot_export():
    def program(x):
        return torch.cdist(x, x.mT)

    with pytest.raises(InputError, match=r"cannot import the torch program") as caught:
        from_torch(program, (X,), raised=False)
    assert "functional.py" in caught.value.loc and "(cdist)" in caught.value.loc


def test_layers_do_not_look_at_their_mask():
    """torch compares it with the causal one, which is a branch on numbers."""
    layer = torch.nn.TransformerDecoderLayer(8, 2, 8, dropout=0, batch_first=True).eval()
    layers, x = torch.nn.TransformerDecoder(layer, 1), torch.randn(2, 3, 8)
    masks = (torch.ones(3, 3).triu(1) > 0, torch.ones(3, 3).tril(-1) > 0)
    texts = {str(from_torch(layers, (x, x, mask), raised=False)) for mask in masks}
    assert len(texts) == 1


@pytest.mark.parametrize("function", [torch.linalg.det, torch.logdet])
def test_large_determinants_are_refused_by_name(function):
    """torch-mlir chooses no pivots: NaN for [[0, 1], [2, 3]]."""
    with pytest.raises(InputError, match=r"linalg_(slog)?det' has no lowering that chooses pivots"):
        from_torch(lambda x: function(x), (torch.eye(257),))


def test_unsigned_results():
    """Bytes above 127 come back as what they are; signed ones beside them as well."""
    given = torch.tensor([[1, 100, 120, 7]], dtype=torch.int32)

    def program(x):
        return (x * 2).to(torch.uint8), (x + 1).to(torch.int8)

    for got, want in zip(run(program, given), program(given), strict=True):
        assert got.dtype == want.numpy().dtype
        np.testing.assert_array_equal(got, want.numpy())


def test_covariance():
    """torch looks whether there are weights, which torch.export refuses."""

    def program(x):
        return torch.cov(x), x[0].cov(correction=0), torch.corrcoef(x.T)

    for got, want in zip(run(program, X), program(X.double()), strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-6)


def test_distributions_take_what_they_get(monkeypatch):
    """Their checks are looks at numbers, too: they are off while a program is exported."""
    of = torch.distributions
    monkeypatch.setattr(of.Distribution, "_validate_args", True)  # torch.compile turns it off

    def program(x, chosen):
        policy = of.Categorical(logits=x)
        old = of.Normal(x.tanh(), 1.0)
        return policy.log_prob(chosen), policy.entropy(), of.kl_divergence(old, of.Normal(x, 2.0))

    from_torch(program, (X, torch.tensor([0, 8, 3])), raised=False)
    with pytest.raises(ValueError):
        of.Categorical(probs=-X)  # only while


@pytest.mark.parametrize(
    "program", [lambda x: x + 1 if x.max() > 0 else x, lambda x: x[0] if x.sum().item() > 1 else x]
)
def test_branches_on_numbers_are_refused_at_their_line(program, capfd):
    with pytest.raises(InputError, match="branches on the numbers of a tensor") as caught:
        from_torch(program, (X,))
    assert caught.value.loc.startswith(__file__) and "torch.where" in caught.value.hint
    assert "def forward" not in capfd.readouterr().err  # nor what torch prints of it


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="torch before 2.13")
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_losses_in_chunks_are_losses(reduction):
    weight, classes = torch.randn(5, 9), torch.tensor([4, 0, 2])

    def imported(options):
        def program(x):
            return torch.nn.functional.linear_cross_entropy(
                x, weight, classes, reduction=reduction, options=options
            )

        return str(from_torch(program, (X,)))

    assert imported(torch.nn.LinearCrossEntropyOptions()) == imported(None)
