# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Samples around the sites of a kernel, and nothing unless recording."""

from __future__ import annotations

import re

import pytest

from neptune_mlir.codegen import clock_samples
from neptune_mlir.codegen.nvidia import ptxas
from neptune_mlir.errors import ToolError
from neptune_mlir.targets.nvidia import nvidia

PTX = """.version 8.0
.target sm_90a
.address_size 64

.visible .entry kernel_0(
\t.param .u64 kernel_0_param_0
)
.maxntid 96, 1, 1
{
\t.reg .b32 \t%r<3>;
\t.reg .b64 \t%rd<2>;

\tbar.sync \t0;
\t// begin inline asm
\t{
.reg .pred p;
setp.ne.b32 p, 1, 0;
}
\t// end inline asm
\t// begin inline asm
\twgmma.wait_group.sync.aligned 1;
\t// end inline asm
\tmov.u32 \t%r1, %tid.x;
\tret;
}
"""


def test_nothing_changes_unless_recording() -> None:
    assert clock_samples.instrument(PTX) == (PTX, {})


def test_blocks_with_registers_of_their_own() -> None:
    """Registers of samples are the whole kernel's, whatever stands in blocks further down."""
    inner = "\t{\n\t.reg .pred \t%some;\n\t}\n\tret;"
    with clock_samples.recording():
        text, _ = clock_samples.instrument(PTX.replace("\tret;", inner))
    assert text.index(".reg .pred %sample_on;") < text.index("bar.sync") < text.index("%some;")


def tags(text: str) -> list[int]:
    return [int(t) for t in re.findall(r"mov.u32 %sample_tag, (\d+);", text)]


def test_sites() -> None:
    with clock_samples.recording():
        text, kernels = clock_samples.instrument(PTX)
    assert clock_samples.instrument(PTX) == (PTX, {})
    sampled = kernels["kernel_0"]
    assert sampled.warps == 3
    assert sampled.sites == ["kernel", "wait for threads", "wait for products"]
    assert sampled.pending == {2: 1}
    assert clock_samples.Sampled.from_json(sampled.as_json()) == sampled
    # in the order of the program: begin of the kernel, begin and end of each site, end
    assert tags(text) == [1, 3, 4, 5, 6, 2]
    size = clock_samples.BLOCKS * 3 * clock_samples.CAPACITY * clock_samples.BYTES
    assert f".b8 kernel_0_clock_samples[{size}];" in text
    # without them, the kernel is as it was
    kept = [line for line in text.splitlines() if "sample" not in line]
    assert kept == PTX.splitlines()


def test_no_sample_between_a_gate_and_its_wait() -> None:
    """Two waits for an mbarrier, of which the second one is a gate."""
    wait = ["\t// begin inline asm", "mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], 1;",
            "\t// end inline asm"]  # fmt: skip
    first = PTX.splitlines().index("\twgmma.wait_group.sync.aligned 1;") - 1
    lines = PTX.splitlines()
    lines[first:first] = [*wait, "\tmov.u32 \t%r2, 0;", *wait]
    with clock_samples.recording():
        text, kernels = clock_samples.instrument("\n".join(lines))
    assert kernels["kernel_0"].sites[2:] == ["wait for an mbarrier", "wait for products"]
    assert kernels["kernel_0"].pending == {3: 1}
    assert tags(text) == [1, 3, 4, 5, 6, 7, 8, 2]
    begin = text.index("mov.u32 %sample_tag, 7;")
    assert "try_wait" in text[begin : text.index("wait_group")]


def test_the_assembler_takes_it() -> None:
    with clock_samples.recording():
        text, _ = clock_samples.instrument(PTX)
    try:
        made = ptxas.assemble(text, nvidia("sm_90a"))
    except ToolError as error:
        pytest.skip(str(error))
    assert b"kernel_0_clock_samples" in made.code
    assert made.figures["kernel_0"].spill_stores == 0
