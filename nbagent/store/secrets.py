"""Scrubbing secrets out of text and JSON before it is kept. PURE.

What is found becomes `[secret:<kind>]`. Patterns are conservative: a key of a known shape, a
value after `password=` and the like only when it mixes letters and digits. The values of
secret-looking environment variables are replaced wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from operator import is_
from typing import Any

from nbagent.core.entries import Entry, Unknown

BEGINNING = 4  # characters by which the beginning of a secret is known
SHORTEST_VALUE = 8  # characters; shorter values stand in ordinary text by chance
REMEMBERED_CHARS = range(256, 100_000)  # of a text that is known to be scrubbed: a tool's result, as a rule
REMEMBERED_TEXTS = 4

_PATTERNS: tuple[tuple[str, str], ...] = (
    ("private-key", r"-----BEGIN (?P<pk>[A-Z ]{0,30}PRIVATE KEY)-----.*?(?:-----END (?P=pk)-----|\Z)"),
    ("anthropic-key", r"(?<![A-Za-z0-9])sk-ant-[A-Za-z0-9_-]{16,}"),
    # Mixed case and a digit, or a long plain run: 'sk-toggleable__label-arrow' is scikit-learn's CSS.
    ("api-key", r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,200}[A-Z])(?=[\w-]{0,200}[0-9])[A-Za-z0-9_-]{20,}"),
    ("api-key", r"(?<![A-Za-z0-9])sk-(?:[a-z0-9]{2,10}-){0,2}(?=[a-z]{0,64}[0-9])[A-Za-z0-9]{32,}"),
    ("aws-key", r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("github-token", r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ("slack-token", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("google-key", r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("huggingface-token", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
    ("jwt", r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
)
# These keep what stands before the value: group `head` stays. Every run is bounded, so that
# a long line of one kind of character costs no more than its length.
_VALUE = r"(?=[^\s\"'`]{0,64}[A-Za-z])(?=[^\s\"'`]{0,64}[0-9])"
_NAME_LIKE = r"(?![A-Za-z]{1,30}(?:[_-][A-Za-z]{1,30}){0,6}[_-]?[0-9]{0,2}(?![\w+/=!@#%^*~-]))"
_LABELLED: tuple[tuple[str, str], ...] = (
    ("bearer", r"(?i)(?P<head>\bbearer[ ]{1,3})(?=[\w.~+/-]{0,64}[0-9])[A-Za-z0-9._~+/-]{16,}=*"),
    ("password", r"(?P<head>://[^\s:/@\"'\[\]]{0,100}:)(?![$\{<%])[^\s:/@\"'\[\]]{3,200}(?=@)"),
    (
        "password",
        r"(?i)(?P<head>(?<![A-Za-z])(?:password|passwd|passphrase|secret|secret[_-]?key|token"
        r"|api[_-]?key|access[_-]?key)\\?[\"']?[ ]{0,3}[=:][ ]{0,3}\\?[\"']?)"
        r"(?:(?<=\")" + _VALUE + r"[^\s\"\[\]]{8,}(?=\")|(?<=')" + _VALUE + r"[^\s'\[\]]{8,}(?=')"
        r"|(?<![\"'])(?![\w.]{0,100}[(\[{])" + _NAME_LIKE + _VALUE + r"[A-Za-z0-9_+/=!@#%^*~-]{8,}(?![\w.(\[]))",
    ),
)
_HINT = re.compile(
    r"sk-|AKIA|ASIA|gh[pousr]_|github_pat_|xox|AIza|hf_|eyJ|PRIVATE KEY|://"
    r"|(?i:pass(?:word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|bearer)"
)
_PLAIN = tuple((f"[secret:{kind}]", re.compile(pattern, re.DOTALL)) for kind, pattern in _PATTERNS)
_HEADED = tuple((rf"\g<head>[secret:{kind}]", re.compile(pattern)) for kind, pattern in _LABELLED)
_TOMBSTONE = re.compile(r"(\[secret:[a-z-]+\])")

_NAME_WORDS = frozenset(
    {
        "KEY", "KEYS", "APIKEY", "AUTHKEY", "TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD",
        "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "PAT",
    }
)  # fmt: skip
_NAME_ENDS = ("TOKEN", "SECRET", "PASSWORD", "APIKEY", "PASSWD")
_NOT_VALUES = frozenset(
    {"FILE", "PATH", "DIR", "SOCK", "URL", "URI", "TYPE", "NAME", "COUNT", "LIMIT", "ENDPOINT", "TTL", "TIMEOUT"}
)

_OPAQUE = {"thinking": ("signature",), "redacted_thinking": ("data",), "base64": ("data",)}
_BLOCK_IDS = frozenset({"type", "id", "tool_use_id", "encrypted_content", "encrypted_index", "media_type"})
_KEPT = {kind: _BLOCK_IDS.union(names) for kind, names in _OPAQUE.items()}
_NOTHING: frozenset[str] = frozenset()
_FIXED_FIELDS = frozenset(
    {
        "turn", "model", "policy", "mode", "prefix", "cell_id", "source_hash", "response_id", "call_id", "first_kept",
        "cancels", "target", "artifact", "status", "outcome", "stop_reason",
    }
)  # fmt: skip


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values, longest first, of the variables in `environ` whose names look secret.

    Values shorter than 8 characters, paths, and plain words are left out, since they would be
    replaced in ordinary text.
    """
    found = {v.strip() for name, v in environ.items() if is_secret_name(name) and _is_secret_value(v.strip())}
    return tuple(sorted(found, key=lambda v: (-len(v), v)))


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name probably holds a secret.

    >>> [is_secret_name(n) for n in ("OPENAI_API_KEY", "DB_PASSWORD", "KEYBOARD", "SSL_KEY_FILE")]
    [True, True, False, False]
    """
    words = re.split(r"[^A-Z0-9]+", name.upper())
    if words[-1] in _NOT_VALUES:
        return False
    return any(w in _NAME_WORDS or w.endswith(_NAME_ENDS) for w in words)


def _is_secret_value(value: str) -> bool:
    if len(value) < SHORTEST_VALUE or value[0] in "/~." or re.match(r"[A-Za-z]:[\\/]", value):
        return False
    return not re.fullmatch(r"[a-z]{,12}|[A-Z]{,12}", value)


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with every known key pattern and every value in `secrets` replaced by `[secret:<kind>]`.

    Idempotent; without a hit the same object comes back.

    >>> scrub("token: hf_" + "a1B2" * 9)
    'token: [secret:huggingface-token]'
    """
    values = [s for s in secrets if len(s) >= SHORTEST_VALUE]
    if not has_hint(text) and not any(s in text for s in values):
        return text
    while True:  # a replacement can bare a new word boundary; each round leaves less text
        pieces = _TOMBSTONE.split(text)
        scrubbed = "".join(p if i % 2 else _scrub_piece(p, values) for i, p in enumerate(pieces))
        if scrubbed == text:
            return text
        text = scrubbed


