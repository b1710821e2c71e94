# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LLVM IR text as the bindings print it (LLVM 24), rewritten for an older LLVM (llvmlite's 22).

What differs in practice: how floating-point constants are spelled (24 prints `f0x...`, `+inf`,
`+qnan` and decimals that are not exact; 22 wants hexadecimal bits), and a few attributes.
"""

from __future__ import annotations

import functools
import re
import struct

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # strings stay as they are
    r"|\b(?:bfloat|half|float|double)\b"  # a type: the constants that follow are of it
    r"|(?<![\w.%@!#$])(?:f0x[0-9A-Fa-f]+"
    r"|[+-]?\d+\.\d*(?:e[+-]?\d+)?"
    r"|[+-](?:inf|qnan|nan\(0x[0-9A-Fa-f]+\)|snan\(0x[0-9A-Fa-f]+\)))(?![\w.])"
)

# what every constant has one of: LLVM prints decimals with an exponent
_MARKS = ("e+", "e-", "f0x", "inf", "nan")

# type -> (bits, mantissa bits)
_FORMATS = {"half": (16, 10), "bfloat": (16, 7), "float": (32, 23), "double": (64, 52)}

# attributes that LLVM 22 does not know: dropping them only loses an optimisation hint
_UNKNOWN_ATTRIBUTES = re.compile(r"nocreateundeforpoison\b ?")
_BARE_WORK_GROUP = re.compile(r'"uniform-work-group-size"(?!=)')


def downgrade(text: str) -> str:
    """The same module in the spelling of LLVM 22, constants unchanged bit for bit."""
    text = _UNKNOWN_ATTRIBUTES.sub("", text)
    text = _BARE_WORK_GROUP.sub('"uniform-work-group-size"="true"', text)
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    if not any(mark in line for mark in _MARKS):
        return line
    kind = "double"

    def spell(match: re.Match[str]) -> str:
        nonlocal kind
        token = match.group()
        if token in _FORMATS:
            kind = token
            return token
        return token if token[0] == '"' else _spelled(token, kind)

    return _TOKEN.sub(spell, line)


@functools.cache
def _spelled(token: str, kind: str) -> str:
    return _hexadecimal(bits_of(token, kind), kind)


def bits_of(token: str, kind: str) -> int:
    """The bit pattern of a constant as LLVM 24 spells it."""
    width, mantissa = _FORMATS[kind]
    if token.startswith("f0x"):
        return int(token[3:], 16)
    sign = 1 << (width - 1) if token.startswith("-") else 0
    exponent = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    name = token.lstrip("+-")
    if name == "inf":
        return sign | exponent
    if name == "qnan":
        return sign | exponent | 1 << (mantissa - 1)
    if name.startswith(("nan", "snan")):
        payload = int(name[name.index("0x") + 2 : -1], 16)
        quiet = 0 if name.startswith("snan") else 1 << (mantissa - 1)
        return sign | exponent | quiet | payload
    return _round(float(token), kind)


def _round(value: float, kind: str) -> int:
    if kind == "double":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if kind == "half":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    single = int(struct.unpack("<I", struct.pack("<f", value))[0])
    if kind == "float":
        return single
    # LLVM prints a bfloat with enough digits to tell its neighbours apart, so the value is
    # nearest to the one meant: round the single to 8 bits of precision, ties to even
    return (single + 0x7FFF + ((single >> 16) & 1)) >> 16


def _hexadecimal(bits: int, kind: str) -> str:
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    if kind == "double":
        return f"0x{bits:016X}"
    # LLVM spells a float as the double of equal value; a NaN keeps its payload in the top bits
    if bits & 0x7F800000 == 0x7F800000:
        sign, payload = bits >> 31, bits & 0x7FFFFF
        return f"0x{sign << 63 | 0x7FF << 52 | payload << 29:016X}"
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
