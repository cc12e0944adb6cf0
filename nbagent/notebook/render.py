"""From the picture of a turn to MIME bundles, each readable on its own: HTML, Markdown and plain text.

No bundle holds a script or needs nbagent to be seen. Plain text never holds a time; HTML and
Markdown hold none for a replayed turn, so that stored outputs can be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from nbagent.core.effects import TurnDone
from nbagent.notebook.markdown import (
    clean,
    clean_line,
    closed,
    escape,
    highlighted,
    markdown_html,
    safe_markdown,
    settled,
    with_definitions,
)
from nbagent.notebook.picture import Item, NoticeItem, TextItem, ToolItem, TurnPicture

__all__ = ["Bundle", "Foot", "Part", "TurnPicture", "final_bundle", "render"]

Bundle: TypeAlias = dict[str, str]

DETAIL_CHARS = 4_000  # of a call's input or result shown under its line; the journal holds the rest
SUMMARY_CHARS = 120
_DIM = "font-size:0.85em;opacity:0.75"
_BOX = "border-left:2px solid var(--jp-border-color2,currentColor);margin:0.3em 0;padding-left:0.6em"
_PRE = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto;margin:0.3em 0"
_ALARM = "border-left:3px solid var(--jp-error-color1,#d32f2f);margin:0.5em 0;padding-left:0.6em"


@dataclass(slots=True)
class Part:
    """An item, or characters `start` to `end` of a text item (`end` None: to its end). `growing`: more is to come."""

    item: Item
    start: int = 0
    end: int | None = None
    growing: bool = False

    @property
    def text(self) -> str:
        """The text of the part."""
        return self.item.text[self.start : self.end]

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to see: text of blanks."""
        return not isinstance(self.item, ToolItem) and not self.text.strip()


def final_bundle(picture: TurnPicture, quiet: bool = False) -> Bundle:
    """Return the whole turn as one bundle; `quiet` keeps the answer and, of a turn that failed, its line."""
    parts = [Part(i) for i in picture.items if is_shown(i, quiet)]
    return render(parts, picture, foot=end_lines(picture, quiet))


def is_shown(item: Item, quiet: bool) -> bool:
    """Tell whether `item` is shown, in a quiet turn or another."""
    return not quiet or (isinstance(item, TextItem) and not item.thinking)


def live_markdown(parts: Sequence[Part], foot: str) -> Bundle:
    """Return text that still grows, as Markdown which the front end renders, with the line `foot` under it."""
    texts = [safe_markdown(settled(p.text)) if p.growing else _markdown(p) for p in parts if not p.is_blank]
    line = [f"<small>{_entities(foot)}</small>"] if foot else []
    return {"text/markdown": "\n\n".join([*texts, *line])}


