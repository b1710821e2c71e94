#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes TableGen op definitions (ODS) of a dialect that stands in an IRDL file.

    irdl_to_ods.py neptune.irdl Neptune.td

mlir-tblgen makes C++ of these, for the MLIR that it belongs to. (`mlir-irdl-to-cpp` knows neither
traits nor attributes, and MLIR 19 has none.) It needs Python's standard library and reads what
`tools/gen_docs.py` writes: one definition or constraint a line, as MLIR prints IRDL.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

# IRDL's names of kinds of types and attributes -> constraints of ODS
BASES = {
    "!builtin.index": "Index",
    "#builtin.integer": 'Neptune_Attr<"IntegerAttr", "an integer">',
    "#builtin.string": 'Neptune_Attr<"StringAttr", "a string">',
    "#builtin.array": 'Neptune_Attr<"ArrayAttr", "an array">',
    "#builtin.affine_map": 'Neptune_Attr<"AffineMapAttr", "an affine map">',
    "#builtin.type": 'Neptune_Attr<"TypeAttr", "a type">',
    # IRDL has one name for arrays of all widths; those of the dialect are numbers of 64 bits
    "#builtin.dense_array": 'Neptune_Attr<"DenseI64ArrayAttr", "an array<i64: ...>">',
}
SEGMENTS = 'Neptune_Attr<"DenseI32ArrayAttr", "an array<i32: ...>">'
STORAGE = re.compile(r'Neptune_Attr<"(\w+)"')

HEAD = """\
// Made by irdl_to_ods.py of {source}; edit neither.
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def {name}_Dialect : Dialect {{
  let name = "{dialect}";
  let cppNamespace = "::{dialect}";
  // the ops are printed as neptune-opt prints them: attributes behind the regions
  let usePropertiesForAttributes = 0;
  let useDefaultTypePrinterParser = 1;
}}

class {name}_Attr<string kind, string what>
    : Attr<CPred<"::llvm::isa<::mlir::" # kind # ">($_self)">, what> {{
  let storageType = "::mlir::" # kind;
  let returnType = "::mlir::" # kind;
  let convertFromStorage = "$_self";
}}
"""

DEFINITION = re.compile(
    r"irdl\.(type|operation) @(\w+)(?: attributes \{(.*?)\})?( \{)?(?: *loc\(.*\))?$"
)
CONSTRAINT = re.compile(r'%(\w+) = irdl\.(any|region|base (?:"([!#][\w.]+)"|@(\w+)::@(\w+)))$')
GROUP = re.compile(r"irdl\.(parameters|operands|results|regions)\((.*)\)$")
ATTRIBUTES = re.compile(r"irdl\.attributes \{(.*)\}$")
MEMBER = re.compile(r"(\w+): (?:(optional|variadic) )?%(\w+)$")


class Unreadable(Exception):
    """A line that this script does not know."""


@dataclass
class Member:
    """An operand, result, attribute, region or parameter."""

    name: str
    constraint: str
    variadicity: str = ""

    def ods(self) -> str:
        wrapper = {"": "{}", "optional": "Optional<{}>", "variadic": "Variadic<{}>"}
        return f"{wrapper[self.variadicity].format(self.constraint)}:${self.name}"


@dataclass
class Definition:
    """A type or an operation of the dialect."""

    kind: str
    name: str
    summary: str
    traits: list[str]
    constraints: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[Member]] = field(default_factory=dict)


def read(text: str) -> tuple[str, list[Definition]]:
    """The dialect's name and its definitions. Raises Unreadable, with the line."""
    dialect, found, current = "", [], None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("//") or line == "}":
            continue
        opened = re.fullmatch(r"irdl\.dialect @(\w+) \{", line)
        begun = DEFINITION.fullmatch(line)
        if opened:
            dialect = opened[1]
        elif begun:
            current = Definition(begun[1], begun[2], *_described(begun[3] or ""))
            found.append(current)
        elif current is None or not _member(current, line, dialect):
            raise Unreadable(f"line {number}: cannot read '{line}'")
    if not found:
        raise Unreadable("no definition of a dialect")
    return dialect, found


def _described(attributes: str) -> tuple[str, list[str]]:
    summary = re.search(r'doc\.summary = "((?:[^"\\]|\\.)*)"', attributes)
    traits = re.search(r"cpp\.traits = \[([^\]]*)\]", attributes)
    # MLIR writes the bytes of what is no printable ASCII as \\XX
    raw = re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), summary[1] if summary else "")
    return raw.encode("latin-1").decode(), re.findall(r'"(\w+)"', traits[1]) if traits else []


