"""Replay recorded sessions under compaction policies: cost with caching, what each compaction lost, what was missed.

    python benchmarks/compaction.py FOLDER [--policies null,nbagent,pi] [--thresholds 30,60,90] [--json FILE]

A policy is a baseline (none, null, tail, extract, recorded) or a shipped one, also with other numbers: `codex@seed`,
`nbagent:keep=0.1+note=0.03`; what stands in for its model is said in `compaction_policies.py`. FOLDER holds recordings that `nbagent import` reads. No model is called. A session is walked call by call: before
each recorded model call the policy is asked for moves; then the request is priced (input-price units: a token read
from the cache 0.1, written 1.25, put out 5), with the prefix that really equals the last request's. An anchor that
the recorded reply writes, that was known before and is not in the request, is a use-time miss; a call with a miss
pays one retrieval. What replay cannot see: the other course an agent takes when it has forgotten something.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from compaction_notes import heading_extract
from compaction_policies import SUMMARISER, policy_named, policy_step

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.anchors import SENTENCES, AnchorKind
from nbagent.context.archive import pointer
from nbagent.context.loss import QUERY_CHARS, Scores, Tally, score_loss, summed
from nbagent.context.measure import Meter
from nbagent.context.policy import Moment, Situation
from nbagent.context.sight import Finder, Sight
from nbagent.core.budget import Budget
from nbagent.core.cuts import cut_points
from nbagent.core.entries import AssistantMessage, Body, Compaction, Entry, Report
from nbagent.core.messages import Message, canonical
from nbagent.core.view import View, ViewFold
from nbagent.runtime.importing import imported_entries
from nbagent.runtime.importing.formats import parse_recording
from nbagent.runtime.importing.recorder import COMPACTION

READ, WRITE, OUTPUT = 0.1, 1.25, 5.0  # input-price units a token; Anthropic's prices, 2026-11
RETRIEVAL_TOKENS, RETRIEVAL_OUTPUT_TOKENS = 2_500, 150  # of one retrieval; the report's section 4.1
SUMMARY_INSTRUCTION_TOKENS = 800  # what a summarising call adds to the conversation it reads; the same
FIXED_TOKENS = 3_000  # system text and tools, which recordings do not hold in full; the same
WINDOWS = (200_000, 50_000, 20_000)
KEEP_SHARE = 0.1  # of the window that the baselines keep whole; at most half the threshold
EXTRACT_TOKENS = 1_500
MODEL_CALL = "model_call"  # in the details of a Compaction: a model wrote its note, which is priced

Step = Callable[[Situation], Sequence[Body]]


@dataclass(frozen=True, slots=True)
class Session:
    """A recording: its entries, their anchors with the whole future, and the window it is replayed in."""

    name: str
    entries: list[Entry]
    index: AnchorIndex
    tokens: int
    window: int


@dataclass(slots=True)
class Row:
    """The outcome of one replay. Costs in input-price units; losses in shares of weight, over all compactions."""

    session: str
    policy: str
    threshold: float
    calls: int = 0
    compactions: int = 0
    prunings: int = 0
    cost: float = 0.0
    retrieval_cost: float = 0.0
    peak_tokens: int = 0
    rewritten_bytes: int = 0
    prefix_share: float = 1.0  # the least, over the calls before which nothing was moved
    uses: int = 0
    misses: int = 0
    unreachable: int = 0
    overflows: int = 0  # requests larger than the window
    needed: dict[AnchorKind, Tally] = field(default_factory=dict)
    standing: dict[AnchorKind, Tally] = field(default_factory=dict)
    sentences: dict[AnchorKind, Tally] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)  # unreachable at use
    scoring_s: float = 0.0

    def take(self, scores: Scores) -> None:
        for mine, theirs in (
            (self.needed, scores.needed),
            (self.standing, scores.standing),
            (self.sentences, scores.sentences),
        ):
            for kind, tally in theirs.items():
                mine[kind] = mine.get(kind, Tally()) + tally

    def add(self, other: Row) -> None:
        for name in (
            "calls",
            "compactions",
            "prunings",
            "cost",
            "retrieval_cost",
            "rewritten_bytes",
            "uses",
            "misses",
            "unreachable",
            "overflows",
            "scoring_s",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.peak_tokens = max(self.peak_tokens, other.peak_tokens)
        self.prefix_share = min(self.prefix_share, other.prefix_share)
        self.take(Scores(needed=other.needed, standing=other.standing, sentences=other.sentences))
        for text, count in other.lost.items():
            self.lost[text] = self.lost.get(text, 0) + count


# --- sessions -------------------------------------------------------------------------------------


def load(folder: Path) -> Iterator[Session]:
    files = (
        [folder]
        if folder.is_file()
        else sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".jsonl", ".traj"))
    )
    for file in files:
        for one in parse_recording(file.read_text(encoding="utf-8"), file.name):
            entries = long_ids(imported_entries(one))
            view, meter = ViewFold(entries).view(), Meter("claude-4.7")
            tokens = FIXED_TOKENS + sum(sum(meter.piece(p).values()) for p in view.pieces)
            window = next((w for w in WINDOWS if tokens >= w / 2), WINDOWS[-1])
            name = file.stem[:24] + (f"#{one.name}" if one.name else "")
            yield Session(name, entries, AnchorIndex(entries), tokens, window)


def long_ids(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with ids as long as those of a journal (12 hexadecimal digits): pointers cost tokens."""
    ids: dict[str, str] = {}
    out = []
    for entry in entries:
        ids[entry.id] = hashlib.sha256(entry.id.encode()).hexdigest()[:12]
        body = entry.body
        if isinstance(body, Report) and body.details.get("first_kept"):
            kept = str(body.details["first_kept"])
            body = replace(body, details={**body.details, "first_kept": ids.get(kept, kept)})
        out.append(Entry(ids[entry.id], ids.get(entry.parent or ""), entry.at, body))
    return out


