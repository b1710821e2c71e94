# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs in index notation evaluated by torch in float64, whose autograd is what gradients are
checked against: it shares nothing with ours but the terms."""


import numpy as np
import torch

from neptune_mlir.algebra import terms as T

_FUNCTIONS = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "rem": torch.fmod,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"), "pow": torch.pow,
    "max": torch.maximum, "min": torch.minimum, "neg": torch.neg, "abs": torch.abs,
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2,
    "log1p": torch.log1p, "expm1": torch.expm1, "tanh": torch.tanh, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "erf": torch.erf,
    "floor": torch.floor, "ceil": torch.ceil, "roundeven": torch.round,
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt,
    "ge": torch.ge, "and": torch.logical_and, "or": torch.logical_or,
    "xor": torch.logical_xor, "not": torch.logical_not, "select": torch.where,
}  # fmt: skip


def gradients(program, wrt, arrays, cotangents):
    """float64 gradients of the sum of all results times their cotangents."""
    names = list(program.inputs)
    tensors = []
    for name, array in zip(names, arrays, strict=True):
        tensor = torch.as_tensor(np.asarray(array))
        argument = program.inputs[name]
        if (argument if isinstance(argument, str) else argument.dtype) == "i1":
            tensor = tensor.bool()
        if tensor.is_floating_point():
            tensor = tensor.double().requires_grad_(name in wrt)
        tensors.append(tensor)
    results = [r for r in evaluate(program, tensors) if r.is_floating_point()]
    total = sum((r * torch.as_tensor(c).double()).sum() for r, c in
                zip(results, cotangents, strict=True))  # fmt: skip
    of = dict(zip(names, tensors, strict=True))
    found = torch.autograd.grad(total, [of[n] for n in wrt], allow_unused=True)
    return [
        np.zeros(of[n].shape) if g is None else g.numpy()
        for n, g in zip(wrt, found, strict=True)
    ]  # fmt: skip


def evaluate(program, tensors):
    """The results of a program on torch tensors, floats in float64."""
    sizes = [a.static for a in program.axis_list]
    data = dict(zip(program.inputs, tensors, strict=True))
    for name, argument in program.inputs.items():
        if not isinstance(argument, str):
            for axis, extent in zip(argument.shape, data[name].shape, strict=True):
                sizes[axis.number] = extent
    rank = len(sizes)
    for axis in program.axis_list:
        data[f"size:{axis.name}"] = torch.tensor(sizes[axis.number])

    def value(root):
        done = {}
        for n in T.walk(root):
            args = [done[a] for a in n.args]
            if n.op == "const":
                kind = torch.float64 if T.is_float(n.dtype) else None
                done[n] = torch.tensor(n.value, dtype=kind).reshape((1,) * rank)
            elif n.op == "index":
                shape = [-1 if k == n.attr else 1 for k in range(rank)]
                done[n] = torch.arange(sizes[n.attr]).reshape(shape)
            elif n.op == "read":
                array = data[n.attr]
                done[n] = array[tuple(args)] if args else array.reshape((1,) * rank)
            elif n.op == "sym":
                done[n] = data[n.attr].reshape((1,) * rank)
            elif n.op == "cast":
                done[n] = args[0].double() if T.is_float(n.dtype) else args[0].long()
            else:
                done[n] = _FUNCTIONS[n.op](*args)
        return done[root]

    for step in program.steps:
        x = value(step.body)
        full = [sizes[k] if k in step.removed else n for k, n in enumerate(x.shape)]
        x = x.expand(full)
        if step.combiner == "add":
            x = x.sum(step.removed) if x.dtype != torch.bool else x.long().sum(step.removed)
        elif step.combiner in ("max", "min"):
            x = (torch.amax if step.combiner == "max" else torch.amin)(x, step.removed)
        elif step.combiner == "mul":
            for k in reversed(step.removed):
                x = x.prod(k)
        else:
            x = (torch.all if step.combiner == "and" else torch.any)(x, step.removed)
        data[step.key] = x.reshape([sizes[k] for k in step.kept])
    results = []
    for output in program.outputs:
        x = value(output.term).expand([sizes[k] if k in output.axes else 1 for k in range(rank)])
        x = x.reshape([sizes[k] for k in sorted(output.axes)])
        ranks = sorted(output.axes)
        results.append(x.permute([ranks.index(k) for k in output.axes]))
    return results


