# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a bundle for GPUs on arrays: checks the arguments, evaluates the plan, launches.

    run = GpuExecutable(bundle)
    o = run(q, k, v)                        # new memory for the result (torch's or CuPy's)
    run(q, k, v, out=o, stream=s)           # nothing is allocated
    call = run.prepare(q, k, v, out=o)      # checked once
    call(); call(stream)                    # only launches: for graphs and short kernels

docs/runtime.md says what is asked of arrays, and how memory, streams, graphs and threads work.
Nothing here imports MLIR; the driver is opened on first use.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from neptune_mlir.errors import ArgumentError
from neptune_mlir.runtime.arrays import ArrayView, number_key
from neptune_mlir.runtime.bundle import Bundle, Growing
from neptune_mlir.runtime.checks import check, check_count, check_equal
from neptune_mlir.runtime.drivers.driver import Driver, Launches, PreparedLaunch
from neptune_mlir.runtime.drivers.makers import driver_for
from neptune_mlir.runtime.gpu_again import Bound, CallAgain
from neptune_mlir.runtime.gpu_arrays import glance, gpu_device, gpu_view
from neptune_mlir.runtime.images import LoadedImage, LoadedKernel, is_met, load_images
from neptune_mlir.runtime.libraries import library_of, stream_handle
from neptune_mlir.runtime.memory import (
    Requirements,
    Sizes,
    Take,
    bind,
    can_view,
    new_results,
    results_of,
    root,
)
from neptune_mlir.runtime.parameters import parameters
from neptune_mlir.runtime.plan import Evaluation, Plan
from neptune_mlir.runtime.shards.in_two import ArraysInTwo, first_of, takes

_SIZES_LIMIT = 1024  # shapes whose numbers are kept
_CALLS_LIMIT = 256  # calls of a thread that are kept