def frozen_text(parts: Sequence[Part]) -> Bundle:
    """Return finished text alone as Markdown and plain text: the front end's own renderer shows it at no cost to us."""
    shown = [p for p in parts if not p.is_blank]
    return {"text/markdown": _joined(_markdown(p) for p in shown), "text/plain": _joined(_plain(p) for p in shown)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foot:
    """What stands under the items: the status line, how a turn failed; `timed` is the status line with the clock."""

    status: str = ""
    timed: str = ""
    failure: str = ""


def render(parts: Sequence[Part], picture: TurnPicture, *, foot: Foot) -> Bundle:
    """Return `parts` and `foot` as HTML, Markdown and plain text."""
    shown = [p for p in parts if not p.is_blank]
    clock = not picture.replayed
    failure, timed = foot.failure, foot.timed if clock else foot.status
    html = [_html(p, clock) for p in shown]
    markdown = [_markdown(p, clock) for p in shown]
    plain = [_plain(p) for p in shown]
    if failure:
        html.append(f'<div style="{_ALARM}">{escape(failure)}</div>')
        markdown.append(f"**{_entities(failure)}**")
        plain.append(failure)
    if timed:
        html.append(f'<div style="{_DIM};margin-top:0.5em">{escape(timed)}</div>')
        markdown.append(f"<small>{_entities(timed)}</small>")
        plain.append(foot.status)
    body = "\n".join(html)
    return {
        "text/html": f'<div class="nbagent-turn">\n{body}\n</div>' if body else "",
        "text/markdown": _joined(markdown),
        "text/plain": _joined(plain),
    }


def markdown_bundle(text: str) -> Bundle:
    """Return an answer alone, as it is shown when nothing stands around it."""
    return {"text/html": markdown_html(text), "text/markdown": closed(safe_markdown(text)), "text/plain": clean(text)}


# ---------------------------------------------------------------- lines


def status_line(picture: TurnPicture) -> str:
    """Return step, context and cost in one line, without the time."""
    words = [f"step {picture.step}"] if picture.step else []
    if picture.context_tokens:
        words.append(context_words(picture.context_tokens, picture.window_tokens))
    if picture.cost_usd > 0:
        words.append(money(picture.cost_usd))
    return " · ".join(words)


def live_line(picture: TurnPicture, now_thinking: str = "") -> str:
    """Return the line under a turn that runs: what it does, then the status line."""
    doing = []
    if picture.waiting is not None:
        waiting = picture.waiting
        again = f", attempt {waiting.attempt}" if waiting.attempt > 1 else ""
        doing.append(f"waiting {waiting.seconds:.0f} s: {clean_line(waiting.reason)}{again}")
    elif now_thinking:
        doing.append(f"thinking: {now_thinking}")
    elif picture.running:
        doing.append("running " + ", ".join(shortened(clean_line(t.name), 40) for t in picture.running[:3]))
        working = [a for a in picture.agents.values() if a.status == "running"]
        doing.extend(shortened(f"{clean_line(a.name)}: {clean_line(a.activity)}", 80) for a in working[:2])
    return " · ".join([*doing, *filter(None, [status_line(picture)])]) or "working"


def end_lines(picture: TurnPicture, quiet: bool) -> Foot:
    """Return what stands under a turn that is over: nothing but a failure in a quiet one."""
    failure = failure_line(picture.done)
    if quiet:
        return Foot(failure=failure)
    status = status_line(picture)
    seconds = picture.done.duration_s if picture.done else 0.0
    return Foot(status=status, failure=failure, timed=" · ".join(filter(None, [status, seconds_words(seconds)])))


def failure_line(done: TurnDone | None) -> str:
    """Return the line of a turn that ended without its answer, empty for any other."""
    if done is None or done.outcome == "completed":
        return ""
    return clean_line(done.message) or f"the turn ended: {done.outcome.replace('_', ' ')}"


def context_words(used_tokens: int, window_tokens: int) -> str:
    """Return occupancy in words.

    >>> context_words(12_345, 200_000)
    'context 12,345 of 200,000 tokens (6 %)'
    """
    if window_tokens <= 0:
        return f"context {used_tokens:,} tokens"
    return f"context {used_tokens:,} of {window_tokens:,} tokens ({percent(used_tokens, window_tokens)})"


def percent(part: float, whole: float) -> str:
    """Return a share in whole percent, and "<1 %" rather than zero for something."""
    share = 100 * part / whole if whole else 0.0
    return "<1 %" if 0 < share < 1 else f"{share:.0f} %"


def money(usd: float) -> str:
    """Return dollars with four decimals below ten, two above."""
    return f"${usd:,.4f}" if usd < 10 else f"${usd:,.2f}"


def seconds_words(seconds: float) -> str:
    """Return a duration for people, empty for none.

    >>> seconds_words(3.21), seconds_words(65)
    ('3.2 s', '1 min 5 s')
    """
    if seconds <= 0:
        return ""
    return f"{seconds:.1f} s" if seconds < 59.95 else f"{round(seconds) // 60} min {round(seconds) % 60} s"


def shortened(text: str, limit_chars: int) -> str:
    """Return `text` cut to `limit_chars` with an ellipsis."""
    return text if len(text) <= limit_chars else text[: limit_chars - 1].rstrip() + "…"


def bounded(text: str, limit_chars: int = DETAIL_CHARS) -> str:
    """Return head and tail of a long text with what is left out between them named."""
    if len(text) <= limit_chars:
        return text
    head, tail = text[: limit_chars * 3 // 4], text[-limit_chars // 4 :]
    return f"{head}\n… {len(text) - len(head) - len(tail):,} characters left out …\n{tail}"


# ---------------------------------------------------------------- one item


def tool_line(tool: ToolItem) -> str:
    """Return a call as plain text: name, arguments, status, and of a refused one why."""
    summary = shortened(clean_line(tool.summary), SUMMARY_CHARS)
    line = f"[{' '.join(filter(None, [clean_line(tool.name), summary]))}] {tool.status}"
    told = clean_line(tool.text).partition(" To allow it:")[0].removeprefix("Refused: ")  # a notice has the remedy
    why = shortened(told, SUMMARY_CHARS) if tool.status == "refused" else ""
    return f"{line}: {why}" if why else line


def input_text(tool_input: Any) -> tuple[str, str]:
    """Return (language, text) of a call's input: code alone as itself, else JSON."""
    if isinstance(tool_input, Mapping) and isinstance(tool_input.get("code"), str):
        others = {k: v for k, v in tool_input.items() if k != "code"}
        code = str(tool_input["code"])
        return (
            "python",
            code if not others else f"{code.rstrip()}\n# {json.dumps(others, ensure_ascii=False, default=str)}",
        )
    if not tool_input:
        return "", ""
    return "json", json.dumps(tool_input, ensure_ascii=False, indent=1, default=str)


def _html(part: Part, clock: bool) -> str:
    match part.item:
        case TextItem(thinking=True):
            body = markdown_html(part.text, highlight=False)
            return _details('<span style="opacity:0.75">Thinking</span>', f'<div style="opacity:0.75">{body}</div>')
        case TextItem():
            return markdown_html(part.text, references=part.item.references, highlight=not part.growing)
        case ToolItem():
            return _tool_html(part.item, clock)
        case NoticeItem():
            return f'<div style="{_DIM}">{escape(part.text)}</div>'


def _details(summary: str, body: str) -> str:
    head = f'<summary style="cursor:pointer">{summary}</summary>'
    return f'<details style="{_BOX}">{head}\n{body}\n</details>'


def _tool_html(tool: ToolItem, clock: bool) -> str:
    bad = tool.status not in ("ok", "running")
    colour = ' style="color:var(--jp-error-color1,#d32f2f)"' if bad else ' style="opacity:0.75"'
    time = seconds_words(tool.duration_s or 0.0) if clock else ""
    summary = escape(shortened(clean_line(tool.summary), SUMMARY_CHARS))
    head = f"<code>{escape(clean_line(tool.name))}</code>"
    head += f' <span style="font-family:var(--jp-code-font-family,monospace);font-size:0.9em">{summary}</span>'
    head += f" · <span{colour}>{escape(tool.status)}</span>"
    head += f' <span style="{_DIM}">· {time}</span>' if time else ""
    language, given = input_text(tool.input)
    code = highlighted(clean(bounded(given)), language) if given else ""
    body = [f'<pre style="{_PRE}"><code>{code}</code></pre>'] if code else []
    if tool.text.strip():
        body.append(f'<pre style="{_PRE};opacity:0.85">{escape(bounded(tool.text))}</pre>')
    return _details(head, "\n".join(body) or f'<div style="{_DIM}">no details</div>')


def _markdown(part: Part, clock: bool = False) -> str:
    match part.item:
        case TextItem(thinking=True):
            return f"<details><summary>Thinking</summary>\n\n{_entities(part.text.strip())}\n\n</details>"
        case TextItem():
            text = with_definitions(safe_markdown(part.text), part.item.references)
            return (text if part.end is not None else closed(text)).strip("\n")
        case ToolItem():
            return _tool_markdown(part.item, clock)
        case NoticeItem():
            return f"<small>{_entities(clean_line(part.text))}</small>"


def _tool_markdown(tool: ToolItem, clock: bool) -> str:
    words = [f"<code>{_entities(clean_line(tool.name))}</code>"]
    if tool.summary.strip():
        words.append(f"<code>{_entities(shortened(clean_line(tool.summary), SUMMARY_CHARS))}</code>")
    time = seconds_words(tool.duration_s or 0.0) if clock else ""
    status = " · ".join(filter(None, [tool.status, time]))
    language, given = input_text(tool.input)
    body = [fenced(bounded(given), language)] if given else []
    if tool.text.strip():
        body.append(fenced(bounded(tool.text)))
    return "\n\n".join([f"<details><summary>{' '.join(words)} · {status}</summary>", *body, "</details>"])


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a code block whose fence is longer than any run of backticks in it."""
    text = clean(text).strip("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{ticks}{language}\n{text}\n{ticks}"


def _plain(part: Part) -> str:
    match part.item:
        case TextItem(thinking=True):
            return "[thinking] " + shortened(clean_line(part.text), SUMMARY_CHARS)
        case TextItem():
            return clean(part.text).strip("\n")
        case ToolItem():
            return tool_line(part.item)
        case NoticeItem():
            return clean_line(part.text)


def _entities(text: str) -> str:
    """Return `text` for HTML inside of Markdown: no character of it is markup of either."""
    text = escape(text)
    return re.sub(r"[\\`*_\[\]~|]", lambda m: f"&#{ord(m[0])};", text)


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(t for t in texts if t)
