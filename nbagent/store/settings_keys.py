"""The keys of the settings: name, kind of value, default; and how text becomes a value. PURE."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nbagent.store.settings_defaults import HOME, MODEL, MODES, POLICY, URL, WINDOW_TOKENS

MEMORY_PRESETS = ("nbagent", "recipe", "openclaw", "openclaw@seed")  # those of memory/recall.py
OBSERVE = ("off", "outline", "full")  # from narrow to wide
PROVIDER = ("off", "clear", "compact", "both")  # what of managing the context is left to the provider
PROMPT = ("full", "minimal", "none")  # how much of the system text the model gets
RERUN = ("fork", "reuse", "append")
SKILL_MODES = ("nbagent", "read", "tool")


class Key(NamedTuple):  # as all here: a dataclass takes longer to make than the settings to be read
    """One setting. `check` returns the value as kept or raises ValueError; `expected` says in words what it takes.

    `parse` makes a value of an environment variable's text. `paths` marks folders, which are
    relative to the file that names them.
    """

    name: str
    default: Any
    expected: str
    check: Callable[[Any], Any]
    parse: Callable[[str], Any] = str
    paths: bool = False


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _session(value: Any) -> str:
    name = _text(value)
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise ValueError
    return name


def _url(value: Any) -> str:
    url = _text(value)
    if not re.match(URL, url):
        raise ValueError
    return url


def _one_of(words: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError
        return value

    return check


def _whole(least: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        return value

    return check


def _dollars(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError
    return float(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError
    return float(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    return tuple(_text(v) for v in value)


def _table_of_tables(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise ValueError
    return dict(value)


def _parse_list(text: str) -> Any:
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _choice_key(name: str, default: str, words: tuple[str, ...]) -> Key:
    return Key(name=name, default=default, expected=f"one of {', '.join(words)}", check=_one_of(words))


def _text_key(name: str, default: str | None, expected: str = "a text", *, paths: bool = False) -> Key:
    return Key(name=name, default=default, expected=expected, check=_text, paths=paths)


def _url_key(name: str) -> Key:
    return Key(name=name, default=None, expected="a URL that starts with http:// or https://", check=_url)


def _whole_key(name: str, default: int | None, least: int) -> Key:
    return Key(name=name, default=default, expected=f"a whole number, at least {least}", check=_whole(least), parse=int)


def _dollar_key(name: str) -> Key:
    return Key(name=name, default=None, expected="US dollars, a number from 0", check=_dollars, parse=float)


def _list_key(name: str, *, paths: bool = False) -> Key:
    return Key(name=name, default=(), expected="a list of texts", check=_texts, parse=_parse_list, paths=paths)


KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        _text_key("model", MODEL, "the name of a model"),
        _text_key("policy", POLICY, "the name of a context policy"),
        _choice_key("mode", "ask", ("ask", "auto", "plan")),
        _choice_key("rerun", "fork", RERUN),
        _choice_key("observe", "outline", OBSERVE),
        Key(
            name="session", default=None, check=_session,
            expected="a name of letters, digits, '_', '.' and '-', at most 100 characters",
        ),
        _text_key("home", HOME, "a folder", paths=True),
        _whole_key("window_tokens", WINDOW_TOKENS, 1_000),
        Key(name="threshold", default=None, expected="a share of the window above 0 and up to 1, such as 0.7",
            check=_share, parse=float),
        _choice_key("context.provider", "off", PROVIDER),
        _choice_key("context.prompt", "full", PROMPT),
        _url_key("base_url"),
        _whole_key("limits.max_steps", 50, 1),
        _whole_key("limits.max_tokens", None, 1),
        _dollar_key("limits.max_cost_usd"),
        _dollar_key("limits.session_cost_usd"),
        _dollar_key("limits.day_cost_usd"),
        _choice_key("skills.mode", "nbagent", SKILL_MODES),
        _list_key("skills.extra_dirs", paths=True),
        _list_key("skills.allow_bundled"),
        Key(name="skills.entries", default={}, expected="a table with one table for each skill",
            check=_table_of_tables, parse=json.loads),
        _list_key("skills.trust"),
        _text_key("memory.embedder", "static", "the name of an embedder"),
        _choice_key("memory.preset", "nbagent", MEMORY_PRESETS),
        _list_key("memory.extra_dirs", paths=True),
        _choice_key("memory.flush", "on", ("on", "off")),
        _list_key("tools.allow"),
        _list_key("tools.ask"),
        _list_key("tools.deny"),
        _url_key("openai.base_url"),
        _text_key("openai.model", None, "the name of a model"),
    )
}  # fmt: skip

SECTIONS = frozenset(name.split(".")[0] for name in KEYS if "." in name)


def nearest(name: str) -> str:
    """Return the known key most like `name`, also when only its last part is like it; "" when none is.

    >>> nearest("limits.max_step"), nearest("max_steps"), nearest("extra-dirs")
    ('limits.max_steps', 'limits.max_steps', 'skills.extra_dirs')
    """
    import difflib  # only for what is misspelt

    folded = name.lower().replace("-", "_")
    same_letters = [key for key in KEYS if sorted(key) == sorted(folded)]
    whole = same_letters or difflib.get_close_matches(folded, KEYS, n=1, cutoff=0.75)
    if whole:
        return whole[0]
    lasts: dict[str, str] = {}
    for key in KEYS:
        lasts.setdefault(key.rsplit(".", 1)[-1], key)
    last = difflib.get_close_matches(folded.rsplit(".", 1)[-1], lasts, n=1, cutoff=0.75)
    if last:
        return lasts[last[0]]
    loose = difflib.get_close_matches(folded, KEYS, n=1, cutoff=0.4)
    return loose[0] if loose else ""


class Narrowed(NamedTuple):
    """What of an untrusted project's value stands: `value`, when `accepted`."""

    accepted: bool
    value: Any = None


_REFUSED = Narrowed(accepted=False)
# What a cloned project may choose: nothing here lets code run, data out or money be spent without a ceiling.
_FREE = frozenset(
    {
        "model", "policy", "rerun", "session", "threshold", "context.provider", "skills.mode", "memory.preset",
        "openai.model",
    }
)  # fmt: skip


def narrow(name: str, value: Any, current: Any) -> Narrowed:
    """Return what stands of `value` when a project that nobody trusted gives it over `current`.

    A project may narrow (a stricter mode, lower limits, more deny and ask rules, skills
    switched off) and choose what costs no safety. It cannot add allow rules, addresses,
    folders or keys.
    """
    for key, order in (("mode", MODES), ("observe", OBSERVE)):
        if name == key:
            return Narrowed(accepted=True, value=value) if order.index(value) <= order.index(current) else _REFUSED
    if name.startswith("limits.") or name == "window_tokens":
        return Narrowed(accepted=True, value=value) if current is None or value <= current else _REFUSED
    if name in ("tools.ask", "tools.deny"):
        return Narrowed(accepted=True, value=tuple(dict.fromkeys((*current, *value))))
    if name == "skills.allow_bundled":
        kept = value if not current else tuple(v for v in value if v in current)
        return Narrowed(accepted=True, value=kept) if kept == value and value else _REFUSED
    if name == "skills.entries":
        off = {k: {**current.get(k, {}), "enabled": False} for k, v in value.items() if v == {"enabled": False}}
        return Narrowed(accepted=True, value={**current, **off}) if len(off) == len(value) else _REFUSED
    return Narrowed(accepted=True, value=value) if name in _FREE else _REFUSED
