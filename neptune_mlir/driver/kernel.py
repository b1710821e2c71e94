# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`compile` and `Kernel`: the door of the package.

A program that was compiled before, by any process, comes from the on-disk cache, keyed by its
text, the target, the schedule, the tuning table and this compiler; then nothing here imports MLIR.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neptune_mlir.driver.foreign import from_text, program_text
from neptune_mlir.driver.garbage import collected_rarely
from neptune_mlir.driver.on_demand import Asked, Coming, OnDemand
from neptune_mlir.errors import UsageError
from neptune_mlir.runtime.bundle import Bundle

if TYPE_CHECKING:
    from neptune_mlir.driver.recipe import Recipe
    from neptune_mlir.runtime.bundle import Growing
    from neptune_mlir.runtime.plan import Plan


@dataclass(frozen=True)
class Source:
    """Program text and what diagnostics call the place that it came from."""

    text: str
    name: str = "<program>"

    @classmethod
    def of(cls, program: Any) -> Source:
        """The text of a program: MLIR text, a path (a string of one line that names a file or
        ends in .mlir, .mlirbc or .onnx is one; see `foreign.program_text`), a module, a built
        program, or a lowered function of JAX (`jax.stages.Lowered`).

        Raises:
            UsageError: something else, or no such file.
        """
        if isinstance(program, Source):
            return program
        if isinstance(program, os.PathLike) or _is_path(program):
            try:
                return cls(program_text(program), os.fspath(program))
            except OSError as error:
                reason = error.strerror or error
                raise UsageError(f"cannot read '{os.fspath(program)}': {reason}") from None
        if isinstance(program, str):
            return cls(from_text(program, "<program>"))
        if callable(getattr(program, "module", None)):  # a program in index notation
            program = program.module()
        if type(program).__module__.startswith("jax.") and hasattr(program, "as_text"):
            return cls(from_text(program.as_text("stablehlo", debug_info=True), "<program>"))
        if hasattr(program, "operation"):  # an ir.Module, or an op that prints as one
            return cls(from_text(program.operation.get_asm(enable_debug_info=True), "<program>"))
        raise UsageError(
            f"cannot compile a {type(program).__name__}",
            hint="pass MLIR text, a path, an ir.Module, a program of neptune_mlir.ops, or what "
            "jax.jit(f).lower(...) returns",
        )


def _is_path(program: Any) -> bool:
    """Whether a string is a path: a program has an op, and so a bracket or a quote."""
    if not isinstance(program, str) or set(program) & set("\n(\"{"):
        return False
    return program.endswith((".mlir", ".mlirbc", ".onnx")) or os.path.isfile(program)


