# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures as inline SVG: shapes with classes, which the page's style sheet colours."""

from __future__ import annotations

import html

_READABLE, _PHONE = 0.62, 300.0  # how far a drawing shrinks before it scrolls; a phone's column


def number(value: float) -> str:
    """A coordinate, without digits that nobody sees."""
    return f"{value:.1f}".removesuffix(".0")


class Svg:
    """A drawing. It has a title and a description: people who do not see it hear these."""

    def __init__(self, width: float, title: str, description: str):
        self.width = width
        self.height = 0.0
        self._title, self._description = title, description
        self._parts: list[str] = []
        self._role = "img"

    def _add(self, element: str, bottom: float) -> None:
        self._parts.append(element)
        self.height = max(self.height, bottom)

    def link(self, place: str) -> None:
        """What follows, up to `end_link`, leads to a place of the page."""
        self._role = "group"  # of an image, readers would say nothing but the label
        self._parts.append(f'<a href="#{html.escape(place)}">')

    def end_link(self) -> None:
        self._parts.append("</a>")

    def rect(
        self, x: float, y: float, width: float, height: float, style: str, hint: str = "",
        radius: float = 0,
    ) -> None:  # fmt: skip
        inside = f"<title>{html.escape(hint)}</title>" if hint else ""
        corner = f' rx="{number(radius)}"' if radius else ""
        self._add(
            f'<rect class="{style}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}"{corner}>{inside}</rect>',
            y + height,
        )

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        kind = f' class="{style}"' if style else ""
        side = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._add(
            f'<text{kind} x="{number(x)}" y="{number(y)}"{side}>{html.escape(text)}</text>', y + 4
        )

    def path(self, way: str, style: str, bottom: float = 0, arrow: bool = False) -> None:
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self._add(f'<path class="{style}" d="{way}"{end}/>', bottom)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        way = f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}"
        self.path(way, style, max(y1, y2))

    def circle(self, x: float, y: float, radius: float, style: str, hint: str = "") -> None:
        inside = f"<title>{html.escape(hint)}</title>" if hint else ""
        self._add(
            f'<circle class="{style}" cx="{number(x)}" cy="{number(y)}" r="{number(radius)}">'
            f"{inside}</circle>",
            y + radius,
        )

    def __str__(self) -> str:
        width, height = number(self.width), number(self.height + 4)
        title, text = html.escape(self._title), html.escape(self._description)
        least = min(self.width, max(_READABLE * self.width, _PHONE))
        return (
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="{self._role}" style="min-width:{number(least)}px" '
            f'aria-label="{title}. {text}">{"".join(self._parts)}</svg>'
        )


# one marker for the arrows of all figures of a page
ARROW = (
    '<svg width="0" height="0" aria-hidden="true" class="defs"><defs><marker id="arrow" '
    'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0.5L8 4L0 7.5z"/></marker></defs></svg>'
)


def bytes_text(count: float) -> str:
    """1536 as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 99.5 or unit == "B" else f"{count:.3g} {unit}"


def rate_text(value: float, unit: str) -> str:
    """2.5e12 as `2.5 TFLOP/s`."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
