# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that are evaluated as defined, for tests of what stands around a kernel."""

import pytest


@pytest.fixture
def interpreted(monkeypatch):
    """`op.compile` without compiling; the list has the programs that were asked for."""
    torch = pytest.importorskip("torch")
    from neptune_mlir.torch import again, gradients, op

    programs = []

    def fake_compile(program, target, coming=None):
        programs.append(program)
        assert target == "cpu" and coming is None

        def kernel(*arguments):
            assert not any(x.requires_grad for x in arguments)
            assert all(x.dim() == 0 or x.shape[-1] < 2 or x.stride(-1) == 1 for x in arguments)
            wide = [x.float() if x.dtype is torch.bfloat16 else x for x in arguments]
            made = program.reference(*(x.numpy() for x in wide))
            made = made if isinstance(made, tuple) else (made,)
            kinds = [o.term.dtype for o in program.outputs]
            kinds = [next(t for t, name in op.DTYPES.items() if name == k) for k in kinds]
            made = tuple(torch.tensor(x).to(t) for x, t in zip(made, kinds, strict=True))
            return made if len(made) > 1 else made[0]

        kernel.again = lambda *arguments, **named: None
        return kernel

    again.forget()
    monkeypatch.setattr(op, "compile", fake_compile)
    monkeypatch.setattr(op, "_kernels", {})
    monkeypatch.setattr(gradients, "_backwards", {})
    return programs
