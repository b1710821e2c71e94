# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pass `expand-math`: elementary functions of f32 (scalars and vectors) become arithmetic.

f16 and bf16 are widened first. What has no expansion here (f64, rarer functions) is left for
`convert-math-to-libm`. `arith.maximumf` and `minimumf` are expanded too: x86 has no instruction
for them, and LLVM's own expansion also orders zeros by sign, at twice the cost.
"""

from __future__ import annotations

from typing import Any

from neptune_mlir.bindings import arith, ir
from neptune_mlir.codegen.polynomials import Functions
from neptune_mlir.targets import cpu
from neptune_mlir.transforms.registry import register

_KEPT_NARROW = {"math.absf", "math.copysign"}  # only touch the sign bit


@register("expand-math", "turn exp, log, tanh, erf, ... of f32 into arithmetic")
def expand_math(module: Any, *, fma: str = "host", scalef: str = "host") -> None:
    has_fma = _chosen(fma, "fma")
    has_scalef = _chosen(scalef, "avx512f")
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith("math.") or op.name in ("arith.maximumf", "arith.minimumf"):
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    builders: dict[Any, Functions] = {}
    for op in found:
        kind = op.results[0].type
        element = kind.element_type if isinstance(kind, ir.VectorType) else kind
        with ir.InsertionPoint(op), op.location:
            if isinstance(element, (ir.F16Type, ir.BF16Type)) and op.name not in _KEPT_NARROW:
                op = _widen(op, kind)
                kind = op.results[0].type
                element = ir.F32Type.get()
            if not isinstance(element, ir.F32Type):
                continue
            if kind not in builders:
                builders[kind] = Functions(kind, fma=has_fma, scalef=has_scalef)
        with ir.InsertionPoint(op), op.location:
            expansion = builders[kind].table.get(op.name)
            if expansion is not None:
                op.results[0].replace_all_uses_with(expansion(*op.operands))
                op.erase()


def _chosen(text: str, feature: str) -> bool:
    return cpu.host().has(feature) if text == "host" else text in ("true", "1")


def _widen(op: Any, kind: Any) -> Any:
    """The same op on f32 between `extf` and `truncf`; floats only, other operands stay."""
    f32 = ir.F32Type.get()
    wide = ir.VectorType.get(kind.shape, f32) if isinstance(kind, ir.VectorType) else f32
    operands = [arith.extf(wide, v) if v.type == kind else v for v in op.operands]
    made = ir.Operation.create(
        op.name,
        results=[wide],
        operands=operands,
        attributes={name: op.attributes[name] for name in op.attributes},
    )
    op.results[0].replace_all_uses_with(arith.truncf(kind, made.result))
    op.erase()
    return made
