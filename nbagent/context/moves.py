"""Primitive moves that policies share: find old results, choose a cut, word a placeholder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from nbagent.context.policy import Prune, Situation
from nbagent.core.cuts import CutPoint, cut_points
from nbagent.core.entries import AssistantMessage, Entry, Snapshot, ToolResult, TurnStart, UserMessage
from nbagent.core.messages import Block, canonical, joined_text, tool_calls
from nbagent.core.view import Piece, View

PLACEHOLDER_TOKENS = 40  # what a placeholder costs, about
LABEL_CHARS = 100
SKILL = "skill"  # the tool whose results are instructions in force: policies leave them whole
SUBJECTS = ("path", "command", "pattern", "names", "action", "code")  # the argument that tells calls apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A tool result that the model sees, with `images`. `steps_ago` counts replies since, `inputs` looks calls up."""

    entry_id: str
    body: ToolResult
    tokens: int
    inputs: Callable[[], Mapping[str, object]]
    steps_ago: int
    turns_ago: int
    sent: bool
    images: int = 0

    @property
    def label(self) -> str:
        """The call and its subject, short."""
        return label_of(self.body, self.inputs().get(self.body.call_id))


def shown_results(situation: Situation, *, pruned: bool = False) -> tuple[Shown, ...]:
    """Return the results in the view that are not pruned, oldest first; with `pruned` those that are as well.

    Inside a tool loop whose thinking is bound to its prefix only the results since its last reply: pruning an older
    one would have to wait until the loop is over, and free nothing.
    """
    positions = _positions(situation)
    bound = positions.get(situation.view.bound or "", -1)
    path = situation.path
    seen = situation.view.in_sight - situation.view.cleared if pruned else situation.view.seen
    found: list[tuple[Piece, ToolResult, int, int, int]] = []
    steps = turns = 0
    for index in range(len(situation.view.pieces) - 1, -1, -1):
        piece = situation.view.pieces[index]
        if piece.role == "assistant":
            steps += 1
            continue
        position = positions.get(piece.entry_id, -1)
        body = path[position].body if position >= 0 else None
        if isinstance(body, UserMessage):
            turns += 1
        elif piece.category != "tool results" or piece.entry_id not in seen:
            continue
        elif isinstance(body, ToolResult) and position > bound:
            found.append((piece, body, situation.tokens[index], steps, turns))
    wanted = {body.call_id for _, body, _, _, _ in found}
    inputs = cache(lambda: _inputs(path, wanted))  # looked up where a placeholder is worded: seldom
    return tuple(
        Shown(
            entry_id=piece.entry_id, body=body, tokens=tokens, steps_ago=steps, turns_ago=turns,
            inputs=inputs, sent=piece.entry_id in situation.sent,
            images=0 if piece.entry_id in situation.view.pruned else _images(body.content),
        )
        for piece, body, tokens, steps, turns in reversed(found)
    )  # fmt: skip


def _images(blocks: Iterable[Block]) -> int:
    return sum(b.get("type") == "image" for b in blocks)


def shown_texts(situation: Situation) -> dict[str, str]:
    """Return what the model sees of each result now, by entry: its text, or what stands in for it."""
    texts: dict[str, str] = {}
    for piece in situation.view.pieces:
        for block in piece.blocks:
            if block.get("type") == "tool_result":
                inner = block.get("content")
                texts[piece.entry_id] = inner if isinstance(inner, str) else joined_text(inner or ())
    return texts


def _inputs(path: Sequence[Entry], call_ids: set[str]) -> dict[str, object]:
    """Return call id -> arguments of the newest call with it; those of a view stand near the end of the path."""
    found: dict[str, object] = {}
    for entry in reversed(path):
        if len(found) == len(call_ids):
            break
        if isinstance(entry.body, AssistantMessage):
            for call in reversed(list(tool_calls(entry.body.blocks))):
                if call.id in call_ids:
                    found.setdefault(call.id, call.input)
    return found


