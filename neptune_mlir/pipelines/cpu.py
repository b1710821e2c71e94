# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CPU pipelines, as data, and the two functions that run them to machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from neptune_mlir.dialects.attributes import PLAN
from neptune_mlir.dialects.constants import constants_of
from neptune_mlir.dialects.program import functions
from neptune_mlir.errors import LoweringError
from neptune_mlir.ir.bindings import ir, llvm
from neptune_mlir.pipelines import common, runner
from neptune_mlir.pipelines.common import run
from neptune_mlir.pipelines.gpu import Begun, background
from neptune_mlir.pipelines.runner import Step
from neptune_mlir.pipelines.ways import Way
from neptune_mlir.runtime import workers
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.plan import Argument, Constant, Plan
from neptune_mlir.targets.cpu import NEAR_BYTES, CpuTarget, host

# What shipped schedules are bound to for a CPU: enough rows that loading a tile of the stream is
# cheap beside computing with it, and a stream tile whose operands stay in the L2 cache.
KNOBS = {"streamed": "products:128"}
# Where AMX multiplies pairs of bf16 numbers, products take a tenth of the time, and what is done
# once for a tile of rows or of the stream (packing, new references) counts. Streams that such a
# tile is mostly empty for, and calls of so few rows that a thread had none, keep the other.
PAIRS = {"streamed": "products:256"}
SHORT_PAIRS = (128, "rows:128;stream:128")
# Calls with fewer rows: a tile costs what it has room for, and a product of one row is no product.
FEW_ROWS = ((2, "rows:1"),)
# Rows of which one, and what is computed of each of its elements, leave half of the nearest cache
# free: they are held, and nothing of them is computed twice. And streams so short that a vector
# along them would be mostly empty: vectors of rows.
HELD_ROW = NEAR_BYTES // 16
SHORT_STREAMS = {"streamed": ((HELD_ROW, f"most:{HELD_ROW}", 0), (8, "stream:1", 0))}


def ways(target: str) -> tuple[Way, ...]:
    # streams are one where groups of programs that run one after the other keep all threads busy
    joined = f"joined:{workers.count()}"
    knobs = {**KNOBS, "streamed": ";".join(filter(None, [KNOBS.get("streamed", ""), joined]))}
    longer = f"length:{HELD_ROW + 1}"
    way = Way(knobs, rows=FEW_ROWS, lengths=SHORT_STREAMS, longer=longer)
    if host().pairs != "tiles":
        return (way,)
    return (replace(way, narrow=PAIRS, narrow_bytes=2, shorter=SHORT_PAIRS),)

_BUFFERIZE = Step(
    "one-shot-bufferize",
    "bufferize-function-boundaries function-boundary-type-conversion=fully-dynamic-layout-map",
)

# what every route does from scalar loops and vectors down to LLVM's dialect
TO_LLVM = (
    Step("expand-math"),
    Step("expand-strided-metadata"),
    Step("lower-affine"),
    Step("rotate-loops"),
    Step("convert-scf-to-cf"),
    Step("convert-math-to-llvm"),
    Step("convert-math-to-libm"),
    Step("arith-emulate-unsupported-floats", "source-types=bf16 target-type=f32"),
    Step("arith-expand", "include-bf16=true"),
    Step("convert-vector-to-llvm"),
    Step("finalize-memref-to-llvm"),
    Step("convert-arith-to-llvm"),
    Step("convert-func-to-llvm"),
    Step("convert-index-to-llvm"),
    Step("convert-cf-to-llvm"),
    Step("convert-ub-to-llvm"),
    Step("reconcile-unrealized-casts"),
    Step("bf16-bits"),
)

# tile IR -> kernels and a launch plan -> LLVM
FROM_TILES = (
    Step("canonicalize"),
    Step("cse"),
    Step("tensor-to-generic", {"only": "tensor.extract_slice"}),
    Step("sink-reads"),
    Step("turn-tiles"),
    Step("add-in-order"),
    Step("fuse-tiles"),
    Step("place-tiles"),
    Step("canonicalize"),
    _BUFFERIZE,
    Step("linalg-generalize-named-ops"),
    Step("canonicalize"),
    Step("cse"),
    Step("canonicalize"),
    Step("outline-kernels"),
    Step("vectorize-tiles"),
    Step("canonicalize"),
    Step("cse"),
    *TO_LLVM,
)

