# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Specialised warps on sm_90a, without a GPU: what qualifies, and what the machine code is."""

from __future__ import annotations

import re
import subprocess

import pytest

from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.dialects.context import parse
from neptune_mlir.errors import ToolError
from neptune_mlir.pipelines import gpu, runner
from neptune_mlir.pipelines.nvvm import compile_tiles
from neptune_mlir.runtime.plan import Evaluation
from neptune_mlir.transforms import registry
from support.tile_programs import attention

try:
    ptxas.find_ptxas()
except ToolError:
    pytest.skip("no ptxas here", allow_module_level=True)


def compiled(rows, columns, head, passes=None, target="sm_90a", **options):
    text = attention(head, rows, columns, **options)
    # the host checks that k and v are of one length: a load of v ends where v ends
    equal = "attributes {neptune.equal_dims = [array<i64: 1, 2, 1, 2, 2, 1>]} {"
    text = re.sub(r"(func.func @attention.*?\) -> tensor<\S+) \{", rf"\1 {equal}", text, count=1,
                  flags=re.DOTALL)  # fmt: skip
    bundles = [compiled_for(chip, text, passes or {}) for chip in target.split(",")]
    return gpu.join(target, bundles) if len(bundles) > 1 else bundles[0]


def compiled_for(chip, text, passes):
    module = parse(text)
    with registry.collect_remarks() as remarks:
        if chip == "sm_90a":
            clean = runner.parse_pipeline("canonicalize,cse")
            runner.run(module, [*clean, runner.Step("specialize-warps", passes)])
    return compile_tiles(module, target=chip, facts={"remarks": [str(r) for r in remarks]})


def disassembly(bundle, folder):
    tool = ptxas.find_ptxas().parent / "nvdisasm"
    if not tool.exists():
        pytest.skip("no nvdisasm here")
    path = folder / "kernel.cubin"
    path.write_bytes(bundle.code)
    return subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.first_of_each("head")
