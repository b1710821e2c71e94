# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program as written, through upstream's loops."""

from __future__ import annotations

from typing import Any

from neptune_mlir.ir import bindings
from neptune_mlir.pipelines import cpu
from neptune_mlir.pipelines.lowering import Lowering, count
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.transforms.schedule import scripts as schedules

# linalg.softmax has no loops of its own; upstream decomposes it, which only a script can ask for
_DECOMPOSE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %found = transform.structured.match ops{["linalg.softmax"]} in %module
        : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %found
        : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


class AsWritten:
    """A program as written, lowered to loops once. Each order of its sums, and each rounding of its
    values, is compiled from there: a check asks for up to forty of one program.

    Args:
        wide: whether all of its floats are f64, arguments and results too.

    Raises:
        NeptuneError: the program has no lowering to loops, or reads floats as bits.
    """

    @bindings.exclusive
    def __init__(self, text: str, source: str, entry: str | None, wide: bool = False):
        self._source = source
        lowering = Lowering.of_text(text, source)
        with bindings.source_name(source):
            lowering.lift_constants()
            lowering.run([Step("lower-tm-tensor"), *([Step("widen-floats")] if wide else [])])
            if count(lowering.module, "linalg.softmax"):
                schedules.apply(lowering.module, _DECOMPOSE, {}, "decompose")
            self._constants = lowering.constants
            self._unfused = cpu.Unfused(lowering.module, entry)

    @bindings.exclusive
    def compiled(
        self, *, vectorize: bool = False, order: int = 0, digits: int = 0, numbered: bool = False,
        hide: bool = False,
    ) -> Any:  # fmt: skip
        """What runs the program; the options are those of `compile_unfused` and
        `compile_reference`."""
        from neptune_mlir.runtime.function import FunctionExecutable

        with bindings.source_name(self._source):
            bundle = self._unfused.compiled(
                vectorize=vectorize, order=order, digits=digits, numbered=numbered, hide=hide
            )
        return FunctionExecutable(bundle.with_data(self._constants))