# a program level function, unfused: upstream's own loops, for comparison
TO_LOOPS = (
    Step("expand-calls"),
    Step("convert-elementwise-to-linalg"),
    Step("lower-to-linalg"),
    Step("canonicalize"),
    Step("cse"),
    Step("linalg-generalize-named-ops"),
    Step("float8-bits"),
    _BUFFERIZE,
    Step("buffer-deallocation-pipeline"),
    Step("canonicalize"),
    Step("copies-to-linalg"),
    Step("linalg-generalize-named-ops"),
    Step("interchange-reductions"),
    Step("convert-linalg-to-loops"),
    Step("convert-bufferization-to-memref"),
    Step("copies-to-linalg"),
    Step("convert-linalg-to-loops"),
)
FROM_LOOPS = (
    Step("hide-zeros"),
    Step("reorder-sums"),
    Step("round-floats"),
    *TO_LLVM,
)

# the whole way from a program; the schedule stands between the two common parts
PIPELINE: tuple[str, ...] = tuple(
    step.name for step in (*common.IMPORT, Step("apply-schedule"), *common.TO_TILES, *FROM_TILES)
)


def compile_tiles(
    module: Any,
    entry: str | None = None,
    facts: dict[str, Any] | None = None,
    target: CpuTarget | None = None,
) -> Bundle:
    """Machine code and the launch plan of a function in tile IR (changes `module`).

    Raises:
        LoweringError: something in a kernel or around it has no lowering for a CPU.
    """
    bundle: Bundle = begin_tiles(module, entry, facts, target).finish()
    return bundle


def begin_tiles(
    module: Any,
    entry: str | None = None,
    facts: dict[str, Any] | None = None,
    target: CpuTarget | None = None,
) -> Begun:
    """`compile_tiles`, but for waiting until LLVM is done."""
    chip = target or host()

    def begin() -> tuple[Plan, Callable[[], bytes]]:
        _keep_arguments(module)
        run(module, _steps(module, FROM_TILES, chip, entry))
        plan = Plan.from_json(PLAN.of(module.operation))
        return plan, background(_object(module, chip, vectorize=False))

    plan, code = common.begun("cpu", str(module), begin)
    found = {**(facts or {}), "machine": chip.needs()}
    return Begun(plan, lambda: Bundle("cpu", plan, code(), found))


EMITS = ("target", "llvm", "asm")  # the levels below tile IR that `emit_tiles` shows


def emit_tiles(module: Any, level: str, entry: str | None = None) -> str:
    """A function in tile IR at a lower level, as text (changes `module`)."""
    target = host()
    _keep_arguments(module)
    if level == "target":
        run(module, _steps(module, FROM_TILES[: -len(TO_LLVM)], target, entry))
        return str(module)
    run(module, _steps(module, FROM_TILES, target, entry))
    text = _llvm_text(module)
    if level == "llvm":
        return text
    from neptune_mlir.codegen.cpu import native

    return native.assembly(text, target, vectorize=False)


def steps_of(module: Any, target: str, entry: str = "") -> list[Step]:
    """All passes from tile IR down to the LLVM dialect."""
    return _steps(module, FROM_TILES, host(), entry)


