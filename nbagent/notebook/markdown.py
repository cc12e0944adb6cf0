"""Markdown of a model: to safe HTML, made safe for a front end to render, and cut where parts render as the whole.

Text of a model is untrusted: it may be steered by a file it read. So raw HTML is shown and not
obeyed, links lead to http, https, mailto or a relative place, and a picture from elsewhere is a
link, since loading it tells its server what the URL holds.
"""

from __future__ import annotations

import functools
import html
import itertools
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from nbagent.core.text import CONTROLS
from nbagent.core.text import clean as clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

References: TypeAlias = dict[str, Any]
"""Link reference definitions by label, as markdown-it keeps them."""

HIGHLIGHT_CHARS = 20_000  # a longer code block stays plain: a span around each word makes it five times as large
_LINE_END = re.compile(r"\r\n?|\n")
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_DIRECTIONS = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def clean_line(text: str) -> str:
    """Return `text` cleaned, without changes of writing direction, and on one line."""
    return " ".join(_DIRECTIONS.sub("", clean(text)).split())


def escape(text: str) -> str:
    """Return `text` for HTML content, each dollar sign in an element of its own, so that none begins math."""
    return html.escape(clean(text)).replace("$", "<span>$</span>")


def is_safe_link(url: str) -> bool:
    """Tell whether a link to `url` may be made: http, https, mailto, or without a scheme.

    >>> is_safe_link("https://example.org"), is_safe_link("JavaScript:alert(1)"), is_safe_link("plot.png")
    (True, False, True)
    """
    bare = CONTROLS.sub("", url).strip().replace("\n", "").replace("\t", "").lower()
    return not _SCHEME.match(bare) or bare.startswith(("http:", "https:", "mailto:"))


def markdown_html(text: str, *, references: Mapping[str, Any] | None = None, highlight: bool = True) -> str:
    """Return `text` as safe HTML; `references` are link definitions from elsewhere in the answer."""
    env: dict[str, Any] = {"references": dict(references or {})}
    return str(_parser(highlight).render(clean(text), env))


def finished_chars(text: str, references: References | None = None, *, enough: int | None = None) -> int:
    """Return how many leading characters of `text` are finished blocks, 0 for none; not the most when `enough` are.

    A cut there is never inside a fence, list, table or paragraph, and what follows in the text
    changes no block before it: the two parts render as the whole does. Only complete lines
    count. Link definitions found are added to `references`, the first of a label wins.
    """
    if enough is not None and references is None and (cut := _plain_cut(text)) >= enough:
        return cut
    whole = text.rfind("\n") + 1
    env: dict[str, Any] = {"references": references if references is not None else {}, "growing": True}
    starts = [t.map[0] for t in _blocks(text[:whole], env) if t.level == 0 and t.map and t.nesting >= 0]
    return _line_offset(text, starts[-1]) if starts else 0


_PARAGRAPH = re.compile(r"\n[ \t]*\n(?=#{1,6} |[^\W\d_])")


def _plain_cut(text: str) -> int:
    """Return the last place where a paragraph or heading begins for certain, without parsing; 0 for none.

    Behind a blank line a letter without indentation ends every list, quote and table, but no fence or math.
    """
    if "$$" in text or "\\[" in text or "\r" in text:
        return 0
    cuts = [m.end() for m in _PARAGRAPH.finditer(text)]
    return next((cut for cut in reversed(cuts[-3:]) if not _open_fence(text[:cut])), 0)


def collect_references(text: str, references: References) -> None:
    """Add the link definitions of `text`, which is complete, to `references`."""
    if "]:" in text:
        _blocks(text, {"references": references})


def closed(text: str) -> str:
    """Return `text` with a code fence that is still open closed, so that what is put after it is not code.

    >>> closed("```py\\nx = 1")
    '```py\\nx = 1\\n```'
    """
    if "```" not in text and "~~~" not in text:
        return text
    last = next((t for t in reversed(_blocks(text, {})) if t.level == 0 and t.map), None)
    if last is None or last.type != "fence" or last.map is None:
        return text
    lines = text[_line_offset(text, last.map[0]) :].rstrip().splitlines()
    mark = re.escape(last.markup[0])
    if len(lines) > 1 and re.fullmatch(rf" {{0,3}}{mark}{{{len(last.markup)},}}[ \t]*", lines[-1]):
        return text
    return text + ("" if text.endswith("\n") else "\n") + last.markup


def settled(text: str) -> str:
    """Return the growing `text` as it is shown: an open fence, code span or strong emphasis at its end is closed."""
    if fence := _open_fence(text):
        return text + ("" if text.endswith("\n") else "\n") + fence
    paragraph = re.split(r"\n[ \t]*\n", text.rstrip())[-1]
    if "```" in paragraph or "~~~" in paragraph:
        return text
    if paragraph.count("`") % 2:
        return text.rstrip("`") if paragraph.endswith("`") else text + "`"
    outside = re.sub(r"`[^`]*`", "", paragraph)
    if outside.count("**") % 2 and not outside.lstrip().startswith("***"):
        bare = text.rstrip()
        return bare[:-2] if bare.endswith("**") else bare.removesuffix("*") + "**"
    return text