@pytest.mark.parametrize("head", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_a_producer_and_two_consumers(tmp_path, head, causal):
    bundle = compiled(128, 128, head, causal=causal, dtype="f16")
    image = bundle.facts["images"][0]
    assert image["notes"] == [] and bundle.facts["remarks"] == []
    (figures,) = image["kernels"].values()
    assert figures["threads"] == 3 * 128 and figures["spills"] == 0
    sass = disassembly(bundle, tmp_path)
    # head/16 steps of 64x128x16: first iteration and rest of both loops; 128/16 steps of
    # 64xheadx16: each loop, and behind them
    assert len(re.findall(r"HGMMA\.64x\d+x16\.F32 ", sass)) == 4 * (head // 16) + 3 * 128 // 16
    assert "UTMALDG" in sass
    assert sass.count("UTMASTG") == 1 and not re.search(r"\bSTG\b", sass)
    assert "USETMAXREG.TRY_ALLOC" in sass and "USETMAXREG.DEALLOC" in sass
    assert "HMMA.16816" not in sass and "LDGSTS" not in sass
    assert not re.search(r"\b(LDL|STL)\b", sass)


def test_products_run_beside_arithmetic(tmp_path):
    """In the loop over whole tiles: the first product is issued, what the second is added to is
    scaled beside it, and the second issued; then the exponentials come, and only then the wait
    for the second product."""
    sass = disassembly(compiled(128, 128, 128, causal=False, dtype="f16"), tmp_path)
    kinds = r"HGMMA|MUFU\.EX2|FMUL R\d+, R\d+, R|DEPBAR\.LE gsb0, 0x\d"
    events = re.findall(kinds, sass)
    first = events.index("DEPBAR.LE gsb0, 0x1")
    start = max(k for k in range(first) if events[k].startswith("DEPBAR"))
    loop = events[start + 1 : events.index("DEPBAR.LE gsb0, 0x0", first) + 1]
    loop = loop[loop.index("HGMMA") :]
    scaled = [k for k, name in enumerate(loop) if name.startswith("FMUL")]
    products = [k for k, name in enumerate(loop) if name == "HGMMA"]
    assert products[0] < min(scaled) and sum(k < products[-1] for k in scaled) >= 64
    waits = [k for k, name in enumerate(loop) if name.startswith("DEPBAR")]
    assert waits[0] > products[-1] and len(waits) == 2
    assert loop[waits[0] :].count("MUFU.EX2") >= 64


def test_the_launch_describes_tensor_maps():
    bundle = compiled(128, 128, 64, causal=False, dtype="bf16")
    (launch,) = bundle.plan.launches
    maps = [operand for operand in launch.operands if operand[0] == "map"]
    # blocks take programs from a queue; the plan says how many programs there are
    assert ["counter", 65536] in [list(x) for x in launch.operands]
    (figures,) = bundle.facts["images"][0]["kernels"].values()
    assert figures["resident"] and figures["blocks_per_sm"] == 1
    # argument, the dimension of its rows, rows and columns of a box
    assert [tuple(m[1:]) for m in maps] == [
        ("buffer", 0, 2, 16, 64),  # the result's rows, a warp's at a time
        ("argument", 0, 2, 128, 64), ("argument", 1, 2, 128, 64), ("argument", 2, 2, 128, 64)
    ]  # fmt: skip
    # keys are read by as many programs as there are tiles of queries
    few = [Evaluation([[2, 3, n, 64]] * 3, []).of(launch.narrow) for n in (1, 256, 257)]
    assert few == [True, True, False]


def test_results_leave_in_halves_where_there_is_room_for_these(tmp_path):
    bundle = compiled(128, 64, 256, causal=False, dtype="f16")
    (launch,) = bundle.plan.launches
    assert ["map", "buffer", 0, 2, 16, 128] in [list(x) for x in launch.operands]
    assert disassembly(bundle, tmp_path).count("UTMASTG") == 2


@pytest.mark.first_of_each()
@pytest.mark.parametrize(
    ("rows", "columns", "head", "options"),
    [(128, 128, 64, {"boxed": False}), (128, 80, 256, {})],
)
def test_results_leave_by_stores(tmp_path, rows, columns, head, options):
    """Where there is no room for a tile, or the schedule says so."""
    bundle = compiled(rows, columns, head, options, causal=False, dtype="f16")
    (figures,) = bundle.facts["images"][0]["kernels"].values()
    assert figures["spills"] == 0
    (launch,) = bundle.plan.launches
    assert not any(list(x[:2]) == ["map", "buffer"] for x in launch.operands)
    sass = disassembly(bundle, tmp_path)
    assert "UTMASTG" not in sass and re.search(r"\bSTG\b", sass)


@pytest.mark.first_of_each()
@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ((32, 64, 64), "f16", "a matmul of 32 rows"),
        ((128, 64, 64), "f32", "specialised: a contraction to tensor<128x64xf32> runs as a loop"),
        ((128, 64, 36), "f16", "widths that are multiples of 8"),
    ],
)
def test_what_does_not_qualify_is_compiled_as_before(shape, dtype, reason):
    bundle = compiled(*shape, dtype=dtype)
    assert any(reason in remark for remark in bundle.facts["remarks"]), bundle.facts["remarks"]
    (figures,) = bundle.facts["images"][0]["kernels"].values()
    assert figures["threads"] in (64, 128, 256)  # no producer warp group


def test_each_image_of_a_fat_bundle_is_launched_in_its_own_way():
    bundle = compiled(128, 128, 64, target="sm_80,sm_90a", causal=False, dtype="f16")
    portable, special = bundle.facts["images"]
    assert "plan" not in portable and special["alignment"]
    kinds = [
        {operand[0] for launch in bundle.plan_of(image).launches for operand in launch.operands}
        for image in (portable, special)
    ]
    assert "map" not in kinds[0] and {"map", "counter"} <= kinds[1]
