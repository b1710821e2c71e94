# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from neptune_mlir.bench.figures import geometric_mean
from neptune_mlir.bench.run import best_peer

ERROR_RATIO = 1.3  # ours may be this many times the best peer's


def tables(found: dict[str, Any]) -> str:
    rows = found["rows"]
    parts = [_limits(found), _times(rows), _errors(rows), _summary(rows)]
    if found["skipped"]:
        parts.append(f"not measured for want of time: {', '.join(found['skipped'])}")
    return "\n\n".join(p for p in parts if p)


def _cells(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows of the same operator, dtype and length, in order."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    order = {name: k for k, name in enumerate(dict.fromkeys(r["operator"] for r in rows))}
    for row in rows:
        key = (row["dtype"], order[row["operator"]], row["length"])
        groups.setdefault(key, []).append(row)
    for key in sorted(groups):
        yield groups[key]


def _candidates(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["candidate"] for r in sorted(rows, key=lambda r: not r["ours"])))


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) if k == 0 else c.rjust(w)
                  for k, (c, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )  # fmt: skip


def _limits(found: dict[str, Any]) -> str:
    def show(m: dict[str, float]) -> str:
        text = ", ".join(
            f"{k} {v / 1e12:.3g} {'TFLOP/s' if k.startswith('matmul') else 'TB/s'}"
            for k, v in m.items() if k not in ("sm_mhz", "watts")
        )  # fmt: skip
        return text + (f" ({m['sm_mhz']:.0f} MHz, {m['watts']:.0f} W)" if "sm_mhz" in m else "")

    device = ", ".join(f"{k} {v}" for k, v in found["device"].items() if k != "name")
    measured = "\n".join(f"  {show(m)}" for m in found["limits"])
    return f"{found['device']['name']} ({device})\nrates, before and after:\n{measured}"


def _times(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds; of ours also share of the speed of light, score, and how it compares."""
    names = _candidates(rows)
    lines = [["us (± spread of rounds, %)", "length", *names, "best peer / ours", "SOL %", "score",
              "MHz", "W"]]  # fmt: skip
    for cell in _cells(rows):
        found = {r["candidate"]: r for r in cell}
        ours = [r for r in cell if r["ours"] and "failed" not in r]
        best = min(ours, key=lambda r: r["us"], default=None)
        peer = best_peer(rows, cell[0])
        one = cell[0]
        line = [f"{one['operator']} {one['dtype']}", str(one["length"])]
        line += [_time(found.get(name)) for name in names]
        if best is None:
            line += [""] * 5
        else:
            score = best["score"]
            line += [f"{peer['us'] / best['us']:.2f}" if peer else "", f"{100 * best['sol']:.1f}",
                     "" if score is None else f"{score:.2f}",
                     f"{best['sm_mhz']:.0f}" if "sm_mhz" in best else "",
                     f"{best['watts']:.0f}" if "watts" in best else ""]  # fmt: skip
        lines.append(line)
    return _aligned(lines)


def _time(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if "failed" in row:
        return "failed"
    text = f"{row['us']:.1f}±{100 * row['spread']:.0f}"
    if not row["right"]:
        text += " WRONG"
    return text + (" AUDIT" if row["audit_failure"] else "")


def _errors(rows: Sequence[dict[str, Any]]) -> str:
    """Against float64, of ours and of the peer with the smallest error."""
    lines = [["error against float64", "length", "relative", "RMS", "90%", "99%", "best peer", "",
              "ratio"]]  # fmt: skip
    for cell in _cells(rows):
        valid = [r for r in cell if "failed" not in r]
        peers = [r for r in valid if not r["ours"] and r["right"]]
        peer = min(peers, key=lambda r: r["errors"]["relative"], default=None)
        for row in valid:
            if row["ours"]:
                e = row["errors"]
                line = [f"{row['operator']} {row['dtype']} {row['candidate']}", str(row["length"]),
                        *(f"{e[k]:.1e}" for k in ("relative", "rms", "p90", "p99"))]  # fmt: skip
                if peer:
                    best = peer["errors"]["relative"]
                    ratio = e["relative"] / best if best else 1.0
                    mark = " >" if ratio > ERROR_RATIO else ""
                    line += [f"{best:.1e}", peer["candidate"], f"{ratio:.2f}{mark}"]
                else:
                    line += ["", "", ""]
                lines.append(line)
    return _aligned(lines)


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    failed = [r for r in rows if "failed" in r]
    for label in _candidates([r for r in rows if r["ours"]]):
        own = [r for r in rows if r["candidate"] == label and "failed" not in r and r["right"]]
        for kind in ("prefill", "decode"):
            some = [r for r in own if r["operator"].startswith("decode") == (kind == "decode")]
            ratios = [p["us"] / r["us"] for r in some if (p := best_peer(rows, r))]
            flash = [
                f["us"] / r["us"] for r in some for f in rows
                if f["candidate"] == "flash2" and "failed" not in f
                and all(f[k] == r[k] for k in ("operator", "dtype", "length"))
            ]  # fmt: skip
            if ratios:
                text = f"{label}, {kind}: {geometric_mean(ratios):.2f}x the best peer"
                if flash:
                    text += f", {geometric_mean(flash):.2f}x FlashAttention-2 where it applies"
                lines.append(f"{text} (geometric means of {len(ratios)})")
        wrong = [r for r in rows if r["candidate"] == label and not r.get("right")]
        lines.append(f"{label}: {len(own)} right, {len(wrong)} wrong or failed")
    audit = [r for r in rows if r.get("audit_failure")]
    lines.append(f"{len(audit)} times under the bound (audit failures)")
    lines += [
        f"failed: {r['operator']} {r['dtype']} {r['length']} {r['candidate']}: {r['failed']}"
        for r in failed
    ]
    return "\n".join(lines)
