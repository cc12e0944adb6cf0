"""Text files of any size and encoding: what a file is, and its lines one page at a time."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

SNIFF_BYTES: Final = 256 << 10  # files that are read in one piece are looked at whole
CHUNK_BYTES: Final = 1 << 20
WIDE_LIMIT_BYTES: Final = 16 << 20  # UTF-16 and UTF-32 files are decoded whole

_WIDE_MARKS: Final = (  # the longer marks first: that of UTF-16 begins that of UTF-32
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_KINDS: Final = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (also xlsx, docx, npz, whl)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "a program or library (ELF)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"PAR1", "a Parquet table"),
    (b"ARROW1", "an Arrow file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x80\x04", "probably a pickle"),
    (b"\x80\x05", "probably a pickle"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How a file's bytes are read. `mark` is the byte order mark it starts with; `note` says what was guessed."""

    name: str
    mark: bytes = b""
    note: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether a character takes two or four bytes, so that lines cannot be found bytewise."""
        return self.name.startswith(("utf-16", "utf-32"))

    @property
    def codec(self) -> str:
        """Python's name of the encoding without its mark, which fixes the byte order."""
        if not self.is_wide:
            return self.name
        return f"{self.name}-{'le' if self.mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF32_LE) else 'be'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line without its end. `number` counts from 1; `raw` holds at most the bytes asked for, of `size_bytes`."""

    number: int
    raw: bytes
    size_bytes: int


def detect_encoding(head: bytes, *, whole: bool) -> Encoding | None:
    """Return the encoding of a file that starts with `head`, or is it when `whole`; None for a binary file."""
    for mark, name in _WIDE_MARKS:
        if head.startswith(mark):
            return Encoding(name=name, mark=mark)
    if head.startswith(codecs.BOM_UTF8):
        return Encoding(name="utf-8", mark=codecs.BOM_UTF8)
    if b"\0" in head or binary_kind(head):
        return None
    if is_utf8(head, whole=whole):
        return Encoding(name="utf-8")
    controls = sum(head.count(c) for c in range(32) if c not in b"\t\n\r\f\x1b\b")
    if controls * 100 > len(head) * 2:
        return None
    return Encoding(name="latin-1", note="not UTF-8, read as Latin-1")


def binary_kind(head: bytes) -> str:
    """Return what a known binary format is called, "" when `head` does not show one."""
    return next((kind for magic, kind in _KINDS if head.startswith(magic)), "")


def is_utf8(head: bytes, *, whole: bool) -> bool:
    """Tell whether bytes are UTF-8; with `whole` False the last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return False
    return True


def decode(raw: bytes, encoding: Encoding) -> str:
    """Return the text of a whole file without its byte order mark; what is not valid becomes U+FFFD."""
    return raw[len(encoding.mark) :].decode(encoding.codec, "replace")


def encode(text: str, encoding: Encoding) -> bytes:
    """Return what `decode` read as bytes again.

    Raises:
        UnicodeEncodeError: the encoding does not have a character of `text`.
    """
    return encoding.mark + text.encode(encoding.codec)


def decode_line(raw: bytes, encoding: Encoding) -> str:
    """Return a line that may have been cut inside its last character."""
    if encoding.name == "utf-8":
        return codecs.getincrementaldecoder("utf-8")("replace").decode(raw)
    return raw.decode(encoding.name, "replace")


def iter_lines(handle: BinaryIO, first: int, *, keep_bytes: int) -> Iterator[Line]:
    """Yield the lines from number `first` on, with no more than `keep_bytes` of each in memory.

    `handle` stands at the file's start, behind a byte order mark. After the last line it stands at the end.
    """
    number = _skip_lines(handle, first - 1) + 1
    if number < first:
        return
    while raw := handle.readline(keep_bytes + 1):
        size = len(raw)
        piece = raw
        while piece and not piece.endswith(b"\n"):
            piece = handle.readline(CHUNK_BYTES)
            size += len(piece)
        end = piece or raw
        if end.endswith(b"\n"):
            size -= 1
        yield Line(number=number, raw=raw.removesuffix(b"\n").removesuffix(b"\r")[:keep_bytes], size_bytes=size)
        number += 1


def count_lines(handle: BinaryIO) -> int:
    """Return how many lines follow in `handle`, counting a last one without an end."""
    lines, last = 0, b"\n"
    while chunk := handle.read(CHUNK_BYTES):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last != b"\n")


def _skip_lines(handle: BinaryIO, lines: int) -> int:
    """Move behind `lines` lines; returns how many there were (a last one without an end counts)."""
    skipped, position, last = 0, handle.tell(), b"\n"
    while skipped < lines:
        chunk = handle.read(CHUNK_BYTES)
        if not chunk:
            return skipped + (last != b"\n")
        found = chunk.count(b"\n")
        if skipped + found < lines:
            skipped, position, last = skipped + found, position + len(chunk), chunk[-1:]
            continue
        at = -1
        for _ in range(lines - skipped):
            at = chunk.index(b"\n", at + 1)
        handle.seek(position + at + 1)
        return lines
    return skipped
