"""Neutral: a recording's texts without the folders of the machine that it was made on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbagent.core.entries import Entry, UserMessage, body_from_dict, body_to_dict
from nbagent.core.messages import Prefix

_OPAQUE = frozenset({"signature", "encrypted_content", "encrypted_index"})  # provider's own bytes
_BINARY = frozenset({"base64", "redacted_thinking"})  # types of a block whose "data" is no text
PACKAGE = Path(__file__).absolute().parents[1]  # bundled skills lie in it


class Neutral:
    """Replaces the workspace by `.`, the home folder by `~` and this package's by `nbagent`, however they are written.

    Signatures, encrypted content and base64 stay as they are; so does what the person typed, since a turn is
    found by it.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        names: dict[str, str] = {}
        for path, short in ((home, "~"), (PACKAGE, PACKAGE.name), (folder, ".")):
            for known in (path.absolute(), Path(os.path.realpath(path))):
                if len(known.parts) > 1:
                    names |= dict.fromkeys((str(known), known.as_posix(), str(known).replace("\\", "\\\\")), short)
        either = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)"
        # A folder's name ends there: `/home/ann` is neither in `/home/anna` nor in `/home/ann.old`.
        self._pattern = re.compile(rf"(?<!\w)(?:{either})(?![\w-]|\.\w)")
        self._names = names

    def text(self, text: str) -> str:
        """Return `text` with neutral folders."""
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts, and names in objects, have neutral folders."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(v) for v in value]
        if isinstance(value, Mapping):
            kept = _OPAQUE | {"data"} if value.get("type") in _BINARY else _OPAQUE
            return {self.text(k): v if k in kept else self.value(v) for k, v in value.items()}
        return value

    def entry(self, entry: Entry) -> Entry:
        """Return `entry` with neutral folders."""
        before = body_to_dict(entry.body)
        after = self.value(before)
        if isinstance(entry.body, UserMessage):
            typed = next((i for i, b in enumerate(entry.body.blocks) if b.get("type") == "text"), None)
            if typed is not None:
                after["blocks"][typed] = entry.body.blocks[typed]
        return replace(entry, body=body_from_dict(after))

    def prefix(self, prefix: Prefix) -> Prefix:
        """Return `prefix` with neutral folders."""
        return Prefix(
            system=tuple(self.value(prefix.system)), tools=tuple(self.value(prefix.tools)), categories=prefix.categories
        )
