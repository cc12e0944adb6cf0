"""Words that panels told a turn or a sub-agent: whether each was heard, for the second reply to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from nbagent.core.messages import JsonObject
from nbagent.notebook.panel.protocol import cut, reply
from nbagent.notebook.panel.thread import Peer
from nbagent.runtime.agents import unheard_line

THE_TURN = ""  # as a listener; the others are sub-agents, as the command named them
_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    peer: Peer
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A second reply, and to whom."""

    peer: Peer
    message: JsonObject


class ToldWords:
    """Words not settled yet, oldest first. Safe from any thread. A listener hears all that wait at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, list[_Told]] = {}

    @property
    def listeners(self) -> tuple[str, ...]:
        """Those who were told something that is not settled."""
        with self._lock:
            return tuple(self._told)

    def add(self, listener: str, peer: Peer, command_id: str, text: str) -> None:
        """Note words; they wait at the listener already."""
        with self._lock:
            self._told.setdefault(listener, []).append(_Told(peer=peer, id=command_id, text=text))

    def settle(self, listener: str, waiting: int, *, ended: bool, name: str = "") -> list[Settled]:
        """Settle what was heard: all but the last `waiting`; those too, as not heard, when the listener `ended`."""
        with self._lock:
            told = self._told.pop(listener, [])
            at = max(0, len(told) - waiting)
            heard, rest = told[:at], told[at:]
            if rest and not ended:
                self._told[listener] = rest
        who = name or "the turn"
        line = f"{name or 'The agent'} heard it."
        out = [Settled(peer=t.peer, message=reply(t.id, "ok", line)) for t in heard]
        for left in rest if ended else ():
            line = unheard_line(who, cut(left.text, _SHOWN_BYTES))
            out.append(Settled(peer=left.peer, message=reply(left.id, "error", line)))
        return out
