# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results as tables for people: plain text or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neptune_mlir.bench.figures import geometric_mean
from neptune_mlir.bench.results import (
    MEMORY,
    best_of_ours,
    best_peer,
    cells,
    error_ratio,
)

ERROR_RATIO = 1.3  # ours may be this many times the best peer's
MEASURES = ("relative", "rms", "p90", "p99")


@dataclass(frozen=True)
class TextTable:
    """The first column is text, the rest figures."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]

    def text(self) -> str:
        every = [self.header, *self.lines]
        widths = [max(len(line[k]) for line in every) for k in range(len(self.header))]
        aligned = [
            "  ".join(c.rjust(w) if k else c.ljust(w)
                      for k, (c, w) in enumerate(zip(line, widths, strict=True))).rstrip()
            for line in every
        ]  # fmt: skip
        return "\n".join([self.title, *aligned])

    def markdown(self) -> str:
        rows = [self.header, ["---", *["---:"] * (len(self.header) - 1)], *self.lines]
        return "\n".join([self.title, "", *(f"| {' | '.join(row)} |" for row in rows)])


def tables(found: dict[str, Any], markdown: bool = False) -> str:
    rows = found["rows"]
    parts = [
        t.markdown() if markdown else t.text()
        for t in [*_rates(rows), _errors(rows), _comparison(rows)]
        if t.lines
    ]
    return "\n\n".join([_limits(found), *parts, _summary(found)])


def _candidates(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["candidate"] for r in sorted(rows, key=lambda r: not r["ours"])))


def is_decode(row: dict[str, Any]) -> bool:
    return bool(row["operator"].startswith("decode"))


def _limits(found: dict[str, Any]) -> str:
    def show(m: dict[str, float]) -> str:
        text = ", ".join(
            f"{k} {v / 1e12:.3g} {'TFLOP/s' if k.startswith('matmul') else 'TB/s'}"
            for k, v in m.items() if k.startswith("matmul") or k in MEMORY
        )  # fmt: skip
        return text + (f" ({m['sm_mhz']:.0f} MHz, {m['watts']:.0f} W)" if "sm_mhz" in m else "")

    device = ", ".join(f"{k} {v}" for k, v in found["device"].items() if k != "name")
    measured = "\n".join(f"  {show(m)}" for m in found["limits"])
    return f"{found['device']['name']} ({device})\nrates, before and after:\n{measured}"


def _rates(rows: Sequence[dict[str, Any]]) -> list[TextTable]:
    """Throughput of each candidate; of the best of ours also how it stands."""
    groups: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["suite"], is_decode(row)), []).append(row)
    found = []
    for (suite, decode), some in groups.items():
        names = _candidates(some)
        unit = "gbs" if decode else "tflops"
        what = "decode, GB/s" if decode else "TFLOP/s"
        header = ["", "length", "batch", *names, "ours us", "ours / best peer", "SOL %", "score",
                  "MHz", "W", "error", "/ best peer's"]  # fmt: skip
        lines = []
        for cell in cells(some):
            by_name = {r["candidate"]: r for r in cell}
            one = cell[0]
            line = [f"{one['operator']} {one['dtype']}", str(one["length"]), str(one["batch"])]
            line += [_rate(by_name.get(name), unit) for name in names]
            lines.append(line + _standing(cell))
        found.append(TextTable(f"{suite}, {what} (± spread of rounds, %)", header, lines))
    return found


def _rate(row: dict[str, Any] | None, unit: str) -> str:
    if row is None:
        return ""
    if "failed" in row:
        return "failed"
    text = f"{row[unit]:.0f}±{100 * row['spread']:.0f}"
    if not row["right"]:
        text += " WRONG"
    return text + (" AUDIT" if row["audit_failure"] else "")


def _standing(cell: Sequence[dict[str, Any]]) -> list[str]:
    best, peer = best_of_ours(cell), best_peer(cell)
    if best is None:
        return [""] * 8
    score, ratio = best["score"], error_ratio(best, cell)
    return [
        f"{best['us']:.1f}",
        f"{peer['us'] / best['us']:.2f}" if peer else "",
        f"{100 * best['sol']:.1f}",
        "" if score is None else f"{score:.2f}",
        f"{best['sm_mhz']:.0f}" if "sm_mhz" in best else "",
        f"{best['watts']:.0f}" if "watts" in best else "",
        f"{best['errors']['relative']:.1e}",
        "" if ratio is None else f"{ratio:.2f}" + (" >" if ratio > ERROR_RATIO else ""),
    ]


def _errors(rows: Sequence[dict[str, Any]]) -> TextTable:
    """The largest over lengths and batches."""
    lines = []
    groups: dict[tuple[str, str], list[list[dict[str, Any]]]] = {}
    for cell in cells([r for r in rows if "failed" not in r]):
        groups.setdefault((cell[0]["operator"], cell[0]["dtype"]), []).append(cell)
    for (operator, dtype), group in groups.items():
        for name in _candidates([r for cell in group for r in cell]):
            own = [(r, cell) for cell in group for r in cell if r["candidate"] == name]
            worst = [max(r["errors"][k] for r, _ in own) for k in MEASURES]
            ratios = [x for r, cell in own if r["ours"] and (x := error_ratio(r, cell))]
            lines.append([
                f"{operator} {dtype} {name}", *(f"{e:.1e}" for e in worst),
                f"{max(ratios):.2f}" + (" >" if max(ratios) > ERROR_RATIO else "")
                if ratios else "",
            ])  # fmt: skip
    title = "absolute error against float64, the largest over lengths (relative: Frobenius)"
    return TextTable(title, ["", "relative", "RMS", "90%", "99%", "/ best peer's"], lines)


def _comparison(rows: Sequence[dict[str, Any]]) -> TextTable:
    """Geometric means of what ours reach of the best peer, and of FlashAttention-2."""
    lines = []
    valid = [r for r in rows if "failed" not in r]
    ours = _candidates([r for r in valid if r["ours"]])
    groups: dict[str, list[list[dict[str, Any]]]] = {}
    for cell in cells(valid):
        one = cell[0]
        kind = "decode" if is_decode(one) else "prefill"
        groups.setdefault(f"{one['operator']} {one['dtype']}", []).append(cell)
        groups.setdefault(f"all of {one['suite']}, {kind}", []).append(cell)
    for group, some in sorted(groups.items(), key=lambda item: item[0].startswith("all of")):
        for label in [*ours, "best of ours"] if len(ours) > 1 else ours:
            ratios, flash = [], []
            for cell in some:
                row = best_of_ours(
                    [r for r in cell if r["ours"] and label in (r["candidate"], "best of ours")]
                )
                if row and (peer := best_peer(cell)):
                    ratios.append(peer["us"] / row["us"])
                if row and (second := [r for r in cell if r["candidate"] == "flash2"]):
                    flash.append(second[0]["us"] / row["us"])
            if ratios:
                lines.append([
                    f"{group}, {label}", str(len(ratios)), f"{geometric_mean(ratios):.2f}",
                    f"{min(ratios):.2f}", f"{max(ratios):.2f}",
                    f"{geometric_mean(flash):.2f}" if flash else "",
                ])  # fmt: skip
    header = ["", "rows", "geometric mean", "least", "most", "/ FlashAttention-2"]
    return TextTable("ours / best peer", header, lines)


def _summary(found: dict[str, Any]) -> str:
    rows = found["rows"]
    lines = []
    for label in _candidates([r for r in rows if r["ours"]]):
        own = [r for r in rows if r["candidate"] == label]
        right = sum(bool(r.get("right")) for r in own)
        lines.append(f"{label}: {right} right, {len(own) - right} wrong or failed")
    audit = [r for r in rows if r.get("audit_failure")]
    lines.append(f"{len(audit)} times under the bound (audit failures)")
    lines += [
        f"failed: {r['operator']} {r['dtype']} {r['length']} {r['batch']} {r['candidate']}: "
        f"{r['failed']}"
        for r in rows if "failed" in r
    ]  # fmt: skip
    if found["skipped"]:
        lines.append(f"not measured for want of time: {', '.join(found['skipped'])}")
    return "\n".join(lines)
