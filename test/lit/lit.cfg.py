# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration: runs the tools of this checkout with the Python that runs lit."""

import importlib.util
import os
import sys

import lit.formats

# lit executes this file with `config` (the suite) and `lit_config` in scope.
config = config  # noqa: F821
here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))

config.name = "neptune-mlir"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "lit.cfg.py"]
config.test_source_root = here
config.test_exec_root = os.environ.get("NEPTUNE_LIT_OUTPUT", here)

added = os.path.join(root, "test", "support", "lit_package")  # an installed package, as it were
paths = [root, added, *filter(None, [os.environ.get("PYTHONPATH")])]
config.environment["PYTHONPATH"] = os.pathsep.join(paths)
config.environment["PATH"] = os.pathsep.join(
    [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
)
config.environment["NEPTUNE_TUNING"] = "none"  # a user's table is no test's
if "NEPTUNE_VERDICTS" in os.environ:
    config.environment["NEPTUNE_VERDICTS"] = os.environ["NEPTUNE_VERDICTS"]
config.environment["NEPTUNE_CACHE_DIR"] = os.path.join(config.test_exec_root, "Output", "cache")


def tool(name: str, module: str) -> None:
    """`name` as a command word of a RUN line runs `module`; in a path it stays as it is."""
    config.substitutions.append((rf"(?<![^|;&(\s]){name}(?=\s|$)", f"{sys.executable} -m {module}"))


tool("neptune-opt", "neptune_mlir.cli.opt")
tool("neptune", "neptune_mlir.cli.main")
tool("filecheck", "filecheck")
config.substitutions.append(("%python", sys.executable))

for package in ("torch", "torch_mlir", "z3", "triton"):
    if importlib.util.find_spec(package) is not None:
        config.available_features.add(package)
