# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What warps did over time, as SVG: a row a role, one colour a kind of span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from neptune_mlir.bench.profile import ISSUE, OTHER, UNDER_WAY, WAIT, Span, Track, one_block

WIDTH, ROW, LEFT, TOP = 1200, 26, 90, 24
COLOURS = {
    ISSUE: "#1f77b4",
    WAIT: "#aec7e8",
    "start a copy": "#2ca02c",
    "wait for an mbarrier": "#ff7f0e",
    "wait for copies": "#ff9896",
    "wait for threads": "#d62728",
    UNDER_WAY: "#9467bd",
    OTHER: "#dddddd",
}
WINDOW = 10_000  # cycles


def timeline(kernels: Mapping[str, Sequence[Track]], window: int = WINDOW) -> str:
    """An SVG document: of each kernel, the first sampled block, one warp of each role; a window at
    the start and, where the block runs for longer, one in the middle."""
    panels, y = [], 10
    for name, found in kernels.items():
        rows = one_block(found)
        if not rows:
            continue
        start, end = min(t.start for t in rows), max(t.end for t in rows)
        middle = (start + end - window) // 2
        for low in [start, middle] if end - start > window else [start]:
            panels += _panel(name, rows, y, low, min(low + window, end), end - start)
            y += TOP + len(rows) * ROW + 24
    height = y + 24
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *panels, *_legend(y + 10), "</svg>",
    ]) + "\n"  # fmt: skip


def _panel(
    name: str, rows: Sequence[Track], y: int, low: int, high: int, length: int
) -> list[str]:
    scale = (WIDTH - LEFT - 10) / max(high - low, 1)

    def bar(span: Span, top: float, height: float) -> list[str]:
        first, last = max(span.start, low), min(span.end, high)
        if last <= first:
            return []
        return [f'<rect x="{LEFT + (first - low) * scale:.1f}" y="{top:.1f}" '
                f'width="{max((last - first) * scale, 0.4):.1f}" height="{height:.1f}" '
                f'fill="{COLOURS[span.kind]}"/>']  # fmt: skip

    out = [f'<text x="{LEFT}" y="{y + 12}" font-weight="bold">{escape(name)}: cycles {low} to '
           f"{high} of {length}</text>"]  # fmt: skip
    for k, track in enumerate(rows):
        top = y + TOP + k * ROW
        out.append(f'<text x="{LEFT - 6}" y="{top + 13}" text-anchor="end">{track.role}</text>')
        out += bar(Span(OTHER, track.start, track.end), top, 16)
        for span in track.spans:
            out += bar(span, top, 16)
        for span in track.products:
            out += bar(span, top + 17, 4)
    return out


def _legend(y: int) -> list[str]:
    out, x = [], float(LEFT)
    for kind, colour in COLOURS.items():
        out.append(f'<rect x="{x:g}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{x + 14:g}" y="{y}">{escape(kind)}</text>')
        x += 30 + 6.2 * len(kind)
    return out
