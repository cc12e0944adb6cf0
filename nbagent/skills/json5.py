"""A small reader of JSON5 in which every scalar is text; for the `metadata` field of skills made for OpenClaw."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nbagent.skills.yaml_strings import Value

MAX_DEPTH: Final = 20
_SPACE: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_BARE: Final = re.compile(r"[\w$+.-]+")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|\n|.)", re.DOTALL)
_NAMED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}


def parse_json5(text: str) -> Value | None:
    """Return the value with its scalars as text, None when it is not JSON5; never raises.

    Trailing commas, comments, single quotes and names without quotes are taken. Other blanks than
    between values, hexadecimal numbers and the like stay as they are written.

    >>> parse_json5("{a: [1, true,], 'b': /* two */ null,} // end")
    {'a': ['1', 'true'], 'b': 'null'}
    >>> parse_json5("{a: }") is None
    True
    """
    reader = _Reader(text)
    try:
        value = reader.value(0)
        reader.skip()
    except ValueError:
        return None
    return value if reader.at == len(text) else None


class _Reader:
    """Where the reader is in the text. Raises ValueError inside where it is no JSON5."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def skip(self) -> str:
        """Pass blanks and comments; return the next character, "" at the end."""
        found = _SPACE.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return self.text[self.at : self.at + 1]

    def take(self, mark: str) -> bool:
        if self.skip() != mark:
            return False
        self.at += 1
        return True

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise ValueError
        head = self.skip()
        if head == "{":
            return self._object(depth)
        if head == "[":
            return self._array(depth)
        return self._scalar()

    def _object(self, depth: int) -> Value:
        self.at += 1
        found: dict[str, Value] = {}
        while not self.take("}"):
            key = self._scalar()
            if not self.take(":"):
                raise ValueError
            found[key] = self.value(depth + 1)
            self._separator("}")
        return found

    def _array(self, depth: int) -> Value:
        self.at += 1
        found: list[Value] = []
        while not self.take("]"):
            found.append(self.value(depth + 1))
            self._separator("]")
        return found

    def _separator(self, end: str) -> None:
        if not self.take(",") and self.skip() != end:
            raise ValueError

    def _scalar(self) -> str:
        self.skip()
        quoted = _STRING.match(self.text, self.at)
        if quoted is not None:
            self.at = quoted.end()
            return _ESCAPE.sub(_unescaped, quoted.group(1) if quoted.group(1) is not None else quoted.group(2))
        bare = _BARE.match(self.text, self.at)
        if bare is None:
            raise ValueError
        self.at = bare.end()
        return bare.group()


def _unescaped(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) > 1:
        char = chr(int(code[1:], 16))
        return char if char.isprintable() else ""
    return _NAMED.get(code, code)
