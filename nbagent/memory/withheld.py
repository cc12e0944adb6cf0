"""What is not remembered: passwords that are named in a sentence, which the patterns for keys do not see. PURE.

Stricter than what is scrubbed from the record: there a word too much is lost, here it is only said again without.
"""

from __future__ import annotations

import re
from typing import Final

_VALUE: Final = r"(?=[!-~]{0,64}[A-Za-z])(?=[!-~]{0,64}[0-9])[!-~]{%d,}"
_IS: Final = r"[\"'`*_]{0,2}\s{0,3}(?:(?:is|was|=|:|：|＝|是|为|為|は|은|는)\s{0,3})"
_OPEN: Final = r"[\"'`*_「“『]{0,2}"
_NAMED: Final = (
    re.compile(rf"(?i)(?<![a-z])(?:pass(?:word|wd|phrase|code)|pwd|passwort|kennwort){_IS}{_OPEN}{_VALUE % 6}"),
    re.compile(rf"(?i)(?<![a-z])(?:token|secret|(?:api|access|secret)[ _-]?key){_IS}{_OPEN}{_VALUE % 8}"),
    re.compile(rf"(?:密码|密碼|口令|密钥|令牌|パスワード|비밀번호)(?:{_IS})?\s{{0,3}}{_OPEN}{_VALUE % 6}"),
)


def names_password(text: str) -> bool:
    """Tell whether a text says what a password or key is: its name, then a word of letters and digits.

    >>> [names_password(t) for t in ("the db password is hunter2", "密码：Zx9!kkLp02", "no password is set")]
    [True, True, False]
    """
    return any(pattern.search(text) for pattern in _NAMED)
