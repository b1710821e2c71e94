# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the code that a syntax tree can show. (`test_floors.py` has those about imports.)

A rule that some code still breaks has a list of it: the list can only shrink.
"""

import ast
import functools
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from test_floors import FILES, ROOT, tree_of

from neptune_mlir.dialects import attributes, gpu_attributes, op_names
from neptune_mlir.dialects.attribute_types import Attribute
from neptune_mlir.dialects.neptune import Neptune
from neptune_mlir.targets.chips import TARGETS


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the package's files."""
    return {module: tree_of(path) for module, path in FILES.items()}


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree: most rules look at each of a million."""
    return tuple(ast.walk(tree))


@pytest.fixture(scope="module", autouse=True)
def trees_of_this_file_alone():
    """Whoever looks for garbage afterwards would walk a million nodes each time."""
    yield
    trees.cache_clear()
    nodes.cache_clear()


def tools() -> dict[str, ast.Module]:
    """The syntax trees of the files in tools/."""
    paths = sorted((ROOT / "tools").glob("*.py"))
    return {path.name: ast.parse(path.read_text()) for path in paths}


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The string constants of a file, without its docstrings."""
    documentation = {id(n.value) for n in nodes(tree) if isinstance(n, ast.Expr)}
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in documentation:
                yield node


# ---- names of the dialect

DECLARING = (attributes, gpu_attributes)
DECLARED = {k: v for m in DECLARING for k, v in vars(m).items() if isinstance(v, Attribute)}
NAMING = (
    "dialects.attribute_types", "dialects.attributes", "dialects.gpu_attributes",
    "dialects.op_names",
)  # fmt: skip
ATTRIBUTE_NAME = re.compile(rf"\b(?:{'|'.join(re.escape(str(x)) for x in DECLARED.values())})\b")


def dialect_names(tree: ast.AST) -> list[int]:
    """The lines that name an op or attribute of the dialect, or one of its attributes in a text."""
    return [
        node.lineno
        for node in texts(tree)
        if node.value.startswith("neptune.") or ATTRIBUTE_NAME.search(node.value)
    ]


def test_names_of_the_dialect_stand_in_one_place():
    others = {m: tree for m, tree in (trees() | tools()).items() if m not in NAMING}
    found = {module: lines for module, tree in others.items() if (lines := dialect_names(tree))}
    assert not found, "use dialects/attributes.py, gpu_attributes.py and op_names.py"


@pytest.mark.parametrize("text", ['"neptune.map"', 'f"neptune.{name}"', '"no neptune.tile here"'])
def test_names_are_seen(text):
    assert dialect_names(ast.parse(f'"""neptune.map"""\nx = {text}'))


def test_the_table_of_op_names_is_that_of_the_classes():
    for module in FILES:
        if module.startswith("dialects."):  # each adds the ops that it defines
            importlib.import_module(f"neptune_mlir.{module}")
    constants = {v for k, v in vars(op_names).items() if isinstance(v, str) and k.isupper()}
    for module in FILES:  # a class is known once its module was imported
        if module.startswith("dialects."):
            importlib.import_module(f"neptune_mlir.{module}")
    classes = {op.OPERATION_NAME for op in Neptune.operations}
    assert constants - {op_names.PREFIX} == classes