class Kernel:
    """A compiled program.

    Call it with arrays and numbers, in the order of the program's arguments; `out=` takes
    arrays for the results, and on GPUs `workspace=` and `stream=` what `runtime.gpu` says of
    them. New results are torch tensors where an argument is one; else NumPy arrays on CPUs, and
    on GPUs arrays of the library that made the arguments. `facts` says how it came about
    (nests, kernels, corrections, schedule, remarks), `cached` whether it came from the on-disk
    cache.

    Args:
        bundle: or one that is growing: its images are made when calls take them.
    """

    def __init__(self, source: Source, target: str, schedule: str | None,
                 bundle: Bundle | Growing, cached: bool = False, knobs: str = ""):  # fmt: skip
        self.source = source
        self.target = target
        self.schedule, self.knobs = schedule, knobs
        self._bundle = bundle
        self.cached = cached

    @functools.cached_property
    def bundle(self) -> Bundle:
        """All of its code. (What no call has taken yet is compiled for that.)"""
        return self._bundle if isinstance(self._bundle, Bundle) else self._bundle.whole()

    @property
    def _so_far(self) -> Bundle:
        return self._bundle if isinstance(self._bundle, Bundle) else self._bundle.bundle

    @functools.cached_property
    def _executable(self) -> Any:
        """What runs it: made with the first call, for the code may be for another machine."""
        growing = None if isinstance(self._bundle, Bundle) else self._bundle
        if self._so_far.facts.get("images"):  # code for GPUs
            from neptune_mlir.runtime.gpu import GpuExecutable

            return GpuExecutable(self._so_far, growing=growing)
        from neptune_mlir.runtime.cpu import CpuExecutable

        return CpuExecutable(self._so_far, growing)

    @property
    def facts(self) -> dict[str, Any]:
        """How the code for any call came about, with the images that there are so far."""
        return self._so_far.facts

    @property
    def plan(self) -> Plan:
        """The launch plan of a call of any kind."""
        return self._so_far.plan

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        return self._executable(*arguments, out=out, **named)

    def again(
        self, *arguments: Any, order: Sequence[int], orders: Sequence[Sequence[int]]
    ) -> Callable[[Sequence[Any]], Any] | None:
        """What is kept of a call with arguments like these, after one: a function that runs the
        kernel on arrays of the same library, types, shapes, strides and devices, and returns all
        results, or None where only a whole call can say. On GPUs it is for the calling thread. None
        where nothing is kept.

        Args:
            order: which of the function's arrays the arguments are.
            orders: of results' dimensions as they are handed out (others as they are).
        """
        kept = self._executable.again(*arguments)
        return None if kept is None else kept.repeat(order, orders)

    def prepare(self, *arguments: Any, **named: Any) -> Any:
        """A call on fixed memory, checked once: what it returns only launches. `out=` and more as
        for `GpuExecutable.prepare` and `CpuExecutable.prepare`."""
        return self._executable.prepare(*arguments, **named)

    def launch_times(self, *arguments: Any, repeat: int = 5) -> list[tuple[str, float]]:
        """The name of each kernel of a call and the seconds that it takes, on CPUs (the median), in
        order.

        Raises:
            UsageError: the kernel is one for GPUs.
        """
        if not hasattr(self._executable, "launch_times"):
            raise UsageError("times of launches are of CPUs", hint="for GPUs: neptune bench")
        return list(self._executable.launch_times(*arguments, repeat=repeat))

    def requirements(self, *arguments: Any) -> Any:
        """The results and workspace that a call needs (see `GpuExecutable.requirements`).

        Raises:
            UsageError: the kernel is not one for GPUs.
        """
        return self._on_gpu("requirements")(*arguments)

    def _on_gpu(self, name: str) -> Any:
        if not hasattr(self._executable, name):
            raise UsageError(f"a kernel for {self.target} has no {name}()", hint="call it as it is")
        return getattr(self._executable, name)

    def ir(self, level: str = "fused") -> str:
        """The program as MLIR at a level: neptune, fused or tile."""
        from neptune_mlir.driver.compiler import lower_text

        module, _ = lower_text(
            self.source.text, self.source.name, self.target, self.schedule, level, self.knobs
        )
        return str(module)

    def explain(self) -> str:
        """The fused loop nest as pseudo-code, what the passes remarked, and the proofs."""
        from neptune_mlir.driver.compiler import lower_text
        from neptune_mlir.driver.explain import derivations, explain

        module, facts = lower_text(
            self.source.text, self.source.name, self.target, self.schedule, "fused", self.knobs
        )
        return "\n".join(
            [explain(module, self.source.text), "", *facts["remarks"], *derivations(module)]
        ).rstrip()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bundle to a file; `Kernel.load` reads it on a machine without MLIR."""
        Path(path).write_bytes(self.bundle.to_bytes())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Kernel:
        """A kernel from a file that `save` or `neptune compile` wrote.

        Raises:
            ToolError: not a bundle, a damaged one, or one for another ABI.
        """
        return Kernel.of_bundle(Bundle.from_bytes(Path(path).read_bytes()), str(path))

    @staticmethod
    def of_bundle(bundle: Bundle, name: str) -> Kernel:
        """A kernel from a bundle; `name` is what diagnostics call it where it does not say."""
        made = bundle.facts.get("provenance", {}).get("source", {"text": "", "name": name})
        return Kernel(Source(made["text"], made["name"]), bundle.target, None, bundle)


def compile(
    program: Any, target: str = "cpu", schedule: str | None = None, *, entry: str | None = None,
    precision: str | None = None, numerics: str | None = None,
    tuning: str | os.PathLike[str] | None = None, knobs: Mapping[str, int] | None = None,
    on_demand: bool = True, coming: Coming | None = None,
) -> Kernel:  # fmt: skip
    """Compile a program into a callable `Kernel`.

    Args:
        program: MLIR text, a path to it, an `ir.Module`, a program of `neptune_mlir.ops`, or what
            `jax.jit(f).lower(...)` returns.
        target: "cpu", or a chip (see `neptune doctor`).
        schedule: a transform-dialect script: a shipped one or one of an installed package by name,
            or a path. Default: the rule of `transforms.schedule.scripts.choose`.
        entry: the function, where the program has several.
        precision: "tf32" allows operands of f32 products to be rounded to 11 bits, where the
            target has matrix instructions that do (relative errors of about 3e-4 instead of 1e-7).
        numerics: "default" fuses what is as accurate as the program as written, "strict" also keeps
            the whole range of its types, "fast" asks for equality over the reals only
            (`algebra.accept`).
        tuning: a table that `neptune tune record` wrote, instead of the user's; or "none".
        knobs: numbers of the schedule by name, such as `{"rows": 64}`.
        on_demand: code that only some calls take is compiled by the first of them, and by `bundle`
            and `save`; False: now. (A bundle for several targets is always compiled now.)
        coming: the call that comes next, whose code is made beside that for any call.

    Raises:
        NeptuneError: the program, the schedule or the target cannot be compiled.
    """
    from neptune_mlir.runtime import cache
    from neptune_mlir.targets import tuned
    from neptune_mlir.targets.cpu import EFFORT
    from neptune_mlir.transforms.schedule import library

    if tuning is not None:
        with tuned.using(tuning):
            return compile(
                program, target, schedule, entry=entry, precision=precision, numerics=numerics,
                knobs=knobs, on_demand=on_demand, coming=coming,
            )  # fmt: skip
    source = _with_options(Source.of(program), precision, numerics)
    bound = library.knob_text(knobs or {})
    # Dumps are wanted of a compilation, and a cached kernel has none.
    key = cache.key(
        cache.without_lines(source.text), target, *_schedule_key(schedule),
        *_package_key(source.text), bound, entry or "", _host(target),
        tuned.current().digest(source.text, target),
    )  # fmt: skip

    asked = Asked(
        source.text, source.name, target, entry, bound, schedule, tuned.current(), EFFORT.get()
    )
    if os.environ.get("NEPTUNE_DUMP"):
        return Kernel(source, target, schedule, _recipe(asked).whole(), knobs=bound)
    if on_demand and "," not in target:
        found, cached = OnDemand.begin(key, functools.partial(_recipe, asked), coming)
    else:
        found, cached = cache.get_or_make(key, lambda: _recipe(asked).whole())
    return Kernel(source, target, schedule, found, cached, bound)


def _recipe(asked: Asked) -> Recipe:
    """How a program is compiled. Only this imports MLIR."""
    if asked.target != "cpu":
        from neptune_mlir.pipelines import image_child

        image_child.start()  # its imports take as long as ours
    with collected_rarely():
        from neptune_mlir.driver.recipe import Recipe

    return Recipe(asked)


def _with_options(source: Source, precision: str | None, numerics: str | None) -> Source:
    if not precision and not numerics:
        return source
    from neptune_mlir.driver.compiler import with_options

    text = with_options(source.text, source.name, precision=precision, numerics=numerics)
    return Source(text, source.name)


def _schedule_key(schedule: str | None) -> tuple[str, ...]:
    """What identifies a schedule: its text, and the passes of other packages that it may run."""
    if not schedule:
        return ()
    from neptune_mlir import plugins
    from neptune_mlir.transforms.schedule import library

    return library.read(schedule), plugins.fingerprint(plugins.PASSES)


def _package_key(text: str) -> tuple[str, ...]:
    """What identifies the patterns of other packages, and their combiners and scalar functions for
    a program that has one."""
    from neptune_mlir import plugins
    from neptune_mlir.algebra.combiners import PLAIN

    named = set(re.findall(r'combiner = "(\w+)"', text))
    groups = [] if named <= {*PLAIN, "custom"} else [plugins.COMBINERS]
    if "call @" in text:
        groups.append(plugins.FUNCTIONS)
    if plugins.entries(plugins.PATTERNS):
        groups.append(plugins.PATTERNS)
    return tuple(map(plugins.fingerprint, groups))


def _host(target: str) -> str:
    """What else the code depends on: the CPU's features, how many workers it has, and how much
    LLVM does."""
    if target != "cpu":
        return ""
    from neptune_mlir.runtime import workers
    from neptune_mlir.targets.cpu import EFFORT, host

    core = host()
    return f"{core.triple} {core.name} {core.features} {workers.count()} {EFFORT.get()}"
