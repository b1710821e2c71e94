# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Throughput over length and over batch as SVG: a panel an operator, a line a candidate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT, COLUMNS = 320, 220, 3  # of a panel; panels in a row
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 28, 34  # margins in a panel
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
BOUND = "speed of light"


def plot(found: dict[str, Any]) -> str:
    """An SVG document of results: TFLOP/s for prefill, GB/s for decoding."""
    rows = [r for r in found["rows"] if "failed" not in r]
    names = list(dict.fromkeys(r["candidate"] for r in sorted(rows, key=lambda r: not r["ours"])))
    colour = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}
    panels: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    swept = {(r["operator"], r["dtype"]): r["length"] for r in rows if r["sweep"]}
    for row in rows:
        kind = (row["operator"], row["dtype"])
        if not row["sweep"]:
            panels.setdefault((*kind, "length"), []).append(row)
        if row["length"] == swept.get(kind):
            panels.setdefault((*kind, "batch"), []).append(row)
    across = min(COLUMNS, max(len(panels), 1))
    down = -(-len(panels) // across) if panels else 0
    width, height = across * WIDTH, down * HEIGHT + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for k, ((operator, dtype, over), some) in enumerate(panels.items()):
        x, y = k % across * WIDTH, k // across * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _panel(f"{operator}, {dtype}", some, colour, over)
        parts.append("</g>")
    parts += _legend(colour, down * HEIGHT + 18)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    title: str, rows: Sequence[dict[str, Any]], colour: dict[str, str], over: str
) -> list[str]:
    unit = "gbs" if rows[0]["operator"].startswith("decode") else "tflops"
    lengths = sorted({r[over] for r in rows})
    # a rate at the bound is the rate measured times how far the time is from the bound
    top = nice(max(r[unit] for r in rows) * 1.02)
    first, last = math.log2(lengths[0]), math.log2(lengths[-1])
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(length: float, value: float) -> tuple[float, float]:
        along = (math.log2(length) - first) / (last - first) if last > first else 0.5
        return LEFT + along * inner_w, TOP + (1 - value / top) * inner_h

    label = "GB/s" if unit == "gbs" else "TFLOP/s"
    label += "" if over == "length" else " over batch"
    out = [f'<text x="{WIDTH / 2}" y="16" text-anchor="middle" font-weight="bold">'
           f"{escape(title)}, {label}</text>"]  # fmt: skip
    for k in range(5):
        value = top * k / 4
        _, y = at(lengths[0], value)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')  # fmt: skip
        out.append(f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for length in lengths:
        x, _ = at(length, 0)
        text = f"{length // 1024}k" if length >= 1024 else str(length)
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{text}'
                   "</text>")  # fmt: skip
    bound = {r[over]: r[unit] / r["sol"] for r in rows}
    for name in [BOUND, *colour]:
        if name == BOUND:
            points = [(n, min(v, top)) for n, v in sorted(bound.items()) if v <= top]
        else:
            points = sorted((r[over], r[unit]) for r in rows if r["candidate"] == name)
        if points:
            out += _line([at(*p) for p in points], colour.get(name))
    return out


def _line(points: Sequence[tuple[float, float]], colour: str | None) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    if colour is None:
        return [f'<polyline points="{path}" fill="none" stroke="#000" stroke-dasharray="4 3"/>']
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>', *dots]


def _legend(colour: dict[str, str], y: float) -> list[str]:
    out, x = [], 12.0
    for name, shade in [*colour.items(), (BOUND, "#000")]:
        dash = ' stroke-dasharray="4 3"' if name == BOUND else ""
        out.append(f'<line x1="{x:g}" y1="{y - 4:g}" x2="{x + 18:g}" y2="{y - 4:g}" '
                   f'stroke="{shade}" stroke-width="2"{dash}/>')  # fmt: skip
        out.append(f'<text x="{x + 22:g}" y="{y:g}">{escape(name)}</text>')
        x += 40 + 6.5 * len(name)
    return out


def nice(value: float) -> float:
    """The smallest of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten from `value` on."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(s * power for s in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if s * power >= value)