def has_hint(text: str) -> bool:
    """Tell whether `text` holds a word that a pattern could begin at; most text does not, and is done with."""
    if not text.isascii():
        return _HINT.search(text) is not None
    # The same words for ASCII text, one after the other: ten times as fast as the alternation, and twice as a loop.
    # One character is found, or missed, at once: a word is looked for where its rarest stands.
    if (
        ("-" in text and "sk-" in text) or ("/" in text and "://" in text) or ("J" in text and "eyJ" in text)
        or ("x" in text and "xox" in text)
    ):  # fmt: skip
        return True
    if "I" in text and ("AKIA" in text or "ASIA" in text or "AIza" in text or "PRIVATE KEY" in text):
        return True
    if "_" in text and (
        "hf_" in text or "ghp_" in text or "gho_" in text or "ghu_" in text or "ghs_" in text or "ghr_" in text
        or "github_pat_" in text
    ):  # fmt: skip
        return True
    folded = text.lower()
    return (
        ("pass" in folded and ("password" in folded or "passwd" in folded or "passphrase" in folded))
        or "secret" in folded or "token" in folded or "bearer" in folded
        or ("api" in folded and ("apikey" in folded or "api_key" in folded or "api-key" in folded))
        or ("access" in folded and ("accesskey" in folded or "access_key" in folded or "access-key" in folded))
    )  # fmt: skip