_LOADS = re.compile(r"!(?=\[)|<(?!https?://|mailto:)(?=[!/?a-zA-Z])")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})([^\n]*)", re.MULTILINE)
_JOINER = "\u2060"  # invisible and of no width: behind it neither a tag nor a picture begins


def _open_fence(text: str) -> str:
    """Return the mark of the code fence that is open at the end, as far as a look at the lines can tell."""
    mark = ""
    for match in _FENCE.finditer(text):
        found, rest = match[1], match[2]
        if not mark:
            mark = "" if found[0] == "`" and "`" in rest else found
        elif found.startswith(mark) and not rest.strip():
            mark = ""
    return mark


def safe_markdown(text: str) -> str:
    """Return `text` for a front end that renders Markdown itself: no picture is loaded, raw HTML is text.

    Code blocks stay as they are; elsewhere an invisible character breaks what would load, and of several dollars in
    a paragraph those that are no math as in pandoc get an element of their own.
    """
    text = clean(text)
    if "![" not in text and "<" not in text and text.count("$") < 2:
        return text
    code = {
        line for t in _blocks(text, {}) if t.type in ("fence", "code_block") and t.map for line in range(*t.map)
    }  # fmt: skip
    runs = itertools.groupby(enumerate(_LINE.findall(text)), lambda numbered: numbered[0] in code)
    joined = ((is_code, "".join(line for _, line in run)) for is_code, run in runs)
    return "".join(run if is_code else _harmless(run) for is_code, run in joined)


def _harmless(text: str) -> str:
    """Return `text`, which holds no code block, so that nothing in it is loaded and only math is taken for math."""
    text = _LOADS.sub(lambda m: m[0] + _JOINER, text)
    paragraphs = _BLANK_LINES.split(text) if text.count("$") > 1 else [text]
    return "".join(_NO_MATH.sub(_plain_dollar, p) if p.count("$") > 1 else p for p in paragraphs)


def _plain_dollar(match: re.Match[str]) -> str:
    return _DOLLAR if match[0] in ("$", "\\$") else match[0]


def with_definitions(text: str, references: Mapping[str, Any]) -> str:
    """Return `text` followed by those link definitions of the answer that it uses and does not hold."""
    if not references or "[" not in text:
        return text
    own: References = {}
    collect_references(text, own)
    folded = text.upper()
    missing = [
        f"[{label.lower()}]: <{ref['href']}>"
        for label, ref in references.items()
        if label not in own and f"[{label}]" in folded
    ]
    return "\n".join((text.rstrip() + "\n", *missing, "")) if missing else text


def _blocks(text: str, env: dict[str, Any]) -> list[Token]:
    """Return the block tokens of `text`, without looking inside of paragraphs; line numbers are those of `text`."""
    tokens: list[Token] = []
    parser = _parser(False)
    parser.block.parse(_LINE_END.sub("\n", text).replace("\0", "\ufffd"), parser, env, tokens)
    return tokens


def _line_offset(text: str, line: int) -> int:
    """Return where line number `line`, counted from 0, starts."""
    if line == 0:
        return 0
    ends = (m.end() for m in _LINE_END.finditer(text))
    return next((end for i, end in enumerate(ends, start=1) if i == line), len(text))


# ---------------------------------------------------------------- the parser


@functools.cache
def _parser(highlight: bool) -> MarkdownIt:
    from markdown_it import MarkdownIt  # 65 ms, so not before something is drawn

    from nbagent.notebook.emphasis import EmphasisBesideWideLetters

    told = logging.getLogger("markdown_it")
    if told.level == logging.NOTSET:  # ten lines for each block would stand in the cell of who logs at DEBUG
        told.setLevel(logging.INFO)
    options: dict[str, Any] = {"html": False, "linkify": False, "typographer": False}
    if highlight:
        options["highlight"] = highlighted
    parser = MarkdownIt("js-default", options)
    parser.inline = EmphasisBesideWideLetters(parser.inline)
    parser.validateLink = is_safe_link  # type: ignore[method-assign]
    parser.inline.ruler.before("escape", "math", _math_inline)
    parser.block.ruler.before("fence", "math_block", _math_block, {"alt": []})
    for name, rule in (
        ("text", _render_text), ("image", _render_image), ("link_open", _render_link),
        ("math", _render_math), ("math_block", _render_math_block),
        ("fence", _render_code), ("code_block", _render_code),
    ):  # fmt: skip
        parser.add_render_rule(name, rule)
    return parser