def label_of(body: ToolResult, arguments: object) -> str:
    """Return what a result is about: the tool and its arguments, short."""
    text = ""
    if isinstance(arguments, Mapping):
        subject = [str(arguments[k]) for k in SUBJECTS if k in arguments]
        text = " ".join(subject[0].split()) if subject else canonical(arguments)
    return f"{body.name} {text}".strip()[:LABEL_CHARS]


def pointer(shown: Shown) -> str:
    """Return a placeholder that says what was here and the one call that brings it back (CR-C2, MA-C3)."""
    size = f"{shown.body.full_chars:,} characters" if shown.body.full_chars else f"about {shown.tokens:,} tokens"
    path = shown.body.meta.get("path")
    if shown.body.name == "read" and isinstance(path, str):
        lines = shown.body.meta.get("lines")
        where = f" lines {lines[0]}-{lines[1]}" if isinstance(lines, list | tuple) and len(lines) == 2 else ""
        back = f"`read` {path}{where} reads it again, `recall` {shown.entry_id} shows what was read"
    else:
        back = f"`recall` {shown.entry_id} brings it back"
    return f"[cleared: {shown.label} ({shown.body.status}, {size}); {back}]"


def fixed_text(text: str) -> Callable[[Shown], str]:
    """Return a placeholder function that always says `text`."""
    return lambda shown: text


def head_and_tail(head_chars: int, tail_chars: int) -> Callable[[Shown], str]:
    """Return a placeholder function that keeps both ends of a result and says what is left out."""

    def trimmed(shown: Shown) -> str:
        text = joined_text(shown.body.content)
        left = len(text) - head_chars - tail_chars
        if left <= 0:
            return text
        tail = text[len(text) - tail_chars :] if tail_chars else ""
        return f"{text[:head_chars]}\n{left_out(shown, f'{left:,} characters')}\n{tail}".rstrip()

    return trimmed


def left_out(shown: Shown, how_much: str) -> str:
    """Return the line that stands for the middle of a result, with what brings it back."""
    path = shown.body.meta.get("full_path")
    where = f"the whole is in {path}, " if path else ""
    return f"[… {how_much} left out; {where}`recall` {shown.entry_id} brings them back …]"


def with_both_ends(end_chars: int, *, end_lines: int = 10) -> Callable[[Shown], str]:
    """Return a placeholder function: what was here, what brings it back, and how it began and ended.

    What a shell printed is shown by lines, the line with its exit code in any case; all else by characters.
    """

    def stub(shown: Shown) -> str:
        text = joined_text(shown.body.content)
        lines = text.splitlines()
        if shown.body.name == "shell" and len(lines) > 2 * end_lines:
            codes = [line for line in lines[end_lines:-end_lines] if line.startswith("[exit code ")]
            left = f"[… {len(lines) - 2 * end_lines:,} lines …]"
            text = "\n".join([*lines[:end_lines], left, *codes, *lines[-end_lines:]])
        elif shown.body.name != "shell" and len(text) > 2 * end_chars:
            left = f"[… {len(text) - 2 * end_chars:,} characters …]"
            text = f"{text[:end_chars]}\n{left}\n{text[-end_chars:]}"
        return f"{pointer(shown)}\n{text}"

    return stub


def prune(results: Iterable[Shown], text_of: Callable[[Shown], str], reason: str) -> tuple[Prune, ...]:
    """Return the move that replaces `results`; none where the placeholder would not be shorter."""
    placeholders: dict[str, str] = {}
    for shown in results:
        text = text_of(shown)
        if _images(shown.body.content) or len(text) < len(joined_text(shown.body.content)):
            placeholders[shown.entry_id] = text
    return (Prune(placeholders=placeholders, reason=reason),) if placeholders else ()


def freed_tokens(results: Iterable[Shown]) -> int:
    """Return about how many tokens pruning `results` frees."""
    return sum(max(0, r.tokens - PLACEHOLDER_TOKENS) for r in results)


