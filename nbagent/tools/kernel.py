"""The tools `python` and `inspect`: code in the person's kernel, and its variables in a few lines each."""

from __future__ import annotations

import ast
import difflib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nbagent.core.entries import ResultStatus
from nbagent.core.errors import ToolError
from nbagent.core.messages import Block, JsonObject, image_block
from nbagent.tools.kernel_types import CodeError, CodeOutcome, Display, VariableSummary
from nbagent.tools.output import cap_text, clean_text, cut_line
from nbagent.tools.tool import Kernel, ToolContext, ToolOutput, ToolSpec

MAX_IMAGES: Final = 4
MAX_IMAGE_CHARS: Final = 4_700_000  # base64; the Messages API takes 5 MB an image
LONG_VALUE_CHARS: Final = 4_000  # a longer value is shown by its description and a sample
SAMPLE_CHARS: Final = 1_500
TRACEBACK_CHARS: Final = 6_000
MAX_LISTED: Final = 200
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")  # what the Messages API takes

PYTHON_SPEC: Final = ToolSpec(
    name="python",
    description=(
        "Run Python in the person's notebook kernel: their variables are there, and what you define stays. Returns "
        "what is printed, the value of the last expression, figures, or the traceback. Show little: shapes, heads, "
        "sums; assign large results to a name instead of printing them."
    ),
    input_schema={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python code, as for a notebook cell"}},
        "required": ["code"],
    },
    access="run",
)

INSPECT_SPEC: Final = ToolSpec(
    name="inspect",
    description=(
        "Look at variables of the person's kernel without running code. Without names: a list of all with types and "
        "shapes. With names: type, shape, columns, ranges and a sample of each."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string"}, "description": "Variable names"},
            "detail": {"type": "string", "enum": ["summary", "full"], "description": "full shows a longer sample"},
        },
    },
    access="read",
)


@dataclass(frozen=True, slots=True)
class PythonTool:
    """Runs code in the kernel."""

    spec: ToolSpec = PYTHON_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return the first line of the code."""
        lines = [line for line in str(input.get("code", "")).strip().split("\n") if line.strip()]
        left = len(lines) - 1
        more = f" (+{left} line{'s' if left > 1 else ''})" if left > 0 else ""
        return f"{cut_line(lines[0], 80)}{more}" if lines else ""

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing: code is not looked into."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Run the code.

        Raises:
            ToolError: there is no kernel, or no code.
            CancelledError: stopped from outside.
        """
        kernel = _kernel(context)
        code = str(input["code"])
        if not code.strip():
            raise ToolError("code is empty; give Python code to run")
        outcome = await kernel.run_code(code, label=context.label)
        name = last_name(code)
        described: VariableSummary | None = None
        if name and outcome.result_text is not None and len(outcome.result_text) > LONG_VALUE_CHARS:
            described = next((v for v in await kernel.inspect([name]) if v.exists and v.name == name), None)
        return format_outcome(outcome, sees_images=context.sees_images, described=described)


@dataclass(frozen=True, slots=True)
class InspectTool:
    """Describes variables."""

    spec: ToolSpec = INSPECT_SPEC

    def summary(self, input: JsonObject) -> str:
        """Return the names."""
        return ", ".join(map(str, input.get("names") or ())) or "all variables"

    def paths(self, input: JsonObject) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    async def run(self, input: JsonObject, context: ToolContext) -> ToolOutput:
        """Describe the variables asked for, and no others.

        Raises:
            ToolError: there is no kernel, or none of the names is defined.
        """
        kernel = _kernel(context)
        names = tuple(dict.fromkeys(str(n) for n in input.get("names") or ()))
        if not names:
            return _listing(await kernel.variables())
        found = {v.name: v for v in await kernel.inspect(names, detail=str(input.get("detail") or "summary"))}
        bound = [found[n] for n in names if n in found and found[n].exists]
        missing = [n for n in names if n not in found or not found[n].exists]
        notes = [_missing(n, await kernel.variables()) for n in missing]
        if not bound:
            raise ToolError("; ".join(notes))
        before = _earlier_identities(context)
        parts = [_described(v, rebound=before.get(v.name, v.identity) != v.identity) for v in bound]
        return ToolOutput(
            text="\n\n".join([*parts, *(f"[{n}]" for n in notes)]),
            shown=f"{len(bound)} of {len(names)} variables",
            meta={"key": f"inspect:{','.join(names)}", "variables": {v.name: v.identity for v in bound}},
        )