_DOLLARS = re.compile(r"\$\$(?:[^$\\]|\\.|\$(?!\$))+?\$\$|\$(?![\s$])(?:[^$\\]|\\.)+?(?<!\s)\$(?!\d)", re.DOTALL)
_DOLLAR = "<span>&#36;</span>"  # JupyterLab's math takes what is between any two dollars, escaped or not
_BLANK_LINES = re.compile(r"(\n[ \t]*\n)")
_NO_MATH = re.compile(  # a dollar by itself, and before it in the list what a dollar may be part of
    r"\\\(.{,999}?\\\)|\\\[.{,999}?\\\]|\\.|(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|`+|\]\([^()\s]*|https?://[^\s<>]*|"
    + _DOLLARS.pattern
    + r"|\$",
    re.DOTALL,
)


def _math_inline(state: StateInline, silent: bool) -> bool:
    """Keep `$…$`, `$$…$$`, `\\(…\\)`, `\\[…\\]` as they are for the front end's math; a dollar counts as in pandoc."""
    text, pos = state.src, state.pos
    if text[pos] == "$":
        match = _DOLLARS.match(text, pos)
        end = match.end() if match else -1
    elif text.startswith(("\\(", "\\["), pos):
        end = text.find("\\)" if text[pos + 1] == "(" else "\\]", pos + 2) + 2
        end = end if end > pos + 2 else -1
    else:
        return False
    if end < 0 or end > state.posMax:
        return False
    if not silent:
        state.push("math", "", 0).content = text[pos:end]
    state.pos = end
    return True


def _math_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Take lines from `$$` or `\\[` to its end as one block, so that `=`, `-` and `+` in it make no heading or list.

    One that is open at the end of a growing text counts. It interrupts no paragraph, since a
    blank line to come would take that back.
    """
    if state.is_code_block(start_line):
        return False
    first = _line(state, start_line)
    if not first.startswith(("$$", "\\[")):
        return False
    close = "$$" if first[0] == "$" else "\\]"
    line, rest = start_line, first[2:]
    while not rest.rstrip().endswith(close):
        line += 1
        if close in rest or (line < end_line and (state.isEmpty(line) or state.sCount[line] < state.blkIndent)):
            return False
        if line >= end_line:
            if not state.env.get("growing"):
                return False
            break
        rest = _line(state, line)
    if silent:
        return True
    token = state.push("math_block", "", 0)
    token.map = [start_line, min(line + 1, end_line)]
    token.content = state.getLines(start_line, token.map[1], state.blkIndent, False)
    state.line = token.map[1]
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _render_text(self: RendererHTML, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    return escape(tokens[i].content)


def _render_math(self: RendererHTML, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    return html.escape(tokens[i].content)


def _render_math_block(self: RendererHTML, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    return f"<p>{html.escape(tokens[i].content)}</p>\n"


_CODE_STYLE = "margin:0.5em 0 1em;padding:0 1em"  # JupyterLab leaves no room around a code block in an output


def _render_code(self: RendererHTML, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    kind = self.fence if tokens[i].type == "fence" else self.code_block
    return kind(tokens, i, options, env).replace("<pre>", f'<pre style="{_CODE_STYLE}">', 1)


def _render_image(self: RendererHTML, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    source = str(tokens[i].attrs.get("src", ""))
    return f'<a href="{html.escape(source)}" rel="noopener noreferrer">{escape(tokens[i].content or source)}</a>'


def _render_link(self: RendererHTML, tokens: Sequence[Token], i: int, options: Any, env: Any) -> str:
    tokens[i].attrs["rel"] = "noopener noreferrer"
    return self.renderToken(tokens, i, options, env)


# ---------------------------------------------------------------- code

_COLOURS = (
    ("Token.Comment", "comment"), ("Token.Keyword.Constant", "atom"), ("Token.Keyword", "keyword"),
    ("Token.Literal.String", "string"), ("Token.Literal.Number", "number"), ("Token.Operator.Word", "keyword"),
    ("Token.Name.Function", "def"), ("Token.Name.Class", "def"), ("Token.Name.Builtin", "builtin"),
)  # fmt: skip


def highlighted(code: str, language: str, _attributes: str = "") -> str:
    """Return `code` as HTML in the colours of the front end's own editor; plain where there are none."""
    if not language or len(code) > HIGHLIGHT_CHARS:
        return html.escape(code)
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return html.escape(code)
    return "".join(_coloured(str(kind), text) for kind, text in lexer.get_tokens(code))


def _coloured(kind: str, text: str) -> str:
    colour = next((name for prefix, name in _COLOURS if kind.startswith(prefix)), None)
    if colour is None or not text.strip():
        return html.escape(text)
    return f'<span style="color:var(--jp-mirror-editor-{colour}-color,inherit)">{html.escape(text)}</span>'
