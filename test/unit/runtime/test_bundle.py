# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a bundle says of itself: ABI, hash, origin, figures; bundles that must not be loaded."""

import hashlib
import json

import pytest

from neptune_mlir import Kernel
from neptune_mlir.driver import compiler
from neptune_mlir.errors import ToolError, UsageError
from neptune_mlir.runtime import bundle as bundles
from neptune_mlir.runtime.bundle import Bundle

TEXT = """func.func @twice(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c = arith.constant 0 : index
  %n = tensor.dim %x, %c : tensor<?xf32>
  %r = "neptune.map"(%n) ({
    %a = "neptune.read"(%x) {map = affine_map<(i) -> (i)>} : (tensor<?xf32>) -> f32
    %b = arith.addf %a, %a : f32
    "neptune.yield"(%b) : (f32) -> ()
  }) {domain = array<i64: -9223372036854775808>, result_axes = array<i64: 0>}
    : (index) -> tensor<?xf32>
  return %r : tensor<?xf32>
}"""


@pytest.fixture(scope="module")
def bundle():
    return compiler.compile_text(TEXT, "/some/folder/twice.mlir", "cpu", None, None)


def test_the_same_program_makes_the_same_file(bundle):
    again = compiler.compile_text(TEXT, "/another/twice.mlir", "cpu", None, None)
    assert again.to_bytes() == bundle.to_bytes()


def test_provenance(bundle):
    made = Bundle.from_bytes(bundle.to_bytes()).facts["provenance"]
    assert made["source"] == {"name": "twice.mlir", "text": TEXT}
    assert made["schedule"]["name"] == "streamed"
    assert "transform.named_sequence" in made["schedule"]["text"]
    assert {"neptune-mlir", "llvmlite"} <= set(made["tools"])


def test_the_digest_is_that_of_the_file(bundle):
    data = bundle.to_bytes()
    assert hashlib.sha256(data[49:]).hexdigest() == bundle.digest == data[17:49].hex()


def test_another_abi_is_refused(bundle, monkeypatch):
    monkeypatch.setattr(bundles, "ABI", bundles.ABI + 1)
    newer = bundle.to_bytes()
    monkeypatch.undo()
    with pytest.raises(ToolError, match=r"made for ABI 4 of the runtime, which has 3"):
        Bundle.from_bytes(newer)


def test_a_changed_header_is_refused(bundle):
    data = bundle.to_bytes()
    changed = data.replace(b"twice.mlir", b"twixe.mlir")
    assert changed != data
    with pytest.raises(ToolError, match="damaged"):
        Bundle.from_bytes(changed)
    json.loads(data[57 : 57 + int.from_bytes(data[49:57], "little")])  # the header is JSON


def test_a_loaded_kernel_knows_its_source(bundle, tmp_path):
    path = tmp_path / "twice.bundle"
    path.write_bytes(bundle.to_bytes())
    kernel = Kernel.load(path)
    assert kernel.source.text == TEXT and "x[i] + x[i]" in kernel.explain()
    with pytest.raises(UsageError, match=r"a kernel for cpu has no requirements\(\)"):
        kernel.requirements()
