"""Compare: what each policy would have done to one conversation: tokens, cost with caching, what was lost (NB-3)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, TypeAlias

from nbagent.context.anchor_index import AnchorIndex
from nbagent.context.anchors import SENTENCES, Anchor, Key
from nbagent.context.engine import Engine
from nbagent.context.loss import loss_report
from nbagent.context.policy import Policy
from nbagent.context.simulate import Call, Walk, bare_path, simulated_engine, walk
from nbagent.core.budget import Prices
from nbagent.core.entries import Compaction, Entry, Pruning
from nbagent.core.errors import told
from nbagent.core.messages import Message, Request, Response, canonical, joined_text
from nbagent.core.view import View, ViewFold

CACHE_LIVES_S: Final = 300.0  # Anthropic's cache without an hour's life, 2026-11
UNIT_PRICES: Final = Prices(input_usd=1_000_000.0, output_usd=5_000_000.0)  # one input token costs one; output five


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one policy does to a conversation. Tokens are estimated.

    `tokens_sent` adds up every request, also those for notes. `cost_units` is in prices of one uncached input
    token; `cost_usd` is None where the model's prices are not known. `cache_hit_rate` is the share of the tokens
    sent that is read from the cache. `notes` are calls for a note, which send `note_tokens` in all.
    The anchors are those that somebody wrote, and the rules, decisions and errors that still stand: in the last
    context word for word, one retrieval away, or neither. `over_window` counts requests that would
    not have been sent; `problem` says why.
    """

    policy: str
    calls: int
    tokens_sent: int
    cost_units: float
    cost_usd: float | None
    cache_hit_rate: float
    notes: int
    prunings: int
    compactions: int
    verbatim: int
    reachable: int
    lost: int
    last_tokens: int
    peak_tokens: int
    note_tokens: int = 0
    note_output_tokens: int = 0
    over_window: int = 0
    problem: str = ""


Comparing: TypeAlias = "Generator[str | Request, Response | None, tuple[Row, ...]]"


def compare(
    path: Sequence[Entry], policies: Mapping[str, Policy], engine: Engine, *, prices: Prices | None = None
) -> tuple[Row, ...]:
    """Return a row for each of `policies`, in their order, on the conversation `path`.

    `engine` says how the context is managed here (meter, prefix, window); its policy does not matter. What the
    recorded policy did is left out first. No model is called and nothing is written; deterministic.
    """
    steps = comparing(path, policies, engine, prices=prices)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            rows: tuple[Row, ...] = done.value
            return rows


def comparing(
    path: Sequence[Entry], policies: Mapping[str, Policy], engine: Engine, *, prices: Prices | None = None
) -> Comparing:
    """Make the rows of `compare` step by step: yield a policy's name when it begins, and its requests for a note.

    A reply sent back for a request is taken as the note; without one a stand-in is.
    """
    bare = bare_path(path)
    index = AnchorIndex(bare)
    before = ViewFold(bare).view()
    rows = []
    for name, policy in policies.items():
        yield name
        walked = _row(name, bare, simulated_engine(engine, policy), index=index, before=before, prices=prices)
        rows.append((yield from walked))
    return tuple(rows)


def _row(
    name: str, path: Sequence[Entry], engine: Engine, *, index: AnchorIndex, before: View, prices: Prices | None
) -> Generator[str | Request, Response | None, Row]:
    fold = ViewFold()
    bill = _Bill(engine.fixed_tokens())
    problem = ""
    try:
        yield from _billed(walk(path, engine, fold), bill, engine)
    except Exception as error:  # noqa: BLE001  a policy of somebody else; its row says what happened
        problem = f"it failed: {type(error).__name__}: {told(error)}"
    after = fold.view()
    moves = [e.body for e in fold.path if isinstance(e.body, Pruning | Compaction)]
    places = _places(index, path, before, after) if not problem else (0, 0, 0)
    return Row(
        policy=name, calls=bill.calls, tokens_sent=bill.sent, cost_units=bill.cost(UNIT_PRICES),
        cost_usd=bill.cost(prices) if prices else None, cache_hit_rate=bill.read / max(1, bill.sent),
        notes=bill.notes, prunings=sum(isinstance(m, Pruning) for m in moves),
        compactions=sum(isinstance(m, Compaction) for m in moves), verbatim=places[0], reachable=places[1],
        lost=places[2], last_tokens=engine.estimate(after), peak_tokens=bill.peak, over_window=bill.unsent,
        problem=problem or bill.problem, note_tokens=bill.note_sent, note_output_tokens=bill.note_out,
    )  # fmt: skip


