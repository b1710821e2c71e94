# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime in C (c/): the plan's vectors, attention for the CPU, bad bundles, and calls of
NVIDIA's driver, of which c/test/fake_cuda.c is a double that writes down what it is asked."""

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neptune_mlir import ops
from neptune_mlir.driver import compiler
from neptune_mlir.driver.inputs import random_inputs
from neptune_mlir.errors import NeptuneError, ToolError
from neptune_mlir.runtime import bundle as bundles
from neptune_mlir.runtime import loader, parameters
from neptune_mlir.runtime.arrays import ArrayView
from neptune_mlir.runtime.bundle import Bundle
from neptune_mlir.runtime.cpu import CpuExecutable
from neptune_mlir.runtime.drivers.cuda import CudaDriver
from neptune_mlir.runtime.plan import Argument, Buffer, Constant, Launch, Plan
from support import c_runtime
from support.effort import shipped

ROOT = Path(__file__).parents[3]
CC = c_runtime.compiler()
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")

FLAGS = c_runtime.FLAGS
PROGRAMS = {"vectors": "c/test/vectors.c", "open": "c/test/open.c", "gpu": "c/test/gpu.c",
            "attention": "examples/c/attention.c"}  # fmt: skip


def run(*command, expected=0, **environment):
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The runtime as a shared library, and programs that use it."""
    folder = tmp_path_factory.mktemp("c")
    c_runtime.build(folder)
    for name, source in PROGRAMS.items():
        run(CC, *FLAGS, source, "-o", folder / name, "-L", folder, f"-Wl,-rpath,{folder}",
            "-lneptune_runtime", "-lm")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def attention():
    text = (ROOT / "examples" / "attention.mlir").read_text()
    with shipped():  # which functions of libraries it calls is LLVM's choice
        return compiler.compile_text(text, "attention.mlir", "cpu", None, None)


def status(built, tmp_path, data):
    """What opening a file with these bytes gives: status and message."""
    (tmp_path / "a.bundle").write_bytes(data)
    found, _, message = run(built / "open", tmp_path / "a.bundle").strip().partition(": ")
    return found.rstrip(":"), message


def test_vectors_of_plans(built):
    found = re.fullmatch(r"(\d+) checks, 0 failures\n",
                         run(built / "vectors", "test/vectors/plan.json"))  # fmt: skip
    assert found and int(found[1]) > 100


@pytest.mark.parametrize("threads", ["1", "3"])
def test_attention_runs_without_python(built, attention, tmp_path, threads):
    (tmp_path / "attention.bundle").write_bytes(attention.to_bytes())
    said = run(built / "attention", tmp_path / "attention.bundle", NEPTUNE_NUM_THREADS=threads)
    assert float(said.split()[4].rstrip(",")) < 1e-6, said


def test_damaged_files_are_refused(built, attention, tmp_path):
    data = attention.to_bytes()
    flipped = data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
    for bad in (b"", b"x", data[:48], data[:56], data[:100], data[: len(data) // 2], data[:-1],
                flipped, b"X" + data[1:], data + b"\0"):  # fmt: skip
        said = "not a compiled bundle, or a damaged one; compile it again"
        assert status(built, tmp_path, bad) == ("BAD_FILE", said)


def test_another_abi_is_refused(built, attention, tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "ABI", 4)
    said = "the bundle was made for ABI 4 of the runtime, which has 3; compile it again"
    assert status(built, tmp_path, attention.to_bytes()) == ("BAD_ABI", said)


def code_with(bundle, at, value):
    code = bytearray(bundle.code)
    code[at : at + len(value)] = value
    return replace(bundle, code=bytes(code)).to_bytes()


def test_code_for_another_machine_is_refused(built, attention, tmp_path):
    arm = code_with(attention, 18, (183).to_bytes(2, "little"))  # e_machine
    found, said = status(built, tmp_path, arm)
    assert found == "BAD_MACHINE" and "for another CPU (ELF machine 183)" in said
    found, said = status(built, tmp_path, replace(attention, code=b"MZ").to_bytes())
    assert found == "BAD_MACHINE" and "no ELF object" in said
    found, said = status(built, tmp_path, replace(attention, target="gfx942").to_bytes())
    assert (found, said) == ("BAD_MACHINE", "bundles for 'gfx942' do not run here")


def test_instructions_that_a_cpu_lacks_are_refused(built, attention, tmp_path, monkeypatch):
    _, have = loader._machine()
    known = re.findall(r'ASK\("([\w.]+)"\)', (ROOT / "c" / "src" / "cpu.c").read_text())
    machine = attention.facts["machine"]
    assert status(built, tmp_path, attention.to_bytes())[0] == "OK"
    lacking = [f for f in known if not have.get(f)][:1]
    for feature in lacking + ["amx-tile"] * (not have.get("amx-tile")):
        wider = {"machine": {**machine, "features": [feature]}}
        found, said = status(built, tmp_path, replace(attention, facts=wider).to_bytes())
        assert found == "BAD_MACHINE" and f"with {feature}, which this one lacks" in said
    monkeypatch.setattr(loader, "_machine", lambda: ("x86_64-unknown-linux-gnu", {"avx": True}))
    with pytest.raises(ToolError, match=r"a CPU with .*avx2.*which this one lacks"):
        CpuExecutable(attention)
    monkeypatch.setattr(loader, "_machine", lambda: ("aarch64-unknown-linux-gnu", {}))
    with pytest.raises(ToolError, match=r"compiled for x86_64.*this machine is aarch64"):
        CpuExecutable(attention)


def test_kernels_and_functions_that_are_missing(built, attention, tmp_path):
    (launch,) = attention.plan.launches
    other = replace(attention.plan, launches=(replace(launch, kernel="nobody"),))
    found, said = status(built, tmp_path, replace(attention, plan=other).to_bytes())
    assert found == "BAD_FILE"
    assert said == "the compiled code lacks '_mlir_ciface_nobody', which its plan names"
    changed = replace(attention, code=attention.code.replace(b"\0memset\0", b"\0mem_et\0"))
    found, said = status(built, tmp_path, changed.to_bytes())
    assert found == "NO_SYMBOL" and "calls 'mem_et', which no library" in said


def test_plans_that_contradict_themselves(built, attention, tmp_path):
    plan = json.loads(attention.plan.to_json())
    plan["launches"][0]["operands"][0] = ["argument", 7]
    made = replace(attention, plan=FakePlan(json.dumps(plan)))
    found, said = status(built, tmp_path, made.to_bytes())
    assert found == "BAD_FILE" and "an operand of a launch that names nothing" in said
    plan = json.loads(attention.plan.to_json()) | {"shared": [["add", 1, ["shared", 0]]]}
    made = replace(attention, plan=FakePlan(json.dumps(plan)))
    found, said = status(built, tmp_path, made.to_bytes())
    assert found == "BAD_FILE" and "that is shared with none before it" in said
    found, said = status(built, tmp_path, replace(attention, plan=FakePlan("[")).to_bytes())
    assert found == "BAD_FILE" and said == "no JSON at byte 1: an early end"


class FakePlan:
    """Any text in the place of a plan."""

    def __init__(self, text):
        self.text = text

    def to_json(self):
        return self.text


def test_wrong_bytes_never_end_the_process(built, attention, tmp_path):
    (tmp_path / "a.bundle").write_bytes(replace(attention, facts={}).to_bytes())
    counts = run(built / "open", "--mutate", 1500, 7, tmp_path / "a.bundle")
    assert "BAD_FILE" in counts and "BAD_MACHINE" in counts


# ---- other programs, through ctypes

# several kernels and results, constants, extents and numbers known at a call only, integers, bf16
PROGRAMS_OF = ("decode_gqa", "logsumexp_keepdim", "torch_alibi", "cross_entropy_gather")
OTHERS = sorted({p.stem for p in (ROOT / "test" / "inputs").glob("*.mlir")} - {*PROGRAMS_OF})


@pytest.mark.parametrize(
    "name", [*PROGRAMS_OF, *(pytest.param(n, marks=pytest.mark.nightly) for n in OTHERS)]
)
def test_both_runtimes_give_the_same(built, name):
    path = ROOT / "test" / "inputs" / f"{name}.mlir"
    try:
        bundle = compiler.compile_text(path.read_text(), path.name, "cpu", None, None)
    except NeptuneError as error:
        pytest.skip(f"does not compile: {error.message}")  # as its own test says
    arguments = random_inputs(bundle.plan, 37, seed=1)
    if any(isinstance(a, np.ndarray) and a.ndim > 1 for a in arguments):
        k = next(k for k, a in enumerate(arguments) if getattr(a, "ndim", 0) > 1)
        arguments[k] = np.asfortranarray(arguments[k])  # strides are taken as they are
    ours = c_runtime.run_on_host(built / c_runtime.NAME, bundle, arguments)
    theirs = CpuExecutable(bundle)(*arguments)
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.tobytes() == np.ascontiguousarray(other).tobytes()


def test_code_for_few_rows_is_chosen_by_both(built):
    """A bundle that holds code for calls with one or two rows: both runtimes give its bits."""
    program = ops.attention(head_dim=16, dtype="f32")
    bundle = compiler.compile_text(program.to_mlir(), "f.mlir", "cpu", None, None)
    (few,) = bundle.facts["variants"]
    code = bundle.code[: -few["size"]]
    general = replace(bundle, code=code, facts={**bundle.facts, "variants": []})
    rng = np.random.default_rng(3)
    for rows in (1, 3):
        sizes = ((2, 3, rows, 16), (2, 3, 50, 16), (2, 3, 50, 16))
        arguments = [rng.standard_normal(size, np.float32) for size in sizes]
        (ours,) = c_runtime.run_on_host(built / c_runtime.NAME, bundle, arguments)
        assert ours.tobytes() == CpuExecutable(bundle)(*arguments).tobytes()
        same = ours.tobytes() == CpuExecutable(general)(*arguments).tobytes()
        assert same or rows == 1
    damaged = {**bundle.facts, "variants": [{**few, "size": len(bundle.code) + 1}]}
    with pytest.raises(AssertionError, match="no condition or no code"):
        c_runtime.run_on_host(built / c_runtime.NAME, replace(bundle, facts=damaged), arguments)


# ---- GPUs

# y[i, j] of x[i, j] (maps of both), and a sum of a constant; the grid and a size need evaluation
GPU_PLAN = Plan(
    "f",
    (Argument("tensor", "f16", (None, 128), "x"), Argument("scalar", "f32", (), "s")),
    (),
    (Buffer("f16", (["dim", 0, 0], 128)), Buffer("f32", (["dim", 0, 0], 3))),
    (
        Launch("first", (["ceildiv", ["dim", 0, 0], 2],), (
            ["argument", 0], ["value", "f32", ["argument", 1]], ["buffer", 1],
            ["value", "index", ["dim", 0, 0]], ["constant", 0],
        )),
        Launch("second", (["dim", 0, 0], 1000), (
            ["map", "argument", 0, 0, 64, 128], ["buffer", 0], ["counter", 8],
        )),
    ),
    (["buffer", 0],),
    constants=(Constant("f32", (2,), "5f" * 32),),
)  # fmt: skip


def gpu_bundle(box=(0, 64, 128), narrow=0, **second):
    plan = json.loads(GPU_PLAN.to_json())
    plan["launches"][1]["operands"][0][3:] = box
    plan["launches"][1]["narrow"] = narrow
    kernels = {
        "first": {"threads": 128, "shared": 1024, "registers": 32, "spilled": 0},
        "second": {"threads": 384, "shared": 9000, "resident": True, "blocks_per_sm": 2,
                   "follows": True, "hidden": 1, **second},
    }  # fmt: skip
    old = {"target": "sm_80", "offset": 0, "size": 4, "kernels": kernels}
    new = {"target": "sm_90a", "offset": 4, "size": 4, "kernels": kernels}
    facts = {"images": [old, new], "alignment": [["argument", 0, 16]]}
    made = Plan.from_json(json.dumps(plan))
    return Bundle("sm_80,sm_90a", made, b"old!new!", facts, {"5f" * 32: bytes(range(8))})


@pytest.fixture(scope="module")
def fake_driver(built):
    (built / "driver").mkdir()
    run(CC, *FLAGS, "-fPIC", "-shared", "c/test/fake_cuda.c", "-o",
        built / "driver" / "libcuda.so.1")  # fmt: skip
    return str(built / "driver")


def gpu_call(built, tmp_path, driver, case, chip="90", expected=0, **facts):
    (tmp_path / "g.bundle").write_bytes(gpu_bundle(**facts).to_bytes())
    return run(built / "gpu", tmp_path / "g.bundle", case, LD_LIBRARY_PATH=driver, FAKE_CHIP=chip,
               FAKE_PARAMETERS="first:8,8,4,8,8,4,8;second:128,8,8,4,8",
               expected=expected).splitlines()  # fmt: skip


CALL = [
    "push 0xc0", "load new!", "function first", "shared first 1024", "function second",
    "shared second 9000", "allocate 8", "copy 0001020304050607", "pop", "workspace 3840",
    "push 0xc0",
    # x and its row stride (twice 128: every other row), s, the buffer in the workspace, its
    # stride, extent 300, the constant
    "launch first grid 150 block 128 shared 1024 stream 0x5 early 0:"
    " 0x100000 256 0x3f000000 0x800000 3 300 0xa000",
    # the map (64 columns, rows, panels), y, its stride, the call's number, a hidden null;
    # 300000 programs on 264 resident blocks; it starts while the first runs
    "launch second grid 264 block 384 shared 9000 stream 0x5 early 1:"
    " map(0x100000 f16 64x300x2 512,128 64x64x2 swizzle 3 l2 3) 0x200000 128 0 0x0",
    "pop", "OK", "push 0xc0", "free 0xa000", "unload", "pop",
]  # fmt: skip


def test_calls_of_the_driver(built, tmp_path, fake_driver):
    assert gpu_call(built, tmp_path, fake_driver, "call") == CALL


class Encoded(CudaDriver):
    """A driver of which a test sees the arguments that tensor maps are encoded with."""

    def __init__(self):
        self.text = ""

    def call(self, name, map_, kind, rank, address, extents, strides, box, ones, *rest):
        interleave, swizzle, l2, fill = rest
        assert (name, kind, set(ones), interleave, fill) == ("cuTensorMapEncodeTiled", 6, {1}, 0, 0)
        by = "x".join
        self.text = (
            f"map({address.value:#x} f16 {by(map(str, extents))} {','.join(map(str, strides))} "
            f"{by(map(str, box))} swizzle {swizzle} l2 {l2})"
        )


@pytest.mark.parametrize(
    ("box", "narrow"),
    [((0, 64, 128), False), ((0, 16, 64, 32), False), ((0, 8, 0), True), ((0, 8, 0, 32), False),
     ((-1, 1, 64), True), ((-1, 1, 0, 32), False)],
)  # fmt: skip
def test_both_runtimes_encode_the_same_maps(built, tmp_path, fake_driver, box, narrow):
    """Boxes with panels of 64 and 32 columns and without, with rows and without; of a launch that
    asks for 128 bytes at once, and of others."""
    driver = Encoded()
    array = ArrayView(0x100000, "f16", (300, 128), (256, 1), False, None)
    parameters.tensor_map(driver, array, *box, narrow=narrow)
    few = ["lt", ["dim", 0, 0], 301 if narrow else 300]
    lines = gpu_call(built, tmp_path, fake_driver, "call", box=box, narrow=few)
    second = next(line for line in lines if line.startswith("launch second"))
    assert f" {driver.text} " in second and f" l2 {2 if narrow else 3}" in second


def test_images_by_alignment(built, tmp_path, fake_driver):
    """One for some calls that counts on more than that for any call; rows have 512 bytes."""
    bundle = gpu_bundle()
    *_, new = bundle.facts["images"]
    kernels = {**new["kernels"], "first": {**new["kernels"]["first"], "threads": 256}}
    for unit, threads in ((512, 256), (1024, 128)):
        own = {**new, "kernels": kernels, "when": 1, "alignment": [["argument", 0, unit]]}
        facts = {**bundle.facts, "images": [*bundle.facts["images"], own]}
        (tmp_path / "g.bundle").write_bytes(replace(bundle, facts=facts).to_bytes())
        lines = run(built / "gpu", tmp_path / "g.bundle", "call", LD_LIBRARY_PATH=fake_driver,
                    FAKE_CHIP="90", FAKE_PARAMETERS="first:8,8,4,8,8,4,8;second:128,8,8,4,8")
        assert f"launch first grid 150 block {threads} " in lines


def test_images_by_chip(built, tmp_path, fake_driver):
    assert "load old!" in gpu_call(built, tmp_path, fake_driver, "call", chip="86")
    said = gpu_call(built, tmp_path, fake_driver, "call", chip="75")[-1]
    assert said == (
        "BAD_MACHINE: the bundle holds code for sm_80, sm_90a; this device is sm_75; compile it "
        "for this device too"
    )
    assert "sm_100" in gpu_call(built, tmp_path, fake_driver, "call", chip="100")[-1]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("misaligned", "x is not aligned to 16 bytes"),
        ("overlap", "out overlaps x; pass memory of its own"),
        ("no workspace", "f needs 3840 bytes of workspace, 0 were given"),
        ("columns", "x has stride 2 along its last dimension, not 1"),
        ("shape", "x has shape [300, 127], not [?, 128]"),
        ("expanded", "out has several positions at one place in memory"),
    ],
)
def test_bad_calls_launch_nothing(built, tmp_path, fake_driver, case, message):
    lines = gpu_call(built, tmp_path, fake_driver, case)
    assert f"BAD_ARGUMENT: {message}" in lines
    assert not any(line.startswith("launch") for line in lines)


def test_no_driver(built, tmp_path):
    lines = gpu_call(built, tmp_path, str(tmp_path), "call")
    assert lines[-1].startswith("NO_DRIVER: there is no CUDA driver on this machine")
