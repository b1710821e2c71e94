# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The zoo: example programs that fuse with no hint, and what becomes of each.

`examine` compiles a program for the CPU fused and unfused, runs both on the same inputs, and
compares each with the definition in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from neptune_mlir import ops
from neptune_mlir.algebra.numerics.orders import ORDERS
from neptune_mlir.frontend.program import Program

Inputs = Callable[[np.random.Generator], Sequence[Any]]


@dataclass(frozen=True)
class Example:
    """A program and inputs for it.

    `note` says why it needs more than one pass, if it does. `hard` makes inputs on which a
    careless program loses its digits: data far from 0 for variances, logits in the hundreds.
    (Much larger logits decide nothing: softmax then picks one key, and the error is that of
    the few near ties, large or small by chance in the fused and the unfused program alike.)
    """

    name: str
    build: Callable[[], Program]
    inputs: Inputs
    note: str = ""
    hard: Inputs | None = None


@dataclass(frozen=True)
class Row:
    """What became of an example.

    Attributes:
        reductions: in the program as written.
        kernels: that the CPU runs, but for those that look at what masks are made of.
        corrections: form of each, in order.
        auxiliaries: accumulators that the solver added.
        passes: over the largest input.
        proved: every obligation.
        err, err_unfused: relative Frobenius error against the definition in float64, of the
            fused and of the unfused float32 program.
    """

    name: str
    reductions: int
    kernels: int
    corrections: list[str]
    auxiliaries: int
    passes: int
    proved: bool
    err: float
    err_unfused: float
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class GradientRow:
    """What became of the gradient of an example.

    Attributes:
        inputs: that it was differentiated for.
        reductions: of its gradient, those that it computes again included.
        kernels: that the CPU runs.
        free: maxima and minima that need no adjoint, by proof.
        off: how far the gradient in float64 is from central differences of the example in float64,
            along a random direction of each input, relative to the sum of absolute contributions.
        err, err_unfused: the larger relative Frobenius error of a gradient against float64, of the
            fused and of the unfused float32 program. A gradient of a few numbers that sum up
            thousands of terms has the luck of their order: where the unfused one is more than
            twice as exact, it takes its sums in other orders too (`reorder-sums`), and the
            largest error counts.
    """

    name: str
    inputs: int
    reductions: int
    kernels: int
    free: int
    off: float
    err: float
    err_unfused: float

    @property
    def right(self) -> bool:
        """Whether it is the gradient, and no worse in float32 than its unfused program."""
        return self.off < MAX_OFF and _is_as_exact(self.err, self.err_unfused)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "right": self.right}


def _is_as_exact(err: float, err_unfused: float) -> bool:
    return err <= 2 * err_unfused + ULP


ULP = 2.0**-23  # one unit in the last place of float32: below it neither error means anything
MAX_OFF = 1e-6  # central differences in float64 have 9 digits or so


def _normal(*shapes: tuple[int, ...], scale: float = 1.0, offset: float = 0.0) -> Inputs:
    def make(rng: np.random.Generator) -> list[Any]:
        return [(scale * rng.standard_normal(s) + offset).astype(np.float32) for s in shapes]

    return make


def _plus(first: Inputs, *more: Callable[[np.random.Generator], Any]) -> Inputs:
    return lambda rng: [*first(rng), *(m(rng) for m in more)]


def _integers(high: int, shape: tuple[int, ...], dtype: str) -> Callable[..., Any]:
    return lambda rng: rng.integers(0, high, shape).astype(dtype)


_QKV = _normal((2, 4, 97, 32), (2, 4, 97, 32), (2, 4, 97, 32))
_HEADS = _normal((4,))


def _first(change: Callable[[Any], Any], inputs: Inputs) -> Inputs:
    """The same inputs with the first array changed."""

    def make(rng: np.random.Generator) -> list[Any]:
        first, *others = inputs(rng)
        return [change(first).astype(np.float32), *others]

    return make


def _larger(inputs: Inputs) -> Inputs:
    return _first(lambda x: 100 * x, inputs)


def _far_from_zero(inputs: Inputs) -> Inputs:
    return _first(lambda x: x + 1000, inputs)


def _attention(name: str, inputs: Inputs = _QKV, **options: Any) -> Example:
    return Example(
        f"attention_{name}", lambda: ops.attention(head_dim=32, heads=4, **options), inputs,
        hard=_larger(inputs),
    )  # fmt: skip


def _per_head(rng: np.random.Generator) -> Any:
    return _HEADS(rng)[0]


