"""Describes values of unknown libraries in bounded text, without importing them or running costly code.

Rules: a secret-looking name shows its type only; texts that look like keys are masked; properties of unknown
objects are not touched, and their `repr` may fail or be long without harm.
"""

from __future__ import annotations

import inspect
import itertools
import re
import reprlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from nbagent.tools.kernel_types import VariableSummary

SUMMARY_CHARS = 2_000
FULL_CHARS = 8_000
MAX_COLUMNS = 50
MAX_SCANNED_CELLS = 5_000_000  # null counts of larger tables, and ranges of larger arrays, are not taken
MASK = "[masked]"

_SECRET_WORDS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "TOKEN", "CREDENTIAL", "APIKEY", "AUTH", "BEARER")
_SECRET_NAME = re.compile(r"(^|_)(KEYS?|PWD)(_|$|\d)")
_NOT_SECRET = re.compile(r"AUTHOR|TOKENI[SZ]|TOKEN_?COUNT|(N|NUM|MAX|MIN|LEN|COUNT)_TOKENS?$|^TOKENS$")
_SECRET_TEXT = re.compile(
    r"sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|hf_[A-Za-z0-9]{20,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_URL_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(@)")
_KEYED_VALUE = re.compile(r"""(['"](?P<name>\w{2,60})['"]\s*:\s*)(?P<quote>['"]).*?(?P=quote)""")


def is_secret_name(name: str) -> bool:
    """Say whether a variable, column or key of this name probably holds a secret.

    >>> is_secret_name("OPENAI_API_KEY"), is_secret_name("tokenizer"), is_secret_name("monkey")
    (True, False, False)
    """
    upper = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
    if _NOT_SECRET.search(upper):
        return False
    return any(word in upper.replace("_", "") for word in _SECRET_WORDS) or bool(_SECRET_NAME.search(upper))


def mask_secrets(text: str) -> str:
    """Return `text` with what looks like a key, a password in a URL or the value of a secret-looking key masked."""
    text = _URL_PASSWORD.sub(rf"\1{MASK}\2", _SECRET_TEXT.sub(MASK, text))
    return _KEYED_VALUE.sub(lambda m: f"{m[1]}'{MASK}'" if is_secret_name(m["name"]) else m[0], text)


def outline(name: str, value: object) -> VariableSummary:
    """Return name, type, shape and identity of `value`, and nothing of what it holds."""
    hidden = is_secret_name(name) and not callable(value)
    return VariableSummary(
        name=name, type_name=type_name(value), shape="" if hidden else shape_of(value), identity=identity_of(value)
    )


def summarize(name: str, value: object, *, full: bool = False, limit_chars: int | None = None) -> VariableSummary:
    """Describe `value`: an outline, and a text of at most `limit_chars` (2,000; 8,000 when `full`)."""
    limit = limit_chars or (FULL_CHARS if full else SUMMARY_CHARS)
    summary = outline(name, value)
    if is_secret_name(name) and not callable(value):
        text = "(the name looks like a secret: its value is not shown)"
    else:
        text = _clip(mask_secrets(_safely(lambda: _describe(value, rows=20 if full else 5), value)), limit)
    return VariableSummary(
        name=name, type_name=summary.type_name, shape=summary.shape, identity=summary.identity, text=text
    )


def type_name(value: object) -> str:
    """Return the short name of the type, with its package when that says something ("pandas.DataFrame")."""
    kind = type(value)
    package = str(kind.__module__).partition(".")[0]
    return kind.__qualname__ if package in ("builtins", "__main__") else f"{package}.{kind.__qualname__}"


def shape_of(value: object) -> str:
    """Return a short shape, "" when the value has none that is cheap to know."""
    if _is_tabular(value):
        return _safely(lambda: _shape_text(value), value, fallback="")
    if isinstance(value, str | bytes | bytearray | list | tuple | dict | set | frozenset | range):
        return f"len {len(value)}"
    return ""


def identity_of(value: object) -> str:
    """Return a token that changes when the name is bound to something else, or the value visibly changed.

    Cheap: sizes, columns and the first items are looked at; a change deep inside is not seen.
    """
    mark = _safely(lambda: _change_mark(value), value, fallback="")
    if isinstance(value, int | float | complex | str | bytes | bool | type(None)):
        return f"{type(value).__name__}:{mark}"
    return f"{id(value):x}:{mark}"


