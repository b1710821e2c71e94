# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the code that a syntax tree can show. (`test_floors.py` has those about imports.)

A rule that some code still breaks has a list of it: the list can only shrink.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from test_floors import FILES, ROOT

from neptune_mlir.dialects import attributes, op_names
from neptune_mlir.dialects.attribute_types import Attribute
from neptune_mlir.dialects.neptune import Neptune

TREES = {module: ast.parse(path.read_text()) for module, path in FILES.items()}
TOOLS = {path.name: ast.parse(path.read_text()) for path in sorted((ROOT / "tools").glob("*.py"))}


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The string constants of a file, without its docstrings."""
    documentation = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in documentation:
                yield node


# ---- names of the dialect

DECLARED = {k: v for k, v in vars(attributes).items() if isinstance(v, Attribute)}
NAMING = ("dialects.attribute_types", "dialects.attributes", "dialects.op_names")
ATTRIBUTE_NAME = re.compile(rf"\b(?:{'|'.join(re.escape(str(x)) for x in DECLARED.values())})\b")


def dialect_names(tree: ast.AST) -> list[int]:
    """The lines that name an op or attribute of the dialect, or one of its attributes in a text."""
    return [
        node.lineno
        for node in texts(tree)
        if node.value.startswith("neptune.") or ATTRIBUTE_NAME.search(node.value)
    ]


def test_names_of_the_dialect_stand_in_one_place():
    others = {m: tree for m, tree in (TREES | TOOLS).items() if m not in NAMING}
    found = {module: lines for module, tree in others.items() if (lines := dialect_names(tree))}
    assert not found, "use dialects/attributes.py and dialects/op_names.py"


@pytest.mark.parametrize("text", ['"neptune.map"', 'f"neptune.{name}"', '"no neptune.tile here"'])
def test_names_are_seen(text):
    assert dialect_names(ast.parse(f'"""neptune.map"""\nx = {text}'))


def test_the_table_of_op_names_is_that_of_the_classes():
    constants = {v for k, v in vars(op_names).items() if isinstance(v, str) and k.isupper()}
    classes = {op.OPERATION_NAME for op in Neptune.operations}
    assert constants - {op_names.PREFIX} == classes


def attribute_uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The attributes that a file uses, each with the method that it calls ("": none)."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "neptune_mlir.dialects.attributes"
        for alias in node.names
    }
    methods = {id(n.value): n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in imported & set(DECLARED):
            yield node.id, methods.get(id(node), "")


def test_attributes_say_who_writes_and_who_reads_them():
    written, read, either = defaultdict(set), defaultdict(set), defaultdict(set)
    for module, tree in TREES.items():
        for name, method in attribute_uses(tree):
            where = {"set": written, "entry": written, "": either}.get(method, read)
            if method != "drop":
                where[name].add(module)
    for name, declared in DECLARED.items():
        writers, readers, some = set(declared.writers), set(declared.readers), either[name]
        assert written[name] <= writers <= written[name] | some, f"writers of {name}"
        assert read[name] <= readers <= read[name] | some, f"readers of {name}"
        assert some <= writers | readers, f"{name} is used and not declared to be"
