# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process that runs Triton: TTIR on standard input, machine code on standard output.

Triton aborts the process on input that it does not like, so it never runs in ours. This file
imports nothing of this package: any interpreter that has triton can run it by its path.

In: JSON {"text", "family", "arch", "wave", "level", "options"}. Out: JSON with "code" in base64.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import tempfile
from typing import Any


def compile_text(request: dict[str, Any]) -> dict[str, Any]:
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    import triton
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    target = GPUTarget(request["family"], request["arch"], request["wave"])
    backend = make_backend(target)
    options = backend.parse_options(dict(request["options"]))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    home = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="neptune-") as folder:
        os.chdir(folder)  # the file's name comes into the code: it has to be the same each time
        with open("kernel.ttir", "w") as file:
            file.write(request["text"])
        module: Any = ir.parse_mlir_module("kernel.ttir", context)
        os.chdir(home)
    module.context = context
    # unlike triton.compile, which takes a file, this runs the passes on TTIR too
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata: dict[str, Any] = {"target": target, **options.__dict__}
    texts = {}  # stages change modules in place: each is printed when it is made
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name in (request["level"], "amdgcn"):
            texts[name] = str(module)
    known = ("shared", "num_warps", "name", "global_scratch_size", "profile_scratch_size")
    answer = {key: metadata.get(key) or 0 for key in known}
    answer["threads"] = metadata["num_warps"] * metadata.get("warp_size", request["wave"])
    answer["code"] = base64.b64encode(module).decode()
    answer["text"], answer["amdgcn"] = texts[request["level"]], texts.get("amdgcn")
    answer["tool"] = f"triton {triton.__version__}"
    return answer


def main() -> int:
    # Triton writes to standard output too: keep the real one for the answer
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer = compile_text(json.load(sys.stdin))
    except Exception as error:
        text = re.sub(r"\s+", " ", str(error)).strip()
        print(f"{type(error).__name__}: {text[:2000]}", file=sys.stderr)
        return 1
    out.write(json.dumps(answer))
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
