"""Days that a question names: written out, without a year, or as "yesterday". PURE."""

from __future__ import annotations

import datetime
import re
from typing import Final, TypeAlias

Day: TypeAlias = tuple[int, int, int]  # year (0: any), month, day
Days: TypeAlias = tuple[Day, ...]

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH: Final = "|".join(f"{m}|{m[:3]}" for m in _MONTHS)
_END: Final = r"(?:st|nd|rd|th)?"
_ISO: Final = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_DAY_FIRST: Final = re.compile(rf"(?i)\b(\d{{1,2}}){_END}\s+(?:of\s+)?({_MONTH})\b\.?,?(?:\s+(\d{{4}})\b)?")
_MONTH_FIRST: Final = re.compile(rf"(?i)\b({_MONTH})\b\.?\s+(\d{{1,2}}){_END}\b(?:,?\s+(\d{{4}})\b)?")
_CJK: Final = re.compile(r"(?:(\d{4})\s*[年년]\s*)?(?<!\d)(\d{1,2})\s*[月월]\s*(\d{1,2})\s*[日号號일]")
_AGO: Final = (
    (2, re.compile(r"(?i)\bday before yesterday\b|前天|一昨日|おととい|그저께|그제")),
    (1, re.compile(r"(?i)(?<!before )\byesterday\b|昨天|昨日|昨晚|(?<!一)昨日|きのう|어제")),
    (0, re.compile(r"(?i)\btoday\b|今天|今日|きょう|오늘")),
)


_WHOLE_MONTH: Final = re.compile(rf"(?i)\b({'|'.join(_MONTHS)})\b")
_YEAR: Final = re.compile(r"(?:\b|(?<=[^\W\da-zA-Z_]))((?:19|20)\d\d)(?:\b|(?=\s*[年년]))")
_YEAR_MONTH: Final = re.compile(r"\b(?:19|20)\d\d-(\d\d)(?:-\d\d)?\b")
_CJK_MONTH: Final = re.compile(r"(?<!\d)(1[0-2]|0?[1-9])\s*[月월]")


def named_months(text: str) -> frozenset[int]:
    """Return the months that `text` names, 1 to 12.

    >>> sorted(named_months("in May, 2026-03 or 11月"))
    [3, 5, 11]
    """
    numbers = [int(m) for m in _YEAR_MONTH.findall(text) + _CJK_MONTH.findall(text)]
    return frozenset([*(_number(m) for m in _WHOLE_MONTH.findall(text)), *numbers])


def named_years(text: str) -> frozenset[int]:
    """Return the years from 1900 to 2099 that `text` names.

    >>> sorted(named_years("2025, or 2026年3月"))
    [2025, 2026]
    """
    return frozenset(int(y) for y in _YEAR.findall(text))


def named_days(text: str, today: str = "") -> Days:
    """Return the real days that `text` names; "yesterday" and the like only where `today` is known (YYYY-MM-DD).

    >>> named_days("on 24 November 2026 or 3月5日"), named_days("昨天", "2026-03-01"), named_days("2026-02-31")
    (((2026, 11, 24), (0, 3, 5)), ((2026, 2, 28),), ())
    """
    found = [(int(y), int(m), int(d)) for y, m, d in _ISO.findall(text)]
    found += [(int(y or 0), _number(m), int(d)) for d, m, y in _DAY_FIRST.findall(text)]
    found += [(int(y or 0), _number(m), int(d)) for m, d, y in _MONTH_FIRST.findall(text)]
    found += [(int(y or 0), int(m), int(d)) for y, m, d in _CJK.findall(text)]
    found += _relative(text, today)
    return tuple(dict.fromkeys(day for day in found if _is_real(day)))


def _relative(text: str, today: str) -> list[Day]:
    try:
        now = datetime.date.fromisoformat(today[:10])
    except ValueError:
        return []
    days = [now - datetime.timedelta(days=ago) for ago, words in _AGO if words.search(text)]
    return [(day.year, day.month, day.day) for day in days]


def _number(month: str) -> int:
    return next(i for i, name in enumerate(_MONTHS, 1) if name.startswith(month.lower()))


def _is_real(day: Day) -> bool:
    try:
        datetime.date(day[0] or 2000, day[1], day[2])
    except ValueError:
        return False
    return True