def cut_keeping(situation: Situation, keep_tokens: int, *, turns_only: bool = False) -> str | None:
    """Return the earliest cut whose kept part is at most `keep_tokens`; None keeps nothing.

    The cut falls where a turn begins, or (unless `turns_only`) where a batch of calls is finished. What an
    earlier compaction replaced is not kept again. The newest request of the person that is not yet answered
    is always kept, whatever its size.
    """
    kept_from = _positions(situation)
    total = 0
    sizes = [0] * len(situation.path)
    for piece, tokens in zip(situation.view.pieces, situation.tokens, strict=True):
        position = kept_from.get(piece.entry_id)
        if position is not None:
            sizes[position] += tokens
    first = 0
    for index in range(len(sizes) - 1, -1, -1):
        total += sizes[index]
        if total > keep_tokens:
            first = index + 1
            break
    floor = kept_from.get(situation.view.compaction or "", -1)
    pending = pending_start(situation.path, situation.view)
    begins = _turn_start(situation.path, first if pending is None else min(first, pending))
    points = [p for p in cut_points(situation.path, begins) if p.turn or not turns_only]
    oldest = max(first, _first_kept_index(situation, kept_from, floor) + 1)
    allowed = [p for p in points if p.index >= oldest]
    if pending is not None:
        before = [p for p in points if p.index <= pending]
        allowed = [p for p in allowed if p.index <= pending] or before[-1:]
    return allowed[0].entry_id if allowed else None


def cut_dropping_halves(situation: Situation, most_tokens: int) -> str | None:
    """Return the cut that drops the older half, again and again until at most `most_tokens` are left.

    The older half goes at least once (OpenClaw's pruneHistoryForContextShare); None keeps nothing.
    """
    keep = sum(situation.tokens) // 2
    while keep > most_tokens:
        keep //= 2
    return cut_keeping(situation, keep)


def kept_entries(situation: Situation, first_kept: str | None) -> frozenset[str]:
    """Return the entries of the path from `first_kept` on; none for None."""
    at = len(situation.path) if first_kept is None else _positions(situation)[first_kept]
    return frozenset(e.id for e in situation.path[at:])


def cut_reaching(situation: Situation, keep_tokens: int) -> str | None:
    """Return the cut whose kept part is at least `keep_tokens`, as little more as can be: what crosses it is kept.

    It falls where a turn begins or a batch of calls is finished; where none does so late, at the last of these. A
    conversation that is smaller is kept whole.
    """
    positions = _positions(situation)
    total, first = 0, 0
    for piece, tokens in zip(reversed(situation.view.pieces), reversed(situation.tokens), strict=True):
        total += tokens
        if total >= keep_tokens:
            first = positions.get(piece.entry_id, 0)
            break
    first = next((i for i in range(first, 0, -1) if not isinstance(situation.path[i].body, UserMessage | Snapshot)), 0)
    points = _cuts_behind_the_last(situation, positions)
    late = [p for p in points if p.index >= first][:1] or points[-1:]
    return late[0].entry_id if late and total >= keep_tokens else _nothing(situation)