_MATRIX = _normal((37, 251))
_SWEEP = "the result has the streamed axis, so the row is read again to write it"

_LABELS = _integers(251, (37,), "int64")
_LINEAR = _plus(_normal((37, 24), (251, 24)), _LABELS)
_NORM = _normal((37, 251), (251,), (251,))
_NORM_MATMUL = _normal((37, 251), (251,), (251,), (251, 40))

ZOO: tuple[Example, ...] = (
    Example("softmax", ops.softmax, _MATRIX, _SWEEP, _larger(_MATRIX)),
    Example("logsumexp", ops.logsumexp, _normal((37, 251), scale=30.0), hard=_larger(_MATRIX)),
    Example(
        "softmax_weighted_sum",
        lambda: ops.softmax_weighted_sum(width=24),
        _normal((37, 251), (251, 24)),
        hard=_larger(_normal((37, 251), (251, 24))),
    ),
    _attention("global"),
    _attention("causal", causal=True),
    _attention("window", causal=True, window=16),
    _attention("alibi", _plus(_QKV, _per_head), causal=True, alibi=True),
    _attention("softcap", causal=True, softcap=5.0),
    _attention("sink", _plus(_QKV, _per_head), sink=True),
    _attention("documents", _plus(_QKV, *[_integers(3, (2, 97), "int32")] * 2), documents=True),
    _attention("lse", causal=True, return_lse=True),
    Example(
        "cross_entropy", ops.cross_entropy, _plus(_MATRIX, _LABELS),
        hard=_larger(_plus(_MATRIX, _LABELS)),
    ),
    Example(
        "linear_cross_entropy", lambda: ops.linear_cross_entropy(width=24), _LINEAR,
        hard=_larger(_LINEAR),
    ),
    Example(
        "variance", ops.variance, _normal((37, 251), offset=1000.0),
        hard=_normal((37, 251), offset=10000.0),
    ),
    Example("layer_norm", ops.layer_norm, _NORM, _SWEEP, _far_from_zero(_NORM)),
    Example("rms_norm_matmul", ops.rms_norm_matmul, _normal((37, 251), (251,), (251, 40))),
    Example(
        "layer_norm_matmul", ops.layer_norm_matmul, _NORM_MATMUL,
        hard=_far_from_zero(_NORM_MATMUL),
    ),
    Example(
        "absmax_matmul", ops.absmax_matmul, _normal((37, 251), (251, 40)),
        hard=_first(lambda x: x * np.geomspace(1e-30, 1e30, 37)[:, None],
                    _normal((37, 251), (251, 40))),
    ),
    Example(
        "two_level_softmax", ops.two_level_softmax, _normal((13, 11, 29)),
        "one pass over the input for the groups; softmax over their results is a small second "
        "kernel, so that groups run in parallel",
        _larger(_normal((13, 11, 29))),
    ),
    Example(
        "performer",
        lambda: ops.performer(head_dim=16, features=40, v_dim=24),
        _normal((31, 16), (61, 16), (61, 24), (40, 16), scale=0.4),
        "keys and queries are two streams: the queries need the sums over all keys",
        _normal((31, 16), (61, 16), (61, 24), (40, 16), scale=3.0),
    ),
    Example(
        "log_weighted_mean", ops.log_weighted_mean, _normal((37, 251), (37, 251)),
        hard=_larger(_normal((37, 251), (37, 251))),
    ),
    Example("standardized_norms", ops.standardized_norms, _MATRIX, hard=_far_from_zero(_MATRIX)),
)  # fmt: skip


def find(names: Sequence[str]) -> list[Example]:
    """The examples of these names, all without any. Raises UsageError for an unknown one."""
    from neptune_mlir.errors import UsageError

    known = {e.name: e for e in ZOO}
    unknown = [n for n in names if n not in known]
    if unknown:
        raise UsageError(f"no example '{unknown[0]}'", hint=", ".join(known))
    return [known[n] for n in names] if names else list(ZOO)