def _member(current: Definition, line: str, dialect: str) -> bool:
    """Take a line of a definition's body; False where it is none that is known."""
    constraint = CONSTRAINT.fullmatch(line)
    if constraint:
        value, kind, base, owner, own = constraint.groups()
        if (base is not None and base not in BASES) or owner not in (None, dialect):
            return False
        made = BASES[base] if base else f"{_camel(dialect)}_{_camel(own)}Type" if own else ""
        current.constraints[value] = made or {"any": "any", "region": "AnyRegion"}[kind]
        return True
    group, attributes = GROUP.fullmatch(line), ATTRIBUTES.fullmatch(line)
    if group:
        members = [MEMBER.fullmatch(part) for part in group[2].split(", ")]
        if not all(members):
            return False
        otherwise = "AnyAttr" if group[1] == "parameters" else "AnyType"
        current.groups[group[1]] = [
            Member(m[1], _or(current.constraints[m[3]], otherwise), m[2] or "")
            for m in members if m
        ]  # fmt: skip
        return True
    if attributes:
        current.groups["attributes"] = [
            Member(name, _or(current.constraints[value], "AnyAttr"))
            for name, value in re.findall(r'"(\w+)" = %(\w+)', attributes[1])
        ]
    return attributes is not None


def _or(constraint: str, otherwise: str) -> str:
    return otherwise if constraint == "any" else constraint


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def write_type(prefix: str, definition: Definition) -> str:
    parameters = []
    for member in definition.groups.get("parameters", []):
        storage = STORAGE.match(member.constraint)
        parameters.append((storage[1] if storage else "Attribute", member.name))
    listed = ", ".join(f'"::mlir::{kind}":${name}' for kind, name in parameters)
    text = " `,` ".join(f"${name}" for _, name in parameters)
    name = _camel(definition.name)
    return f"""
def {prefix}_{name}Type : TypeDef<{prefix}_Dialect, "{name}"> {{
  let mnemonic = "{definition.name}";
  let summary = [{{{definition.summary}}}];
  let parameters = (ins {listed});
  let assemblyFormat = "`<` {text} `>`";
}}
"""


def write_operation(prefix: str, definition: Definition) -> str:
    groups = definition.groups
    operands, operand_sizes = _folded(groups.get("operands", []))
    results, result_sizes = _folded(groups.get("results", []))
    attributes = list(groups.get("attributes", []))
    checks = []
    for what, size in (("operand", operand_sizes), ("result", result_sizes)):
        if size:
            attributes.append(Member(f"{what}SegmentSizes", SEGMENTS.replace("Neptune", prefix)))
            name = what.capitalize()
            checks.append(
                f"::mlir::succeeded(::{prefix.lower()}::verifySegments(getOperation(), "
                f"get{name}SegmentSizes(), {size}, (*this)->getNum{name}s()))"
            )
    lines = [
        f"  let summary = [{{{definition.summary}}}];",
        f"  let arguments = (ins {', '.join(m.ods() for m in (*operands, *attributes))});",
        f"  let results = (outs {', '.join(m.ods() for m in results)});",
        f"  let regions = (region {', '.join(m.ods() for m in groups.get('regions', []))});",
    ]
    if checks:
        lines += [
            "  let hasVerifier = 1;",
            "  let extraClassDefinition = [{",
            "    ::llvm::LogicalResult $cppClass::verify() {",
            f"      return ::mlir::success({' && '.join(checks)});",
            "    }",
            "  }];",
        ]
    head = f'def {prefix}_{_camel(definition.name)}Op : Op<{prefix}_Dialect, "{definition.name}", '
    return "\n".join(["", f"{head}[{', '.join(definition.traits)}]> {{", *lines, "}", ""])


def _folded(members: list[Member]) -> tuple[list[Member], int]:
    """A group of values as C++ has it, and how many segments its attribute counts (0: none).

    `value0: optional, value1: optional, ...` is how IRDL spells values of mixed types: for C++ they
    are one variadic group, `values`. The attribute that counts them stays what it is.
    """
    loose = [m for m in members if m.variadicity]
    if len(loose) < 2:
        return members, 0
    stem = members[0].name.rstrip("0123456789")
    names = [f"{stem}{k}" for k in range(len(members))]
    if [m.name for m in members] != names or {m.variadicity for m in members} != {"optional"}:
        raise Unreadable(f"several groups of values, not {names[0]}, {names[-1]}: {members}")
    return [Member(f"{stem}s", members[0].constraint, "variadic")], len(members)


def convert(text: str, source: str) -> str:
    """The ODS text of an IRDL text."""
    dialect, definitions = read(text)
    prefix = _camel(dialect)
    parts = [HEAD.format(source=source, name=prefix, dialect=dialect)]
    for definition in definitions:
        write = write_type if definition.kind == "type" else write_operation
        parts.append(write(prefix, definition))
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("irdl", type=Path)
    parser.add_argument("ods", type=Path)
    options = parser.parse_args()
    try:
        text = convert(options.irdl.read_text(), options.irdl.name)
    except Unreadable as error:
        print(f"{options.irdl}: {error}", file=sys.stderr)
        return 1
    options.ods.parent.mkdir(parents=True, exist_ok=True)
    if not options.ods.exists() or options.ods.read_text() != text:
        options.ods.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
