# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Corrections with their derivations and proofs, typeset."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neptune_mlir.dialects.attributes import DERIVATION, DERIVED, INNER, RUNNING
from neptune_mlir.dialects.op_names import ACCUMULATE, CORRECT, REDUCE
from neptune_mlir.driver.explain import Listing
from neptune_mlir.driver.page import formula
from neptune_mlir.driver.page.formula import Letters, Node
from neptune_mlir.driver.page.mathml import equation, math

_OBLIGATION = re.compile(
    r"(?P<subject>\S+): (?P<kind>re-basing|homomorphism|identity|composition|finish|equals .+?): "
    r"(?P<claim>.*): (?P<status>proved|unproved|refuted)(?: \((?P<by>.*)\))?"
)
MEANINGS = {
    "re-basing": "Repairing what was added under the old reference gives what the new reference "
    "would have added.",
    "homomorphism": "Repairing a combination is combining what was repaired.",
    "identity": "An empty accumulator stays empty.",
    "composition": "Two repairs in a row are one, and a reference that did not move changes "
    "nothing.",
    "finish": "What the end computes from the accumulators is the reduction as written.",
    "equals": "A value that is known from others needs no accumulator of its own.",
}
_REPAIR = "repair: "
_BETWEEN = re.compile(
    r"(^d (?=%)| <- | = |: |, so |; | from | of | measures |, the end re-bases to | does not vary"
    r"| may overflow| maximum )"
)


@dataclass(frozen=True)
class Claim:
    """An obligation: `kind` has a meaning above."""

    kind: str
    left: Node | str
    right: Node | str
    status: str
    by: str


@dataclass
class RunningProof:
    """A running value: how its correction was found, and what was proved of it."""

    name: str
    steps: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


class Derivation:
    """What a stream records of its corrections, in the names that the page uses."""

    def __init__(self, listing: Listing, stream: Any):
        own = RUNNING.find(stream, [])
        shown = listing.running[stream]
        self._names = _inner_names(listing, stream)
        self._names |= dict(zip(own, shown, strict=True)) if len(own) == len(shown) else {}
        recorded = [name.value for name in stream.attributes["axis_names"]]
        self.axes = listing.axes[stream]
        self._names |= dict(zip(recorded, self.axes, strict=True))
        block = listing.function.regions[0].blocks[0]
        for number, argument in enumerate(block.arguments):
            name = listing.values.key(argument)
            self._names |= {f"arg{number}": name, f"arg{number}.shape": f"{name}.shape"}
        self.values = {name: RunningProof(name) for name in shown}
        self.tested = ""
        for line in DERIVATION.find(stream, []):
            self._take(line)
        self.letters = formula.letters_of(
            side for value in self.values.values() for claim in value.claims
            for side in (claim.left, claim.right) if isinstance(side, Node)
        )  # fmt: skip

    def _take(self, line: str) -> None:
        found = _OBLIGATION.fullmatch(line)
        if found:
            left, right = (self.node(part) for part in _sides(found["claim"]))
            kind = found["kind"].split(" ")[0]
            claim = Claim(kind, left, right, found["status"], found["by"] or "")
            self._value(found["subject"]).claims.append(claim)
            return
        subject, colon, text = line.partition(": ")
        if not colon or " " in subject:
            self.tested = line
            return
        self._value(subject).steps.append(text)

    def _value(self, subject: str) -> RunningProof:
        name = self._names.get(subject, subject)
        return self.values.setdefault(name, RunningProof(name))

    def node(self, text: str) -> Node | str:
        """A formula in the page's names, values at the point at hand without their position; what
        is no formula stays text."""
        found = formula.parse(text)
        return text if found is None else self.here(formula.renamed(found, self._names))

    def here(self, found: Node) -> Node:
        """A formula of the page, values at the point at hand without their position."""
        return formula.without_position(found, self.axes)


def _inner_names(listing: Listing, stream: Any) -> dict[str, str]:
    """What the page calls the reductions that a tile computes by itself."""
    body = stream.regions[0].blocks[0].operations
    made = [op.operation.results[0] for op in body if op.operation.name == REDUCE]
    names = INNER.find(stream, [])
    if len(names) != len(made):
        return {}
    return {n: listing.called.get(v, n) for n, v in zip(names, made, strict=True)}


def _sides(claim: str) -> tuple[str, str]:
    """Both sides of an equation whose sides are in brackets, or have none."""
    depth = 0
    for place, sign in enumerate(claim):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and claim.startswith(" == ", place):
            return claim[:place], claim[place + 4 :]
    return claim, ""


def gradients(listing: Listing) -> str:
    """How a gradient was derived, as HTML."""
    lines = DERIVED.find(listing.function.operation, [])
    if not lines:
        return ""
    items = "".join(f"<li>{_prose(line, _as_it_is)}</li>" for line in lines)
    return f"<h3>How the gradient was derived</h3><ol class='steps'>{items}</ol>"


def _as_it_is(text: str) -> Node | str:
    return formula.parse(text) or text


def section(listing: Listing, streams: Sequence[Any]) -> str:
    """The corrections of a function's streams, as HTML."""
    parts = []
    for stream in streams:
        derivation = Derivation(listing, stream)
        corrected = _corrections(listing, stream)
        if not corrected and not any(v.claims for v in derivation.values.values()):
            continue
        if len(streams) > 1:
            axis = derivation.axes[stream.attributes["axis"].value]
            parts.append(f"<h3>The stream over {html.escape(axis)}</h3>")
        parts.append(_abbreviations(derivation.letters))
        shown = [v for v in derivation.values.values() if v.claims or v.steps]
        first = next((v for v in shown if v.claims), None)
        parts += [_card(derivation, value, corrected, value is first) for value in shown]
        if derivation.tested:
            parts.append(f"<p class='tested'>{html.escape(_sentence(derivation.tested))}</p>")
    return "".join(parts)


