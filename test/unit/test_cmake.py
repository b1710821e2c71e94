# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The CMake build against the MLIRs of this machine: the dialect for C++, the plug-in of a stock
mlir-opt, the runtime in C, their installation, and examples/compiler, which uses it."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from neptune_mlir.cli import opt

ROOT = Path(__file__).parents[2]
IRDL = ROOT / "neptune_mlir" / "dialects" / "neptune.irdl"
# folders of installed LLVMs: Debian's, and any that the environment names
LLVMS = [path for path in map(Path, filter(None, [
    *os.environ.get("NEPTUNE_TEST_LLVM", "").split(":"), "/usr/lib/llvm-19", "/usr/lib/llvm-22",
])) if (path / "lib" / "cmake" / "mlir" / "MLIRConfig.cmake").exists()]  # fmt: skip
BUILT = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -DNDEBUG", "-DCMAKE_C_FLAGS=-O1")


def generator():
    spec = importlib.util.spec_from_file_location("irdl_to_ods", ROOT / "cpp" / "irdl_to_ods.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["irdl_to_ods"] = module
    spec.loader.exec_module(module)
    return module


def test_every_op_has_its_ods():
    text = generator().convert(IRDL.read_text(), IRDL.name)
    assert text == generator().convert(IRDL.read_text(), IRDL.name)
    assert 'def Neptune_YieldOp : Op<Neptune_Dialect, "yield", [Terminator]> {' in text
    assert 'def Neptune_ProducerOp : Op<Neptune_Dialect, "producer", [NoTerminator]> {' in text
    read = text[text.index("def Neptune_ReadOp") :].split("\n}\n")[0]
    assert "AnyType:$tensor, Variadic<Index>:$lookups" in read
    assert '"AffineMapAttr", "an affine map">:$map' in read
    stream = text[text.index("def Neptune_StreamOp") :].split("\n}\n")[0]
    assert "Variadic<AnyType>:$results" in stream and ":$resultSegmentSizes" in stream
    assert "(region AnyRegion:$body, AnyRegion:$finish, AnyRegion:$live)" in stream
    assert "⊕" in text and text.count(" : Op<") == IRDL.read_text().count("irdl.operation")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("    %9 = irdl.c_pred \"x\"", "line 2: cannot read '%9 = irdl.c_pred \"x\"'"),
        ("    irdl.operands(a: optional %0, b: %0)", "several groups of values"),
        ("    %9 = irdl.base \"!builtin.odd\"", "cannot read"),
    ],
)  # fmt: skip
def test_unknown_irdl_is_refused(line, message):
    made = generator()
    text = f"irdl.dialect @d {{\n  irdl.operation @o {{\n    %0 = irdl.any\n{line}\n  }}\n}}\n"
    if "line 2" in message:
        text = f"irdl.dialect @d {{\n{line}\n}}\n"
    elif "groups" in message:
        text = text.replace("b: %0", "b: optional %0")
    with pytest.raises(made.Unreadable, match=None) as caught:
        made.convert(text, "d.irdl")
    assert message in str(caught.value)


def call(*command, cwd, **environment):
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def libraries(llvm):
    """The environment for tools of an LLVM that is not where the loader looks."""
    return {"LD_LIBRARY_PATH": f"{llvm}/lib:{llvm.parent}/x86_64-linux-gnu"}


@pytest.fixture(scope="module", params=LLVMS, ids=lambda p: p.name)
def installed(request, tmp_path_factory):
    """neptune-mlir built and installed against an LLVM, and this LLVM."""
    if not all(map(shutil.which, ("cmake", "c++", "cc"))):
        pytest.skip("there is no CMake or no C++ compiler")
    llvm, folder = request.param, tmp_path_factory.mktemp("cmake")
    run = {"cwd": folder, **libraries(llvm)}
    call("cmake", "-S", ROOT, "-B", "build", f"-DMLIR_DIR={llvm}/lib/cmake/mlir",
         f"-DPython3_EXECUTABLE={sys.executable}", *BUILT, **run)  # fmt: skip
    call("cmake", "--build", "build", **run)
    assert "100% tests passed" in call("ctest", "--test-dir", "build", **run)
    call("cmake", "--install", "build", "--prefix", folder / "root", **run)
    return llvm, folder / "root"


NIGHTLY = pytest.mark.nightly  # two minutes of C++ each


@NIGHTLY
@pytest.mark.skipif(not LLVMS, reason="no MLIR is installed (libmlir-19-dev, mlir-19-tools)")
def test_what_neptune_opt_prints_a_stock_mlir_opt_reads(installed, tmp_path, capsys):
    llvm, root = installed
    programs = [ROOT / "examples" / "attention.mlir", *(ROOT / "test" / "inputs").glob("*.mlir")]
    fuse = "builtin.module(raise-linalg,inline-maps,defer,rolling-update,prune-masks)"
    plugin = f"--load-dialect-plugin={root}/lib/NeptunePlugin.so"
    for program in programs:
        ours = tmp_path / "fused.mlir"
        assert opt.main([str(program), "-p", fuse, "-o", str(ours)]) == 0
        text = call(llvm / "bin" / "mlir-opt", ours, plugin, cwd=tmp_path, **libraries(llvm))
        (tmp_path / "again.mlir").write_text(text)
        assert opt.main([str(tmp_path / "again.mlir"), "-o", str(tmp_path / "out.mlir")]) == 0
        assert (tmp_path / "out.mlir").read_text().strip() == ours.read_text().strip()


@NIGHTLY
@pytest.mark.skipif(not LLVMS, reason="no MLIR is installed (libmlir-19-dev, mlir-19-tools)")
def test_a_compiler_of_its_own(installed, tmp_path):
    llvm, root = installed
    run = {"cwd": tmp_path, **libraries(llvm)}
    example = ROOT / "examples" / "compiler"
    call("cmake", "-S", example, "-B", ".", f"-DMLIR_DIR={llvm}/lib/cmake/mlir",
         f"-DNeptuneMLIR_DIR={root}/lib/cmake/NeptuneMLIR", *BUILT, **run)  # fmt: skip
    call("cmake", "--build", ".", **run)
    tool = tmp_path / "neptune-opt"
    tool.write_text(f'#!/bin/sh\nunset LD_LIBRARY_PATH\nPYTHONPATH={ROOT} exec {sys.executable} '
                    '-m neptune_mlir.cli.opt "$@"\n')  # fmt: skip
    tool.chmod(0o755)
    said = call(tmp_path / "downstream", example / "weighted.mlir", tool, **run)
    assert said.splitlines() == [
        "fused: one pass over 'k' carries 3 running values, 2 corrected",
        "tiled: 1 scf.forall, 0 ops of another dialect",
        "ran: error against f64 below 1e-5",
    ]


@NIGHTLY
@pytest.mark.skipif(not LLVMS, reason="no MLIR is installed (libmlir-19-dev, mlir-19-tools)")
def test_the_runtime_is_found_without_mlir(installed, tmp_path):
    _, root = installed
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(use LANGUAGES C)\n"
        "find_package(NeptuneMLIR REQUIRED COMPONENTS Runtime)\n"
        f"add_executable(use {ROOT}/examples/c/attention.c)\n"
        "target_link_libraries(use PRIVATE NeptuneMLIR::Runtime)\n"
    )
    call("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}", cwd=tmp_path)
    call("cmake", "--build", "build", cwd=tmp_path)
    assert (tmp_path / "build" / "use").exists()
