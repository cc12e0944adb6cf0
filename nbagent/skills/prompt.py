"""The text by which the model knows the skills: four forms by budget, and one for a catalog that is searched.

Full: name, description, location. Shortened: descriptions cut alike, still long enough to choose by.
Compact: no descriptions. Truncated: names left out, and named. Which ones stay is decided by use and
source, then by name; the order shown is always by name. Same skills and budget, same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

Tier: TypeAlias = Literal["none", "full", "shortened", "compact", "truncated", "search"]
Way: TypeAlias = Literal["read", "tool"]

MAX_LISTED: Final = 150  # OpenClaw 2026.5.28
MAX_CHARS: Final = 18_000  # OpenClaw 2026.5.28; of the list with its notice
WINDOW_SHARE: Final = 0.05  # of the window in characters; binds below 90,000 tokens. Claude Code takes 0.01.
CHARS_PER_TOKEN: Final = 4
MAX_DESCRIPTION_CHARS: Final = 1_536  # Claude Code: description with when_to_use
MIN_DESCRIPTION_CHARS: Final = 60  # below this a description is no help; then names alone
SEARCH_ABOVE: Final = 30  # with find_skills on, a longer catalog is searched, not listed
SEARCH_LISTED: Final = 8
SEARCH_BUDGET_SKILLS: Final = 10  # a searched catalog costs no more than that many listed ones
NAMES_SHARE: Final = 0.1  # of the budget, for the names of those left out

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]+")


class Listed(Protocol):
    """What is needed of a skill to list it. `rank` is its source's precedence."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def location(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def uses(self) -> int: ...


_Skills: TypeAlias = Sequence[Listed]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """The text, which form it has, and the names that are in it and those that are not."""

    text: str
    tier: Tier
    listed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def budget_chars(window_tokens: int) -> int:
    """Return how many characters the list may take in a window."""
    return min(MAX_CHARS, int(window_tokens * WINDOW_SHARE * CHARS_PER_TOKEN))


def build_prompt(skills: Sequence[Listed], *, limit_chars: int, way: Way = "read", search: bool = False) -> PromptText:
    """Return the prompt for the skills that the model may use; "" when there are none."""
    if not skills:
        return PromptText(text="", tier="none")
    chosen = sorted(skills, key=_priority)
    if search and (len(chosen) > SEARCH_ABOVE or _size(chosen, MAX_DESCRIPTION_CHARS, way) > limit_chars):
        return _searched(chosen, limit_chars=limit_chars, way=way)
    kept = chosen[:MAX_LISTED]
    notice = "" if len(kept) == len(chosen) else _notice(len(kept), len(chosen), descriptions=True)
    if _size(kept, MAX_DESCRIPTION_CHARS, way) + len(notice) <= limit_chars:
        return _prompt(kept, chosen, "full", notice, MAX_DESCRIPTION_CHARS, way=way, limit_chars=limit_chars)
    length = _fitting_length(kept, limit_chars=limit_chars - len(notice) - 100, way=way)
    if length >= MIN_DESCRIPTION_CHARS:
        notice = notice or f"Descriptions are cut to {length} characters.\n"
        return _prompt(kept, chosen, "shortened", notice, length, way=way, limit_chars=limit_chars)
    return _compact(kept, chosen, limit_chars=limit_chars, way=way)


def _compact(kept: Sequence[Listed], chosen: Sequence[Listed], *, limit_chars: int, way: Way) -> PromptText:
    notice = _notice(len(kept), len(chosen), descriptions=False)
    if _size(kept, 0, way) + len(notice) <= limit_chars:
        return _prompt(kept, chosen, "compact", notice, 0, way=way, limit_chars=limit_chars)
    room = int(limit_chars * (1 - NAMES_SHARE)) - len(notice) - len(_list([], 0, way))
    count = 0
    for skill in kept:
        room -= len(_entry(skill, 0, way))
        if room < 0:
            break
        count += 1
    notice = _notice(count, len(chosen), descriptions=False)
    return _prompt(kept[:count], chosen, "truncated", notice, 0, way=way, limit_chars=limit_chars)


def _searched(chosen: Sequence[Listed], *, limit_chars: int, way: Way) -> PromptText:
    """List a few, and say that the rest is found by searching. No number that grows with the catalog."""
    most = min(limit_chars, _size(chosen[:SEARCH_BUDGET_SKILLS], MAX_DESCRIPTION_CHARS, way))
    kept = list(chosen[:SEARCH_LISTED])
    notice = "These are a few of many. Find the others with find_skills: say what the task is, in a few words.\n"
    length = _fitting_length(kept, limit_chars=most - len(notice), way=way)
    while kept and length < MIN_DESCRIPTION_CHARS:
        kept.pop()
        length = _fitting_length(kept, limit_chars=most - len(notice), way=way)
    text = _text(kept, notice, length, way=way)
    names = {s.name for s in kept}
    left = tuple(s.name for s in _by_name(chosen) if s.name not in names)
    return PromptText(text=text, tier="search", listed=tuple(s.name for s in _by_name(kept)), left_out=left)


