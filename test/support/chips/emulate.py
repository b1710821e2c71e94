# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the AMD machine code of bundles in an emulator: a program, for a process of its own.

    python emulate.py EMULATOR CACHE < requests

EMULATOR is the folder with `amdemu.py`, the loader of the emulator; CACHE one for what the emulator
compiled. A request is one line of JSON: the bundle, the chip, an .npz of inputs, in which orders
waves run (a whole run for each), where to write results. One line of JSON answers it. An access
past the end of an array, of local memory or of the kernel arguments ends the process with SIGSEGV;
so do not run this in a process that has to live.

Everything that a kernel may not read is a NaN: registers and local memory (the loader sees to
these), results, workspace, and, where `strided`, what is between the rows of arrays.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from neptune_mlir.codegen.amd import hsaco
from neptune_mlir.runtime.arrays import ArrayView, storage_dtype
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.memory import Sizes, root
from neptune_mlir.runtime.parameters import parameters
from neptune_mlir.targets.gpu import MULTIPROCESSORS
from support.chips import pattern_code

ALIGNMENT = 16  # of arrays; up to so many bytes less one past an end go unseen


class Patterns:
    """Functions that stand for instructions, kept from one process to the next.

    The emulator compiles one for every pattern of instruction, which takes most of a run.
    """

    def __init__(self, emulator: Any, folder: Path):
        from tinygrad.device import Device

        self._known, self._runtime = emulator.emu._canonical_runner_cache, Device["CPU"].runtime
        sources = sorted(Path(emulator.emu.__file__).parent.glob("*.py"))
        sources.append(Path(pattern_code.__file__))
        digest = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()
        self._folder, self._digest, self._path = folder, digest[:12], Path()
        self._stored: dict[Path, list[Any]] = {}
        self._loaded: dict[Path, list[Any]] = {}

    def load(self, arch: str) -> None:
        """What this process compiled for an architecture, and at first what earlier ones did."""
        self._path = path = self._folder / f"amd-emulator-{arch}-{self._digest}.pickle"
        if path not in self._loaded:
            self._stored[path] = pickle.loads(path.read_bytes()) if path.is_file() else []
            self._loaded[path] = []
            for *pattern, arguments, code in self._stored[path]:
                program = SimpleNamespace(arg=SimpleNamespace(globals=arguments))
                self._loaded[path].append((*pattern, (program, self._runtime(code))))
        self._known[:] = self._loaded[path]

    def save(self) -> None:
        stored = self._stored[self._path]
        new = self._known[len(stored) :]
        if not new:
            return
        for *pattern, (program, _) in new:
            stored.append((*pattern, tuple(program.arg.globals), program.to_elf()))
        self._loaded[self._path] = [*self._known]
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(pickle.dumps(stored))
        os.replace(temporary, self._path)


