#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX's own test cases of its operators (models of a node with inputs and results) on CPUs, or
compiled for GPUs that need not be there.

    tools/onnx_cases.py [--only REGEX] [--limit 60] [--out rows.jsonl]
    tools/onnx_cases.py --target sm_90a --target gfx942 [--only REGEX] [--out rows.jsonl]

A case is right, wrong, refused with the name of an operator, refused without one ("unnamed"), or it
dies; with targets it is "compiled", for all of them, or refused. Cases whose inputs are no tensors
of numbers are left out. Axes and shapes, which cases have as inputs, become constants of the model,
as exporters write them. Each runs in a process of its own, and each operator's first case comes
before the second of any.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
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
GOOD = {"right", "compiled", "refused", "left out"}
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
    import neptune_mlir

    if not _of_numbers(data):
        return {"status": "left out"}
    try:
        kernel = neptune_mlir.compile(_source(model))
        for given, wanted in data:
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
        return _refusal(model, str(error))
    return {"status": "right"}


def compiled(model: bytes, data: list[Any], targets: list[str]) -> dict[str, Any]:
    """One case compiled for each target: "compiled", or what the first that refuses it says."""
    import neptune_mlir

    if not _of_numbers(data):
        return {"status": "left out"}
    row: dict[str, Any] = {"status": "compiled", "targets": {}}
    try:
        source = _source(model)
    except neptune_mlir.errors.NeptuneError as error:
        return _refusal(model, str(error)) | {"step": "import"}
    for target in targets:
        try:
            kernel = neptune_mlir.compile(source, target, on_demand=False)
            row["targets"][target] = len(kernel.plan.launches)
        except neptune_mlir.errors.NeptuneError as error:
            said = _refusal(model, str(error))
            row["targets"][target] = said["message"]
            row |= said if row["status"] == "compiled" else {}
    return row


def written(model: Any, data: list[Any]) -> tuple[bytes, list[Any]]:
    """A case with the inputs that decide axes and shapes as constants."""
    from onnx import numpy_helper

    from neptune_mlir.driver.onnx.structure import deciding

    deciders = {value for node in model.graph.node for _, value in deciding(node)}
    names = [x.name for x in model.graph.input]
    found = type(model)()
    found.CopyFrom(model)
    if len(data) != 1 or not deciders.intersection(names) or not _of_numbers(data):
        return found.SerializeToString(), data
    (given, wanted), left = data[0], []
    del found.graph.input[:]
    for entry, array in zip(model.graph.input, given, strict=False):
        if entry.name in deciders:
            constant = numpy_helper.from_array(np.asarray(array), entry.name)
            found.graph.initializer.append(constant)
        else:
            found.graph.input.append(entry)
            left.append(array)
    return found.SerializeToString(), [(left, wanted)]


def _of_numbers(data: list[Any]) -> bool:
    arrays = [x for given, wanted in data for x in (*given, *wanted)]
    return all(isinstance(x, (np.ndarray, np.generic)) for x in arrays)


def _source(model: bytes) -> Any:
    from neptune_mlir.driver.inputs import read_source

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        path.write_bytes(model)
        return read_source(str(path))


def _refusal(model: bytes, text: str) -> dict[str, Any]:
    import onnx

    operators = {n.op_type for n in onnx.load_from_string(model).graph.node}
    named = any(operator.lower() in text.lower() for operator in operators)
    named |= bool(re.search(r"'[\w]+\.[\w.]+'|aten\.\w+", text))
    return {"status": "refused" if named else "unnamed", "message": text}


def _spread(found: dict[str, Any]) -> list[str]:
    """The names by which case of its operators each is."""
    seen: dict[Any, int] = {}
    place = {}
    for name, case in sorted(found.items()):
        operators = tuple(sorted({node.op_type for node in case.model.graph.node}))
        place[name] = seen[operators] = seen.get(operators, -1) + 1
    return sorted(place, key=lambda name: (place[name], name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=NAMES, help="a regular expression: whole names")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each")
    parser.add_argument("--target", action="append", help="compile for it, and run nothing")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    options = parser.parse_args()
    torch_children.PRELOADED[:] = ["neptune_mlir.driver.recipe", "onnx"]
    found = {name: case for name, case in cases().items() if re.fullmatch(options.only, name)}
    function, more = (compiled, (options.target,)) if options.target else (tried, ())
    tasks: list[torch_children.Task] = [
        (name, function, (*written(found[name].model, found[name].data_sets), *more))
        for name in _spread(found)
    ]
    rows = torch_children.report(torch_children.run_all(tasks, options.limit), options.out)
    return 0 if {row["status"] for row in rows} <= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
