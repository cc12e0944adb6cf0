"""Does memory find Chinese, Japanese and Korean? `python benchmarks/memory_chinese.py`; needs babel, which `nbagent[lab]` brings.

The text is made by rule from the Unicode CLDR (Unicode licence), as babel carries it: a line on the currency and languages of
each territory, mixed with lines on currencies and languages themselves. Asked is for each territory's currency and
languages, in other words than the line's. recall@1 is the share of questions whose first hit is the right line. Then
terms of two characters that stand in the notes are searched by keywords: the first hit must hold the term.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from babel import Locale
from babel.core import get_global

from nbagent.memory.memory import Memory
from nbagent.memory.words import CJK

TERMS = 1_000


@dataclass(frozen=True)
class Options:
    """Settings of memory for a benchmark."""

    embedder: str = "static"
    preset: str = "nbagent"
    extra_dirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wording:
    """Sentences of one language: facts, the lines around them, and questions."""

    currency: str
    languages: str
    code: str
    tongue: str
    ask_currency: str
    ask_languages: str
    comma: str


WORDINGS = {
    "zh": Wording(
        "在{0}，目前流通的货币是{1}。", "{0}的主要语言是{1}。", "货币代码{0}代表{1}。", "语言代码{0}代表{1}。",
        "去{0}旅行要换什么货币？", "{0}的居民说哪些语言？", "、",
    ),
    "ja": Wording(
        "{0}で現在流通している通貨は{1}です。", "{0}の主な言語は{1}です。", "通貨コード{0}は{1}を表します。", "言語コード{0}は{1}を表します。",
        "{0}ではどの通貨を使いますか？", "{0}の人々はどの言語を話しますか？", "、",
    ),
    "ko": Wording(
        "{0}에서 현재 통용되는 통화는 {1}입니다.", "{0}의 주요 언어는 {1}입니다.", "통화 코드 {0}은 {1}을 뜻합니다.",
        "언어 코드 {0}은 {1}을 뜻합니다.", "{0}에서는 어떤 통화를 쓰나요?", "{0} 사람들은 어떤 언어를 쓰나요?", ", ",
    ),
}  # fmt: skip


def facts(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (line, questions); lines about codes have none."""
    locale, words = Locale.parse(name), WORDINGS[name]
    money, spoken = get_global("territory_currencies"), get_global("territory_languages")
    for code, place in sorted(locale.territories.items()):
        if len(code) != 2 or code not in money:
            continue
        current = [locale.currencies.get(c[0], c[0]) for c in money[code] if c[2] is None and c[3]]
        tongues = [locale.languages[t] for t in list(spoken.get(code, {}))[:3] if t in locale.languages]
        if current and tongues:
            line = words.currency.format(place, words.comma.join(current))
            line += words.languages.format(place, words.comma.join(tongues))
            yield line, (words.ask_currency.format(place), words.ask_languages.format(place))
    for code, label in sorted(locale.currencies.items()):
        yield words.code.format(code, label), ()
    for code, label in sorted(locale.languages.items()):
        yield words.tongue.format(code, label), ()


def evaluate(name: str) -> str:
    """Return one line of results for a language."""
    lines = list(facts(name))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / ".nbagent" / "memory"
        folder.mkdir(parents=True)
        for start in range(0, len(lines), 50):
            text = "\n".join(f"- {line}" for line, _ in lines[start : start + 50])
            (folder / f"facts-{start:04}.md").write_text(text + "\n", encoding="utf-8")
        memory = Memory.open(Path(scratch), Path(scratch) / "home", Options(), lambda: "2026-01-01")
        memory.search("x")
        asked = [(line, question) for line, questions in lines for question in questions]
        start_s = time.process_time()
        found = [[h.snippet.removeprefix("- ") for h in memory.search(q, 10)] for _, q in asked]
        spent_ms = (time.process_time() - start_s) / len(asked) * 1e3
        first = sum(line == hits[0] for (line, _), hits in zip(asked, found, strict=True)) / len(asked)
        ten = sum(line in hits for (line, _), hits in zip(asked, found, strict=True)) / len(asked)
        terms = sorted({run[i : i + 2] for line, _ in lines for run in re.findall(f"[{CJK}]+", line) for i in range(len(run) - 1)})
        chosen = terms[:: max(1, len(terms) // TERMS)]
        held = sum(any(t in h.snippet for h in memory.search(t, 1)) for t in chosen)
        memory.close()
    return (
        f"{name}: {len(lines):,} lines, {len(asked)} questions: recall@1 {first:.3f} (goal 0.95), recall@10 {ten:.3f}, "
        f"{spent_ms:.1f} ms CPU; terms of two characters found {held} of {len(chosen)}"
    )


def main() -> None:
    """Measure and print."""
    for name in WORDINGS:
        print(evaluate(name), flush=True)


if __name__ == "__main__":
    main()
