# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which cases of a test run with each change; the rest of them is nightly.

`@pytest.mark.first_of_each(*names)` on a test with parameters: with each change run the first case
for each value of the parameters that are named, so one alone where none is. A test's other cases
say the same of further types, sizes and chips, and `pytest -m nightly` runs them.

`test/nightly.txt` names tests that `tools/often_tests.py` found to reach no line and no branch of
the compiler that cheaper tests do not reach.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

MARK = "first_of_each"
LISTED = Path(__file__).parents[1] / "nightly.txt"
# of test/inputs: attention, LayerNorm and cross-entropy as others wrote them
SPELLINGS = (
    "torch_", "alibi", "attention_causal", "attention_contract", "attention_softmax", "gqa_extract",
    "cross_entropy_onehot", "layernorm", "single_query", "softmax_map",
)  # fmt: skip


def mark_nightly(items: Sequence[pytest.Item]) -> None:
    """Mark as nightly what is no first case, of tests that have the mark."""
    seen: set[Any] = set()
    for item in items:
        mark = item.get_closest_marker(MARK)
        if mark is None or item.get_closest_marker("nightly") is not None:
            continue
        assert isinstance(item, pytest.Function)
        parameters = item.callspec.params
        values = [repr(parameters[name]) for name in mark.args]
        # (a test that a class has is one for each class)
        case = (item.parent.nodeid if item.parent else "", item.originalname, *values)
        if case in seen:
            item.add_marker("nightly")
        seen.add(case)


def mark_listed(items: Sequence[pytest.Item], text: str, whole: bool = False) -> None:
    """Mark as nightly what a list names: a test a line, with its case or for all of its cases.

    Args:
        whole: all tests are there; a test that is in none of the files is refused. (Which cases a
            test has may depend on the machine.)
    """
    listed = {line for line in text.splitlines() if line and not line.startswith("#")}
    names = {item.nodeid: item.nodeid.partition("[")[0] for item in items}
    for item in items:
        if item.nodeid in listed or names[item.nodeid] in listed:
            item.add_marker("nightly")
    if whole:
        files = {name.partition("::")[0] for name in names}
        listed = {n.partition("[")[0] for n in listed if n.partition("::")[0] in files}
        gone = listed - set(names.values())
        if gone:
            raise pytest.UsageError(f"{LISTED.name} names tests that are not there: {sorted(gone)}")


def nightly_if(rare: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """The parameters of a test: a value for each case, or a tuple of values."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.nightly] if rare(case) else [],
        )
        for case in cases
    ]


def often(inputs: Sequence[Path]) -> list[Any]:
    """Of the programs of test/inputs, which run on targets other than the CPU with each change:
    those that say the same as others in other ops are nightly. `test_inputs.py` runs them on the
    CPU with each change."""
    return nightly_if(lambda path: path.stem.startswith(SPELLINGS), inputs)