# --- replay ---------------------------------------------------------------------------------------


def replay(session: Session, policy: str, step: Step, threshold: float) -> Row:
    """Walk one session under one policy; `threshold` is a share of the session's window."""
    row = Row(session.name, policy, threshold)
    budget = Budget(window_tokens=session.window, threshold_share=threshold)
    index, meter, fold = session.index, Meter("claude-4.7"), ViewFold()
    sight = Sight(index, fold.view())
    last: tuple[Message, ...] = ()
    made = 0
    sent: frozenset[str] = frozenset()
    in_force: tuple[str | None, frozenset[str]] = (None, frozenset())
    for position, entry in enumerate(session.entries):
        if isinstance(entry.body, AssistantMessage):
            situation = _situation(fold, budget, meter, entry.at, sent)
            bodies = step(situation)
            for body in bodies:
                made += 1
                fold.extend([Entry(f"move{made}", fold.path[-1].id if fold.path else None, entry.at, body)])
            if bodies:
                row.cost += _summary_cost(bodies, situation.used_tokens, meter)
                situation = _situation(fold, budget, meter, entry.at, sent)
            view = situation.view
            sent = frozenset(p.entry_id for p in view.pieces)
            moved = (view.compaction, view.pruned) != in_force  # a move may have to wait before it takes effect
            if moved:
                sight = Sight(index, view)
                _count_moves(row, in_force, session, view, position)
                in_force = (view.compaction, view.pruned)
            _price(row, situation, last, moved=moved)
            last = situation.view.messages
            _miss(row, sight, situation.used_tokens, position)
            row.cost += OUTPUT * meter.text(index.said[position].text)
        fold.extend([Entry(entry.id, fold.path[-1].id if fold.path else None, entry.at, entry.body)])
        if index.said[position].author != "nobody":
            sight.add(position)
    return row


def _situation(fold: ViewFold, budget: Budget, meter: Meter, now: float, sent: frozenset[str]) -> Situation:
    view = fold.view()
    tokens = [sum(meter.piece(p).values()) for p in view.pieces]
    moment = Moment(now=now, mid_turn=view.steps > 0 and not view.turn_ended)
    return Situation(
        path=fold.path,
        view=view,
        tokens=tokens,
        used_tokens=FIXED_TOKENS + sum(tokens),
        fixed_tokens=FIXED_TOKENS,
        budget=budget,
        moment=moment,
        sent=sent,
    )


def _summary_cost(bodies: Iterable[Body], used: int, meter: Meter) -> float:
    cost = 0.0
    for body in bodies:
        if not isinstance(body, Compaction):
            continue
        if body.details.get(MODEL_CALL):
            cost += used * READ + SUMMARY_INSTRUCTION_TOKENS + OUTPUT * meter.text(body.note)
        elif call := body.details.get(SUMMARISER):
            one = call["read"] * READ + call["fresh"] + SUMMARY_INSTRUCTION_TOKENS + OUTPUT * call["written"]
            cost += one * call["calls"]
    return cost


def _count_moves(
    row: Row, before: tuple[str | None, frozenset[str]], session: Session, view: View, position: int
) -> None:
    row.prunings += view.pruned != before[1]
    if view.compaction == before[0]:
        return
    row.compactions += 1
    started = time.process_time()
    row.take(score_loss(session.index, view, cut=position))
    row.scoring_s += time.process_time() - started