def relative_error(got: Any, wanted: Any) -> float:
    """Frobenius norm of the difference over that of the reference; equal infinities agree."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    same = got == wanted
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, got - wanted)
    scale = np.linalg.norm(np.where(np.isfinite(wanted), wanted, 0.0))
    return float(np.linalg.norm(difference) / (scale or 1.0))


def examine(example: Example, seed: int = 0, hard: bool = False) -> Row:
    """Compile and run one example, on its hard inputs if asked and it has any; see `Row`."""
    program, kernel, unfused, planned = _compiled(example)
    make = example.hard if hard and example.hard else example.inputs
    arrays = list(make(np.random.default_rng(seed)))
    wanted = _as_list(program.reference(*arrays))
    err, err_unfused = (
        max(relative_error(g, w) for g, w in zip(_as_list(f(*arrays)), wanted, strict=True))
        for f in (kernel, unfused)
    )
    members = [len(f.group.running) for f in planned]
    running = [r for f in planned for r in f.solution.running]
    return Row(
        example.name,
        len(program.steps),
        sum(not launch.of_mask for launch in kernel.plan.launches),
        [r.correction.form for r in running if r.correction],
        len(running) - sum(members),
        2 if any(_sweeps_again(f) for f in planned) else 1,
        all(f.solution.proved for f in planned),
        err,
        err_unfused,
        example.note,
    )


@functools.lru_cache(1)  # plain and hard inputs of one example follow each other
def _compiled(example: Example) -> tuple[Program, Any, Any, Any]:
    """An example, its kernel, its unfused function, and the fusions that are planned for it."""
    from neptune_mlir.driver.compiler import compile_unfused, planned_fusions
    from neptune_mlir.driver.kernel import compile

    program = example.build()
    text = program.to_mlir()
    unfused = compile_unfused(text, program.name, None, vectorize=False)
    return program, compile(program), unfused, planned_fusions(text, program.name)


def _sweeps_again(fusion: Any) -> bool:
    group = fusion.group
    return any(group.stream in loops for loops in group.finish.values())


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def examine_gradient(example: Example, seed: int = 0, hard: bool = False) -> GradientRow:
    """Differentiate, compile and run one example; see `GradientRow`."""
    from neptune_mlir.driver.compiler import compile_unfused
    from neptune_mlir.driver.kernel import compile
    from neptune_mlir.frontend.gradient import grad
    from neptune_mlir.frontend.gradient.reverse import free_extrema

    program = example.build()
    gradient = grad(program)
    make = example.hard if hard and example.hard else example.inputs
    rng = np.random.default_rng(seed)
    arrays = list(make(rng))
    results = _as_list(program.reference(*arrays))
    cotangents = [rng.standard_normal(r.shape).astype(np.float32) for r in results]
    wanted = [_in_range(w) for w in _as_list(gradient.reference(*arrays, *cotangents))]
    kernel = compile(gradient)

    def error(function: Any) -> float:
        found = _as_list(function(*arrays, *cotangents))
        return max(relative_error(g, w) for g, w in zip(found, wanted, strict=True))

    def unfused(order: int) -> float:
        text = gradient.to_mlir()
        return error(compile_unfused(text, gradient.name, None, vectorize=False, order=order))

    err, err_unfused = error(kernel), unfused(0)
    others = iter(range(1, ORDERS + 1))
    while not _is_as_exact(err, err_unfused) and (order := next(others, 0)):
        err_unfused = max(err_unfused, unfused(order))
    names = [o.name.removeprefix("d_") for o in gradient.outputs]
    return GradientRow(
        example.name, len(names), len(gradient.steps), len(kernel.plan.launches),
        len(free_extrema(program)),
        max(
            differences(program, arrays, cotangents, list(program.inputs).index(name), g, rng)
            for name, g in zip(names, wanted, strict=True)
        ),
        err, err_unfused,
    )  # fmt: skip


def _in_range(gradient: Any) -> Any:
    """A gradient whose elements are 0 where float32 has nothing else for them."""
    wide = np.asarray(gradient)
    return np.where(np.abs(wide) < np.finfo(np.float32).smallest_subnormal, 0.0, wide)


def differences(
    program: Program, arrays: Sequence[Any], cotangents: Sequence[Any], k: int, gradient: Any,
    rng: np.random.Generator, step: float = 1e-6,
) -> float:  # fmt: skip
    """How far the gradient for input k, float64, is from central differences of the program's
    definition in float64 along a random direction, relative to the sum of absolute contributions.
    Steps are relative: they must not change which element is the largest, nor vanish.
    """
    base = np.asarray(arrays[k], np.float64)
    size = np.where(base == 0, 1.0, np.abs(base))
    direction = size * rng.standard_normal(base.shape)

    def moved(by: float) -> list[Any]:
        changed = [*arrays]
        changed[k] = base + by * direction
        return _as_list(program.reference(*changed))

    pairs = zip(moved(step), moved(-step), cotangents, strict=True)
    numeric = sum(float(np.sum((a - b) * c)) for a, b, c in pairs) / (2 * step)
    along = np.asarray(gradient) * direction
    return abs(numeric - float(along.sum())) / (float(np.abs(along).sum()) or 1.0)
