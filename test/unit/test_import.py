# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What importing the package costs: nothing heavy, and little time."""

import json
import subprocess
import sys

PROBE = """
import sys, time
started = time.perf_counter()
import neptune_mlir
elapsed = time.perf_counter() - started
import json
print(json.dumps([elapsed, sorted(m for m in sys.modules if "." not in m)]))
"""


def probe(extra: str = "") -> tuple[float, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.replace("elapsed =", f"{extra}\nelapsed =")],
        capture_output=True,
        text=True,
        check=True,
    )
    elapsed, modules = json.loads(done.stdout)
    return elapsed, set(modules)


def test_import_is_light():
    elapsed, modules = min(probe() for _ in range(3))
    assert elapsed < 0.5
    assert not modules & {"torch", "triton", "z3", "torch_mlir", "mlir", "llvmlite", "numpy"}


def test_bindings_load_no_torch():
    _, modules = probe("import neptune_mlir.ir.bindings")
    assert not modules & {"torch", "triton", "z3"}


def test_public_names_resolve():
    import neptune_mlir

    for name in neptune_mlir.__all__:
        assert getattr(neptune_mlir, name) is not None


def test_names_that_load_on_first_use_are_listed():
    """As tab completion asks for them: before anything has loaded them."""
    code = "import neptune_mlir as n, neptune_mlir.runtime as r; print(*dir(n), *dir(r))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"CpuExecutable", "compile", "grad", "ops"} <= set(done.stdout.split())
