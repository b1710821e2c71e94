# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Throughput over length and over batch as SVG: a panel an operator, a line a candidate. Of random
draws, which share no lengths: how many times as fast as the best peer each is, the slowest first.

Ours is drawn last and thickest. The page's text and grid follow the reader's light or dark mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT, COLUMNS = 330, 236, 3  # of a panel; panels in a row
LEFT, RIGHT, TOP, BOTTOM = 46, 22, 44, 30  # margins in a panel
COLOURS = ("#c2541b", "#2f6c9e", "#3c8c5a", "#7a5ca3", "#c79a2e", "#2a9aa6", "#8a6d5a", "#7d828c")
BOUND = "speed of light"
_HEAD = 34  # above the panels: the legend
_STYLE = """
svg { background: #ffffff; }
text { font: 11px Inter, system-ui, "Segoe UI", Roboto, sans-serif; fill: #5c616b; }
.title { font-size: 13px; font-weight: 600; fill: #1c1e22; }
.key { fill: #1c1e22; }
.rule { stroke: #e6e4dd; } .bound { stroke: #5c616b; stroke-dasharray: 2 3; fill: none; }
@media (prefers-color-scheme: dark) {
  svg { background: #14161a; } text { fill: #a0a4ac; } .title, .key { fill: #e4e2dc; }
  .rule { stroke: #31353d; } .bound { stroke: #a0a4ac; }
}
"""


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
    about = f"Throughput of {len(names)} candidates in {len(panels)} panels"
    parts = [*_head(across * WIDTH, down * HEIGHT + _HEAD, about), *_legend(colour, 21)]
    for k, ((operator, dtype, over), some) in enumerate(panels.items()):
        x, y = k % across * WIDTH, k // across * HEIGHT + _HEAD
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _panel(f"{operator}, {dtype}", some, colour, over)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def plot_draws(placed: Sequence[dict[str, Any]]) -> str:
    """An SVG document of `sweep.standings`: a dot a draw, a colour a kind; its name on hovering."""
    kinds = list(dict.fromkeys(sorted(row["drawn"] for row in placed)))
    colour = {kind: COLOURS[k % len(COLOURS)] for k, kind in enumerate(kinds)}
    octaves = max([1, *(math.ceil(abs(math.log2(row["speed"]))) for row in placed)])
    width, height = 2 * WIDTH, HEIGHT + _HEAD
    inner_w, inner_h = width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def down(speed: float) -> float:
        return _HEAD + TOP + (1 - math.log2(speed) / octaves) * inner_h / 2

    out = _head(width, height, f"Speed of {len(placed)} draws")
    out += _legend(colour, 21, bound=False)
    out.append(f'<text class="title" x="{LEFT}" y="{_HEAD + 22}">time of the best peer / ours, '
               f"{len(placed)} draws</text>")  # fmt: skip
    for octave in range(-octaves, octaves + 1):
        y = down(2.0**octave)
        style = "rule" if octave else "bound"
        out.append(f'<line class="{style}" x1="{LEFT}" y1="{y:.1f}" x2="{width - RIGHT}" '
                   f'y2="{y:.1f}"/>')  # fmt: skip
        label = f"{2**octave}" if octave >= 0 else f"1/{2**-octave}"
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for k, row in enumerate(placed):
        x = LEFT + (k + 0.5) / len(placed) * inner_w
        words = escape(f"{row['title']}: {row['speed']:.2f} of {row['peer']}")
        out.append(f'<circle cx="{x:.1f}" cy="{down(row["speed"]):.1f}" r="3" '
                   f'fill="{colour[row["drawn"]]}"><title>{words}</title></circle>')  # fmt: skip
    return "\n".join([*out, "</svg>"]) + "\n"


def _head(width: int, height: int, about: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{about}">',
        f"<style>{_STYLE}</style>",
    ]


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
    out = [f'<text class="title" x="{LEFT}" y="22">{escape(title)}, {label}</text>']
    for k in range(5):
        value = top * k / 4
        _, y = at(lengths[0], value)
        out.append(f'<line class="rule" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" '
                   f'y2="{y:.1f}"/>')  # fmt: skip
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for length in lengths:
        x, _ = at(length, 0)
        text = f"{length // 1024}k" if length >= 1024 else str(length)
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{text}'
                   "</text>")  # fmt: skip
    bound = {r[over]: r[unit] / r["sol"] for r in rows}
    for name in [BOUND, *reversed(colour)]:  # ours, the first, over all others
        if name == BOUND:
            points = [(n, min(v, top)) for n, v in sorted(bound.items()) if v <= top]
        else:
            points = sorted((r[over], r[unit]) for r in rows if r["candidate"] == name)
        if points:
            ours = name == next(iter(colour))
            out += _line([at(*p) for p in points], colour.get(name), 2.6 if ours else 1.5)
    return out


def _line(
    points: Sequence[tuple[float, float]], colour: str | None, width: float
) -> list[str]:  # fmt: skip
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    if colour is None:
        return [f'<polyline class="bound" points="{path}"/>']
    radius = f"{1.2 + width / 2:.1f}"
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>' for x, y in points
    ]
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
        'stroke-linejoin="round"/>',
        *dots,
    ]


def _legend(colour: dict[str, str], y: float, bound: bool = True) -> list[str]:
    out, x = [], float(LEFT)
    for name, shade in [*colour.items(), *([(BOUND, "")] if bound else [])]:
        kind = f'stroke="{shade}" stroke-width="3"' if shade else 'class="bound"'
        out.append(f'<line x1="{x:g}" y1="{y - 4:g}" x2="{x + 16:g}" y2="{y - 4:g}" {kind}/>')
        out.append(f'<text class="key" x="{x + 21:g}" y="{y:g}">{escape(name)}</text>')
        x += 42 + 6.2 * len(name)
    return out


def nice(value: float) -> float:
    """The smallest of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten from `value` on."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(s * power for s in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if s * power >= value)
