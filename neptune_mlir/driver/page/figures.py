# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Figures with axes: tiles under a mask, the roofline, warps over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from neptune_mlir.driver.page.costs import Cost
from neptune_mlir.driver.page.svg import Svg, number, rate_text
from neptune_mlir.driver.page.tiles import EMPTY, FULL, PARTIAL, Picture
from neptune_mlir.targets.roofline import Roof

WIDTH = 400.0
_LEFT, _TOP, _SIDE = 44.0, 26.0, 340.0


def tiles(picture: Picture) -> str:
    """The tiles of a stream to scale: streamed elements from left to right, rows downwards."""
    kinds = {kind: picture.count(kind) for kind in (FULL, PARTIAL, EMPTY)}
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    title = f"Tiles of {picture.row_tile} by {picture.tile}" if picture.row_axis else "Tiles"
    svg = Svg(WIDTH, title, f"{told}; {picture.live:.0%} of the points are live.")
    across = _SIDE / picture.length
    height = min(_SIDE, max(28.0, picture.rows * across)) if picture.row_axis else 34.0
    down = height / picture.rows
    covered = picture.step * picture.row_tile
    for low, _, runs in picture.bands:
        high = min(picture.rows, low + covered)
        for run in runs:
            x, y = _LEFT + run.start * across, _TOP + low * down
            hint = (
                f"{run.kind}: {picture.axis} {run.start} to {run.end - 1}"
                + (f", {picture.row_axis} {low} to {high - 1}" if picture.row_axis else "")
            )
            width = (run.end - run.start) * across
            svg.rect(x, y, width, (high - low) * down, f"tile {run.kind}", hint)
    _grid(svg, picture, across, down, height)
    svg.text(_LEFT, 12, f"{picture.axis} →", "small")
    svg.text(_LEFT + _SIDE, 12, f"{picture.length}", "small", "end")
    if picture.row_axis:
        svg.text(_LEFT - 6, _TOP + 11, f"{picture.row_axis} ↓", "small", "end")
        svg.text(_LEFT - 6, _TOP + height, str(picture.rows), "small", "end")
    return str(svg)


def _grid(svg: Svg, picture: Picture, across: float, down: float, height: float) -> None:
    """Lines between tiles, where there is room for them."""
    if picture.tile * across >= 4:
        for start in range(picture.tile, picture.length, picture.tile):
            x = _LEFT + start * across
            svg.line(x, _TOP, x, _TOP + height, "grid")
    if picture.row_tile * down >= 4:
        for low in range(picture.row_tile, picture.rows, picture.row_tile):
            y = _TOP + low * down
            svg.line(_LEFT, y, _LEFT + _SIDE, y, "grid")
    svg.rect(_LEFT, _TOP, _SIDE, height, "frame")


