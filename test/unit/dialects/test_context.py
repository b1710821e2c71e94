# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs share contexts: some, in one thread, of one process, and none that is large."""

import itertools
import os
import threading

from neptune_mlir.dialects import context
from neptune_mlir.dialects.context import PROGRAMS, make_context, parse, usual_context

TEXT = "func.func private @f()"


def test_a_context_serves_many_programs_and_not_all():
    seen = [parse(TEXT).context for _ in range(2 * PROGRAMS + 1)]
    assert sum(a != b for a, b in itertools.pairwise(seen)) == 2


def test_large_programs_have_their_own():
    text = TEXT + "\n" + "// " + "-" * context.LONG_TEXT
    assert parse(text).context != usual_context() != make_context()


def test_each_thread_has_its_own():
    found = []
    other = threading.Thread(target=lambda: found.append(usual_context()))
    other.start()
    other.join()
    assert found[0] != usual_context()


def test_a_fork_has_its_own():
    """The threads of a context are not in the new process."""
    theirs = usual_context()
    child = os.fork()
    if not child:
        os._exit(usual_context() == theirs)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