def _scrub_piece(piece: str, values: list[str]) -> str:
    for value in values:
        if value in piece:
            return piece.replace(value, "[secret:env]")
    for tombstone, pattern in _PLAIN:
        changed = pattern.sub(tombstone, piece)
        if changed != piece:
            return changed
    for tombstone, pattern in _HEADED:
        changed = pattern.sub(tombstone, piece)
        if changed != piece:
            return changed
    return piece


@lru_cache(maxsize=256)
def _names(kind: Any, kept: frozenset[str]) -> tuple[str, ...]:
    return tuple(spec.name for spec in fields(kind) if spec.name not in kept)


class Scrubber:
    """Scrubs text, JSON values and entries with one set of secret values; without a hit the same object comes back."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(sorted({s for s in secrets if len(s) >= SHORTEST_VALUE}, key=lambda s: (-len(s), s)))
        self._key = lru_cache(maxsize=1024)(self.text)  # keys repeat in every entry
        self._clean: tuple[str, ...] = ()  # the last longer texts that came out of here

    def text(self, text: str) -> str:
        """Return `text` scrubbed. The very object that came out of here is not gone through again soon after.

        A tool's result is scrubbed for the model, passes into the journal, and is shown.
        """
        if len(text) not in REMEMBERED_CHARS:
            return scrub(text, self._secrets) if len(text) >= SHORTEST_VALUE else text
        for known in self._clean:
            if known is text:
                return text
        return self._remembered(scrub(text, self._secrets))

    def _remembered(self, clean: str) -> str:
        if len(clean) in REMEMBERED_CHARS:
            self._clean = (clean, *self._clean[: REMEMBERED_TEXTS - 1])
        return clean

    def beginning(self, text: str, chars: int) -> str:
        """Return the first characters of `text`, which came out of here: what is no secret in it is none in its part.

        A text from elsewhere is scrubbed first.
        """
        clean = self.text(text)
        return clean if len(clean) <= chars else self._remembered(clean[:chars])

    def may_begin_secret(self, word: str) -> bool:
        """Tell whether `word`, which may go on, holds the beginning of a secret. Cheap."""
        return has_hint(word) or any(secret[:BEGINNING] in word for secret in self._secrets)

    def value(self, value: Any) -> Any:
        """Return a JSON value scrubbed.

        In blocks, signatures, base64 data and ids stay as they are. Thinking that held a
        secret loses its signature: changed thinking would be refused by the provider.
        """
        kind = value.__class__
        if kind is str or isinstance(value, str):
            return self.text(value)
        if kind is dict:
            return self._object(value)
        if value is None or kind is int or isinstance(value, int | float):
            return value
        if kind is list or kind is tuple or isinstance(value, list | tuple):
            items = [self.value(v) for v in value]
            return value if all(map(is_, items, value)) else type(value)(items)
        return self._object(value) if isinstance(value, Mapping) else value

    def _object(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        kind = value.get("type")
        kept = _KEPT.get(kind, _BLOCK_IDS) if isinstance(kind, str) else _NOTHING
        keys = [self._key(k) for k in value]
        items = [v if k in kept and isinstance(v, str) else self.value(v) for k, v in value.items()]
        if all(map(is_, items, value.values())) and all(map(is_, keys, value)):
            return value
        out = dict(zip(keys, items, strict=True))
        if kind == "thinking" and out.get("thinking") != value.get("thinking") and "signature" in out:
            out["signature"] = ""
        return out

    def changes(self, record: Any, kept: frozenset[str]) -> dict[str, Any]:
        """Return field -> what a dataclass is to hold instead, for those that held a secret; not of those `kept`."""
        changed: dict[str, Any] = {}
        for name in _names(record.__class__, kept):
            old = getattr(record, name)
            if old is None or old == "" or isinstance(old, int | float):
                continue
            new = self.value(old)
            if new is not old:
                changed[name] = new
        return changed

    def entry(self, entry: Entry) -> Entry:
        """Return `entry` with every text of its body scrubbed; ids, hashes and names of models stay."""
        body = entry.body
        if isinstance(body, Unknown):
            raw = self.value(body.raw)
            return entry if raw is body.raw else Entry(entry.id, entry.parent, entry.at, Unknown(raw=raw))
        changed = self.changes(body, _FIXED_FIELDS)
        return Entry(entry.id, entry.parent, entry.at, replace(body, **changed)) if changed else entry
