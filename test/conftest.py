# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""For every test: no user's tuning table, compiled Python files for the processes it starts,
machine code that one test made for another, code for CPUs that LLVM has not optimised, and memory
that no kernel may read before it writes it."""

import gc
import os
import shutil
import tempfile

import pytest

from neptune_mlir.targets import tuned
from support import effort, kept_code, often, poison
from support.collection import (
    Backwards,
    import_what_others_import_late,
    is_every_other,
    restore,
)
from support.effort import as_shipped
from support.small_tiles import small_tiles

__all__ = ["as_shipped", "small_tiles"]

os.environ[tuned.ENVIRONMENT] = "none"  # a user's table is no test's
os.environ["NEPTUNE_VERDICTS"] = "none"  # nor what another compilation found out
# Hundreds of processes import this package: without its compiled files a quarter of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# OpenMP's threads run our launches where torch is there, and look for more work for milliseconds
# after each. Workers side by side would take the processors from each other with that.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# NumPy's products have threads of their own, which do that, too (read when a worker starts).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
gc.disable()  # until all is imported: `pytest_collection_finish`


def pytest_configure(config):
    effort.begin()
    if not hasattr(config, "workerinput"):  # the workers of pytest-xdist share the folder
        config.kept_code = os.environ[kept_code.ENVIRONMENT] = tempfile.mkdtemp(prefix="neptune-")
    kept_code.install()
    poison.install()
    if is_every_other(config):
        import_what_others_import_late()


def pytest_unconfigure(config):
    if hasattr(config, "kept_code"):
        shutil.rmtree(config.kept_code, ignore_errors=True)


def pytest_collect_directory(path, parent):
    if is_every_other(parent.config) and not (path / "__init__.py").exists():
        return Backwards.from_parent(parent, path=path)
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest asks which tests are nightly
def pytest_collection_modifyitems(config, items):
    if is_every_other(config):
        restore(items)
    often.mark_nightly(items)
    whole = config.args == config.getini("testpaths")
    often.mark_listed(items, often.LISTED.read_text(encoding="utf-8"), whole)


def pytest_collection_finish():
    # What imports and collection leave stays to the end: no garbage collection walks it.
    gc.freeze()
    gc.enable()
    # Each collection calls hypothesis and JAX, which ask for it, and walks what a compilation has
    # made so far. Most tests end before there is that much.
    gc.set_threshold(200_000, 20, 50)
