"""What makes a skill be chosen wrongly or cost too much: `%skills lint`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from nbagent.core.errors import Diagnostic
from nbagent.core.ranking import Bm25, Words, overlap
from nbagent.skills.catalog import Catalog, Skill
from nbagent.skills.manifest import MAX_DESCRIPTION_CHARS
from nbagent.skills.selector import body_text

TOO_SIMILAR: Final = 0.55  # of the words of two descriptions shared
LONG_DESCRIPTION_CHARS: Final = 600  # above the 97th percentile of 3,863 public skills
SHORT_DESCRIPTION_WORDS: Final = 5
MAX_BODY_TOKENS: Final = 5_000  # Agent Skills specification
MAX_BODY_LINES: Final = 500  # Agent Skills specification
_TRIGGER: Final = re.compile(
    r"\b(use|used|when|whenever|if|before|after|for|to|asks?|asked|mentions?|needs?|wants?)\b"
    "|用于|当|时|使用|适用|如果|若|需要"  # Chinese
    "|とき|時|際|場合|使う|使って|使い|用いる"  # Japanese
    "|때|경우|사용|요청|필요|쓴다|쓰",  # Korean

    re.IGNORECASE,
)
_INVISIBLE: Final = re.compile("[\u200b\u202a-\u202e\u2060-\u2069\U000e0000-\U000e007f]")
_CLAUDE_TOOLS: Final = frozenset(
    {"bash", "read", "write", "edit", "glob", "grep", "webfetch", "websearch", "task", "skill", "notebookedit",
     "todowrite", "multiedit", "ls", "agent"}
)  # fmt: skip


def lint(
    catalog: Catalog, *, tools: Collection[str] = (), body_of: Callable[[Skill], str] = body_text
) -> tuple[Diagnostic, ...]:
    """Return what could be better in the skills, by path; `tools` are the tools there are (none: not checked)."""
    found = [*catalog.diagnostics]
    for skill in catalog:
        found += _of_one(skill, tools, body_of)
    found += _too_similar(catalog.visible)
    return tuple(sorted(set(found), key=lambda d: (d.path, d.line or 0, d.cause)))


def _of_one(skill: Skill, tools: Collection[str], body_of: Callable[[Skill], str]) -> Iterator[Diagnostic]:
    def note(cause: str, remedy: str) -> Diagnostic:
        return Diagnostic(path=skill.path, line=None, cause=cause, remedy=remedy)

    summary = skill.summary
    length = len(summary)
    if LONG_DESCRIPTION_CHARS < length <= MAX_DESCRIPTION_CHARS:
        cause = f"the description is long ({length} characters, about {skill.tokens} tokens in every request)"
        yield note(cause, "say what it does and when, in two sentences")
    if summary and not _TRIGGER.search(summary):
        yield note(
            "the description has no words that trigger it", "add when to use it: 'Use when the person asks for …'"
        )
    elif summary.isascii() and len(summary.split()) < SHORT_DESCRIPTION_WORDS:
        yield note(f"the description has {len(summary.split())} words", "say what it does and when to use it")
    if _INVISIBLE.search(summary):
        yield note("the description holds characters that are not seen", "remove them")
    if skill.body_tokens > MAX_BODY_TOKENS:
        yield note(f"using it costs about {skill.body_tokens:,} tokens", "move details to files beside it")
    elif body_of(skill).count("\n") > MAX_BODY_LINES:
        yield note(f"its text has over {MAX_BODY_LINES} lines", "move details to files beside it")
    if tools:
        names = {re.split(r"[(:]", t)[0] for t in (*skill.manifest.allowed_tools, *skill.manifest.disallowed_tools)}
        absent = sorted(n for n in names if n not in tools and n.lower() not in {t.lower() for t in tools})
        if absent:
            foreign = [n for n in absent if n.lower() in _CLAUDE_TOOLS]
            also = "; these are Claude Code's names" if foreign == absent else ""
            yield note(
                f"it names tools that do not exist here: {', '.join(absent)}{also}", f"there are {', '.join(tools)}"
            )


def _too_similar(skills: Collection[Skill]) -> Iterator[Diagnostic]:
    """Compare each description with the few that share most of its words, so that thousands take seconds."""
    words = Words()
    index = Bm25(words)
    listed = list(skills)
    terms = [frozenset(words.terms(s.summary)) for s in listed]
    for skill in listed:
        index.add(skill.summary)
    for i, skill in enumerate(listed):
        for hit in index.search(skill.summary, 4):
            if hit.index <= i or len(terms[i]) < 3:
                continue
            share = overlap(terms[i], terms[hit.index])
            if share >= TOO_SIMILAR:
                other = listed[hit.index]
                yield Diagnostic(
                    path=skill.path, line=None,
                    cause=f"its description is too much like that of {other.name!r} ({share:.0%} of the words shared)",
                    remedy="say in both what sets them apart, or make one skill of them",
                )  # fmt: skip