class Unfused:
    """A function in `linalg` or unfused nests through upstream's loops (changes `module`). It is
    lowered to these once, and compiled from there in each of several ways."""

    def __init__(self, module: Any, entry: str | None = None, target: CpuTarget | None = None):
        self._module, self._target = module, target or host()
        function = _entry(module, entry)
        with module.context, ir.Location.unknown():
            function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        self._results, held = function.type.results, constants_of(function)
        inputs = function.type.inputs[: len(function.arguments) - len(held)]
        constants = tuple(
            Constant(str(value.type.element_type), tuple(value.type.shape), digest)
            for value, digest in held.items()
        )
        self._plan = Plan(
            function.name.value, tuple(map(_argument, inputs, range(len(inputs)))), (), (), (), (),
            constants=constants,
        )  # fmt: skip
        _keep_arguments(module)
        run(module, TO_LOOPS)

    def compiled(
        self, *, vectorize: bool = True, order: int = 0, digits: int = 0, numbered: bool = False,
        hide: bool = False,
    ) -> Bundle:  # fmt: skip
        """A bundle for `runtime.function.FunctionExecutable`. `order`: of sums (`reorder-sums`).
        `digits`, `numbered`: of floats (`round-floats`). `hide`: whether 0 times anything is 0
        (`hide-zeros`)."""
        facts = {
            "results": [
                [str(t.element_type), t.rank] if isinstance(t, ir.RankedTensorType)
                else [str(t), None]
                for t in self._results
            ],
            "numbered": numbered,
        }  # fmt: skip
        module = self._module.operation.clone()
        steps = _steps(module, FROM_LOOPS, self._target, None, order, digits, numbered, hide)
        if not vectorize:  # LLVM turns loops itself, which is cheap in so little code
            steps = [step for step in steps if step.name != "rotate-loops"]
        run(module, steps, [step.name for step in TO_LOOPS])
        made = _object(module, self._target, vectorize=vectorize)
        return Bundle("cpu-function", self._plan, made(), facts)


def _keep_arguments(module: Any) -> None:
    """The arrays of a call are the caller's: bufferization makes no results in them."""
    with module.context:
        kept = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
        for function in functions(module):
            if len(function.arguments):
                function.arg_attrs = ir.ArrayAttr.get([
                    kept if isinstance(argument.type, ir.RankedTensorType) else ir.DictAttr.get({})
                    for argument in function.arguments
                ])  # fmt: skip


def _entry(module: Any, entry: str | None) -> Any:
    defined = list(functions(module))
    chosen = [f for f in defined if entry in (None, f.name.value)]
    if len(chosen) != 1:
        names = ", ".join(f.name.value for f in defined)
        raise LoweringError(f"which function? '{entry or ''}'", hint=f"there are: {names}")
    return chosen[0]


def _argument(kind: Any, k: int) -> Argument:
    if not isinstance(kind, ir.RankedTensorType):
        return Argument("scalar", str(kind), (), f"argument {k}")
    shape = tuple(None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank))
    return Argument("tensor", str(kind.element_type), shape, f"argument {k}")


def _steps(
    module: Any, steps: Sequence[Step], target: CpuTarget, entry: str | None, order: int = 0,
    digits: int = 0, numbered: bool = False, hide: bool = False,
) -> list[Step]:  # fmt: skip
    """The pipeline with what depends on the program, the chip and the request filled in."""
    options: dict[str, dict[str, Any]] = {
        "outline-kernels": {"entry": entry or ""},
        "reorder-sums": {"order": order},
        "round-floats": {"digits": digits, "numbered": numbered},
        "turn-tiles": {"vector_bits": target.vector_bits},
        "vectorize-tiles": {
            "vector_bits": target.vector_bits, "vector_registers": target.vector_registers,
            "fma": str(target.fma).lower(), "pairs": target.pairs,
        },
        "expand-math": {
            "fma": str(target.fma).lower(), "scalef": str(target.has("avx512f")).lower(),
        },
    }  # fmt: skip
    # that pass looks at the type of every value: a twentieth of a compilation
    without = set() if "bf16" in str(module) else {"bf16-bits"}
    without |= set() if hide else {"hide-zeros"}
    return [
        Step(step.name, options.get(step.name, step.options))
        for step in steps if step.name not in without
    ]  # fmt: skip


def _llvm_text(module: Any) -> str:
    foreign = sorted(
        {
            op.name
            for op in _operations(module.operation)
            if not op.name.startswith(("llvm.", "builtin.module"))
        }
    )
    if foreign:  # the translation may end the process on these
        raise LoweringError(f"no lowering to LLVM for {', '.join(foreign)}")
    return llvm.translate_module_to_llvmir(module.operation)


def _object(module: Any, target: CpuTarget, *, vectorize: bool) -> Callable[[], bytes]:
    """What makes machine code of a module, whatever becomes of it."""
    from neptune_mlir.codegen.cpu import native

    text = _llvm_text(module)
    dump = runner.StageDump.from_environment()
    if dump:
        dump.write("llvm", text, "ll")
        dump.write("asm", native.assembly(text, target, vectorize=vectorize), "s")
    return partial(native.object_code, text, target, vectorize=vectorize)


def _operations(root: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return found