class GpuExecutable:
    """A compiled function on the GPUs of one maker: any number of devices, safe from several
    threads.

    Args:
        bundle: code for that maker's chips (and perhaps for others).
        driver: the maker's, instead of the one that this machine has.
        growing: where the bundle gets more images from, when calls take them.
    """

    def __init__(
        self, bundle: Bundle | bytes, driver: Driver | None = None, growing: Growing | None = None
    ):
        self._growing = growing
        self.bundle = Bundle.from_bytes(bundle) if isinstance(bundle, bytes) else bundle
        self.plan: Plan = self.bundle.plan
        self._given_driver = driver
        # by context, of which bundle
        self._images: dict[int, tuple[Bundle, tuple[LoadedImage, ...]]] = {}
        # by context, shapes and scalars
        self._sizes: dict[Any, tuple[LoadedImage, Sizes]] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    def __call__(
        self, *arguments: Any, out: Any = None, workspace: Any = None, stream: Any = None
    ) -> Any:
        """Enqueue the kernels; returns the result, or a tuple of them.

        Args:
            arguments: arrays on one GPU, and numbers, in the program's order.
            out: one array, or a sequence of one for each result. Without it, results are
                allocated by the library of the arguments.
            workspace: an array of at least `requirements(...).workspace` bytes. Without it, that
                is allocated by torch or CuPy where an argument is theirs; others have to give it.
            stream: a stream of torch or CuPy, or its handle. Default: the one that the library
                of the arrays works on now.

        Raises:
            ArgumentError: a wrong number, type, shape, stride, alignment, device, or overlap;
                nothing has been launched then.
            ToolError: the driver reports an error.
        """
        outs = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        key, addresses = self._signature(arguments, outs, workspace)
        kept = self._calls().get(key, ()) if key else ()
        made: Any = None
        for again in kept:  # one for each context
            handle = None if stream is None else stream_handle(stream)
            made = again.run(handle, addresses, outs)
            if made is not None:
                break
        else:
            call, bound = self._prepare(arguments, out, workspace, stream, kept=False)
            call()
            made = call.results
            if key and all(again.image.context != bound.image.context for again in kept):
                self._remember(key, bound, outs, workspace is not None, arguments)
        return made[0] if len(made) == 1 else made

    def again(self, *arguments: Any) -> CallAgain | None:
        """What this thread keeps of a call without `out=` and `workspace=` for arguments like
        these, in the context that it is in now; None where calls are checked each time."""
        key, _ = self._signature(arguments, (), None)
        context = self._driver.context(self._device_of(arguments))
        kept = self._calls().get(key, ()) if key else ()
        return next((again for again in kept if again.image.context == context), None)

    def _is_best(self, bound: Bound) -> bool:
        """Whether no image was left because of where the arrays of a call lie: those of a call like
        it may lie better."""
        plan = bound.image.plan
        given = [bound.arrays.get(("argument", k)) for k in range(len(plan.arguments))]
        out = [bound.arrays.get(root(plan, reference)) for reference in plan.results]
        images = self._images_for(bound.image.device)
        return all(is_met(need, given, out) for image in images for need in image.needs)

    def _calls(self) -> dict[Any, list[CallAgain]]:
        """This thread's calls that may come again, by what decides how they go: one for each
        context."""
        found: dict[Any, list[CallAgain]] = self._local.__dict__.setdefault("calls", {})
        return found

    def _remember(
        self, key: Any, bound: Bound, outs: Sequence[Any], workspace: bool, arguments: Sequence[Any]
    ) -> None:  # fmt: skip
        library, needs = library_of((*map(first_of, arguments), *outs)), bound.sizes.requirements
        given = outs and (workspace or not needs.workspace)
        if not (library.allocates or given):
            return
        if not (CallAgain.is_possible(bound) and self._is_best(bound)):
            return
        calls = self._calls()
        if len(calls) >= _CALLS_LIMIT:
            calls.clear()
        made = CallAgain(bound, self._driver, library, len(outs), workspace)
        calls.setdefault(key, []).append(made)

    def _signature(
        self, arguments: Sequence[Any], outs: Sequence[Any], workspace: Any
    ) -> tuple[Any, list[int]]:
        """What calls have in common that differ in addresses alone, and these; None where only a
        whole check can say. Last of all those that come behind first arrays (`CallAgain.run`)."""
        given = (*arguments, *outs, *(() if workspace is None else (workspace,)))
        key: list[Any] = [len(arguments), len(outs)]
        addresses: list[int] = []
        behind: list[int] = []
        device = None
        for value in given:
            if type(value) is ArraysInTwo:
                second = glance(value.arrays[1])
                if second is None or second[1] is None:
                    return None, addresses
                key.append(
                    (second[0], value.dim, value.late, value.timeout, value.step, value.last)
                )
                behind += [second[1], value.word]
            seen = glance(first_of(value))
            if seen is None:
                return None, addresses
            key.append(seen[0])
            if seen[1] is not None:
                addresses.append(seen[1])
                device = seen[0][-1]
        if type(device) is not int:  # nobody said: asks no driver where there is no array
            key.append(self._device_of(arguments))
        return tuple(key), [*addresses, *behind]

    def requirements(self, *arguments: Any) -> Requirements:
        """The results and the workspace that a call with these arguments needs.

        Raises:
            ArgumentError: as a call would.
        """
        images = self._images_for(self._device_of(arguments))
        take = partial(gpu_view, driver=self._driver, stream=None, wait=None)
        return self._check(images, arguments, take, ())[2].requirements

    def prepare(
        self, *arguments: Any, out: Any = None, workspace: Any = None, stream: Any = None
    ) -> PreparedCall:
        """Check everything once. The call that this returns works on the same memory each time,
        and keeps the arrays alive. Arguments and errors are those of a call.
        """
        return self._prepare(arguments, out, workspace, stream, kept=True)[0]

    def _prepare(
        self, arguments: Sequence[Any], out: Any, workspace: Any, stream: Any, kept: bool
    ) -> tuple[PreparedCall, Bound]:
        """A call, and what it was found to be. `kept`: it may run more than once."""
        given = None if out is None else list(out) if isinstance(out, (tuple, list)) else [out]
        device = self._device_of(arguments)
        images = self._images_for(device)
        library = library_of([*map(first_of, arguments), *(given or ())])
        own_stream = library.current_stream
        current = own_stream if stream is None else partial(_constant, stream_handle(stream))
        handle = current(device)

        def wait(producer: int) -> None:
            if producer != handle:
                self._driver.wait(images[0].context, handle, producer)

        def take(value: Any, name: str) -> ArrayView:
            view = gpu_view(value, name, self._driver, handle, wait)
            if view.device not in (device, None):
                raise ArgumentError(
                    f"the arrays are on several devices: {name} is on GPU {view.device}, "
                    f"others on GPU {device}"
                )
            return view

        views, image, sizes = self._check(images, arguments, take, given or ())
        needs, plan = sizes.requirements, image.plan
        empty = partial(library.empty, device=device, stream=handle)
        own = given is None or library.allocates
        if given is None:
            given = new_results(plan, needs, empty)
        elif len(given) != len(plan.results):
            raise ArgumentError(f"out= has {len(given)} arrays for {len(plan.results)} results")
        if workspace is None and needs.workspace and own:
            workspace = empty((needs.workspace,), "i8")
        arrays = bind(
            plan, sizes, views, given, workspace, take, image.alignment, image.constants
        )

        def number(limit: int) -> int:
            again = kept or self._driver.is_capturing(handle)
            return image.numbers.take(limit, again)

        launches = []
        for sized in sizes.launches:
            kernel = image.kernels[sized.launch.kernel]
            values = parameters(sized, arrays, self._driver, number, image.context)
            values += [ctypes.c_void_p(0)] * kernel.hidden
            early = kernel.follows > (0 if launches else 1)
            launches.append(
                PreparedLaunch(
                    kernel.function, self._blocks(kernel, sized.programs), kernel.threads,
                    kernel.dynamic, values, early,
                )
            )  # fmt: skip
        results = results_of(plan, needs, arguments, given)
        keep = (arguments, given, workspace)
        call = PreparedCall(self._driver, image, current, launches, results, keep)
        return call, Bound(image, sizes, arrays, launches)

    def _blocks(self, kernel: LoadedKernel, programs: int) -> int:
        """The blocks of a launch for so many programs. Raises ArgumentError."""
        blocks = min(programs, kernel.blocks or programs)
        maker = self._driver.maker
        if blocks * kernel.threads > maker.most_threads:
            raise ArgumentError(
                f"{blocks} programs of {kernel.threads} threads are more than one launch on "
                f"{maker.name} GPUs can have"
            )
        return blocks

    def _check(
        self, images: Sequence[LoadedImage], arguments: Sequence[Any], take: Take,
        out: Sequence[Any],
    ) -> tuple[list[ArrayView | None], LoadedImage, Sizes]:  # fmt: skip
        """Views of the arguments, the image for them, and the sizes that follow from both."""
        loaded = images
        views, scalars = check(images[0].plan, arguments, take)
        shapes = tuple(None if v is None else v.shape for v in views)
        key: tuple[Any, ...] = (
            images[0].context, len(images), shapes, *map(number_key, scalars)
        )  # fmt: skip
        given: list[ArrayView | None] = []
        if len(images) > 1 or images[0].when is not None:  # how arrays lie in memory counts too
            given = [None if o is None else take(o, "out") for o in out]
            needs = dict.fromkeys(need for image in images for need in image.needs)
            met = {need: is_met(need, views, given) for need in needs}
            images = [image for image in images if all(met[need] for need in image.needs)]
            key += tuple(met.values())
        split = tuple(None if v is None or v.behind is None else v.behind.begin for v in views)
        if any(split):
            images = [i for i in images if takes(i.plan, views)]
            if not images:
                raise ArgumentError(
                    "no kernel for this device takes these arguments in two arrays",
                    hint="pass one array",
                )
            key += split
        if any(image.views for image in images[1:]):
            key += tuple(None if v is None else v.strides for v in (*views, *given))
        found = self._sizes.get(key)
        if found is None:
            check_equal(loaded[0].plan, shapes, scalars)
            found = _choose(images, shapes, scalars, views, given)
            if any(split) and found is not None:
                return views, *found
            if self._growing is not None:
                code = None if found is None else found[0].facts["offset"]
                grown = self._grow(self._growing, code, loaded[0], shapes, scalars)
                if grown is not loaded:
                    return self._check(grown, arguments, take, out)
            assert found is not None, "an image is for any call"
            if len(self._sizes) >= _SIZES_LIMIT:
                self._sizes.clear()
            self._sizes[key] = found
        return views, *found

    def _grow(
        self, growing: Growing, code: int | None, of: LoadedImage, shapes: Sequence[Any],
        scalars: Sequence[Any],
    ) -> tuple[LoadedImage, ...]:  # fmt: skip
        """The images, with one more where a call is better off with it than with that at `code`
        (None: with none). They are for the device `of` this one."""
        growing.grow(code, shapes, scalars, of.multiprocessors)
        return self._images_for(of.device)

    def _device_of(self, arguments: Sequence[Any]) -> int:
        """The device of the first array; the first one when no array has elements."""
        check_count(self.plan, arguments)
        for value, wanted in zip(arguments, self.plan.arguments, strict=True):
            if wanted.kind == "tensor":
                device = gpu_device(value, wanted.name, lambda: self._driver)
                if device is not None:
                    return device
        return 0

    @cached_property
    def _driver(self) -> Driver:
        chips = [image["target"] for image in self.bundle.facts["images"]]
        return self._given_driver or driver_for(chips)

    def _images_for(self, device: int) -> tuple[LoadedImage, ...]:
        """The code for a device, in the context that this thread uses there."""
        context = self._driver.context(device)
        with self._lock:
            if self._growing is not None:
                self.bundle = self._growing.bundle
            of, images = self._images.get(context, (None, ()))
            if of is not self.bundle:
                images = load_images(self.bundle, self._driver, device, context, images)
                self._images[context] = self.bundle, images
            return images


