"""Export to HTML: one page that needs nothing else, no script and no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from nbagent.runtime.export import ExportedTurn, Item, call_text, outcome_line

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b;
  background: #fff; overflow-wrap: anywhere; }
pre { background: #f4f4f4; padding: .6rem; overflow-x: auto; white-space: pre-wrap; font-size: .85rem; }
.prompt { border-left: 4px solid #1a6fb5; padding: .2rem .8rem; white-space: pre-wrap; }
.meta { color: #595959; font-size: .85rem; }
details { margin: .5rem 0; border-left: 2px solid #bbb; padding-left: .6rem; }
table { border-collapse: collapse; } td, th { border: 1px solid #bbb; padding: .2rem .5rem; }
img { max-width: 100%; }
@media (prefers-color-scheme: dark) {
  body { background: #171717; color: #e8e8e8; } pre { background: #262626; } .meta { color: #adadad; } }
"""


def to_html(turns: Sequence[ExportedTurn], title: str) -> str:
    """Return the turns as a page. Nothing that a model or tool wrote is taken as markup."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("js-default", {"html": False})
    body = [f"<h1>{escape(title)}</h1>"]
    if not turns:
        body.append("<p>No turns.</p>")
    for number, turn in enumerate(turns, 1):
        body.extend(_turn(number, turn, markdown.render))
    page = (
        '<!doctype html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    return (page + "\n".join(body) + "\n</body>\n</html>\n").encode("utf-8", "replace").decode()


def _turn(number: int, turn: ExportedTurn, render: Callable[[str], str]) -> list[str]:
    facts = f"{turn.turn}, {turn.model}, policy {turn.policy}, mode {turn.mode}"
    parts = [
        f"<h2>Turn {number}</h2>", f'<p class="meta">{escape(facts)}</p>',
        f'<div class="prompt">{escape(turn.prompt.strip(chr(10)))}</div>',
    ]  # fmt: skip
    parts.extend(_folded("attached", _pre(text)) for text in turn.attached)
    parts.extend(_images(turn.images))
    for item in turn.items:
        parts.append(render(item.text) if item.kind == "text" else _item(item))
    parts.append(f'<p class="meta">{escape(outcome_line(turn))}</p>')
    return parts


def _item(item: Item) -> str:
    if item.kind == "steering":
        return f'<div class="prompt">{escape(item.text)}</div>'
    if item.kind == "call":
        inner = _pre(call_text(item)[1]) + (_pre(item.text) if item.text else "") + "".join(_images(item.images))
        return _folded(f"<code>{escape(item.title)}</code>: {escape(item.status.replace('_', ' '))}", inner)
    return _folded(escape(item.title), _pre(item.text))


def _folded(summary: str, inner: str) -> str:
    return f"<details><summary>{summary}</summary>{inner}</details>"


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _images(urls: Sequence[str]) -> list[str]:
    return [f'<p><img alt="image" src="{escape(url)}"></p>' for url in urls]