def cut_after(situation: Situation, share: float) -> str | None:
    """Return the first start of a turn with at least `share` of the conversation before it, counted in JSON characters.

    Where there is none: None (nothing is kept) when the last turn is answered, else the last start there is.

    Raises:
        ValueError: `share` is not above 0 and below 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"a conversation cannot be cut after {share:g} of it; give a share above 0 and below 1")
    positions = _positions(situation)
    points = [p for p in _cuts_behind_the_last(situation, positions) if p.turn]
    sizes = [sum(len(canonical(b)) for b in piece.blocks) for piece in situation.view.pieces]
    left = iter(points)
    point, before = next(left, None), 0
    for piece, size in zip(situation.view.pieces, sizes, strict=True):
        position = -1 if piece.entry_id == situation.view.compaction else positions[piece.entry_id]
        while point is not None and point.index <= position:
            if before >= share * sum(sizes):
                return point.entry_id
            point = next(left, None)
        before += size
    answered = bool(situation.view.pieces) and situation.view.pieces[-1].role == "assistant"
    if answered and not situation.view.open_calls:
        return None
    return points[-1].entry_id if points else _nothing(situation)


def cut_keeping_turns(situation: Situation, count: int) -> str | None:
    """Return the cut that keeps the newest `count` messages of the person with what follows; None cuts nothing."""
    positions = _positions(situation)
    shown = [positions[p.entry_id] for p in situation.view.pieces if p.entry_id in positions]
    asked = sorted({i for i in shown if isinstance(situation.path[i].body, UserMessage)})
    if not 0 < count < len(asked):
        return None
    begins = _turn_start(situation.path, asked[-count])
    return situation.path[begins].id if begins else None


def _positions(situation: Situation) -> dict[str, int]:
    return {e.id: i for i, e in enumerate(situation.path)}


def _turn_start(path: Sequence[Entry], at: int) -> int:
    """Return where the turn begins that holds position `at`; 0 where none does."""
    return next((i for i in range(min(at, len(path) - 1), 0, -1) if isinstance(path[i].body, TurnStart)), 0)


def _first_kept_index(situation: Situation, positions: Mapping[str, int], floor: int) -> int:
    """Return the position where the kept part of the last compaction begins; a new cut must be behind it."""
    if situation.view.unread:  # the last one was the provider's: nothing before it is shown again
        return floor
    shown = (positions.get(entry_id, -1) for entry_id in situation.view.in_sight)
    return min((index for index in shown if index not in (-1, floor)), default=-1)


def _nothing(situation: Situation) -> str | None:
    """Return the cut that replaces nothing."""
    return situation.path[0].id if situation.path else None


def _cuts_behind_the_last(situation: Situation, positions: Mapping[str, int]) -> list[CutPoint]:
    """Return where a new cut may fall: behind that of the last compaction, and not behind a request without a reply."""
    path, view = situation.path, situation.view
    oldest = _first_kept_index(situation, positions, positions.get(view.compaction or "", -1)) + 1
    pending = pending_start(path, view)
    points = cut_points(path, _turn_start(path, oldest))
    return [p for p in points if p.index >= oldest and (pending is None or p.index <= pending)]


def pending_start(path: Sequence[Entry], view: View) -> int | None:
    """Return the position of the turn whose request has no reply yet; None when there is none."""
    if view.turn_ended or view.turn is None or view.steps:
        return None
    return next((i for i in range(len(path) - 1, -1, -1) if path[i].body is view.turn), None)


def tokens_before(situation: Situation, first_kept: str | None) -> int:
    """Return how many tokens of the view stand before `first_kept`: what a compaction there would replace."""
    if first_kept is None:
        return sum(situation.tokens)
    positions = _positions(situation)
    cut = positions[first_kept]
    return sum(
        tokens
        for piece, tokens in zip(situation.view.pieces, situation.tokens, strict=True)
        if positions.get(piece.entry_id, -1) < cut
    )


def since_cleared(situation: Situation, results: Sequence[Shown]) -> list[Shown]:
    """Return the results that come after the newest one that is pruned already."""
    gone = situation.view.pruned | situation.view.cleared
    last = next((i for i, p in reversed([*enumerate(situation.view.pieces)]) if p.entry_id in gone), -1)
    later = {p.entry_id for p in situation.view.pieces[last + 1 :]}
    return [r for r in results if r.entry_id in later]


def newest(results: Sequence[Shown], count: int) -> Sequence[Shown]:
    """Return the newest `count` results."""
    return results[max(0, len(results) - count) :] if count > 0 else ()


def over_budget(results: Sequence[Shown], budget_tokens: int, trimmed_tokens: int) -> list[Shown]:
    """Return the results, oldest first, that the newest `budget_tokens` have no room for.

    One without room is cut to `trimmed_tokens` and counts as that, so a small one before it may still have room.
    """
    total = 0
    over: list[Shown] = []
    for shown in reversed(results):
        whole = total + shown.tokens <= budget_tokens
        total += shown.tokens if whole else min(shown.tokens, trimmed_tokens)
        if not whole:
            over.append(shown)
    return list(reversed(over))


def beyond_budget(results: Sequence[Shown], budget_tokens: int) -> list[Shown]:
    """Return the results beyond the newest `budget_tokens`, oldest first: the one that crosses it is beyond."""
    total = 0
    old: list[Shown] = []
    for shown in reversed(results):
        total += shown.tokens
        if total > budget_tokens:
            old.append(shown)
    return list(reversed(old))
