"""`@name` in a prompt: attach a variable's summary, a file or an image to what the person wrote."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from nbagent.core.errors import ToolError
from nbagent.core.messages import Block, image_block, text_block
from nbagent.tools.output import cap_text, clean_text
from nbagent.tools.paths import resolve
from nbagent.tools.tool import Kernel

MAX_ATTACHED = 10
FILE_CHARS = 20_000
IMAGE_BYTES = 3_500_000
_NAME = re.compile(r"(?<![\w@./`])@(?:\"([^\"\n]+)\"|([\w./~-]*[\w/]))", re.UNICODE)
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


def names_in(prompt: str) -> tuple[str, ...]:
    """Return what `@name` words of `prompt` name, each once, in order.

    >>> names_in("compare @df with @data/old.csv, not me@example.org")
    ('df', 'data/old.csv')
    """
    found = [m.group(1) or m.group(2) for m in _NAME.finditer(prompt)]
    return tuple(dict.fromkeys(n for n in found if n))[:MAX_ATTACHED]


async def attach(prompt: str, *, kernel: Kernel | None, root: Path, sees_images: bool) -> tuple[Block, ...]:
    """Return the prompt as blocks: first the text as typed, then one block for each thing it names.

    A name that is neither a variable nor a file stays text. Files stay inside `root`.
    """
    blocks: list[Block] = [text_block(prompt)]
    for name in names_in(prompt):
        found = await _variable(name, kernel)
        if found is None:
            found = _file(name, root, sees_images)
        if found is not None:
            blocks.append(found)
    return tuple(blocks)


async def _variable(name: str, kernel: Kernel | None) -> Block | None:
    if kernel is None or not name.isidentifier():
        return None
    (summary,) = await kernel.inspect([name])
    if not summary.exists:
        return None
    head = f"{name}: {summary.type_name} {summary.shape}".strip()
    return text_block(f'<attached variable="{name}">\n{head}\n{summary.text}\n</attached>')


def _file(name: str, root: Path, sees_images: bool) -> Block | None:
    try:
        path = resolve(name, root, cwd=root)
    except ToolError:
        return None
    if not path.is_file():
        return None
    media = _IMAGES.get(path.suffix.lower())
    try:
        if media is not None:
            return _image(name, path, media, sees_images)
        with path.open("rb") as file:
            raw = file.read(4 * FILE_CHARS + 1)
    except OSError as error:
        return text_block(f'<attached file="{name}">cannot be read: {error.strerror}</attached>')
    if b"\0" in raw[:1024]:
        return text_block(f'<attached file="{name}">is not text; {path.stat().st_size} bytes</attached>')
    capped = cap_text(clean_text(raw.decode("utf-8-sig", "replace")), FILE_CHARS)
    return text_block(f'<attached file="{name}">\n{capped.text}\n</attached>')


def _image(name: str, path: Path, media: str, sees_images: bool) -> Block:
    size = path.stat().st_size
    if not sees_images or size > IMAGE_BYTES:
        why = "is too large to show" if sees_images else "cannot be shown to this model"
        return text_block(f'<attached file="{name}">an image of {size} bytes; it {why}</attached>')
    return image_block(media, base64.b64encode(path.read_bytes()).decode())
