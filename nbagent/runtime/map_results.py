"""MapResults: the file of answers, a JSON line each, from which a mapping that was broken off goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nbagent.core.errors import JournalLocked, UsageProblem
from nbagent.runtime.map_inputs import MapInput
from nbagent.runtime.mapping import Answer
from nbagent.runtime.places import FOLDER
from nbagent.store.files import make_private, unwritable

if TYPE_CHECKING:
    from filelock import BaseFileLock

FIELDS = (
    "number", "input", "text", "outcome", "message", "cost_usd", "steps", "model", "session", "turn", "mark",
)  # fmt: skip


def row_of(answer: Answer, asked: str) -> dict[str, Any]:
    """Return an answer as it is written; `asked` marks prompt and options."""
    return {name: getattr(answer, name) for name in FIELDS} | {"asked": asked}


class MapResults:
    """The answers in the file `path`. Open it with `with`; each `add` is on the disk before the next input begins.

    Answers of an earlier run to the same question are kept, failed ones are asked again. A last line that a kill cut
    is dropped. At the end the lines are in the order of the inputs.

    Raises:
        UsageProblem: the file holds something else, or answers to another question; it is left as it is.
        JournalLocked: another process writes to it.
        JournalUnwritable: it cannot be written.
    """

    def __init__(self, path: Path, *, asked: str, folder: Path) -> None:
        self._path = path
        self._asked = asked
        self._lock = _locked(path, folder)
        try:
            self._rows = self._read()
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def begin(self, inputs: Iterable[MapInput]) -> tuple[MapInput, ...]:
        """Return the inputs that have no answer yet, and take the failed ones out of the file."""
        done = Counter(str(row["mark"]) for row in self._rows)
        left = []
        for one in inputs:
            if done[one.mark]:
                done[one.mark] -= 1
            else:
                left.append(one)
        self._write_all()
        return tuple(left)

    def add(self, answer: Answer) -> None:
        """Write an answer behind the others."""
        row = row_of(answer, self._asked)
        self._rows.append(row)
        try:
            with self._path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                file.write(_line(row))
        except OSError as error:
            raise unwritable(self._path, error) from error

    def finish(self, inputs: Iterable[MapInput]) -> None:
        """Put the lines into the order of the inputs."""
        order: dict[str, list[int]] = {}
        for one in inputs:
            order.setdefault(one.mark, []).append(one.number)
        for row in self._rows:
            numbers = order.get(str(row["mark"]))
            row["number"] = numbers.pop(0) if numbers else row["number"]
        self._rows.sort(key=lambda row: row["number"])
        self._write_all()

    def _read(self) -> list[dict[str, Any]]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageProblem(f"{str(self._path)!r} cannot be read ({error.strerror}); name another file") from error
        lines = content.split(b"\n")
        cut = lines.pop()  # empty, unless a kill cut the line
        found = [self._row(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if cut and not found and not _begins_row(cut):
            raise self._foreign(1)
        return [row for row in found if row["outcome"] == "completed"]

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {*FIELDS, "asked"} <= set(row):
            raise self._foreign(number)
        if row["asked"] != self._asked:
            raise UsageProblem(
                f"{str(self._path)!r} holds answers to another prompt or other options; name another file with --out"
            )
        return row

    def _foreign(self, number: int) -> UsageProblem:
        line = f"line {number} of {str(self._path)!r} is no answer of nbagent map; name another file with --out"
        return UsageProblem(line)

    def _write_all(self) -> None:
        temp = self._path.with_name(f"{self._path.name}.tmp-{os.getpid()}")
        try:
            with temp.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                file.writelines(map(_line, self._rows))
            os.replace(temp, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temp.unlink()
            raise unwritable(self._path, error) from error


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _begins_row(line: bytes) -> bool:
    return line.startswith(b'{"number": ') or b'{"number": '.startswith(line)


def _locked(path: Path, folder: Path) -> BaseFileLock:
    from filelock import FileLock, Timeout

    place = folder / FOLDER
    name = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    try:
        make_private(place)
        lock = FileLock(str(place / f"map-{name}.lock"), thread_local=False)
        lock.acquire(timeout=0)
    except Timeout:
        line = f"another 'nbagent map' writes to {str(path)!r}; wait for it, or name another file"
        raise JournalLocked(line) from None
    except OSError as error:
        raise unwritable(place, error) from error
    return lock
