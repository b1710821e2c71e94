# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedule ops: what a transform-dialect script may ask of this compiler.

A schedule is a script, `transform.named_sequence @__transform_main`, of upstream's transform
ops and these. Each takes a handle to functions (or to the module), runs the pass of the same name
on them and gives the handle back, so a script reads as a list of steps:

    %f1 = "transform.neptune.rolling_update"(%f0) : (!transform.any_op) -> !transform.any_op
    %rows = transform.tune.knob<"rows"> = 64 from options = [32, 64, 128] -> !transform.any_param
    %f2 = "transform.neptune.tile"(%f1, %rows) {axes = ["rows"]}
        : (!transform.any_op, !transform.any_param) -> !transform.any_op

Numbers are parameters, so that a knob (`transform.tune.knob`) can stand for each of them.

IRDL cannot add ops to a dialect that exists, so the dialect is `transform_neptune`; scripts spell
it `transform.neptune`, and `pipelines.schedule` maps one spelling to the other.
"""

# no `from __future__ import annotations`: op definitions are read from live annotations
import contextvars
from collections.abc import Sequence
from typing import Any

from neptune_mlir.errors import ScheduleError
from neptune_mlir.ir.bindings import (
    ext,
    ir,
    load_dialect,
    location_text,
    lock,
    passmanager,
    transform,
)
from neptune_mlir.transforms import registry


class TransformNeptune(ext.Dialect, name="transform_neptune"):
    pass


class RaiseLinalgOp(TransformNeptune.Operation, name="raise_linalg"):
    """Runs `raise-linalg`: linalg ops become `neptune` nests."""

    target: ext.Operand[transform.AnyOpType]
    result: ext.Result[transform.AnyOpType]


class InlineMapsOp(TransformNeptune.Operation, name="inline_maps"):
    """Runs `inline-maps`: elementwise nests move into the nests that read them."""

    target: ext.Operand[transform.AnyOpType]
    result: ext.Result[transform.AnyOpType]


class DeferOp(TransformNeptune.Operation, name="defer"):
    """Runs `defer`: factors that a reduction does not run over move behind it."""

    target: ext.Operand[transform.AnyOpType]
    result: ext.Result[transform.AnyOpType]


class RollingUpdateOp(TransformNeptune.Operation, name="rolling_update"):
    """Runs `rolling-update`: dependent reductions become one stream with corrections.

    Attributes, which may be left out, are the options of the pass: `rescale_bound`, a float
    (references of exponentials may lag by less than this), and `ahead` and `alone`, flags.
    """

    target: ext.Operand[transform.AnyOpType]
    result: ext.Result[transform.AnyOpType]


class PruneMasksOp(TransformNeptune.Operation, name="prune_masks"):
    """Runs `prune-masks`: affine masks become the `live` sets of streams."""

    target: ext.Operand[transform.AnyOpType]
    result: ext.Result[transform.AnyOpType]


class PrivatizeOp(TransformNeptune.Operation, name="privatize"):
    """Runs `privatize`: every stream is cut into `chunks` private ones and a global join.

    With 0 chunks, `programs` says how many programs there are to be, or, where that is 0 too,
    `tiles` how many tiles a chunk has; then the stream has to be tiled. `each` says how many
    programs each multiprocessor of the device is to have, where only a launch knows their number.
    The flag `products`, which may be left out, leaves streams without products of matrices whole.

    Rejected: a number that is not one whole number, all under 1.
    """

    target: ext.Operand[transform.AnyOpType]
    chunks: ext.Operand[Any]
    programs: Sequence[ext.Operand[Any]]  # tiles, and each
    result: ext.Result[transform.AnyOpType]


class TileOp(TransformNeptune.Operation, name="tile"):
    """Runs `tile`: gives every axis of the fused nests its tile size.

    `axes` says which role each of the `sizes` is for: `rows`, `stream` (see the pass, whose rule
    decides the roles without a size, and those of size 0), or that it is a number of the rule:
    `held`, `least`.

    Rejected: another number of `axes` than of `sizes`, an unknown role, a size that is not one
    whole number.
    """

    target: ext.Operand[transform.AnyOpType]
    sizes: Sequence[ext.Operand[Any]]
    axes: Any
    result: ext.Result[transform.AnyOpType]


class ApplyPassOp(TransformNeptune.Operation, name="apply_pass"):
    """Runs the pass `name`, one of this project or of an installed package.

    `options` names the option of the pass that each of the `numbers` is for; `with`, which may be
    left out, is text, `key=value,...`, for options that are no whole number:

        "transform.neptune.apply_pass"(%f, %k) {name = "merge-scales", options = ["times"]} : ...

    Rejected: an unknown pass or option, another number of `options` than of `numbers`.
    """

    target: ext.Operand[transform.AnyOpType]
    numbers: Sequence[ext.Operand[Any]]
    result: ext.Result[transform.AnyOpType]


def _number(op: Any, state: Any, value: Any, what: str) -> int:
    """The whole number that a parameter holds."""
    found = list(state.get_params(value))
    if len(found) != 1 or not isinstance(found[0], ir.IntegerAttr):
        shown = ", ".join(map(str, found)) or "nothing"
        raise ScheduleError(f"{what} must be one whole number, got {shown}", loc=_location(op))
    return int(found[0].value)


# What diagnostics call the script that runs: its text, like the payload's, has no file for MLIR.
script_name: contextvars.ContextVar[str | None] = contextvars.ContextVar("script", default=None)


def _location(op: Any) -> str:
    return location_text(op.operation.location, script_name.get())


def _no_options(op: Any, state: Any) -> dict[str, Any]:
    return {}


def _attribute(op: Any, name: str, otherwise: Any) -> Any:
    attributes = op.operation.attributes
    return attributes[name].value if name in attributes else otherwise


def _any_options(op: Any, state: Any) -> dict[str, Any]:
    listed = op.operation.attributes["options"] if "options" in op.operation.attributes else ()
    names = [name.value for name in listed]
    numbers = list(op.operation.operands)[1:]
    if len(names) != len(numbers):
        raise ScheduleError(f"{len(numbers)} numbers for {len(names)} options", loc=_location(op))
    options = {
        name.replace("-", "_"): _number(op, state, value, f"option {name}")
        for name, value in zip(names, numbers, strict=True)
    }
    spec = registry.lookup(pass_of(op))
    said = registry.parse_options(spec, _attribute(op, "with", ""))
    return registry.checked(spec, said | options)


def pass_of(op: Any) -> str:
    """The pass that an op runs."""
    fixed = _STEPS[type(op)][0]
    return fixed or str(_attribute(op, "name", ""))


def _rolling_options(op: Any, state: Any) -> dict[str, Any]:
    attributes = op.operation.attributes
    options = ("rescale_bound", "ahead", "alone")
    return {name: attributes[name].value for name in options if name in attributes}


def _privatize_options(op: Any, state: Any) -> dict[str, Any]:
    names = ("chunks", "programs", "tiles", "each")
    numbers = zip(names, list(op.operation.operands)[1:], strict=False)
    found: dict[str, Any] = {name: _number(op, state, value, name) for name, value in numbers}
    return found | ({"products": True} if _attribute(op, "products", False) else {})


def _tile_options(op: Any, state: Any) -> dict[str, Any]:
    axes = [axis.value for axis in op.operation.attributes["axes"]]
    sizes = list(op.operation.operands)[1:]
    if len(axes) != len(sizes):
        raise ScheduleError(f"{len(sizes)} sizes for {len(axes)} axes", loc=_location(op))
    roles = [name for name, kind in registry.lookup("tile").options.items() if kind is int]
    for axis in axes:
        if axis not in roles:
            hint = f"roles: {', '.join(roles)}"
            raise ScheduleError(f"no axis plays the role '{axis}'", loc=_location(op), hint=hint)
    return {
        axis: _number(op, state, size, f"the size of {axis}")
        for axis, size in zip(axes, sizes, strict=True)
    }


# op -> (pass, or "" where the op names it; its options from the op)
_STEPS = {
    RaiseLinalgOp: ("raise-linalg", _no_options),
    InlineMapsOp: ("inline-maps", _no_options),
    DeferOp: ("defer", _no_options),
    RollingUpdateOp: ("rolling-update", _rolling_options),
    PruneMasksOp: ("prune-masks", _no_options),
    PrivatizeOp: ("privatize", _privatize_options),
    TileOp: ("tile", _tile_options),
    ApplyPassOp: ("", _any_options),
}


class Scope:
    """Some functions of a module, in the shape that passes expect of a module."""

    def __init__(self, functions: Sequence[Any]):
        self.operations = list(functions)

    @property
    def body(self) -> "Scope":
        return self

    @property
    def operation(self) -> Any:
        if len(self.operations) != 1:
            raise ScheduleError("this step works on one function or on the module")
        return self.operations[0].operation

    @property
    def context(self) -> Any:
        return self.operations[0].operation.context


def _scope(op: Any, payload: Sequence[Any]) -> Any:
    if len(payload) == 1 and payload[0].operation.name == "builtin.module":
        return payload[0]
    for target in payload:
        if target.operation.name != "func.func":
            raise ScheduleError(
                f"a schedule step takes functions or the module, not '{target.operation.name}'",
                loc=_location(op),
            )
    return Scope(payload)


def _run_upstream(name: str, payload: Sequence[Any]) -> None:
    for target in payload:
        with target.operation.context:
            manager = passmanager.PassManager.parse(f"{target.operation.name}({name})")
            manager.run(target.operation)


class _RunsPass(transform.TransformOpInterface):
    """How every op of this dialect is applied."""

    @staticmethod
    def apply(op: Any, rewriter: Any, results: Any, state: Any) -> Any:
        options = _STEPS[type(op)][1](op, state)
        payload = list(state.get_payload_ops(op.operation.operands[0]))
        if payload:
            name, scope = pass_of(op), _scope(op, payload)
            for needed in registry.prerequisites(name, registry.done.get()):
                if registry.is_loaded(needed):
                    registry.lookup(needed).run(scope)
                else:
                    _run_upstream(needed, payload)
                registry.done.set(registry.done.get() | {needed})
            registry.lookup(name).run(scope, **options)
            registry.done.set(registry.done.get() | {name})
        results.set_ops(op.operation.results[0], payload)
        return transform.DiagnosedSilenceableFailure.Success

    @staticmethod
    def allow_repeated_handle_operands(op: Any) -> bool:
        return False


class _ChangesPayload(ir.MemoryEffectsOpInterface):
    """The old handle is used up: what it pointed into may be gone."""

    @staticmethod
    def get_effects(op: Any, effects: Any) -> None:
        transform.consumes_handle(op.op_operands[:1], effects)
        if len(op.op_operands) > 1:  # the bindings crash on an empty sequence
            transform.only_reads_handle(op.op_operands[1:], effects)
        transform.produces_handle(op.results, effects)
        transform.modifies_payload(effects)


def load(context: Any) -> None:
    """Load the schedule ops into `context`; a second call does nothing."""
    with lock, context, ir.Location.unknown():
        if not load_dialect(TransformNeptune, context):
            return
        for op in _STEPS:
            _RunsPass.attach(op.OPERATION_NAME, context=context)
            _ChangesPayload.attach(op.OPERATION_NAME, context=context)
