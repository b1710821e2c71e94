# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What won by more than the noise, as entries of a table.

At a length, a candidate's gain over the rule (`gain.py`) counts where it is larger than the noise,
in every run; of several jobs with the same shape and length the least gain counts. A choice lasts
from the length at which it wins to the next one where another does; the one at the shortest length
that was measured is for shorter ones as well. No MLIR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.errors import UsageError
from neptune_mlir.targets.tuned import Choice, Entry, Shape, Table
from neptune_mlir.tune.gain import Gain, gain
from neptune_mlir.tune.manifest import RULE


@dataclass(frozen=True)
class Win:
    """What a choice gained over the rule, its time and the rule's."""

    gain: Gain
    us: float
    rule_us: float


def gains(
    runs: Sequence[dict[str, Any]],
) -> dict[Shape, dict[int, dict[Choice, Win]]]:
    """By shape, length of the stream and choice: the least gain of all cells that have it. A
    choice that one of these found wrong, or did not take to the end, is not there."""
    found: dict[Shape, dict[int, dict[Choice, Win]]] = {}
    for cell in _cells(runs):
        rule = next((r for r in cell if r["candidate"] == RULE), None)
        if rule is None or not _is_whole(rule):
            continue
        own = {
            Choice(**row["choice"]): _win(row, rule)
            for row in cell
            if row is not rule and _is_whole(row)
            and len(row["rounds_us"]) == len(rule["rounds_us"])
        }  # fmt: skip
        lengths = found.setdefault(Shape(**rule["shape"]), {})
        known = lengths.get(rule["stream"])
        lengths[rule["stream"]] = own if known is None else {
            choice: min(win, known[choice], key=lambda w: w.gain.gain - w.gain.spread)
            for choice, win in own.items() if choice in known
        }  # fmt: skip
    return found


def _cells(runs: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    cells: dict[Any, list[dict[str, Any]]] = {}
    for number, run in enumerate(runs):
        for row in run["rows"]:
            cells.setdefault((number, row["job"], row["length"]), []).append(row)
    return list(cells.values())


def _is_whole(row: Mapping[str, Any]) -> bool:
    return bool(row["right"] and row.get("us") and row["rounds_us"])


def _win(row: Mapping[str, Any], rule: Mapping[str, Any]) -> Win:
    return Win(gain(rule["rounds_us"], row["rounds_us"]), row["us"], rule["us"])


def entries(runs: Sequence[dict[str, Any]]) -> list[Entry]:
    """What the table should say of every shape that was measured (nothing where the rule is best).

    Runs are of one target and one device.
    """
    found = []
    for shape, lengths in gains(runs).items():
        rule = _rule_of(runs, shape)
        before = rule
        for length in sorted(lengths):
            choice, win = _best(lengths[length], before)
            if choice is None:
                choice = rule
            if choice == before:
                continue
            start = 0 if length == min(lengths) else length
            found.append(Entry(runs[0]["target"], shape, start, choice, _origin(runs[0], win)))
            before = choice
    return found


def _best(own: Mapping[Choice, Win], before: Choice | None) -> tuple[Choice | None, Win | None]:
    """The choice with the most gain, or the one before it where that is as good within the noise;
    None for the rule."""
    counting = {c: w for c, w in own.items() if w.gain.counts}
    if not counting:
        return None, None
    best = max(counting, key=lambda c: counting[c].gain.gain)
    most = counting[best].gain
    if before in counting:
        known = counting[before].gain
        if known.gain > most.gain - max(known.spread, most.spread):
            best = before
    return best, counting[best]


def _rule_of(runs: Sequence[dict[str, Any]], shape: Shape) -> Choice:
    return next(
        Choice(**row["choice"]) for run in runs for row in run["rows"]
        if row["candidate"] == RULE and Shape(**row["shape"]) == shape
    )  # fmt: skip


def _origin(run: Mapping[str, Any], win: Win | None) -> dict[str, Any]:
    origin = {"device": run["device"]["name"], "neptune-mlir": run["tools"]["neptune-mlir"]}
    if win is None:
        return {**origin, "rule": "no gain over it from here on"}
    return {**origin, "us": round(win.us, 1), "rule_us": round(win.rule_us, 1),
            "gain": round(win.gain.gain, 3), "spread": round(win.gain.spread, 3)}  # fmt: skip


def merge(table: Table, runs: Sequence[dict[str, Any]], base: Table | None = None) -> Table:
    """The table with what was measured in place of what it says of these shapes, but for entries
    that begin behind the longest length that was measured.

    Args:
        base: what holds of shapes that the table knows nothing of.

    Raises:
        UsageError: runs of several targets or devices.
    """
    for key in ("target", "device"):
        if any(run[key] != runs[0][key] for run in runs):
            raise UsageError(f"results of more than one {key}", hint="record them one by one")
    target, won = runs[0]["target"], entries(runs)
    longest = {shape: max(lengths) for shape, lengths in gains(runs).items() if lengths}
    shapes = {(e.chip, e.shape) for e in (*table.entries, *won)}
    known = table.over(base or Table())
    kept = [
        e for e in known.entries
        if (e.chip, e.shape) in shapes
        and (e.chip != target or e.shape not in longest or e.start > longest[e.shape])
    ]  # fmt: skip
    return _without_repeats(Table((*kept, *won), table.findings))


def _without_repeats(table: Table) -> Table:
    """The table less the entries that say what holds before them already."""
    kept = []
    for entry in table.entries:
        before = [e for e in table.of(entry.chip, entry.shape) if e.start < entry.start]
        if not before or before[-1].choice != entry.choice:
            kept.append(entry)
    return Table(tuple(kept), table.findings)


def winners(runs: Sequence[dict[str, Any]]) -> dict[str, set[str]]:
    """The candidates of each job that won at some length."""
    found: dict[str, set[str]] = {}
    for cell in _cells(runs):
        shape, length = Shape(**cell[0]["shape"]), cell[0]["stream"]
        best, _ = _best(gains([{"rows": cell}]).get(shape, {}).get(length, {}), None)
        names = {row["candidate"] for row in cell if best and Choice(**row["choice"]) == best}
        found.setdefault(cell[0]["job"], set()).update(names)
    return found


def report(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Lines on what won at each length."""
    lines = []
    for shape, lengths in gains(runs).items():
        for length, own in sorted(lengths.items()):
            best = max(own, key=lambda c: own[c].gain.gain, default=None)
            text = f"{shape!s:22} {length:6}  "
            if best is None:
                lines.append(text + "nothing but the rule came to the end")
                continue
            win = own[best]
            text += f"{best}: {win.us:.1f} us, rule {win.rule_us:.1f} us, {win.gain}"
            lines.append(text + ("" if win.gain.counts else ": the rule stays"))
    return lines
