"""`nbagent sweep`: policies x thresholds x sessions, as a table, CSV or JSON."""

from __future__ import annotations

import contextlib
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from nbagent.core.errors import UsageProblem, counted
from nbagent.notebook.render import money
from nbagent.notebook.reports.tables import Table, as_text
from nbagent.runtime.sweeping import Recorded, Swept, chosen_policies, recordings, summed, sweep

HEAD = (
    "policy", "at", "calls", "tokens sent", "cost", "cache hits", "notes", "compactions", "largest request", "verbatim",
    "reachable", "lost",
)  # fmt: skip
FIELDS = (
    "session", "policy", "threshold", "calls", "tokens_sent", "cost_units", "cost_usd", "cache_hit_rate", "notes",
    "prunings", "compactions", "peak_tokens", "last_tokens", "verbatim", "reachable", "lost", "over_window", "problem",
)  # fmt: skip
ABOUT = (
    "No model was called: first lines of the conversation stand in for its notes, sizes are estimates. Cost with "
    "caching. Verbatim, reachable, lost: anchors in the last context, one retrieval away, in neither."
)


def thresholds_of(text: str) -> tuple[float | None, ...]:
    """Return the thresholds typed: shares ("0.6"), percents ("60") and "own" (None), each once.

    Raises:
        UsageProblem: one is none of those.
    """
    found: list[float | None] = []
    for word in (w.strip().removesuffix("%").strip() for w in text.split(",")):
        if word == "own":
            found.append(None)
            continue
        try:
            number = float(word)
        except ValueError:
            number = 0.0
        share = number if number <= 1 else number / 100
        if not 0 < share <= 1:
            raise UsageProblem(f"--thresholds takes percents of the window, such as own,30,60,90, not {word!r}")
        found.append(round(share, 6))
    return tuple(dict.fromkeys(found))


def run_sweep(
    places: Sequence[Path], *, policies: str, thresholds: str, window: str, csv_file: Path | None, as_json: bool
) -> int:
    """Print the sweep over `places`; 1 when a policy failed or its requests did not fit."""
    names = tuple(dict.fromkeys(w for w in (p.strip() for p in policies.split(",")) if w))
    if not names:
        raise UsageProblem("--policies names none; 'nbagent sweep --help' shows what there is")
    chosen = chosen_policies(names, thresholds_of(thresholds))
    window_tokens = _window(window)
    found = recordings(places)
    rows = []
    with _file(csv_file) as file:
        for i, row in enumerate(sweep(found, chosen, window_tokens=window_tokens)):
            rows.append(row)
            if sys.stderr.isatty():
                print(f"\r{i + 1} of {len(found) * len(chosen)}", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        if file is not None:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(_fields(r) for r in rows)
    if as_json:
        print(json.dumps([_fields(r) for r in rows], indent=1, ensure_ascii=False))
    else:
        _print_table(found, rows, csv_file)
    return int(any(r.row.problem for r in rows if r.policy != "off"))


def _print_table(found: Sequence[Recorded], rows: Sequence[Swept], csv_file: Path | None) -> None:
    totals = summed(rows)
    turns = counted(len(found), "conversation")
    print(f"{turns}: {', '.join(one.name for one in found[:6])}{' …' if len(found) > 6 else ''}\n")
    print(as_text([Table(head=HEAD, rows=tuple(map(_cells, totals)), numbers=frozenset(range(2, len(HEAD))))]))
    for row in totals:
        if row.row.problem:
            left = f"{row.row.over_window} of {row.row.calls} calls would not have been made: "
            print(f"{row.policy}: {left if row.row.over_window else ''}{row.row.problem}")
    if not any(r.row.compactions + r.row.prunings for r in totals):
        largest = max((r.row.peak_tokens for r in totals), default=0)
        print(f"No policy had anything to do: the largest request has {largest:,} tokens; --window makes it smaller.")
    print(f"\n{ABOUT}")
    if csv_file is not None:
        print(f"Written: {csv_file} ({counted(len(rows), 'row')})")


def _cells(one: Swept) -> tuple[str, ...]:
    row = one.row
    cost = money(row.cost_usd) if row.cost_usd is not None else f"{row.cost_units:,.0f} units"
    at = "own" if one.threshold is None else f"{100 * one.threshold:g} %"
    counts = (row.notes, row.compactions, row.peak_tokens, row.verbatim, row.reachable, row.lost)
    return (
        one.policy, at, f"{row.calls:,}", f"{row.tokens_sent:,}", cost, f"{100 * row.cache_hit_rate:.0f} %",
        *(f"{n:,}" for n in counts),
    )  # fmt: skip


def _fields(one: Swept) -> dict[str, object]:
    named = {"session": one.session, "policy": one.policy, "threshold": one.threshold}
    rounded = {"cost_units": round(one.row.cost_units, 1), "cache_hit_rate": round(one.row.cache_hit_rate, 4)}
    return named | {name: getattr(one.row, name) for name in FIELDS[3:]} | rounded


def _window(text: str) -> int | None:
    if not text:
        return None
    number = text.replace(",", "").replace("_", "")
    if not number.isdecimal() or int(number) < 1_000:
        raise UsageProblem(f"--window takes a number of tokens from 1,000, not {text!r}")
    return int(number)


def _file(path: Path | None) -> contextlib.AbstractContextManager[IO[str] | None]:
    """Open the file before the work, so that one that cannot be written is told at once."""
    if path is None:
        return contextlib.nullcontext()
    try:
        return path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise UsageProblem(f"{str(path)!r} cannot be written ({error.strerror}); name another file") from error
