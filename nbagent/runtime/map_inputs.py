"""Map inputs: what one prompt is asked of, one by one: files, lines, or rows of a table."""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.core.errors import UsageProblem
from nbagent.core.messages import canonical
from nbagent.runtime.attach import IMAGES

EACH = ("file", "line", "row")
STDIN = Path("-")
_TABLES = {".csv": ",", ".tsv": "\t"}
_PLACE = re.compile(r"\{\{\w+\}\}|\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MapInput:
    """One input: its number from 1, what it is called or holds (JSON), and the prompt that asks of it.

    `mark` is the same for the same input and prompt, and another when either changed.
    """

    number: int
    value: Any
    prompt: str
    mark: str


def map_inputs(prompt: str, places: Sequence[Path], *, each: str, folder: Path) -> tuple[MapInput, ...]:
    """Return the inputs that `places` hold, in order; `each` is one of EACH.

    A file goes along as an attachment, so it has to be in `folder`. `{input}` in the prompt is the file's name,
    the line or the row as JSON, `{column}` a cell of the row; a line or row without a place comes below the prompt.
    Beside a table `{{word}}` is `{word}` itself; all other braces are as typed.

    Raises:
        UsageProblem: the prompt is blank, a place cannot be read or holds no input, a column is not there.
    """
    if not prompt.strip():
        raise UsageProblem("the prompt is empty; write what is asked of each input")
    read = {"file": _files, "line": _lines, "row": _rows}[each]
    found = [
        MapInput(number=number, value=value, prompt=text, mark=_mark(text, content))
        for number, (value, text, content) in enumerate(read(prompt, places, folder), 1)
    ]
    if not found:
        raise UsageProblem(f"there is no {each} in {', '.join(map(str, places))}; name something that holds one")
    return tuple(found)


def _mark(text: str, content: bytes) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass") + b"\0" + content).hexdigest()[:16]


def _files(prompt: str, places: Sequence[Path], folder: Path) -> Iterator[tuple[str, str, bytes]]:
    root = folder.resolve()
    for place in places:
        if place == STDIN:
            raise UsageProblem("standard input is not a file; --each line reads its lines, --each row its rows")
        whole = (root / place).resolve()
        if whole.is_dir():
            raise UsageProblem(f"{str(place)!r} is a folder; name its files, such as {place}/*.md")
        if not whole.is_relative_to(root):
            raise UsageProblem(f"{str(place)!r} is outside of this folder; run the command in a folder above it")
        name = whole.relative_to(root).as_posix()
        if '"' in name or "\n" in name:
            raise UsageProblem(f"{name!r} cannot be attached, its name holds a quote or a line end; rename it")
        content = _content(place, whole)
        if b"\0" in content[:1024] and whole.suffix.lower() not in IMAGES:
            raise UsageProblem(f"{str(place)!r} is neither text nor an image; make text of it first")
        yield name, f'@"{name}"\n\n{_placed(prompt, {"input": name}).text}', content


def _lines(prompt: str, places: Sequence[Path], folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for place in places:
        for line in _text(place, folder).splitlines():
            if line.strip():
                yield line, _below(_placed(prompt, {"input": line}), line), b""


def _rows(prompt: str, places: Sequence[Path], folder: Path) -> Iterator[tuple[dict[str, Any], str, bytes]]:
    for place in places:
        for row in _table(place, _text(place, folder)):
            whole = json.dumps(row, ensure_ascii=False)
            placed = _placed(prompt, {**row, "input": row.get("input", whole)}, of=place)
            yield row, _below(placed, whole), b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    text: str
    filled: bool


def _placed(prompt: str, values: Mapping[str, Any], of: Path | None = None) -> _Placed:
    """Return `prompt` with `{name}` filled; with `of`, a table, every such name has to be a column of it."""
    filled = False

    def fill(match: re.Match[str]) -> str:
        nonlocal filled
        name = match.group(1)
        if name in values:
            filled = True
            value = values[name]
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if of is None:
            return match.group()
        if name is None:
            return match.group()[1:-1]
        columns = [c for c in values if c != "input"]
        near = difflib.get_close_matches(name, columns, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(columns)}."
        raise UsageProblem(f"{of} has no column {name!r}; {meant} For the word itself write {{{{{name}}}}}")

    text = _PLACE.sub(fill, prompt)
    return _Placed(text=text, filled=filled)


def _below(placed: _Placed, text: str) -> str:
    return placed.text if placed.filled else f"{placed.text.rstrip()}\n\n{text}"


def _table(place: Path, text: str) -> Iterator[dict[str, Any]]:
    if place.suffix.lower() in _TABLES:
        yield from _csv(place, text, _TABLES[place.suffix.lower()])
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UsageProblem(
                f"line {number} of {place} is no JSON object; rows are read from .csv and .tsv, and from JSON lines"
            )
        yield row


def _csv(place: Path, text: str, delimiter: str) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise UsageProblem(
                    f"line {reader.line_num} of {place} has not as many cells as the first line; mend the table"
                )
            yield dict(row)
    except csv.Error as error:
        raise UsageProblem(f"line {reader.line_num} of {place} cannot be read ({error}); mend the table") from None


def _text(place: Path, folder: Path) -> str:
    content = sys.stdin.buffer.read() if place == STDIN else _content(place, folder / place)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageProblem(f"{place} is not UTF-8 text; save it as UTF-8, or name another") from None


def _content(place: Path, whole: Path) -> bytes:
    try:
        content = whole.read_bytes()
    except OSError as error:
        raise UsageProblem(f"{str(place)!r} cannot be read ({error.strerror}); check the path") from None
    return content


def asked_of(prompt: str, options: Mapping[str, Any]) -> str:
    """Return a mark of what every input is asked: prompt and options (JSON)."""
    return hashlib.sha256(canonical({"prompt": prompt, "options": dict(options)}).encode()).hexdigest()[:16]
