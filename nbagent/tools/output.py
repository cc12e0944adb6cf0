"""Text on its way to the model (PURE): clean it, cap it, preview it, make it JSON."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

IMPORTANT_TAIL_CHARS: Final = 2_000  # OpenClaw 2026.5.28, tool-result-truncation: how much of the end is looked at
MAX_TAIL_CHARS: Final = 4_000  # OpenClaw 2026.5.28: the tail gets 30 % of the budget, at most this
PREVIEW_OVER_CHARS: Final = 50_000  # Claude Code 2.1.51: larger results go to disk
PREVIEW_BYTES: Final = 2_048  # Claude Code, issue 31674: about 2 KB reach the model
SMALLEST_CAP_CHARS: Final = 64  # a smaller limit counts as this, so that the marker always fits

_IMPORTANT_WORDS: Final = re.compile(
    r"error|exception|failed|failure|fatal|traceback|panic|stack trace|errno|exit code|warning"
    r"|fehler|ausnahme|fehlgeschlagen|abgebrochen|erreur|échec|échoué|excepción|fallo|falló|erro\b|falha|errore"
    r"|ошибка|исключение|сбой|не удалось|помилка|błąd|hata\b|خطأ|فشل"
    r"|错误|錯誤|异常|異常|失败|失敗|致命|エラー|例外|오류|에러|실패|예외"
    r"|\b(?:total|summary|results?|completed?|finished|done|passed)\b"
    r"|\b(?:insgesamt|summe|zusammenfassung|fertig|résumé|terminé|resumen|terminado|resumo|concluído)\b"
    r"|итого|всего|готово|总计|總計|合计|合計|总结|总共|结果|結果|完成|完了|まとめ|요약|합계|결과|완료",
    re.IGNORECASE,
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)"  # OSC and its kin: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_ORDINARY: Final = bytes(range(0x20, 0x7F)) + b"\n\t"  # ASCII that a terminal shows as it is
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DISGUISES: Final = re.compile(
    "[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_LINE_STATES: Final = re.compile(r"[^\n]*\r[^\n]*")
_BACKSPACED: Final = re.compile(r"[^\n]*\x08[^\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    """A text inside its cap. `omitted_chars` is 0 for a whole text; `shown` says which part `text` is, "" for all."""

    text: str
    omitted_chars: int = 0
    shown: str = ""


def cap_chars(window_tokens: int, preset: str = "openclaw") -> int:
    """Return the most characters of one tool result that reach a model with this window.

    The smaller of 30 % of the window (4 characters a token) and a tier.
    Source: OpenClaw 2026.5.28; the flat 16,000 of "openclaw@seed" is that of 2026.5.12 and before.

    >>> [cap_chars(n) for n in (10_000, 50_000, 128_000, 200_000)]
    [12000, 16000, 32000, 64000]
    """
    share = window_tokens * 3 // 10 * 4
    if preset == "openclaw@seed":
        return min(share, 16_000)
    tier = 64_000 if window_tokens >= 200_000 else 32_000 if window_tokens >= 100_000 else 16_000
    return min(share, tier)


def cap_text(text: str, limit_chars: int, *, artifact_path: str = "") -> Capped:
    """Return `text` inside `limit_chars`: its head, or head and tail when the tail looks important.

    The result encodes as UTF-8, is never empty for a text that is not, and its marker says how many
    characters are left out and, given `artifact_path`, how to read them. No cut falls inside a
    character with its marks, or an emoji with its modifiers.
    """
    text = well_formed(text)
    limit_chars = max(limit_chars, SMALLEST_CAP_CHARS)
    if len(text) <= limit_chars:
        return Capped(text=text)
    marker_chars = len(_marker(len(text), artifact_path, limit_chars))
    budget = max(0, limit_chars - marker_chars)
    tail_chars = min(budget * 3 // 10, MAX_TAIL_CHARS) if has_important_tail(text) else 0
    head_end = _head_end(text, budget - tail_chars)
    tail_start = _tail_start(text, len(text) - tail_chars) if tail_chars else len(text)
    if head_end >= tail_start:  # cannot be: the budget is smaller than the text
        return Capped(text=text)
    omitted = tail_start - head_end
    marker = _marker(omitted, artifact_path, limit_chars)
    parts = [f"characters 1-{head_end}"] if head_end else []
    if tail_chars and tail_start < len(text):
        parts.append(f"{tail_start + 1}-{len(text)}")
    return Capped(
        text=text[:head_end] + marker + text[tail_start:],
        omitted_chars=omitted,
        shown=f"{' and '.join(parts) or 'nothing'} of {len(text)}",
    )


def preview(text: str, path: str) -> Capped:
    """Return a text over 50,000 characters as a preview of about 2 KB that says so; a shorter one whole.

    Source: Claude Code 2.1.51; that the result itself says it is a preview: its issue 31674.
    """
    text = well_formed(text)
    if len(text) <= PREVIEW_OVER_CHARS:
        return Capped(text=text)
    head = text[:PREVIEW_BYTES].encode()[:PREVIEW_BYTES].decode("utf-8", "ignore")
    end = _head_end(text, len(head))
    size_bytes = len(text.encode())
    note = (
        f"[This is only a preview: the first {end:,} of {len(text):,} characters ({size_bytes:,} bytes). "
        f"The whole result is in {path}; see more with read(path={path!r}, offset=1, limit=200) or grep.]\n\n"
    )
    return Capped(
        text=f"{note}{text[:end]}\n[end of the preview; {len(text) - end:,} characters are not shown]",
        omitted_chars=len(text) - end,
        shown=f"characters 1-{end} of {len(text)}",
    )


def has_important_tail(text: str) -> bool:
    """Tell whether the end of `text` should be shown: an error, closing JSON, a summary."""
    tail = text[-IMPORTANT_TAIL_CHARS:]
    return tail.rstrip().endswith(("}", "]")) or _IMPORTANT_WORDS.search(tail) is not None


def well_formed(text: str) -> str:
    """Return `text` so that it encodes as UTF-8: surrogate pairs joined, lone surrogates as U+FFFD."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_text(text: str | bytes) -> str:
    r"""Return what a terminal would show in the end: no escapes, progress bars at their last state.

    Bytes are read as UTF-8. Other control characters become their pictures.

    >>> clean_text("\x1b[31mred\x1b[0m 10%\r 50%\r100%\n\x00")
    '100%\n␀'
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if _is_ordinary(text):
        return text
    text = _ESCAPES.sub("", well_formed(text)).replace("\r\n", "\n")
    if "\r" in text:
        text = _LINE_STATES.sub(_last_state, text)
    if "\b" in text:
        text = _BACKSPACED.sub(_apply_backspaces, text)
    return visible(text.replace("\a", ""))


def visible(text: str) -> str:
    r"""Return `text` with control characters other than \n and \t as pictures ("␀"), C1 ones as U+FFFD."""
    return text if _is_ordinary(text) else _CONTROLS.sub(_picture, well_formed(text))


def undisguised(text: str) -> str:
    r"""Return `text` as `visible`, and what nobody sees as its escape: changes of the writing direction, tags.

    Such characters show code in another order than it runs in.

    >>> undisguised("a\u202eb")
    'a\\u202eb'
    """
    return _DISGUISES.sub(lambda m: m[0].encode("ascii", "backslashreplace").decode(), visible(text))


def _is_ordinary(text: str) -> bool:
    """Tell whether `text` is ASCII without control characters, as most text is; a tenth of what the patterns cost."""
    return text.isascii() and not text.encode().translate(None, _ORDINARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a text: `start` and `end` count characters from 0, `end` is behind the last."""

    start: int
    end: int