def counts(listing: Listing, streams: Sequence[Any]) -> tuple[int, int, int]:
    """Corrections, obligations, and obligations that were proved."""
    found = [Derivation(listing, stream) for stream in streams]
    claims = [c for d in found for v in d.values.values() for c in v.claims]
    corrections = sum(len(_corrections(listing, stream)) for stream in streams)
    return corrections, len(claims), sum(c.status == "proved" for c in claims)


def _corrections(listing: Listing, stream: Any) -> dict[str, tuple[str, str]]:
    """By the running value that it repairs: the form of a correction, and how it repairs."""
    texts = {line.op: line.text for line in listing.lines if line.text.startswith(_REPAIR)}
    running = listing.running[stream]
    body = list(stream.regions[0].blocks[0].operations)
    produced = list(body[-1].operation.operands)
    found = {}
    for op in body:
        operation = op.operation
        if operation.name != CORRECT:
            continue
        users = [use.owner.operation for use in operation.results[0].uses]
        for user in users:
            if user.name == ACCUMULATE and user.results[0] in produced:
                name = running[produced.index(user.results[0])]
                body = texts.get(operation, "").removeprefix(_REPAIR).split("    ")[0]
                found[name] = (operation.opview.form.value, body)
    return found


def _abbreviations(letters: Letters) -> str:
    if not letters.table:
        return ""
    rows = "".join(
        f"<li>{equation([letter, '=', inner], block=False)}</li>"
        for letter, inner in letters.defined
    )
    lead = "<p>Parts that repeat have a letter:</p>"
    return f"<div class='letters scroll'>{lead}<ul>{rows}</ul></div>"


def _card(
    derivation: Derivation, value: RunningProof, corrected: dict[str, tuple[str, str]], opened: bool
) -> str:
    named = math(Node("name", value.name))
    form, body = corrected.get(value.name, ("", ""))
    head = f"<h4>{named}<span class='form'>{html.escape(form or 'no correction')}</span></h4>"
    repair = _repair(derivation, value.name, body) if body else ""
    told = [_upper(s.removeprefix(f"{form}: ")) for s in value.steps]
    steps = "".join(f"<li>{_prose(s, derivation.node, derivation.letters)}</li>" for s in told)
    steps = f"<ol class='steps'>{steps}</ol>" if steps else ""
    proved = sum(c.status == "proved" for c in value.claims)
    claims = "".join(_claim(derivation, c) for c in value.claims)
    if claims:
        shown = " open" if opened or proved < len(value.claims) else ""
        claims = (
            f"<details{shown}><summary>{proved} of {len(value.claims)} obligations proved"
            f"</summary><table class='claims'>{claims}</table></details>"
        )
    kind = "card" if body or value.claims else "card plain"
    return (
        f"<article class='{kind}' data-value='{html.escape(value.name)}'>"
        f"{head}{repair}{steps}{claims}</article>"
    )


def _repair(derivation: Derivation, name: str, body: str) -> str:
    """The correction as an equation: the accumulator becomes ..."""
    node = formula.parse(body)
    if node is None:
        return f"<div class='repair-math scroll'><code>{html.escape(body)}</code></div>"
    shown = equation([Node("name", name), "←", derivation.letters.shown(derivation.here(node))])
    return f"<div class='repair-math scroll'>{shown}</div>"


def _claim(derivation: Derivation, claim: Claim) -> str:
    sides = [
        derivation.letters.shown(s) if isinstance(s, Node) else s
        for s in (claim.left, claim.right)
    ]
    if all(isinstance(s, Node) for s in sides):
        text = equation([sides[0], "=", sides[1]])
    else:
        text = "<code>" + html.escape(" == ".join(map(str, sides))) + "</code>"
    mark = {"proved": "✓", "refuted": "✗"}.get(claim.status, "?")
    by = f"<small>{html.escape(claim.by)}</small>" if claim.by else ""
    return (
        f"<tr><th scope='row'>{html.escape(claim.kind)}<small>{MEANINGS[claim.kind]}</small></th>"
        f"<td><div class='scroll'>{text}</div></td>"
        f"<td class='status {claim.status}'>{mark} {claim.status}{by}</td></tr>"
    )


def _prose(text: str, node: Callable[[str], Node | str], letters: Letters | None = None) -> str:
    """A sentence of a derivation: what is a formula in it, typeset."""
    text, gap, source = text.partition("    ")
    parts = _BETWEEN.split(text)
    found = []
    for place, part in enumerate(parts):
        if place % 2:
            found.append(_sign(part))
            continue
        beside = "".join(parts[max(0, place - 1) : place] + parts[place + 1 : place + 2])
        meant = re.search(r"[@(\[Σ%]", part) or "=" in beside or "<-" in beside
        tree = node(part.strip()) if meant and part.strip() else part
        if isinstance(tree, Node):
            found.append(math(letters.shown(tree) if letters else tree))
        else:
            found.append(html.escape(part))
    return "".join(found) + html.escape(f" {source}" if gap else "")


def _sign(text: str) -> str:
    return {" <- ": " ← ", "d ": "∂"}.get(text, html.escape(text))


def _upper(text: str) -> str:
    """A sentence begins with a capital, a formula with what it begins with."""
    word = text.split(" ", 1)[0].rstrip(":")
    return text[:1].upper() + text[1:] if word.isalpha() and len(word) > 1 else text


def _sentence(text: str) -> str:
    return f"{_upper(text)}."
