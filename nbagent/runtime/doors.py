"""Doors: what the notebook needs of the rooms below, so that it imports only this one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbagent.context.tail import CellRun
from nbagent.core.entries import TurnStart, UsageReported
from nbagent.core.messages import Request
from nbagent.models.anthropic_body import request_bytes
from nbagent.models.cassette import load as load_cassette
from nbagent.models.credentials import SCRIPTED, has_credentials
from nbagent.runtime.clock import minute_text_of
from nbagent.runtime.places import known_sessions
from nbagent.runtime.scrubbed import ScrubbedText
from nbagent.store.journal_reading import read_journal
from nbagent.store.secrets import Scrubber
from nbagent.store.settings import Settings, load_settings
from nbagent.tools.summarize import outline, summarize

__all__ = [
    "CellRun", "KeptSession", "ScrubbedText", "Scrubber", "Settings", "kept_sessions", "load_cassette", "load_settings",
    "model_is_ready", "outline", "request_as_sent", "summarize",
]  # fmt: skip


def model_is_ready(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Tell whether the model of the settings could be called: it is scripted, or there are credentials."""
    return settings.model.startswith(SCRIPTED) or has_credentials(environ)


def request_as_sent(request: Request) -> dict[str, Any]:
    """Return the JSON body of a request, cache marks included."""
    wire: dict[str, Any] = json.loads(request_bytes(request))
    return wire


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    """A session on disk, read without locking it. `notebook` is the file's name, empty when it had none.

    `last_turn` is when the newest turn began, in UTC, to the minute.
    """

    name: str
    turns: int
    cost_usd: float
    model: str
    notebook: str
    last_turn: str = ""


def kept_sessions(folder: Path) -> tuple[KeptSession, ...]:
    """Return the sessions kept beside the notebooks of `folder`, by name."""
    found = []
    for known in known_sessions(folder):
        journal = known.folder / "journal.jsonl"
        entries = read_journal(journal).entries if journal.is_file() else ()
        starts = [e.body for e in entries if isinstance(e.body, TurnStart)]
        begun = max((e.at for e in entries if isinstance(e.body, TurnStart)), default=None)
        found.append(
            KeptSession(
                name=known.name, turns=len(starts), model=starts[-1].model if starts else "",
                cost_usd=sum(e.body.cost_usd for e in entries if isinstance(e.body, UsageReported)),
                notebook=known.notebook.name if known.notebook else "",
                last_turn="" if begun is None else minute_text_of(begun),
            )
        )  # fmt: skip
    return tuple(found)