def _billed(walked: Walk, bill: _Bill, engine: Engine) -> Generator[str | Request, Response | None, None]:
    """Add the calls of a walk to the bill; those for a note are yielded, and cost what their reply says."""
    reply: Response | None = None
    while True:
        try:
            call = walked.send(reply)
        except StopIteration:
            return
        reply = None if call.request is None else (yield call.request)
        if reply is not None:
            call = replace(call, output_tokens=engine.meter.text(joined_text(reply.blocks)))
        bill.add(call)


class _Bill:
    """Adds calls up. What a request shares with the last one is read from the cache, while that lives; the rest is
    written."""

    def __init__(self, fixed_tokens: int) -> None:
        self.fixed = fixed_tokens
        self.calls = self.notes = self.sent = self.out = self.peak = self.unsent = 0
        self.note_sent = self.note_out = 0
        self.read = 0.0
        self.problem = ""
        self._last: tuple[Message, ...] = ()
        self._ends = [0]  # bytes up to the end of each message of the last request
        self._at: float | None = None

    def add(self, call: Call) -> None:
        """Take in the next call."""
        warm = self._at is not None and call.at - self._at <= CACHE_LIVES_S
        if warm:
            same = _same_messages(self._last, call.messages)
            rest = sum(len(m.to_bytes()) for m in call.messages[same:])
            shared = self._ends[same] + shared_bytes(self._last[same:], call.messages[same:])
            share = shared / (self._ends[same] + rest) if rest or same else 0.0
            self.read += min(self.fixed, call.tokens) + max(0, call.tokens - self.fixed) * share
        self.sent += call.tokens
        self.out += call.output_tokens
        self._at = call.at
        if call.purpose != "turn":
            self.notes += 1
            self.note_sent += call.tokens
            self.note_out += call.output_tokens
            return
        same = _same_messages(self._last, call.messages)
        self._last = call.messages
        sizes = (len(m.to_bytes()) for m in call.messages[same:])
        self._ends[same:] = accumulate(sizes, initial=self._ends[same])
        self.calls += 1
        self.peak = max(self.peak, call.tokens)
        self.unsent += bool(call.problem)
        self.problem = self.problem or call.problem

    def cost(self, prices: Prices) -> float:
        """Return what all calls cost."""
        written = self.sent - self.read
        paid = self.read * prices.cache_read_factor + written * prices.cache_write_factor
        return (paid * prices.input_usd + self.out * prices.output_usd) / 1_000_000


def _same_messages(last: Sequence[Message], now: Sequence[Message]) -> int:
    """Return with how many messages both begin that are the same objects."""
    both = enumerate(zip(last, now, strict=False))
    return next((i for i, (old, new) in both if old is not new), min(len(last), len(now)))


def shared_bytes(last: Sequence[Message], now: Sequence[Message]) -> int:
    """Return how many bytes of `now`, from its beginning, stand in `last` too: whole blocks only, as caches count."""
    shared = 0
    for old, new in zip(last, now, strict=False):
        if old is new or old == new:
            shared += len(new.to_bytes())
            continue
        if old.role == new.role:
            shared += sum(len(canonical(b).encode()) for b in _same(old, new))
        break
    return shared


def _same(old: Message, new: Message) -> Iterator[Mapping[str, object]]:
    for a, b in zip(old.blocks, new.blocks, strict=False):
        if a is not b and a != b:
            return
        yield b


def _places(index: AnchorIndex, path: Sequence[Entry], before: View, after: View) -> tuple[int, int, int]:
    """Return how many of the anchors that count are verbatim, reachable and lost in `after`."""
    cut = len(path)
    latest = index.sentences(cut)

    def counts(key: Key) -> bool:
        if key[0] in SENTENCES:
            return index.stands(key, latest[key], cut)
        return index.authored_steps(key, cut) > 0

    total = sum(map(counts, index.keys(cut)))
    if after.compaction is None and not after.pruned:
        return total, 0, 0
    report = loss_report(path, before, after, index=index)
    reachable, lost = (sum(counts(_key(a)) for a in group) for group in (report.reachable, report.lost))
    return total - reachable - lost, reachable, lost


def _key(anchor: Anchor) -> Key:
    return anchor.kind, anchor.text