def _change_mark(value: Any) -> str:
    if isinstance(value, str | bytes):
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return f"{len(raw)}:{zlib.crc32(raw[:100_000]):x}"
    if isinstance(value, int):
        return str(value) if value.bit_length() < 256 else str(value.bit_length())
    if isinstance(value, float | complex):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"{len(value)}:{zlib.crc32(repr([id(v) for v in (*value[:50], *value[-50:])]).encode()):x}"
    if isinstance(value, dict):
        first = itertools.islice(value.items(), 100)
        return f"{len(value)}:{zlib.crc32(repr([(id(k), id(v)) for k, v in first]).encode()):x}"
    if isinstance(value, set | frozenset):
        return str(len(value))
    if _is_a(value, "DataFrame"):
        return f"{value.shape}:{zlib.crc32(repr(list(value.columns[:200])).encode()):x}"
    if _is_a(value, "ndarray") and value.nbytes <= 1_000_000 and value.dtype.kind in "biufc":
        return f"{value.shape}:{zlib.crc32(value.tobytes()):x}"
    return _shape_text(value) if _is_tabular(value) else ""


# ---------------------------------------------------------------------- kinds of values
_TABULAR = {"pandas": ("DataFrame", "Series", "Index"), "numpy": ("ndarray",), "polars": ("DataFrame", "Series")}
_TABULAR |= {"torch": ("Tensor",), "scipy": ("spmatrix", "sparray", "_spbase"), "geopandas": ("GeoDataFrame",)}


def _is_a(value: object, class_name: str, package: str = "") -> bool:
    """Say whether a class of this name, of a known library, is among the bases of the value's type."""
    for base in type(value).__mro__:
        home = str(base.__module__).partition(".")[0]
        if base.__name__ == class_name and class_name in _TABULAR.get(home, ()) and package in ("", home):
            return True
    return False


def _is_tabular(value: object) -> bool:
    return any(_is_a(value, name) for names in _TABULAR.values() for name in names)


def _shape_text(value: Any) -> str:
    return str(tuple(int(n) for n in value.shape))


def _describe(value: Any, *, rows: int) -> str:
    if _is_a(value, "DataFrame", "pandas"):
        return _frame(value, rows)
    if _is_a(value, "Series", "pandas"):
        return _series(value, rows)
    if _is_a(value, "ndarray") or _is_a(value, "Tensor"):
        return _array(value, rows)
    if _is_a(value, "DataFrame", "polars"):
        return _polars(value, rows)
    if isinstance(value, str | bytes):
        return f"{type_name(value)} of length {len(value)}\n{_short(rows).repr(value)}"
    if isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        return _mapping(value, rows)
    if isinstance(value, list | tuple | set | frozenset):
        return f"{type_name(value)} of length {len(value)}{_item_types(value)}\n{_short(rows).repr(value)}"
    if inspect.isclass(value) or inspect.isroutine(value):
        return _definition(value)
    return _other(value, rows)


def _frame(frame: Any, rows: int) -> str:
    count, width = frame.shape
    columns = list(frame.columns[:MAX_COLUMNS])
    part = frame.iloc[:, : len(columns)]
    nulls = list(part.isna().sum()) if count * len(columns) <= MAX_SCANNED_CELLS else None
    lines = [f"DataFrame, {count} rows x {width} columns; index: {type(frame.index).__name__}"]
    for i, (column, dtype) in enumerate(zip(columns, part.dtypes, strict=True)):
        missing = f", {nulls[i]} null" if nulls is not None and nulls[i] else ""
        lines.append(f"  {_cut(str(column), 80)}: {dtype}{missing}")
    if width > len(columns):
        lines.append(f"  ... {width - len(columns)} more columns")
    if nulls is None:
        lines.append("  (null counts not taken: the table is large)")
    shown = [i for i, column in enumerate(columns) if not is_secret_name(str(column))]
    sample = part.iloc[:rows, shown]
    return "\n".join([*lines, f"first {len(sample)} rows:", sample.to_string(max_colwidth=40, line_width=160)])


def _series(series: Any, rows: int) -> str:
    count = len(series)
    nulls = f", {int(series.isna().sum())} null" if count <= MAX_SCANNED_CELLS else ""
    head = f"Series {series.name!r}, {count} values, dtype {series.dtype}{nulls}"
    if is_secret_name(str(series.name)):
        return head
    numeric = series.dtype.kind in "iuf" and 0 < count <= MAX_SCANNED_CELLS
    extent = [f"min {series.min()}, max {series.max()}, mean {series.mean():.6g}"] if numeric else []
    return "\n".join([head, *extent, f"first {min(rows, count)}:", series.head(rows).to_string()])


