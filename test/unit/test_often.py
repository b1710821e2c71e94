# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which cases of a test run with each change."""

import pytest

from support.often import mark_nightly

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.first_of_each("target")
@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("size", [1, 2])
def test_two(target, size): pass

@pytest.mark.first_of_each()
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.nightly), 2, 3])
def test_one(size): pass

@pytest.mark.parametrize("size", [1, 2])
def test_all(size): pass
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_first_of_each(pytester):
    items = pytester.getitems(TESTS)
    mark_nightly(items)
    often = [item.name for item in items if item.get_closest_marker("nightly") is None]
    assert often == [
        "test_two[1-cpu]", "test_two[1-gpu]", "test_one[2]", "test_all[1]", "test_all[2]"
    ]  # fmt: skip


def test_a_name_that_no_parameter_has_is_refused(pytester):
    with pytest.raises(KeyError, match="targte"):
        mark_nightly(pytester.getitems(TESTS.replace('"target")\n', '"targte")\n', 1)))