def _kernel(context: ToolContext) -> Kernel:
    if context.kernel is None:
        raise ToolError("there is no notebook kernel in this session; use shell to run Python")
    return context.kernel


def last_name(code: str) -> str:
    """Return the variable that the last line of `code` shows, "" when it shows none or something else.

    >>> last_name("df = load()\\ndf"), last_name("df.head()")
    ('df', '')
    """
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    last = body[-1] if body else None
    return last.value.id if isinstance(last, ast.Expr) and isinstance(last.value, ast.Name) else ""


def format_outcome(outcome: CodeOutcome, *, sees_images: bool, described: VariableSummary | None = None) -> ToolOutput:
    """Return what a run did, for a model: output, value, displays and error, in this order.

    `described` stands in for a long value of that variable. Images beyond four are counted, not shown.
    """
    pictures = _Pictures(sees_images=sees_images)
    parts: list[str] = []
    if stdout := clean_text(outcome.stdout).rstrip("\n"):
        parts.append(stdout)
    if stderr := clean_text(outcome.stderr).rstrip("\n"):
        parts.append(f"[stderr]\n{stderr}")
    if outcome.dropped_chars:
        parts.append(f"[{outcome.dropped_chars:,} characters of output were left out of the middle]")
    parts += [display_text(d, pictures) for d in outcome.displays]
    if outcome.displays_dropped:
        parts.append(f"[{outcome.displays_dropped} more displays were not kept]")
    full = list(parts)
    if outcome.result_text is not None:
        result = clean_text(outcome.result_text)
        full.append(result)
        parts.append(_value(result, described))
    error = [_error(outcome.error)] if outcome.error else []
    error += ["[the run was stopped before it ended]"] if outcome.stopped else []
    pictures_note = pictures.note()
    parts += [*pictures_note, *error]
    full += [*pictures_note, *error]
    text, full_text = "\n".join(parts), "\n".join(full)
    status: ResultStatus = "interrupted" if outcome.stopped else "error" if outcome.error else "ok"
    return ToolOutput(
        text=text or "(no output)",
        images=tuple(pictures.blocks),
        status=status,
        full_text=full_text if full_text != text else None,
        shown="the value in short" if full_text != text else "",
        meta={"error": outcome.error.name} if outcome.error else {},
    )


class _Pictures:
    """The images of one result: the first four become blocks, the rest are counted."""

    def __init__(self, *, sees_images: bool) -> None:
        self.blocks: list[Block] = []
        self._sees_images = sees_images
        self._unshown = 0

    def add(self, media_type: str, base64_text: str) -> str:
        """Take an image; returns what the text says in its place."""
        compact = "".join(base64_text.split())
        size = f"{media_type}, {max(1, len(compact) * 3 // 4 // 1024)} KB"
        if not self._sees_images:
            return f"[figure: {size}; this model does not see images, print the numbers behind it]"
        if len(compact) > MAX_IMAGE_CHARS:
            return f"[figure: {size}, too large to show; use a smaller figsize or dpi]"
        if len(self.blocks) == MAX_IMAGES:
            self._unshown += 1
            return f"[figure: {size}, not shown]"
        self.blocks.append(image_block(media_type, compact))
        return f"[figure {len(self.blocks)}: {size}]"

    def note(self) -> list[str]:
        """Return a line on the images that were left out."""
        if not self._unshown:
            return []
        return [f"[{MAX_IMAGES} figures are shown, {self._unshown} more are not; show fewer at once]"]