def _prompt(
    kept: _Skills, chosen: _Skills, tier: Tier, notice: str, length: int, *, way: Way, limit_chars: int
) -> PromptText:
    left = _by_name(chosen[len(kept) :])
    if tier == "full" and len(kept) < len(chosen):
        tier = "truncated"
    room = limit_chars - _size(kept, length, way) - len(notice)
    return PromptText(
        text=_text(kept, notice + _left_out([s.name for s in left], room), length, way=way), tier=tier,
        listed=tuple(s.name for s in _by_name(kept)), left_out=tuple(s.name for s in left),
    )  # fmt: skip


def _left_out(names: Sequence[str], room: int) -> str:
    """Return a line with as many of the names as fit, "" when none does."""
    room -= len("Not listed:  and 99999 more.\n")
    fitting: list[str] = []
    for name in map(escaped, names):
        room -= len(name) + 2
        if room < 0:
            break
        fitting.append(name)
    more = "" if len(fitting) == len(names) else f" and {len(names) - len(fitting)} more"
    return f"Not listed: {', '.join(fitting)}{more}.\n" if fitting else ""


def _notice(count: int, of: int, *, descriptions: bool) -> str:
    if count == of:
        return "" if descriptions else "Descriptions are left out: choose by the name.\n"
    return f"Skills truncated: {count} of {of} are listed{'' if descriptions else ', without descriptions'}.\n"


def _priority(skill: Listed) -> tuple[int, int, str, str]:
    """Used ones first, then the person's and the project's own before bundled ones, then by name."""
    return (-skill.uses, -skill.rank, skill.name.casefold(), skill.name)


def _by_name(skills: Sequence[Listed]) -> list[Listed]:
    return sorted(skills, key=lambda s: (s.name.casefold(), s.name))


def _size(skills: Sequence[Listed], description_chars: int, way: Way) -> int:
    return len(_list(skills, description_chars, way))


def _fitting_length(skills: Sequence[Listed], *, limit_chars: int, way: Way) -> int:
    """Return the largest cut of all descriptions with which the list fits; -1 when none does."""
    low, high = -1, MAX_DESCRIPTION_CHARS
    while low < high:
        middle = (low + high + 1) // 2
        if _size(skills, max(1, middle), way) <= limit_chars:
            low = middle
        else:
            high = middle - 1
    return low


def _list(skills: Sequence[Listed], description_chars: int, way: Way) -> str:
    entries = "".join(_entry(s, description_chars, way) for s in _by_name(skills))
    return f"<available_skills>\n{entries}</available_skills>\n"


def _entry(skill: Listed, description_chars: int, way: Way) -> str:
    """Return one skill; no description for `description_chars` 0, no location for the tool."""
    lines = [f"    <name>{escaped(skill.name)}</name>\n"]
    if description_chars:
        lines.append(f"    <description>{escaped(shortened(skill.summary, description_chars))}</description>\n")
    if way == "read":
        lines.append(f"    <location>{escaped(skill.location)}</location>\n")
    return f"  <skill>\n{''.join(lines)}  </skill>\n"


def _text(skills: Sequence[Listed], notice: str, description_chars: int, *, way: Way) -> str:
    return f"{_RULES[way]}\n{notice}{_list(skills, description_chars, way)}"


def one_line_of(text: str) -> str:
    """Return a text as one line without what is not seen: control, direction and tag characters."""
    return " ".join(_CONTROL.sub(" ", text).split())


def escaped(text: str) -> str:
    """Return one line of text in which nothing is markup."""
    text = one_line_of(text)
    for char, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        text = text.replace(char, name)
    return text


def shortened(text: str, limit_chars: int) -> str:
    """Return a text cut at a word's end, with an ellipsis, to at most `limit_chars`; no character is split.

    >>> shortened("Makes figures fit for print", 16)
    'Makes figures…'
    """
    text = one_line_of(text)
    if len(text) <= limit_chars:
        return text
    cut = text[: max(0, limit_chars - 1)]
    if text[len(cut)] != " ":
        head = cut.rpartition(" ")[0]
        cut = head if len(head) > limit_chars // 2 else _whole_characters(cut, text)
    return cut.rstrip(" ,;:.") + "…"


def _whole_characters(cut: str, text: str) -> str:
    """Take back a character whose marks or joined parts come after the cut."""
    joins: Callable[[str], bool] = lambda c: c in "\u200d\ufe0f\u20e3" or 0x1F3FB <= ord(c) <= 0x1F3FF  # noqa: E731
    while cut and (joins(text[len(cut)]) or cut[-1] == "\u200d"):
        cut = cut[:-1]
    return cut


_COMMON: Final = (
    "- Look through the descriptions before you begin. {take} When several fit, take the most specific. "
    "When none fits, take none.\n"
    "- Take at most one skill up front; another only when the work itself comes to need it.\n"
    "- {exact}\n"
    "- Paths inside a skill are relative to its folder.\n"
    "- Where a skill writes to an outside service: few large writes, no tight loops, wait when it answers 429.\n"
)
_HEAD: Final = "# Skills\n\nA skill is a page of instructions for one kind of task.\n"
_RULES: Final = {
    "read": _HEAD
    + _COMMON.format(
        take="When exactly one clearly fits the task, read its file at the location given, then follow it.",
        exact="Use names and locations exactly as they are listed or found; never invent one.",
    ),
    "tool": _HEAD
    + _COMMON.format(
        take="When exactly one clearly fits the task, call the tool skill with its name, then follow what it returns.",
        exact="Use names exactly as they are listed or found; never invent one.",
    ),
}