def _price(row: Row, situation: Situation, last: Sequence[Message], *, moved: bool) -> None:
    messages = situation.view.messages
    total = sum(len(m.to_bytes()) for m in messages)
    common = _common_bytes(last, messages)
    before = sum(len(m.to_bytes()) for m in last)
    body = situation.used_tokens - situation.fixed_tokens
    read = body * common / total if total else 0.0
    fixed = situation.fixed_tokens * (READ if row.calls else WRITE)
    row.cost += fixed + READ * read + WRITE * (body - read)
    row.calls += 1
    row.peak_tokens = max(row.peak_tokens, situation.used_tokens)
    row.overflows += situation.used_tokens > situation.window
    if moved:
        row.rewritten_bytes += total - common
    elif before:
        row.prefix_share = min(row.prefix_share, common / before)


def _common_bytes(last: Sequence[Message], now: Sequence[Message]) -> int:
    common = 0
    for old, new in zip(last, now, strict=False):
        if old is new or old == new:
            common += len(new.to_bytes())
            continue
        if old.role == new.role:
            same = 0
            for a, b in zip(old.blocks, new.blocks, strict=False):
                if a is not b and a != b:
                    break
                same += 1
            whole = same == len(old.blocks)
            common += len(old.to_bytes()) if whole else sum(len(canonical(b).encode()) for b in old.blocks[:same])
        break
    return common


def _miss(row: Row, sight: Sight, used_tokens: int, position: int) -> None:
    """Count what the reply at `position` writes from memory that its request does not hold."""
    index = sight.index
    missed = []
    for key in index.anchors[position]:
        if key[0] in SENTENCES or not index.occurrences(key, position):
            continue
        row.uses += 1
        if not sight.holds(key, position):
            missed.append(key)
    if not missed:
        return
    row.misses += len(missed)
    row.retrieval_cost += used_tokens * READ + RETRIEVAL_TOKENS * WRITE + RETRIEVAL_OUTPUT_TOKENS * OUTPUT
    finder = Finder(sight, position)
    gone = [key for key in missed if not finder.finds(key, index.said[position].text[:QUERY_CHARS])]
    row.unreachable += len(gone)
    for kind, text in gone:
        name = f"{kind} {text}"
        row.lost[name] = row.lost.get(name, 0) + 1


# --- policies -------------------------------------------------------------------------------------


def is_due(situation: Situation) -> bool:
    return situation.used_tokens > situation.budget.threshold_tokens and not situation.view.deferred


def first_kept(situation: Situation) -> str | None:
    """Return the earliest cut whose kept part is at most the share the baselines keep."""
    keep = min(KEEP_SHARE * situation.window, 0.5 * situation.budget.threshold_tokens)
    sizes = {}
    for piece, tokens in zip(situation.view.pieces, situation.tokens, strict=True):
        sizes[piece.entry_id] = sizes.get(piece.entry_id, 0) + tokens
    total, best = 0, None
    cuts = {p.index: p.entry_id for p in cut_points(situation.path)}
    shown = {p.entry_id for p in situation.view.pieces} - {situation.view.compaction}
    for i in range(len(situation.path) - 1, -1, -1):
        entry = situation.path[i]
        total += sizes.get(entry.id, 0) if entry.id in shown else 0
        if total > keep and best is not None:
            break
        best = cuts.get(i, best)
        if total > keep:
            break
    return best


def none() -> Step:
    return lambda situation: ()


def tail() -> Step:
    """Drop what is oldest, say nothing."""
    return lambda s: [Compaction(first_kept=first_kept(s), note="")] if is_due(s) else ()


def null() -> Step:
    """The tail and one pointer to everything before it: what no metric may reward (DECISIONS 27)."""

    def step(situation: Situation) -> Sequence[Body]:
        if not is_due(situation):
            return ()
        kept = first_kept(situation)
        ids = [e.id for e in situation.path]
        last = ids[max(0, ids.index(kept) - 1)] if kept in ids else ids[-1]
        note = f"The earlier conversation is in the archive: {pointer(ids[0], last)} brings it back."
        return [Compaction(first_kept=kept, note=note)]

    return step


def extract() -> Step:
    """The tail and a machine-made extract of 1,500 tokens: requests, files, identifiers, errors, decisions."""
    index = AnchorIndex()
    meter = Meter("claude-4.7")

    def step(situation: Situation) -> Sequence[Body]:
        index.extend(situation.path[len(index) :])
        if not is_due(situation):
            return ()
        kept = first_kept(situation)
        cut = index.positions.get(kept or "", len(index))
        return [
            Compaction(first_kept=kept, note=heading_extract(index, situation.path[:cut], EXTRACT_TOKENS, meter.text))
        ]

    return step


