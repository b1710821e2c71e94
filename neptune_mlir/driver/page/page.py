# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune explain --html`: one page about a program, in one file that needs no network.

All that it says comes from the compiler's own data: the module as written and as fused, what
passes recorded in it, and what they remarked.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from neptune_mlir.driver.bound import is_narrow
from neptune_mlir.driver.explain import Listing, listings
from neptune_mlir.driver.page import dataflow, figures, loops, proofs
from neptune_mlir.driver.page.costs import Cost, cost_of
from neptune_mlir.driver.page.sizes import ASSUMED, AssumedSizes
from neptune_mlir.driver.page.svg import ARROW, bytes_text, rate_text
from neptune_mlir.driver.page.tiles import EMPTY, FULL, PARTIAL, Picture
from neptune_mlir.driver.page.work import masked_cost
from neptune_mlir.pipelines.lowering import parallelism
from neptune_mlir.targets.roofline import roof_of


@dataclass(frozen=True)
class Request:
    """What a page is about.

    Attributes:
        written, fused: the module as written and as fused.
        text: the program that they were made of; `title` its name.
        target, schedule, remarks: as the compiler says.
        every, given: run-time extents (`page/sizes.py`).
        profile: rows of `neptune bench run --profile --json`.
    """

    written: Any
    fused: Any
    text: str
    title: str
    target: str
    schedule: str
    remarks: Sequence[str] = ()
    every: int = ASSUMED
    given: Mapping[str, int] = field(default_factory=dict)
    profile: Sequence[Mapping[str, Any]] = ()


class _Function:
    """A function in both forms, and what was worked out of it."""

    def __init__(self, written: Listing, fused: Listing, request: Request):
        self.written, self.fused = written, fused
        self.name = fused.function.name.value
        self.streams = list(fused.running)
        block = fused.function.regions[0].blocks[0]
        names = [fused.values.key(argument) for argument in block.arguments]
        assumed = (request.every, request.given, parallelism(request.target))
        self.sizes = AssumedSizes(names, *assumed)
        self.after, pictures = masked_cost(fused, self.sizes)
        self.pictures: list[Picture] = list(pictures.values())
        own = [written.values.key(a) for a in written.function.regions[0].blocks[0].arguments]
        self.before = cost_of(written, AssumedSizes(own, *assumed))
        self.narrow = is_narrow(fused.function)

    @property
    def stored(self) -> dict[str, str]:
        """How large what is in memory is, by its name."""
        found: dict[str, float] = {}
        for kernel in self.after.kernels:
            found |= kernel.read | kernel.written
        return {name: bytes_text(size) for name, size in found.items()}


def page(request: Request) -> str:
    """The page, as HTML."""
    written = listings(request.written, request.text)
    fused = listings(request.fused, request.text)
    found = [_Function(a, b, request) for a, b in zip(written, fused, strict=True)]
    names = ", ".join(f.name for f in found)
    lines = loops.lines_of(fused)
    body = [
        _head(request, names, found),
        "<main>",
        _section("Loop nests", _LOOPS, loops.columns(written, fused, request.text)),
        *(_dataflow(f, len(found) > 1, lines) for f in found),
        *(_corrections(f, len(found) > 1) for f in found),
        *(_numbers(f, request, len(found) > 1) for f in found),
        _profile(request.profile),
        _remarks(request),
        "</main>",
        f"<footer><p>{html.escape(_foot(request, found))}</p></footer>",
    ]
    style = files(__package__).joinpath("page.css").read_text()
    script = files(__package__).joinpath("page.js").read_text()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(names)}: how it was fused</title><style>{style}</style></head>"
        f"<body>{ARROW}{''.join(body)}<script>{script}</script></body></html>\n"
    )


_LOOPS = (
    "Each line of the program as written goes with the lines that it became. Point at a line, or "
    "tap it, to see which. A name with a prime is a running value as the tile at hand found it."
)


def _section(title: str, lead: str, body: str) -> str:
    if not body:
        return ""
    lead = f"<p class='note'>{lead}</p>" if lead else ""
    return f"<section><h2>{title}</h2>{lead}{body}</section>"


def _head(request: Request, names: str, found: Sequence[_Function]) -> str:
    nests = sum(len(f.before.kernels) for f in found)
    kernels = sum(len(f.after.kernels) for f in found)
    before, after = (sum(c.bytes for c in side) for side in _costs(found))
    counted = [proofs.counts(f.fused, f.streams) for f in found]
    corrections, claims, proved = (sum(n) for n in zip(*counted, strict=True))
    stats = [
        ("loop nests → kernels", f"{nests} <s>→</s> {kernels}"),
        ("memory traffic", f"{bytes_text(before)} <s>→</s> {bytes_text(after)}"),
        ("corrections", str(corrections)),
    ]
    if claims:
        stats.append(("obligations proved", f"{proved} <s>of</s> {claims}"))
    masked = [p for f in found for p in f.pictures if p.live < 1]
    if masked:
        stats.append(("live points", f"{min(p.live for p in masked):.0%}"))
    items = "".join(f"<div class='stat'><dt>{a}</dt><dd>{b}</dd></div>" for a, b in stats)
    kind = f"{request.title} · {request.target} · schedule {request.schedule}"
    return (
        f"<header><p class='eyebrow'>{html.escape(kind)}</p><h1>{html.escape(names)}</h1>"
        f"<p>{_lede(found, nests, kernels, before, after)}</p></header>"
        f"<dl class='stats'>{items}</dl>{_why(request, found)}"
    )


