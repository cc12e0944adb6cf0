"""`@name` in a prompt: attach a variable's summary, a file or an image to what the person wrote."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

from nbagent.context.contained import contained
from nbagent.core.errors import ToolError
from nbagent.core.messages import Block, image_block, text_block
from nbagent.tools.output import cap_text, clean_text
from nbagent.tools.paths import resolve
from nbagent.tools.tool import Kernel

MAX_ATTACHED = 10
FILE_CHARS = 20_000
IMAGE_BYTES = 3_500_000
IMAGE_PIXELS = 8_000  # the Messages API refuses an image with a longer side
OUTSIDE = "it is outside the workspace"
MOST_CUT_CHARS = 60  # a name that runs into the text behind it is looked for up to here
# Letters of Chinese, Japanese and Korean: no blank stands between words.
_UNSPACED = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_NAME = re.compile(
    rf"(?:(?<![\w@./`\\])|(?<=[{_UNSPACED}]))@(?:\"([^\"\n]+)\"|([\w./~-]*[\w/])(?!\())", re.UNICODE
)
_CUT = re.compile(rf"(?<=[^/])(?=[{_UNSPACED}])")
_CODE = re.compile(r"(?ms)^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`")
_DECORATORS = re.compile(r"(?m)^(?:[ \t]*@[\w.]+(?:\(.*\))?[ \t]*\n)+(?=[ \t]*(?:async[ \t]+def|def|class)\b)")
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)  # fmt: skip


def _unheard(line: str) -> None:
    return


def names_in(prompt: str) -> tuple[str, ...]:
    """Return what `@name` words of `prompt` name, each once, in order.

    Addresses, code in backticks and decorators above a definition name nothing.

    >>> names_in("compare @df with @data/old.csv, not me@example.org")
    ('df', 'data/old.csv')
    """
    plain = _DECORATORS.sub("", _CODE.sub("", prompt.replace("\r\n", "\n")))
    found = [m.group(1) or m.group(2) for m in _NAME.finditer(plain)]
    return tuple(dict.fromkeys(n for n in found if n))


async def attach(
    prompt: str, *, kernel: Kernel | None, root: Path, sees_images: bool, tell: Callable[[str], None] = _unheard
) -> tuple[Block, ...]:
    """Return the prompt as blocks: first the text as typed, then one block for each thing it names.

    A name that is neither a variable nor a file stays text. Files stay inside `root`; what is not
    attached although it is there is said in a block. `tell` hears a line for each name that brought nothing.
    """
    blocks: list[Block] = [text_block(prompt)]
    taken: set[str] = set()
    for typed in names_in(prompt):
        name, found = typed, None
        for name in _readings(typed):
            found = await _variable(name, kernel) or _file(name, root, sees_images)
            if found is not None:
                break
        if found is None:
            tell(f"@{typed} names no variable and no file here, so it went out as text{_quoting(typed, prompt, root)}")
            continue
        if name in taken:
            continue
        taken.add(name)
        if found.get("text") == _not_attached(name)["text"]:
            tell(f"@{name} was not attached: {OUTSIDE}")
        if len(blocks) > MAX_ATTACHED:
            blocks.append(text_block(f"<attached>no more than {MAX_ATTACHED} are attached; {name!r} is not</attached>"))
            break
        blocks.append(found)
    return tuple(blocks)


def _readings(typed: str) -> list[str]:
    """Return what `typed` may name, longest first: in Chinese, Japanese and Korean the text goes on without a blank.

    >>> _readings("df有几")
    ['df有几', 'df有', 'df']
    """
    ends = [m.start() for m in _CUT.finditer(typed[:MOST_CUT_CHARS])]
    return list(dict.fromkeys([typed, *(typed[:end].rstrip(".") for end in reversed(ends))]))


def _quoting(typed: str, prompt: str, root: Path) -> str:
    """Return how a file whose name has blanks is named, where one there begins so and its whole name is in the text."""
    behind = prompt[prompt.find(f"@{typed}") + 1 :].partition("\n")[0]
    folder, _, beginning = typed.rpartition("/")
    try:
        names = sorted(p.name for p in (root / folder).iterdir() if p.name.startswith(f"{beginning} "))
    except OSError:
        return ""
    whole = next((n for n in names if behind.startswith(f"{folder}/{n}".lstrip("/"))), None)
    return "" if whole is None else f'; a name with blanks stands in quotes, @"{f"{folder}/{whole}".lstrip("/")}"'


async def _variable(name: str, kernel: Kernel | None) -> Block | None:
    if kernel is None or not name.isidentifier():
        return None
    (summary,) = await kernel.inspect([name])
    if not summary.exists:
        return None
    head = f"{name}: {summary.type_name} {summary.shape}".strip()
    return text_block(f'<attached variable="{name}">\n{head}\n{contained(summary.text)}\n</attached>')


def _file(name: str, root: Path, sees_images: bool) -> Block | None:
    try:
        path = resolve(name, root, cwd=root)
    except ToolError:
        return _outside(name, root)
    try:
        if not path.is_file():
            return None
        if path.suffix.lower() in IMAGES:
            return _image(name, path, sees_images)
        with path.open("rb") as file:
            raw = file.read(4 * FILE_CHARS + 1)
        size = path.stat().st_size
    except OSError as error:
        return text_block(f'<attached file="{name}">cannot be read: {error.strerror}</attached>')
    if b"\0" in raw[:1024]:
        return text_block(f'<attached file="{name}">is not text; {size} bytes</attached>')
    capped = cap_text(clean_text(raw.decode("utf-8-sig", "replace")), FILE_CHARS)
    more = f"\n[the file has {size:,} bytes; read it for the rest]" if size > len(raw) else ""
    return text_block(f'<attached file="{name}">\n{contained(capped.text)}{more}\n</attached>')


def _outside(name: str, root: Path) -> Block | None:
    """Return a block saying that an existing file is not attached; None when there is no such file."""
    try:
        there = (root / Path(name).expanduser()).is_file()
    except (OSError, ValueError, RuntimeError):
        return None
    if not there:
        return None
    return _not_attached(name)


def _not_attached(name: str) -> Block:
    return text_block(f'<attached file="{name}">not attached: {OUTSIDE}</attached>')


def _image(name: str, path: Path, sees_images: bool) -> Block:
    size = path.stat().st_size
    why = "" if sees_images else "cannot be shown to this model"
    if not why and size > IMAGE_BYTES:
        why = "is too large to show"
    if why:
        return text_block(f'<attached file="{name}">an image of {size} bytes; it {why}</attached>')
    content = path.read_bytes()
    media = _media_type(content)
    if media is None:
        return text_block(f'<attached file="{name}">{size} bytes that are no PNG, JPEG, GIF or WebP image</attached>')
    width, height = _pixels(content, media)
    if max(width, height) > IMAGE_PIXELS:
        text = f"an image of {width} x {height} pixels; it is too large to show"
        return text_block(f'<attached file="{name}">{text}</attached>')
    return image_block(media, base64.b64encode(content).decode())


def _media_type(content: bytes) -> str | None:
    """Return what the content is: a provider refuses an image under the wrong name, and with it every later turn."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((media for start, media in _SIGNATURES if content.startswith(start)), None)


def _pixels(content: bytes, media: str) -> tuple[int, int]:
    """Return width and height where the format says them at its beginning, else zeros."""
    if media == "image/png":
        return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    if media == "image/gif":
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    return 0, 0