class Memory:
    """Arrays that end at a page which nobody may touch."""

    def __init__(self, emulator: Any):
        self._emulator, self._kept = emulator, []

    def bytes(self, size: int) -> int:
        """The address of new memory, all bits 1."""
        owner, address = self._emulator.guarded(max(size, 1), ALIGNMENT)
        self._kept.append(owner)
        ctypes.memset(address, 0xFF, max(size, 1))
        return int(address)

    def array(self, shape: tuple[int, ...], dtype: Any, strided: bool) -> Any:
        """A new array, all bits 1. `strided`: its rows lie apart."""
        pitch = shape
        if strided and len(shape) > 1:
            unit = ALIGNMENT // dtype.itemsize
            pitch = (*shape[:-1], -(-shape[-1] // unit) * unit + unit)
        size = max(int(np.prod(pitch)) * dtype.itemsize, 1)
        memory = (ctypes.c_char * size).from_address(self.bytes(size))
        whole = np.frombuffer(memory, dtype, int(np.prod(pitch))).reshape(pitch)
        return whole[..., : shape[-1]] if shape else whole


def execute(
    emulator: Any, bundle: Bundle, image: dict[str, Any], loaded: Any, inputs: list[Any],
    order: str, strided: bool, short: int,
) -> tuple[list[Any], int]:  # fmt: skip
    """The results, and how many instructions waves executed.

    Args:
        loaded: the code of the image, as the emulator has it.
        short: rows that the last input lacks at its end (a control: kernels then read past it).
    """
    plan, memory = bundle.plan_of(image), Memory(emulator)
    arguments, kinds = plan.arguments, [a.kind for a in plan.arguments]
    shapes = [x.shape if kind == "tensor" else () for x, kind in zip(inputs, kinds, strict=True)]
    scalars = [None if k == "tensor" else x.item() for x, k in zip(inputs, kinds, strict=True)]
    sizes = Sizes(plan, shapes, scalars, MULTIPROCESSORS)
    placed: dict[tuple[str, int], Any] = {}
    dtypes: dict[tuple[str, int], str] = {}
    for k, (argument, x) in enumerate(zip(arguments, inputs, strict=True)):
        if argument.kind == "tensor":
            kept = x[..., : x.shape[-2] - short, :] if short and k == len(inputs) - 1 else x
            placed["argument", k] = memory.array(kept.shape, x.dtype, strided)
            placed["argument", k][...] = kept
            dtypes["argument", k] = argument.dtype
    for k, held in enumerate(plan.constants):
        place, raw = ("constant", k), bundle.data[held.sha256]
        placed[place] = memory.array(held.shape, bits_of(held.dtype), False)
        placed[place][...] = np.frombuffer(raw, bits_of(held.dtype)).reshape(held.shape)
        dtypes[place] = held.dtype
    results = {root(plan, reference) for reference in plan.results}
    for k, buffer in enumerate(plan.buffers):
        place, shape = ("buffer", k), sizes.buffers[k]
        dtypes[place] = buffer.dtype
        if buffer.of is None:
            placed[place] = memory.array(shape, bits_of(buffer.dtype), strided and place in results)
        else:
            placed[place] = placed[root(plan, place)].reshape(shape)
    views = {
        place: ArrayView(x.ctypes.data, dtypes[place], x.shape,
                         tuple(s // x.itemsize for s in x.strides), False, x)
        for place, x in placed.items()
    }  # fmt: skip
    before = {place: x.tobytes() for place, x in placed.items() if place[0] == "argument"}
    _, notes = hsaco.read_notes(code_of(bundle, image))
    count = launch(loaded, image, notes, sizes, views, memory, order)
    for place, data in before.items():
        assert place in results or placed[place].tobytes() == data, f"{place} was written"
    return [placed[tuple(r)].copy() for r in plan.results], count


def code_of(bundle: Bundle, image: dict[str, Any]) -> bytes:
    return bundle.code[image["offset"] : image["offset"] + image["size"]]


def launch(
    loaded: Any, image: dict[str, Any], notes: Any, sizes: Sizes, views: Any, memory: Memory,
    order: str,
) -> int:  # fmt: skip
    """Run the launches of a plan; returns how many instructions that took."""
    count = 0
    for sized in sizes.launches:
        name = sized.launch.kernel
        facts, described, noted = image["kernels"][name], loaded.kernels[name], notes[name]
        # no driver: an operand that needs one is not AMD's
        values = [bytes(p) for p in parameters(sized, views, None, lambda limit: 0)]  # type: ignore
        packed = b""
        for value in values:
            packed += bytes(-len(packed) % len(value)) + value
        hsaco.check(noted, [len(v) for v in values], threads=facts["threads"],
                    shared=facts["shared"], wave=noted.wave)  # fmt: skip
        found = (described.group, described.kernarg, described.private)
        assert found == (noted.shared, noted.kernarg, noted.scratch), "descriptor and notes differ"
        at = memory.bytes(noted.kernarg)
        ctypes.memmove(at, packed, len(packed))
        count += loaded.run(name, sized.programs, facts["threads"], at, order=order)
        assert ctypes.string_at(at, len(packed)) == packed, "the kernel arguments were written"
    return count


def bits_of(dtype: str) -> np.dtype[Any]:
    """The NumPy type of an MLIR element type; 16 bits for bf16."""
    return np.dtype(np.uint16) if dtype == "bf16" else storage_dtype(dtype)


def serve(emulator: Any, request: dict[str, Any]) -> dict[str, Any]:
    bundle = Bundle.from_bytes(Path(request["bundle"]).read_bytes())
    with np.load(request["inputs"]) as archive:
        inputs = [archive[f"arg{k}"] for k in range(len(archive))]
    images = [i for i in bundle.facts["images"] if i["target"] == request["chip"]]
    results, counts = [], []
    loaded = [emulator.Hsaco(code_of(bundle, image), image["target"]) for image in images]
    for order in request["orders"]:
        counts.append(0)
        for image, code in zip(images, loaded, strict=True):
            # (those for some calls only as well: they are right for any)
            found, executed = execute(emulator, bundle, image, code, inputs, order,
                                      request["strided"], request["short"])  # fmt: skip
            results += found
            counts[-1] += executed
    np.savez(request["output"], *results)
    return {"images": len(images), "instructions": counts}


def main() -> int:
    sys.path.insert(0, sys.argv[1])
    import amdemu

    pattern_code.install(amdemu)
    gc.disable()  # terms that the emulator rewrites are many, and in no cycles
    patterns = Patterns(amdemu, Path(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        patterns.load(amdemu.ARCH[request["chip"]])
        try:
            done = serve(amdemu, request)
        except Exception as error:  # for whoever asked; the next request is another's
            done = {"error": f"{type(error).__name__}: {error}"}
        patterns.save()
        print(json.dumps(done), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
