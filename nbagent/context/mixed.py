"""Words without blanks between them: where a path, URL or number ends in Chinese, Japanese and Korean text. PURE.

`读取/data/a.csv，然后` holds the path `/data/a.csv`, `共1200元` the amount `1200元`, `列user_id的` the name `user_id`.
Names may hold such characters themselves (`/data/销售.csv`, `2026年销售.xlsx`): a border is where they follow a Latin
letter, or where a known ending of files is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LETTERS: Final = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
MARKS: Final = "\u3000-\u3004\u3006-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65“”‘’…—"
BREAKS: Final = {c: " " for c in range(0x3000, 0xFF66) if re.match(f"[{MARKS}]", chr(c))} | dict.fromkeys(
    map(ord, "“”‘’…—"), " "
)

HAS_LETTERS: Final = re.compile(f"[{LETTERS}]")
_BORDER: Final = re.compile(f"(?<=[A-Za-z])(?=[{LETTERS}])")
_LEADING: Final = re.compile(f"^[{LETTERS}]+(?=[A-Za-z~.])")
_VERB: Final = re.compile(f"^[{LETTERS}]+(?=[A-Za-z])")
_PATH_RUN: Final = re.compile(r"[\w.@+~:-]*(?:[/\\][\w.@+~-]+)+")
_URL_BORDER: Final = re.compile(f"(?<=[A-Za-z0-9])(?=[{LETTERS}])")
_SCALES: Final = "万亿億萬千百兆"
_UNITS: Final = (
    "元|块|円|圆|원|美元|欧元|条|條|行|列|个|個|人|次|天|日|月|年|周|週|小时|小時|時間|分钟|分鐘|分|秒|毫秒|度|"
    "公里|千米|厘米|毫米|米|公斤|千克|克|吨|噸|件|家|台|号|倍|字节|字符|개|명|번|일|월|년|시간|초|행|열"
)
_AMOUNT: Final = re.compile(
    rf"(?<![A-Za-z0-9_.,#$/\\])\d+(?:[.,]\d+)* ?(?:[{_SCALES}]?(?:{_UNITS})|[{_SCALES}])"
)


def amounts(text: str) -> list[str]:
    """Return the numbers with a Chinese, Japanese or Korean unit."""
    return _AMOUNT.findall(text)


def without_amounts(text: str) -> str:
    """Return `text` with a blank for each of them."""
    return _AMOUNT.sub(" ", text)


def pieces(word: str) -> list[str]:
    """Return the parts of a word between Chinese, Japanese and Korean letters."""
    return HAS_LETTERS.sub(" ", word).split()


def whole_url(found: str, edges: str) -> str:
    """Return a URL without what follows it: a bracket that it did not open, punctuation, text in another script."""
    depth = 0
    for at, char in enumerate(found):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            found = found[:at]
            break
    if border := _URL_BORDER.search(found):
        found = found[: border.start()]
    return found.rstrip(edges)


def paths_in(word: str, endings: str) -> Iterator[str]:
    """Yield what may be paths in a word that mixes scripts, longest first; the caller checks each."""
    for run in _PATH_RUN.findall(word):
        yield _tail_off(_head_off(run), endings)


def file_in(found: str) -> str:
    """Return the name of a file without the verb before it."""
    return _VERB.sub("", found)


def _head_off(run: str) -> str:
    """Drop the words before a path: `读取/data/a` is absolute, `数据/销售.csv` is not."""
    first = re.split(r"[/\\]", run, maxsplit=1)[0]
    rest = run[len(first) :]
    if not HAS_LETTERS.search(first):
        return run
    if (shorter := _LEADING.sub("", first)) != first:
        return shorter + rest
    second = re.split(r"[/\\]", rest[1:], maxsplit=1)[0]
    return rest if second.isascii() and HAS_LETTERS.fullmatch(first[-1]) else run


def _tail_off(run: str, endings: str) -> str:
    """Drop the words after a path, in its last part."""
    cut = max(run.rfind("/"), run.rfind("\\")) + 1
    last = run[cut:]
    if ended := re.match(rf".*?\.(?:{endings})(?![A-Za-z0-9_])", last):
        return run[:cut] + ended[0]
    border = _BORDER.search(last)
    return run[:cut] + (last[: border.start()] if border else last)