def roofline(roof: Roof, narrow: bool, points: Sequence[tuple[str, str, Cost]]) -> str:
    """What a chip can reach over operations a byte, and where programs are: `points` are style,
    name and cost."""
    peak = roof.products if narrow else roof.flops
    ridge = peak / roof.bytes
    seen = [max(cost.intensity, 1e-3) for _, _, cost in points]
    low = math.floor(math.log10(min([*seen, ridge]) / 2))
    high = math.ceil(math.log10(max([*seen, ridge]) * 2))
    bottom = math.floor(math.log10(min(roof.limit(10.0**low, narrow), peak / 1e3)))
    top = math.ceil(math.log10(peak * 1.01))
    width, height, left, upper = 334.0, 190.0, 54.0, 18.0

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = (math.log10(intensity) - low) / (high - low)
        y = (math.log10(rate) - bottom) / (top - bottom)
        return left + x * width, upper + (1 - y) * height

    told = "; ".join(
        f"{name}: {cost.intensity:.3g} operations a byte, at most "
        f"{rate_text(roof.limit(cost.intensity, narrow), 'FLOP/s')}"
        for _, name, cost in points
    )
    svg = Svg(WIDTH, f"Roofline of {roof.device}", told)
    for power in range(low, high + 1):
        x, _ = at(10.0**power, peak)
        svg.line(x, upper, x, upper + height, "rule")
        edge = "end" if power == high else "middle"
        svg.text(x, upper + height + 14, f"{10.0**power:g}", "small", edge)
    for power in range(bottom, top + 1):
        _, y = at(1.0, 10.0**power)
        svg.line(left, y, left + width, y, "rule")
        svg.text(left - 5, y + 4, rate_text(10.0**power, "").strip(), "small", "end")
    start = max(10.0**low, 10.0**bottom / roof.bytes)
    corners = [at(start, start * roof.bytes), at(ridge, peak), at(10.0**high, peak)]
    way = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners)
    svg.path(way, "roof")
    svg.text(left + width, corners[1][1] - 6, rate_text(peak, "FLOP/s"), "small", "end")
    for style, name, cost in points:
        limit = roof.limit(cost.intensity, narrow)
        x, y = at(max(cost.intensity, 10.0**low), max(limit, 10.0**bottom))
        svg.line(x, y, x, upper + height, f"drop {style}")
        svg.circle(x, y, 5, f"dot {style}", f"{name}: at most {rate_text(limit, 'FLOP/s')}")
        if style == "before" and x > left + 80:  # above the slope, on its left
            svg.text(x - 8, y - 7, name, "name", "end")
            continue
        right = x > left + width * 0.72
        lower = y + (16 if style == "after" else 32)
        svg.text(x + (-9 if right else 9), lower, name, "name", "end" if right else "start")
    svg.text(left + width / 2, upper + height + 30, "operations a byte", "small", "middle")
    svg.text(4, 10, "FLOP/s", "small")
    return str(svg)


# ---- warps over time (a row of `neptune bench --profile --json`)

_KINDS = {
    "issue products": "issue", "wait for products": "wait", "start a copy": "copy",
    "wait for an mbarrier": "barrier", "wait for copies": "copies", "wait for threads": "threads",
    "products under way": "under", "other work": "rest",
}  # fmt: skip


def kind_class(kind: str) -> str:
    """The style of a kind of span."""
    return _KINDS.get(kind, "rest")


def warps(row: Mapping[str, Any]) -> str:
    """What each role did over time, where the profile has spans; else where its cycles went."""
    tracks = row.get("tracks") or []
    roles = [r for r in row.get("roles", []) if r.get("role") != "block"]
    left, width, high = 84.0, 676.0, 24.0
    told = "; ".join(
        f"{r['role']}: " + ", ".join(f"{kind} {share:.0f}%" for kind, share in r["percent"].items())
        for r in roles
    )
    svg = Svg(left + width + 4, f"Warp roles of {row.get('kernel', 'a kernel')}", told)
    lanes = tracks or roles
    start = min((t["start"] for t in tracks), default=0)
    end = max((t["end"] for t in tracks), default=1)
    for k, lane in enumerate(lanes):
        y = 4 + k * (high + 10)
        svg.text(left - 8, y + 15, lane["role"], "small", "end")
        if tracks:
            scale = width / max(end - start, 1)
            svg.rect(left + (lane["start"] - start) * scale, y,
                     (lane["end"] - lane["start"]) * scale, high - 6, "span rest")  # fmt: skip
            for kind, first, last in lane["spans"]:
                svg.rect(
                    left + (first - start) * scale, y, max((last - first) * scale, 0.5), high - 6,
                    f"span {kind_class(kind)}", f"{kind}: {last - first} cycles",
                )  # fmt: skip
            for first, last in lane["products"]:
                svg.rect(left + (first - start) * scale, y + high - 4,
                         max((last - first) * scale, 0.5), 4, "span under")  # fmt: skip
            continue
        x = left
        for kind, share in lane["percent"].items():
            if kind_class(kind) == "under":
                svg.rect(left, y + high - 4, width * share / 100, 4, "span under",
                         f"{kind}: {share:.0f}%")  # fmt: skip
                continue
            svg.rect(x, y, width * share / 100, high - 6, f"span {kind_class(kind)}",
                     f"{kind}: {share:.0f}%")  # fmt: skip
            x += width * share / 100
    return str(svg)