def recorded() -> Step:
    """What the recorded agent did: its own summaries, where it made them."""
    done = 0

    def step(situation: Situation) -> Sequence[Body]:
        nonlocal done
        reports = [e.body for e in situation.path if isinstance(e.body, Report) and e.body.source == COMPACTION]
        new, done = reports[done:], len(reports)
        return [
            Compaction(first_kept=r.details.get("first_kept"), note=r.text, details={MODEL_CALL: True})
            for r in new[-1:]
        ]

    return step


BASELINES: dict[str, Callable[[], Step]] = {
    "none": none,
    "null": null,
    "tail": tail,
    "extract": extract,
    "recorded": recorded,
}


def step_maker(name: str) -> Callable[[float], Step]:
    """Return threshold -> step for a baseline or a shipped policy: `NAME[@seed][:key=value,…]`."""
    if name in BASELINES:
        return lambda threshold: BASELINES[name]()
    base, _, changes = name.partition(":")
    numbers = {k: float(v) for k, _, v in (c.partition("=") for c in changes.split("+") if c)}
    return lambda threshold: policy_step(policy_named(base, threshold, numbers))


# --- output ---------------------------------------------------------------------------------------

COLUMNS = (
    "policy",
    "at",
    "sessions",
    "compact",
    "prune",
    "cost",
    "+fetch",
    "needed",
    "not seen",
    "path",
    "id",
    "standing",
    "constr",
    "all sent",
    "misses",
    "unreach",
    "moved kB",
    "prefix",
)


def cells(row: Row) -> list[str]:
    def loss(tallies: dict[AnchorKind, Tally], *kinds: AnchorKind) -> str:
        chosen = {k: t for k, t in tallies.items() if not kinds or k in kinds}
        total = summed(chosen)
        return f"{100 * total.loss:.1f}%" if total.total else "-"

    uses = max(1, row.uses)
    return [
        row.policy,
        f"{row.threshold:.0%}" if row.threshold else "own",
        row.session,
        str(row.compactions),
        str(row.prunings),
        f"{row.cost / 1e6:.2f}M",
        f"{(row.cost + row.retrieval_cost) / 1e6:.2f}M",
        loss(row.needed),
        f"{100 * (1 - summed(row.needed).verbatim / max(1, summed(row.needed).total)):.1f}%",
        loss(row.needed, "path", "file", "url"),
        loss(row.needed, "id", "ident", "column"),
        loss(row.standing),
        loss(row.standing, "constraint"),
        loss(row.sentences),
        f"{100 * row.misses / uses:.1f}%",
        f"{100 * row.unreachable / uses:.1f}%",
        f"{row.rewritten_bytes / 1e3:.0f}",
        f"{100 * row.prefix_share:.1f}%",
    ]


def table(rows: Sequence[Row]) -> str:
    lines = [list(COLUMNS), *(cells(r) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(c.ljust(w) if i in (0, 2) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )


def run(
    sessions: Sequence[Session], steps: dict[str, Callable[[float], Step]], thresholds: Sequence[float]
) -> Iterator[Row]:
    for session in sessions:
        for name, make in steps.items():
            for threshold in thresholds if name not in ("none", "recorded") else (1.0,):
                if threshold or name not in BASELINES:
                    yield replay(session, name, make(threshold), threshold)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--policies", default=",".join(BASELINES))
    parser.add_argument(
        "--thresholds", default="20,30,45,60,75,90,95", help="percent of the window; 0: as each policy has it"
    )
    parser.add_argument("--json", type=Path, help="write every row, one a line")
    parser.add_argument("--each", action="store_true", help="a line for each session, not only the sums")
    parser.add_argument(
        "--lost", type=int, default=0, metavar="N", help="show the N anchors that were unreachable most often"
    )
    parsed = parser.parse_args(arguments)
    sessions = list(load(parsed.folder))
    long = [s for s in sessions if s.tokens >= 0.2 * s.window]
    print(
        f"{len(sessions)} sessions; {len(long)} reach 20 % of their window: "
        + ", ".join(f"{n} at {w // 1000}k" for w, n in Counter(s.window for s in long).items())
    )
    steps = {name: step_maker(name) for name in parsed.policies.split(",")}
    rows = list(run(long, steps, [float(t) / 100 for t in parsed.thresholds.split(",")]))
    if parsed.json:
        parsed.json.write_text(
            "".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in rows), encoding="utf-8"
        )
    if parsed.each:
        print(table([r for r in rows if r.compactions or r.prunings]))
    sums: dict[tuple[str, float], Row] = {}
    for row in rows:
        total = sums.setdefault((row.policy, row.threshold), Row("all", row.policy, row.threshold))
        total.add(row)
    print(table(list(sums.values())))
    if parsed.lost:
        for total in sums.values():
            print(total.policy, f"{total.threshold:.0%}", Counter(total.lost).most_common(parsed.lost))
    return 0


if __name__ == "__main__":
    sys.exit(main())