class PreparedCall:
    """Checked launches on fixed memory. Calling it enqueues them and does nothing else: it may be
    captured in a graph, and called from several threads.

    Attributes:
        results: what the call without preparation would return, as a tuple.
        launches: the kernels in order; those whose grid is empty are left out.
        image: whose kernels they are.
    """

    def __init__(
        self, driver: Driver, image: LoadedImage, current: Callable[[int], int],
        launches: Sequence[PreparedLaunch], results: tuple[Any, ...], keep: Any,
    ):  # fmt: skip
        self.launches = launches
        self.image = image
        self.results = results
        self._keep = keep
        self._current, self._device = current, image.device
        self._launches = Launches(driver, image.context, launches)

    def __call__(self, stream: Any = None) -> None:
        """Enqueue the kernels on a stream (default: as for the call without preparation).

        Raises:
            ToolError: the driver reports an error.
        """
        handle = self._current(self._device) if stream is None else stream_handle(stream)
        self._launches.enqueue(handle)


def _choose(
    images: Sequence[LoadedImage], shapes: Sequence[Any], scalars: Sequence[Any],
    views: Sequence[ArrayView | None], out: Sequence[ArrayView | None],
) -> tuple[LoadedImage, Sizes] | None:  # fmt: skip
    """The last image for a call; of those for some calls alone, one that needs no copies. None,
    where that for any call is not there yet."""
    call = None
    for image in reversed(images):
        call = call or Evaluation(shapes, scalars, image.multiprocessors)  # all of one device
        if not image.serves(call):
            continue
        sizes = Sizes(image.plan, shapes, scalars, image.multiprocessors)
        if image.when is None or can_view(image.plan, sizes, views, out):
            return image, sizes
    return None


def _constant(value: int, device: int) -> int:
    return value
