#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own test cases of its operators (models of a node with inputs and results) on CPUs.

    tools/onnx_cases.py [--only REGEX] [--limit 60] [--out rows.jsonl]

A case is right, wrong, refused with the name of an operator, refused without one ("unnamed"), or it
dies. Cases whose inputs are no tensors of numbers are left out. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch_children

GROUPS = {
    "reductions": r"reduce_\w+|argm(ax|in)\w*|sum_\w+|mean_\w+|max_\w+|min_\w+|cum(sum|prod)\w*",
    "norms": r"\w*(normalization|norm)\w*|batchnorm\w*|instancenorm\w*|lrn\w*|mvn\w*",
    "losses": r"nllloss\w*|sce\w*|softmax\w*|logsoftmax\w*|hardmax\w*|log_?sum_?exp\w*",
    "products": r"einsum\w*|matmul\w*|gemm\w*",
    "attention": r"attention\w*|rotary\w*|rms\w*|layer\w*",
    "views": r"gather\w*|slice\w*|transpose\w*|reshape\w*|squeeze\w*|unsqueeze\w*|expand\w*|tile\w*"
    r"|concat\w*|split\w*|pad\w*|flatten\w*|where\w*|tril\w*|triu\w*|range\w*|onehot\w*",
}
NAMES = "|".join(f"(?:{pattern})" for pattern in GROUPS.values())
RELATIVE, ABSOLUTE = 1e-3, 1e-5  # ONNX's own tests have no less
WIDE = {"bfloat16": 2**-6, "float16": 2**-9}  # their results round each step to such a type


def cases() -> dict[str, Any]:
    """All cases by name. (To make them takes seconds.)"""
    import warnings

    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = node.collect_testcases(None)
    return {case.name.removeprefix("test_"): case for case in found if case.model is not None}


def tried(model: bytes, data: list[Any]) -> dict[str, Any]:
    """One case: each set of its data through the compiler."""
    import numpy as np
    import onnx

    import neptune_mlir

    operators = {n.op_type for n in onnx.load_from_string(model).graph.node}
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.onnx"
            path.write_bytes(model)
            kernel = neptune_mlir.compile(path)
        for given, wanted in data:
            if not all(isinstance(x, (np.ndarray, np.generic)) for x in (*given, *wanted)):
                return {"status": "left out"}
            made = kernel(*map(np.asarray, given))
            made = made if isinstance(made, (tuple, list)) else [made]
            for got, want in zip(made, wanted, strict=True):
                if tuple(got.shape) != tuple(np.shape(want)):
                    message = f"shape {tuple(got.shape)} for {np.shape(want)}"
                    return {"status": "wrong", "message": message}
                wide = WIDE.get(np.asarray(want).dtype.name, 0)
                np.testing.assert_allclose(
                    np.asarray(got, np.float64), np.asarray(want, np.float64),
                    rtol=max(RELATIVE, wide), atol=max(ABSOLUTE, wide),
                )  # fmt: skip
    except AssertionError as error:
        return {"status": "wrong", "message": " ".join(str(error).split())[:300]}
    except neptune_mlir.errors.NeptuneError as error:
        text = str(error)
        named = any(operator.lower() in text.lower() for operator in operators)
        named |= bool(re.search(r"'[\w]+\.[\w.]+'|aten\.\w+", text))
        return {"status": "refused" if named else "unnamed", "message": text}
    return {"status": "right"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=NAMES, help="a regular expression: whole names")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    options = parser.parse_args()
    torch_children.PRELOADED[:] = ["neptune_mlir.driver.recipe", "onnx"]
    tasks: list[torch_children.Task] = [
        (name, tried, (case.model.SerializeToString(), case.data_sets))
        for name, case in sorted(cases().items()) if re.fullmatch(options.only, name)
    ]  # fmt: skip
    rows = torch_children.report(torch_children.run_all(tasks, options.limit), options.out)
    return 0 if {row["status"] for row in rows} <= {"right", "refused", "left out"} else 1


if __name__ == "__main__":
    sys.exit(main())
