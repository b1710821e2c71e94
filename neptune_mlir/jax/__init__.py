# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""neptune in JAX: `jit` compiles a JAX function, `call` calls a program; both under `jax.jit`.

    import neptune_mlir.jax as nj

    attention = nj.jit(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v)      # a function of JAX
    out = nj.call(neptune.ops.attention(head_dim=64), q, k, v)           # a program of neptune

Needs jax 0.5 or later (`pip install 'neptune-mlir[jax]'`). `import neptune_mlir` imports no JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from neptune_mlir.driver.kernel import Kernel, compile
from neptune_mlir.frontend.gradient.saved import vjp
from neptune_mlir.frontend.program import Program
from neptune_mlir.jax import calls

__all__ = ["call", "jit"]


def call(program: Any, *arguments: Any, target: str | None = None) -> Any:
    """The results of a program on arrays: an array, or a tuple of them.

    It works inside of `jax.jit`, `vmap` (one call an element) and `lax.scan`. Where the program is
    in index notation (`neptune.ops`), gradients are those of `neptune.vjp`: a second program.

    Args:
        program: what `neptune.compile` takes, or a `Kernel`.
        arguments: arrays, traced ones too, and numbers, in the order of the program.
        target: as of `neptune.compile`. Default: the device that JAX computes on.

    Raises:
        NeptuneError: the program cannot be compiled.
        ArgumentError: a wrong number, type or shape.
    """
    target = target or (program.target if isinstance(program, Kernel) else calls.default_target())
    if isinstance(program, Kernel):
        results = calls.call(program, arguments)
    elif isinstance(program, Program):
        results = _differentiable(program, target)(*arguments)
    else:
        results = calls.call(_compiled(program, target), arguments)
    return results[0] if len(results) == 1 else results


def _compiled(program: Any, target: str) -> Kernel:
    """A kernel, kept for programs that are text (all others are looked up on disk)."""
    return _kept(program, target) if isinstance(program, str) else compile(program, target)


_kept = functools.cache(compile)


@functools.lru_cache(256)
def _differentiable(program: Program, target: str) -> Callable[..., tuple[Any, ...]]:
    """A program as a function with a gradient."""
    made: list[Kernel] = []

    def kernel_for(arguments: Sequence[Any]) -> Kernel:
        if not made:
            coming = calls.coming_of(program, target, arguments)
            made.append(compile(program, target, coming=coming))
        return made[0]

    @functools.cache
    def passes() -> tuple[Kernel, Kernel, list[int]]:
        forward, backward = vjp(program)
        # the results of the forward pass that the other one reads, or that are there for it
        read = [k for k, o in enumerate(forward.outputs) if o.name in backward.inputs]
        return compile(forward, target), compile(backward, target), read

    @jax.custom_vjp
    def function(*arguments: Any) -> tuple[Any, ...]:
        return calls.call(kernel_for(arguments), arguments)

    def run_forward(*arguments: Any) -> tuple[Any, Any]:
        forward, _, read = passes()
        results = calls.call(forward, arguments)
        return results[: len(program.outputs)], (arguments, [results[k] for k in read])

    def run_backward(kept: Any, cotangents: Any) -> tuple[Any, ...]:
        arguments, saved = kept
        floats = [c for c in cotangents if c.dtype != jax.dtypes.float0]
        made = iter(calls.call(passes()[1], [*arguments, *saved, *floats]))
        return tuple(next(made) if _is_float(a) else _no_gradient(a) for a in arguments)

    function.defvjp(run_forward, run_backward)
    return function


def _is_float(value: Any) -> bool:
    return jax.dtypes.issubdtype(jax.numpy.result_type(value), np.floating)


def _no_gradient(value: Any) -> Any:
    return np.zeros(np.shape(value), jax.dtypes.float0)


def jit(
    function: Callable[..., Any], *, target: str | None = None, static_argnums: Sequence[int] = ()
) -> Callable[..., Any]:
    """A function of JAX, compiled by neptune for each structure, shapes and types of its arguments.

    The function is lowered to StableHLO by JAX, and fused and compiled here. The result is called
    like the function, in eager code and inside of `jax.jit`; `vmap` compiles the mapped function.
    Its gradient is that of JAX, computed by XLA from the arguments.

    Args:
        function: of trees of arrays; returns a tree of arrays.
        target: as of `neptune.compile`. Default: the device that JAX computes on.
        static_argnums: arguments that are no arrays; they have to be hashable.

    Raises (when called):
        NeptuneError: an operation that has no lowering, or a program that cannot be compiled.
    """
    static = tuple(static_argnums)

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        constant = tuple(arguments[k] for k in static)
        flat, tree = jax.tree_util.tree_flatten(
            [a for k, a in enumerate(arguments) if k not in static]
        )
        return flat_function(tree, constant, len(arguments))(*map(jax.numpy.asarray, flat))

    @functools.lru_cache(256)
    def flat_function(tree: Any, constant: tuple[Any, ...], count: int) -> Callable[..., Any]:
        def plain(*flat: Any) -> Any:
            rest = iter(jax.tree_util.tree_unflatten(tree, flat))
            fixed = iter(constant)
            return function(*(next(fixed if k in static else rest) for k in range(count)))

        return _lowered(plain, target)

    return run


def _lowered(plain: Callable[..., Any], target: str | None) -> Callable[..., Any]:
    """A function of arrays as calls of what it compiles to, with JAX's gradient."""
    kernels: dict[Any, tuple[Kernel, Any]] = {}

    def made(*arrays: Any) -> Any:
        chip = target or calls.default_target()
        types = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        key = (chip, *((t.shape, t.dtype) for t in types))
        if key not in kernels:
            lowered = jax.jit(plain, keep_unused=True).lower(*types)
            kernels[key] = compile(lowered, chip), jax.tree_util.tree_structure(lowered.out_info)
        kernel, tree = kernels[key]
        return jax.tree_util.tree_unflatten(tree, calls.call(kernel, arrays))

    batched = jax.custom_batching.custom_vmap(made)

    @functools.lru_cache(256)
    def mapped_over(size: int, mapped: tuple[bool, ...]) -> Callable[..., Any]:
        over = jax.vmap(plain, in_axes=[0 if m else None for m in mapped], axis_size=size)
        return _lowered(over, target)

    @batched.def_vmap
    def rule(size: int, mapped: Any, *arrays: Any) -> tuple[Any, Any]:
        result = mapped_over(size, tuple(mapped))(*arrays)
        return result, jax.tree_util.tree_map(lambda _: True, result)

    @jax.custom_vjp
    def differentiable(*arrays: Any) -> Any:
        return batched(*arrays)

    def run_backward(arrays: Any, cotangents: Any) -> Any:
        return jax.vjp(plain, *arrays)[1](cotangents)

    differentiable.defvjp(lambda *arrays: (batched(*arrays), arrays), run_backward)
    return jax.jit(differentiable)  # calls in eager code are traced once