def _costs(found: Sequence[_Function]) -> tuple[list[Cost], list[Cost]]:
    return [f.before for f in found], [f.after for f in found]


def _lede(
    found: Sequence[_Function], nests: int, kernels: int, before: float, after: float
) -> str:
    """What happened, in two sentences."""
    streams = sum(len(f.streams) for f in found)
    if not streams:
        return (
            f"The program has {_count(nests, 'loop nest')} and {_count(kernels, 'kernel')}. No "
            "reductions were fused."
        )
    running = sum(len(names) for f in found for names in f.fused.running.values())
    less = f" It moves {before / after:.3g} times fewer bytes." if after and before > after else ""
    return (
        f"{_count(nests, 'loop nest').capitalize()} became {_count(kernels, 'kernel')}: "
        f"{_count(streams, 'stream')} that {'carries' if streams == 1 else 'carry'} "
        f"{_count(running, 'running value')}.{less}"
    )


def _count(number: int, noun: str) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    text = words[number] if number < len(words) else str(number)
    return f"{text} {noun}{'' if number == 1 else 's'}"


def _why(request: Request, found: Sequence[_Function]) -> str:
    """Why what could have been fused was not."""
    reasons = [r for r in request.remarks if "not fused" in r or "not raised" in r]
    if not reasons:
        return ""
    items = "".join(f"<li>{_remark(r)}</li>" for r in reasons)
    return f"<div class='why'><strong>What was not fused, and why</strong><ul>{items}</ul></div>"


def _remark(text: str) -> str:
    place, found, said = text.partition(": remark: ")
    if not found:
        return html.escape(text)
    return f"{html.escape(said)} <code>{html.escape(PurePath(place).name)}</code>"


def _corrections(function: _Function, named: bool) -> str:
    cards = proofs.section(function.fused, function.streams) + proofs.gradients(function.written)
    title = f"Corrections{_of(function, named)}"
    lead = (
        "A correction repairs what was accumulated under an old reference. Each one is derived, "
        "and its obligations are equations over the reals that the compiler proves. Every value is "
        "taken at the point of the loops at hand. A prime marks the value before the tile, two "
        "primes one in between, a star a second value that is independent of the first."
    )
    return _section(title, lead, f"<div class='cards'>{cards}</div>" if cards else "")


def _dataflow(function: _Function, named: bool, lines: dict[Any, str]) -> str:
    drawing = dataflow.figure(function.fused, function.stored, lines)
    keys = (("memory", "in memory"), ("carried", "carried through the stream"),
            ("step", "computed, never stored"), ("repair", "a repair"))  # fmt: skip
    legend = "".join(f"<li class='{k}'>{text}</li>" for k, text in keys)
    flow = _figure(
        "Dataflow of the fused program; a box leads to its line",
        f"<div class='scroll wide' tabindex='0'>{drawing}</div>",
        f"<ul class='legend'>{legend}</ul>",
    )  # fmt: skip
    title = f"What is stored, and what is not{_of(function, named)}"
    body = f"<div class='grid flow'>{flow}{_traffic(function)}</div>"
    return _section(title, _assumed(function), body)


def _of(function: _Function, named: bool) -> str:
    return f": {html.escape(function.name)}" if named else ""


def _assumed(function: _Function) -> str:
    """The extents that figures take for granted."""
    sizes = function.sizes.asked
    if not sizes:
        return ""
    listed = ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items()))
    return f"Extents that only a call knows are taken to be {html.escape(listed)}."


def _numbers(function: _Function, request: Request, named: bool) -> str:
    figs = [_tile_figure(p, k, len(function.pictures)) for k, p in enumerate(function.pictures)]
    roof = roof_of(request.target)
    if roof is not None and function.after.flops:
        points = [("before", "as written", function.before), ("after", "fused", function.after)]
        drawing = figures.roofline(roof, function.narrow, points)
        peak = "products of 16-bit factors" if function.narrow else "f32"
        text = f"The limits of {roof.device} ({roof.source}; {peak}), and what they allow"
        flops = rate_text(function.after.flops, "FLOP")
        figs.append(_figure(text, drawing, f"<p class='note'>A call computes {flops}.</p>"))
    title = f"Tiles and limits{_of(function, named)}"
    return _section(title, "", f"<div class='grid'>{''.join(figs)}</div>" if figs else "")