def cut_span(line: str, limit_chars: int, *, column: int = 1) -> Span:
    """Return which part of a line to show: from its character `column` on, at most `limit_chars`."""
    start = _forward(line, min(column - 1, len(line)))
    return Span(start=start, end=_back(line, start + limit_chars) if len(line) - start > limit_chars else len(line))


def cut_line(line: str, limit_chars: int) -> str:
    """Return the first `limit_chars` of a line, with a marker when there is more."""
    end = cut_span(line, limit_chars).end
    return line if end == len(line) else f"{line[:end]} [… {len(line) - end} characters]"


def json_safe(value: Any, *, depth: int = 32) -> Any:
    """Return `value` as something that JSON can hold and a provider accepts.

    NaN and infinities become words, bytes their repr, lone surrogates U+FFFD, sets sorted lists, what JSON
    does not know its repr; cycles and what lies deeper than `depth` become "…".
    """
    return _json_safe(value, depth, ())


def _json_safe(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return well_formed(str(value))
    if isinstance(value, int):
        return int(value) if value.bit_length() < 4_096 else hex(value)  # Python refuses to print 4,300 digits
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _non_finite(value)
    if isinstance(value, bytes | bytearray):
        return repr(bytes(value))
    if depth <= 0 or id(value) in above:
        return "…"
    path = (*above, id(value))
    if isinstance(value, Mapping):
        return {well_formed(str(k)): _json_safe(v, depth - 1, path) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple):
        return [_json_safe(v, depth - 1, path) for v in value]
    return well_formed(repr(value))


def _non_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _marker(omitted_chars: int, artifact_path: str, limit_chars: int) -> str:
    """Return the text between head and tail; without the path when that would take half the room."""
    short = f"\n[… {omitted_chars:,} characters left out …]\n"
    if not artifact_path:
        return short
    long = (
        f"\n[… {omitted_chars:,} characters left out; the whole text is in {artifact_path}: "
        f"read(path={artifact_path!r}, offset=1, limit=200) or grep …]\n"
    )
    return long if len(long) * 2 <= limit_chars else short


def _head_end(text: str, at: int) -> int:
    """Return where a head of at most `at` characters ends: at a line's end when that is past 80 %."""
    newline = text.rfind("\n", at * 8 // 10, at)
    return newline + 1 if newline >= 0 else _back(text, at)


def _tail_start(text: str, at: int) -> int:
    """Return where a tail that starts at `at` or later starts: at a line when one starts within its first 20 %."""
    newline = text.find("\n", at - 1, at + (len(text) - at) // 5)
    return newline + 1 if newline >= 0 else _forward(text, at)


_SEARCH_CHARS: Final = 64  # a longer run of marks is no character that anybody reads


def _back(text: str, at: int) -> int:
    for place in range(at, max(0, at - _SEARCH_CHARS), -1):
        if _is_boundary(text, place):
            return place
    return 0 if at < _SEARCH_CHARS else at


def _forward(text: str, at: int) -> int:
    for place in range(at, min(len(text), at + _SEARCH_CHARS)):
        if _is_boundary(text, place):
            return place
    return min(at, len(text))


_ZWJ: Final = "\u200d"
_VIRAMA_CLASS: Final = 9  # Unicode canonical combining class: joins the consonants around it


def _is_boundary(text: str, at: int) -> bool:
    """Tell whether what a reader sees as one character does not straddle `at` (after UAX 29, simplified)."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after < "\u0300" and before < "\u0300":
        return not (before == "\r" and after == "\n")
    if before == _ZWJ or after == _ZWJ or unicodedata.combining(before) == _VIRAMA_CLASS:
        return False
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or _is_modifier(after):
        return False
    if _is_flag_half(before) and _is_flag_half(after):
        start = at
        while start > 0 and _is_flag_half(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 0
    return True


def _is_modifier(char: str) -> bool:
    """Tell whether `char` changes the emoji or syllable before it: skin tones, tags, Hangul vowels and finals."""
    return (
        "\U0001f3fb" <= char <= "\U0001f3ff"
        or "\U000e0020" <= char <= "\U000e007f"
        or "\u1160" <= char <= "\u11ff"
        or "\ud7b0" <= char <= "\ud7ff"
    )


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _last_state(found: re.Match[str]) -> str:
    """Return the last state of a line that was overwritten by carriage returns."""
    return next((part for part in reversed(found[0].split("\r")) if part.strip()), "")


def _apply_backspaces(found: re.Match[str]) -> str:
    shown: list[str] = []
    for char in found[0]:
        if char != "\b":
            shown.append(char)
        elif shown:
            shown.pop()
    return "".join(shown)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"