def _array(array: Any, rows: int) -> str:
    device = f", device {array.device}" if _is_a(array, "Tensor") else ""
    lines = [f"{type_name(array)}, shape {_shape_text(array)}, dtype {array.dtype}{device}"]
    if _is_a(array, "ndarray"):
        if array.dtype.kind in "biuf" and 0 < array.size <= MAX_SCANNED_CELLS:
            lines.append(f"min {array.min()}, max {array.max()}, mean {array.mean():.6g}")
        if array.dtype.kind != "V":
            first = array.flat[: 4 * rows]  # of the flat order: a slice of the first axis could be huge
            lines.append(f"first {len(first)} values: {_short(4 * rows).repr(first.tolist())}")
    return "\n".join(lines)


def _polars(frame: Any, rows: int) -> str:
    columns = list(frame.schema.items())
    lines = [f"polars DataFrame, {frame.height} rows x {frame.width} columns"]
    lines += [f"  {_cut(str(name), 80)}: {dtype}" for name, dtype in columns[:MAX_COLUMNS]]
    if len(columns) > MAX_COLUMNS:
        lines.append(f"  ... {len(columns) - MAX_COLUMNS} more columns")
    shown = [name for name, _ in columns[:MAX_COLUMNS] if not is_secret_name(name)]
    return "\n".join([*lines, f"first rows:\n{frame.select(shown).head(rows)}"])


def _mapping(mapping: Mapping[Any, Any], rows: int) -> str:
    lines = [f"{type_name(mapping)} of length {len(mapping)}"]
    short = _short(rows)
    for i, (key, item) in enumerate(mapping.items()):
        if i == 4 * rows:
            lines.append(f"  ... {len(mapping) - i} more")
            break
        hidden = isinstance(key, str) and is_secret_name(key)
        lines.append(f"  {short.repr(key)}: {MASK if hidden else _item(item, short)}")
    return "\n".join(lines)


def _item(item: object, short: reprlib.Repr) -> str:
    return f"{type_name(item)} {shape_of(item)}" if _is_tabular(item) else short.repr(item)


def _item_types(items: Any) -> str:
    names = {type_name(item) for item in itertools.islice(items, 1000)}
    return f", of {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''}" if names else ""


def _definition(value: Any) -> str:
    kind = "class" if inspect.isclass(value) else "function"
    name = getattr(value, "__qualname__", getattr(value, "__name__", "?"))
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(...)"
    doc = value.__doc__ if isinstance(value.__doc__, str) else ""
    first = next((line.strip() for line in doc.splitlines() if line.strip()), "")
    return f"{kind} {name}{_cut(signature, 600)}" + (f"\n{_cut(first, 300)}" if first else "")


def _other(value: object, rows: int) -> str:
    if type(value).__repr__ is object.__repr__:
        held = getattr(value, "__dict__", {})
        names = ", ".join(f"{name}: {type_name(item)}" for name, item in itertools.islice(held.items(), 4 * rows))
        return f"{type_name(value)} object" + (f" with {names}" if names else "")
    return _short(rows).repr(value)


# ---------------------------------------------------------------------- bounds
def _short(rows: int) -> reprlib.Repr:
    """Return a repr of bounded size; `reprlib` guards against objects whose repr fails."""
    short = reprlib.Repr()
    short.maxlevel = 4
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = short.maxdeque = 4 * rows
    short.maxstring = short.maxother = 60 * rows
    short.maxlong = 60
    return short


def _safely(describe: Callable[[], str], value: object, *, fallback: str | None = None) -> str:
    try:
        return describe()
    except Exception as e:  # noqa: BLE001 - code of an unknown class; said in the text
        return f"{type_name(value)} (it could not be described: {type(e).__name__})" if fallback is None else fallback


def _cut(text: str, limit_chars: int) -> str:
    return text if len(text) <= limit_chars else text[: limit_chars - 3] + "..."


def _clip(text: str, limit_chars: int) -> str:
    note = "\n[cut]"
    return text if len(text) <= limit_chars else text[: limit_chars - len(note)] + note