def _figure(caption: str, drawing: str, after: str) -> str:
    return f"<figure><figcaption>{html.escape(caption)}</figcaption>{drawing}{after}</figure>"


def _tile_figure(picture: Picture, number: int, of: int) -> str:
    keys = ((FULL, "blue", "no mask needed"), (PARTIAL, "rust", "masked"),
            (EMPTY, "step", "never visited"))  # fmt: skip
    items = "".join(
        f"<li style='--k:var(--{colour})'>{picture.count(kind)} {kind}, {text}</li>"
        for kind, colour, text in keys if picture.count(kind)
    )  # fmt: skip
    which = f" of stream {number + 1}" if of > 1 else ""
    size = f"{picture.row_tile} × {picture.tile}" if picture.row_axis else f"{picture.tile}"
    caption = f"Tiles{which}, {size}, to scale"
    if picture.step > 1:
        caption += f"; one row of tiles in {picture.step} is drawn"
    if picture.unknown:
        caption += f"; what {', '.join(picture.unknown)} decides at run time is not in it"
    return _figure(caption, figures.tiles(picture), f"<ul class='legend'>{items}</ul>")


_ROWS = 9  # tensors that the table of traffic names


def _traffic(function: _Function) -> str:
    """Bytes to and from memory by tensor, before and after."""
    before, after = _by_tensor(function.before), _by_tensor(function.after)
    most = max([*before.values(), *after.values(), 1.0])

    def rows(side: str, found: dict[str, float]) -> str:
        ordered = sorted(found.items(), key=lambda e: (-e[1], e[0]))
        shown = ordered[:_ROWS]
        text = "".join(_bar(side, name, size, most) for name, size in shown)
        if len(ordered) > _ROWS:
            rest = sum(size for _, size in ordered[_ROWS:])
            text += _bar(side, f"{len(ordered) - _ROWS} more", rest, most)
        total = bytes_text(sum(found.values()))
        return (
            f"{text}<tr class='total'><th scope='row'>all</th><td></td>"
            f"<td class='n'>{total}</td></tr>"
        )

    asked = sum(k.asked for k in function.after.kernels)
    note = (
        "Every kernel reads what it needs once and writes its results: no cache can avoid this."
        f" The programs of the fused kernels ask caches for {bytes_text(asked)}."
    )
    table = (
        "<table class='bars'><thead><tr><th scope='col' colspan='3'>as written</th></tr></thead>"
        f"<tbody class='gone'>{rows('gone', before)}</tbody>"
        "<thead><tr><th scope='col' colspan='3'>fused</th></tr></thead>"
        f"<tbody class='after'>{rows('after', after)}</tbody></table>"
    )
    return _figure("Memory traffic by tensor", table, f"<p class='note'>{note}</p>")


def _by_tensor(cost: Cost) -> dict[str, float]:
    found: dict[str, float] = {}
    for kernel in cost.kernels:
        for name, size in (*kernel.read.items(), *kernel.written.items()):
            found[name] = found.get(name, 0.0) + size
    return found


def _bar(side: str, name: str, size: float, most: float) -> str:
    return (
        f"<tr><th scope='row'>{html.escape(name)}</th><td style='width:100%'><span class='bar' "
        f"style='--w:{100 * size / most:.1f}%'></span></td>"
        f"<td class='n'>{bytes_text(size)}</td></tr>"
    )


def _profile(rows: Sequence[Mapping[str, Any]]) -> str:
    """Warp roles over time, of a profile."""
    parts = []
    for row in rows:
        kinds = dict.fromkeys(kind for role in row.get("roles", ()) for kind in role["percent"])
        legend = "".join(
            f"<li style='--k:var(--c-{figures.kind_class(kind)})'>{html.escape(kind)}</li>"
            for kind in kinds
        )
        drawing = figures.warps(row)
        where = f", length {row['length']}" if "length" in row else ""
        caption = f"{row.get('bundle', '')}, {row.get('kernel', '')}{where}"
        parts.append(_figure(caption, f"<div class='scroll wide' tabindex='0'>{drawing}</div>",
                             f"<ul class='legend'>{legend}</ul>"))  # fmt: skip
    lead = "What the warps of a block did, from clock samples that the kernel took of itself."
    return _section("Warps over time", lead, "".join(parts))


def _remarks(request: Request) -> str:
    items = "".join(f"<li>{_remark(r)}</li>" for r in request.remarks)
    body = f"<ul class='remarks'>{items}</ul>" if items else ""
    return _section("Remarks of the passes", "", body)


def _foot(request: Request, found: Sequence[_Function]) -> str:
    return (
        f"Made by neptune explain --html from {request.title}, for {request.target}. Figures of "
        "time are limits, not measurements."
    )

