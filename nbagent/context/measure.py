"""How large the parts of a request are, estimated offline, and which row of the ledger each belongs to."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from nbagent.core.budget import image_tokens
from nbagent.core.messages import Block, JsonObject, Prefix, canonical
from nbagent.core.tokens import TokenFamily, estimate_tokens, frame_tokens
from nbagent.core.view import Piece, View

CALL_FRAME_TOKENS = 12  # name, id and braces of a tool call or result, as the API counts them, roughly
CLEARED_TOKENS = 20  # what stands for a result that the provider cleared, about
UNKNOWN_IMAGE_TOKENS = 1_500


class Meter:
    """Estimates for one tokenizer family. Each entry's piece is estimated once, and again only when it changed."""

    def __init__(self, family: TokenFamily) -> None:
        self.family = family
        self._pieces: dict[tuple[str, str], tuple[Piece, Mapping[str, int]]] = {}
        self._prefixes: dict[int, tuple[Prefix, Mapping[str, int]]] = {}
        self._summed: tuple[tuple[Piece, ...], Mapping[str, int]] = ((), {})
        self._sized: tuple[tuple[Piece, ...], list[int]] = ((), [])

    def text(self, text: str) -> int:
        """Return the estimated tokens of `text`."""
        return estimate_tokens(text, self.family)

    def prefix(self, prefix: Prefix) -> Mapping[str, int]:
        """Return category -> tokens for the stored prefix."""
        known = self._prefixes.get(id(prefix))
        if known is not None and known[0] is prefix:
            return known[1]
        rows: dict[str, int] = {}
        for i, block in enumerate(prefix.system):
            category = prefix.categories[i] if i < len(prefix.categories) else "system"
            rows[category] = rows.get(category, 0) + self.text(str(block.get("text", "")))
        if prefix.tools:
            rows["tools"] = sum(self.tool(t) for t in prefix.tools)
        self._prefixes[id(prefix)] = (prefix, rows)
        return rows

    def tool(self, tool: JsonObject) -> int:
        """Return the estimated tokens of one tool's description."""
        return self.text(canonical(tool)) + CALL_FRAME_TOKENS

    def piece(self, piece: Piece) -> Mapping[str, int]:
        """Return category -> tokens for what one entry contributes."""
        key = (piece.entry_id, piece.category)
        known = self._pieces.get(key)
        if known is not None and (known[0] is piece or known[0].blocks == piece.blocks):
            return known[1]
        rows: dict[str, int] = {}
        for block in piece.blocks:
            for category, tokens in self._block(block, piece.category):
                rows[category] = rows.get(category, 0) + tokens
        self._pieces[key] = (piece, rows)
        return rows

    def block(self, block: Block) -> int:
        """Return the estimated tokens of one block of a message."""
        return sum(tokens for _, tokens in self._block(block, "messages"))

    def sizes(self, pieces: tuple[Piece, ...]) -> list[int]:
        """Return the estimated tokens of each of `pieces`; those that the last list began with are not looked up."""
        known, before = self._sized
        if pieces[: len(known)] != known:
            known, before = (), []
        sizes = before + [sum(self.piece(p).values()) for p in pieces[len(known) :]]
        self._sized = (pieces, sizes)
        return sizes

    def view_sizes(self, view: View) -> list[int]:
        """Return the estimated tokens that each piece of a view takes of the window: what is not read takes none."""
        sizes = self.sizes(view.pieces)
        if not view.unread and not view.cleared:
            return sizes
        return [
            0 if p.entry_id in view.unread else min(size, CLEARED_TOKENS) if p.entry_id in view.cleared else size
            for p, size in zip(view.pieces, sizes, strict=True)
        ]

    def view(self, view: View, prefix: Prefix) -> dict[str, int]:
        """Return category -> estimated tokens of the whole request, less what the provider does not read of it."""
        rows = dict(self.prefix(prefix))
        pieces = view.pieces
        if view.unread or view.cleared:
            pieces = tuple(p for p in pieces if p.entry_id not in view.unread and p.entry_id not in view.cleared)
            rows["tool results"] = CLEARED_TOKENS * len(view.cleared)
        for category, tokens in self._sum(pieces).items():
            rows[category] = rows.get(category, 0) + tokens
        rows["other"] = rows.get("other", 0) + frame_tokens(self.family) + 3 * len(view.messages)
        return rows

    def _sum(self, pieces: tuple[Piece, ...]) -> Mapping[str, int]:
        """Return category -> tokens of `pieces`; of those that the last sum began with, nothing is added up again."""
        known, before = self._summed
        if pieces[: len(known)] != known:  # the same objects, as a rule: a comparison of pointers
            known, before = (), {}
        rows = dict(before)
        for piece in pieces[len(known) :]:
            for category, tokens in self.piece(piece).items():
                rows[category] = rows.get(category, 0) + tokens
        self._summed = (pieces, rows)
        return rows

    def _block(self, block: Block, category: str) -> list[tuple[str, int]]:
        kind = block.get("type")
        if kind == "text":
            return [(category, self.text(str(block.get("text", ""))))]
        if kind in ("thinking", "redacted_thinking"):
            return [("thinking", self.text(str(block.get("thinking", ""))) + len(str(block.get("data", ""))) // 4)]
        if kind == "image":
            return [("images", _image(block))]
        if kind == "tool_use":
            return [(category, self.text(f"{block.get('name')} {canonical(block.get('input'))}") + CALL_FRAME_TOKENS)]
        if kind == "tool_result":
            inner = block.get("content")
            rows = [("tool results", CALL_FRAME_TOKENS)]
            if isinstance(inner, str):
                return [*rows, ("tool results", self.text(inner))]
            for part in inner or ():
                rows.extend(self._block(part, "tool results"))
            return rows
        if kind == "compaction":
            return [("summary", self.text(str(block.get("content") or "")))]
        return [(category, self.text(canonical(block)))]


def _image(block: Block) -> int:
    source = block.get("source")
    size = _png_size(source) if isinstance(source, Mapping) else None
    return image_tokens(*size) if size else UNKNOWN_IMAGE_TOKENS


def _png_size(source: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (width, height) of a base64 PNG from its header; None for another format."""
    try:
        head = base64.b64decode(str(source.get("data", ""))[:44])
    except (binascii.Error, ValueError):
        return None
    if head[:8] != b"\x89PNG\r\n\x1a\n" or len(head) < 24:
        return None
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
