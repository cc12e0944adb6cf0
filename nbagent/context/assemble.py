"""assemble: a view and the stored prefix become a request. Pure: same input, same bytes."""

from __future__ import annotations

from nbagent.core.messages import JsonObject, Prefix, Request
from nbagent.core.view import View

MESSAGE_BREAKPOINTS = 3  # the API takes 4 cache marks in all; the prefix has one (claude.md A7)


def assemble(view: View, prefix: Prefix, *, model: str, max_tokens: int, options: JsonObject) -> Request:
    """Return the request of the next model call.

    The prefix goes first as it was stored, then the messages of the view. Cache marks stand where
    the last request ended, so that it is read, and at the end, so that this one is written; the third
    where the request before it ended, in case the last one was never answered.
    """
    return Request(
        model=model, max_tokens=max_tokens, prefix=prefix, messages=view.messages,
        breakpoints=breakpoints(view), options=options,
    )  # fmt: skip


def breakpoints(view: View) -> tuple[int, ...]:
    """Return the indexes of the messages that carry a cache mark, oldest first.

    A write happens only at a mark and a read looks back 20 blocks from one. The last request
    ended before the last reply, so a mark there is a sure read however many blocks came since.
    """
    last = len(view.messages) - 1
    if last < 0:
        return ()
    marks = [last]
    for index in range(last, 0, -1):
        if view.messages[index].role == "assistant":
            if view.messages[index - 1].role == "user":
                marks.append(index - 1)
            if len(marks) == MESSAGE_BREAKPOINTS:
                break
    return tuple(sorted(set(marks)))
