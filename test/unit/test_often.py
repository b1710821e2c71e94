# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which cases of a test run with each change."""

import pytest

from support.often import mark_listed, mark_nightly

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

@pytest.mark.first_of_each("targte")
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_misspelt(target): pass
"""


def often(items):
    return [item.name for item in items if item.get_closest_marker("nightly") is None]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_what_runs_with_each_change(pytester):
    *items, misspelt, _ = pytester.getitems(TESTS)
    mark_nightly(items)
    assert often(items) == [
        "test_two[1-cpu]", "test_two[1-gpu]", "test_one[2]", "test_all[1]", "test_all[2]"
    ]  # fmt: skip
    with pytest.raises(KeyError, match="targte"):
        mark_nightly([misspelt])

    file = misspelt.nodeid.partition("::")[0]
    mark_listed(items, f"# a remark\n{file}::test_two\n{file}::test_all[1]\n", whole=True)
    assert often(items) == ["test_one[2]", "test_all[2]"]
    gone = f"{file}::test_gone[3]\nanother_file.py::test_all"  # (that file was not collected)
    mark_listed(items, gone)
    with pytest.raises(pytest.UsageError, match=r"not there: \['[^']*::test_gone'\]"):
        mark_listed(items, gone, whole=True)