def display_text(display: Display, pictures: _Pictures) -> str:
    """Return a display as text, its image handed to `pictures`; HTML only as its words, when there is nothing else."""
    bundle = display.bundle
    plain = clean_text(bundle.get("text/plain", "")).rstrip("\n")
    picture = next((t for t in IMAGE_TYPES if bundle.get(t)), None)
    if picture:
        caption = "" if not plain or plain.startswith("<") else f"\n{_value(plain, None)}"
        return pictures.add(picture, bundle[picture]) + caption
    for media_type in ("text/markdown", "text/latex"):
        if bundle.get(media_type) and (not plain or plain.startswith("<")):
            return _value(clean_text(bundle[media_type]), None)
    if plain:
        return _value(plain, None)
    if bundle.get("text/html"):
        return _value(_words(bundle["text/html"]), None)
    if bundle.get("application/json"):
        return _value(clean_text(bundle["application/json"]), None)
    kinds = ", ".join(f"{t} ({len(v):,} characters)" for t, v in sorted(bundle.items()))
    dropped = "".join(f"{', ' if kinds else ''}{t} (too large)" for t in display.dropped)
    return f"[display: {kinds}{dropped}, not shown]" if kinds or dropped else "[empty display]"


def _words(markup: str) -> str:
    """Return the words of HTML; linear, since the markup may be anything."""
    bare = re.sub(r"(?is)<(script|style)\b.*?(?:</\1\s*>|\Z)", " ", markup[:200_000])
    return clean_text(" ".join(html.unescape(re.sub(r"<[^<>]*>", " ", bare)).split())) or "[HTML without text]"


def _value(text: str, described: VariableSummary | None) -> str:
    """Return a value's text; a long one by its description, or its beginning and end."""
    if len(text) <= LONG_VALUE_CHARS:
        return text
    if described is not None:
        return (
            f"{_described(described, rebound=False)}\n"
            f"[the value prints as {len(text):,} characters, described instead; inspect or slice it for more]"
        )
    head = cap_text(text, SAMPLE_CHARS).text.rstrip("\n")
    return f"{head}\n[a value of {len(text):,} characters, shortened; assign it to a name, then inspect or slice it]"


def _error(error: CodeError) -> str:
    last = clean_text(f"{error.name}: {error.message}" if error.message else error.name)
    trace = clean_text(error.traceback).strip("\n")
    if last.split("\n")[0] not in trace:
        trace = f"{trace}\n{last}".strip("\n")
    return cap_text(trace, TRACEBACK_CHARS).text


def _described(variable: VariableSummary, *, rebound: bool) -> str:
    changed = " (changed since you looked at it last)" if rebound else ""
    body = f"\n{clean_text(variable.text)}" if variable.text else ""
    return f"{_head(variable)}{changed}{body}"


def _head(variable: VariableSummary) -> str:
    return f"{variable.name}: {variable.type_name}{f' {variable.shape}' if variable.shape else ''}"


def _listing(variables: Sequence[VariableSummary]) -> ToolOutput:
    lines = [_head(v) for v in variables[:MAX_LISTED]]
    if len(variables) > MAX_LISTED:
        lines.append(f"[{len(variables) - MAX_LISTED} more variables; name those you need]")
    meta: dict[str, Any] = {"key": "inspect:", "variables": {v.name: v.identity for v in variables[:MAX_LISTED]}}
    return ToolOutput(text="\n".join(lines) or "[no variables are defined]", meta=meta)


def _missing(name: str, variables: Sequence[VariableSummary]) -> str:
    near = difflib.get_close_matches(name, [v.name for v in variables], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "call inspect without names to list what is defined"
    return f"{cut_line(name, 100)!r} is not defined in the kernel; {hint}"


def _earlier_identities(context: ToolContext) -> dict[str, str]:
    """Return what each variable was when the model last looked at it, as far as that is in its context."""
    known: dict[str, str] = {}
    for meta in context.seen.values():
        identities = meta.get("variables")
        if isinstance(identities, dict):
            known.update(identities)
    return known
