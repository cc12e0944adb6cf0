"""Comms that work while a cell runs; and which comm is the panel's. Light: read at `%load_ext`."""

from __future__ import annotations

from typing import Any, Final, TypeVar

TARGET: Final = "nbagent"  # of the one comm; the kernel opens it
VERSION: Final = 1  # of the protocol: what this side speaks best
LEAST_VERSION: Final = 1  # the oldest that it still speaks

C = TypeVar("C")


def free_comm(comm: C) -> C:
    """Let messages of `comm` be handled beside a busy cell, without touching its figures; returns `comm`.

    Two workarounds: ipykernel 7.4.0 sends a message to the shell that last used the comm (`_reply_subshell_for`,
    its PR 1565), so a busy cell would hold it; and `handle_msg` fires `post_execute`, where the inline backend
    flushes the running cell's figure to nowhere (ipykernel issue 1564). To be removed when both are fixed.
    Handlers must only queue work and send on comms: no print, no pyplot, no code of the person's.
    """
    target: Any = comm
    if hasattr(target, "_reply_subshell_for"):
        target._reply_subshell_for = lambda _message, default: default

    def handle_msg(msg: Any) -> None:
        callback = target._msg_callback
        if callback is not None:
            callback(msg)

    if hasattr(target, "_msg_callback"):
        target.handle_msg = handle_msg
    return comm