def attribute_uses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The attributes that a file uses, each with the method that it calls ("": none)."""
    imported = {
        alias.name
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {m.__name__ for m in DECLARING}
        for alias in node.names
    }
    methods = {id(n.value): n.attr for n in nodes(tree) if isinstance(n, ast.Attribute)}
    for node in nodes(tree):
        if isinstance(node, ast.Name) and node.id in imported & set(DECLARED):
            yield node.id, methods.get(id(node), "")


def test_attributes_say_who_writes_and_who_reads_them():
    written, read, either = defaultdict(set), defaultdict(set), defaultdict(set)
    for module, tree in trees().items():
        for name, method in attribute_uses(tree):
            where = {"set": written, "entry": written, "": either}.get(method, read)
            if method != "drop":
                where[name].add(module)
    for name, declared in DECLARED.items():
        writers, readers, some = set(declared.writers), set(declared.readers), either[name]
        assert written[name] <= writers <= written[name] | some, f"writers of {name}"
        assert read[name] <= readers <= read[name] | some, f"readers of {name}"
        assert some <= writers | readers, f"{name} is used and not declared to be"


# ---- numbers of chips

# floors that make code for a chip, or run it; a number is one of a chip where targets/ has it, but
# for powers of two up to 1024, which are sizes of anything
CHIP_FLOORS = ("analysis", "transforms", "codegen", "pipelines", "driver", "runtime", "tune")
NOT_OF_CHIPS = {  # the same numbers with another meaning
    "codegen.amd.hsaco": {40, 144, 160, 208},  # offsets of ELF, heads of MessagePack
    "codegen.triton.tool": {40},  # an offset of ELF
    "driver.onnx.nodes": {18},  # a version of ONNX's operators
    "driver.page.dataflow": {18},  # characters of a label
    "driver.page.figures": {100},  # per cent
    "driver.page.page": {100},  # per cent
    "runtime.loader": {40},  # an offset of ELF
    "runtime.drivers.driver": {100},  # an error code
    "transforms.math.branching": {40, 255},  # bits at a time; of an exponent
    "transforms.math.powers": {24},  # bits of a significand
    "tune.build": {40, 200},  # lengths of calls
    "tune.gain": {100},  # per cent
}


MEASURED = {
    "targets.tuned",
    "targets.row_model",
}  # what compilers and calls took, not what chips have


def numbers(tree: ast.AST) -> set[int]:
    return {n.value for n in nodes(tree) if isinstance(n, ast.Constant) and type(n.value) is int}


def chip_numbers() -> set[int]:
    """The integers of targets/, and those of each target there."""
    found = set()
    for module, tree in trees().items():
        if module.startswith("targets.") and module not in MEASURED:
            found |= numbers(tree)
    for target in TARGETS.values():
        found |= {v for v in vars(target).values() if type(v) is int}
    return {n for n in found if n > 1024 or (n > 16 and n & (n - 1))}


def test_numbers_of_chips_stand_in_targets():
    known = chip_numbers()
    assert {65536, 132, 227, 227 << 10, 216} <= known
    found = {
        module: same
        for module, tree in trees().items()
        if module.startswith(CHIP_FLOORS) and (same := numbers(tree) & known)
    }
    assert found == NOT_OF_CHIPS, "numbers of chips belong to targets/"


# ---- classes, names with an underscore, functions


def test_a_class_name_is_used_once():
    places = defaultdict(list)
    for module, tree in trees().items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def own_names(tree: ast.AST) -> set[str]:
    """The names and fields that a file defines."""
    found = set()
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def foreign_underscores(tree: ast.AST, defined: set[str]) -> list[str]:
    """The private names that a file uses of other files, which have the names `defined`."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neptune_mlir"):
            found += [alias.name for alias in node.names if is_private(alias.name)]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr in defined:
            found.append(node.attr)
    return found


def test_no_file_uses_private_names_of_another():
    own = {module: own_names(tree) for module, tree in trees().items()}
    everywhere = set().union(*own.values())
    found = {
        module: len(names)
        for module, tree in trees().items()
        if (names := foreign_underscores(tree, everywhere - own[module]))
    }
    assert not found


# Functions of more than 60 lines or 15 branches: how many of each they have. The list can only
# shrink, and so can its numbers.
LONG = {
    "ops.attention.attention": (100, 6),
}
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.match_case)


def sizes(function: ast.FunctionDef) -> tuple[int, int]:
    """Lines and branches of a function."""
    branches = sum(isinstance(node, BRANCHES) for node in ast.walk(function))
    return (function.end_lineno or 0) - function.lineno + 1, branches


def test_functions_are_short():
    found = {
        f"{module}.{node.name}": size
        for module, tree in trees().items()
        for node in nodes(tree)
        if isinstance(node, ast.FunctionDef) and ((size := sizes(node))[0] > 60 or size[1] > 15)
    }
    assert found == LONG, "the list can only shrink"


def test_files_that_modules_name_are_there():
    """A file that is run as a program beside its module (`with_name`) moves with it."""
    said = [
        FILES[module].with_name(node.args[0].value)
        for module, tree in trees().items()
        for node in nodes(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "with_name"
        if node.args and isinstance(node.args[0], ast.Constant)
    ]
    assert said
    assert not [path for path in said if not path.is_file()]
