"""Artifacts: what is too large for an entry, in files named after the hash of their content."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from nbagent.core.errors import JournalDamaged
from nbagent.store.files import make_private, write_atomic

DIGEST_CHARS = 16  # 64 bits: a chance of two equal names among a million artifacts of 3e-8
_DIGEST = re.compile(r"[0-9a-f]{16}(?:[0-9a-f]{48})?")


def digest_of(content: bytes) -> str:
    """Return the name under which `content` (bytes) is kept: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:DIGEST_CHARS]


class Artifacts:
    """The artifacts in `folder`, which is made at the first `put`.

    `root` is the workspace that the model's paths start at. A digest is what `put_text` and
    `put_bytes` return: 16 hex digits (a whole SHA-256 is accepted).
    """

    def __init__(self, folder: Path | str, root: Path | str | None = None) -> None:
        self.folder = Path(os.path.abspath(folder))
        self._root = Path(os.path.abspath(root)) if root is not None else None

    def put_text(self, text: str) -> str:
        """Keep `text`, line breaks as they are, and return its digest. The same text is kept once.

        Raises:
            JournalUnwritable: it cannot be written.
        """
        return self._put(text.encode("utf-8", "surrogatepass"), ".txt")

    def put_bytes(self, content: bytes) -> str:
        """Keep `content` and return its digest.

        Raises:
            JournalUnwritable: it cannot be written.
        """
        return self._put(content, ".bin")

    def get_text(self, digest: str) -> str:
        """Return the text kept as `digest`.

        Raises:
            JournalDamaged: it is missing, cannot be read, or is not what was kept.
        """
        try:
            return self.get_bytes(digest).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise JournalDamaged(f"artifact {digest} in {self.folder} is not text; read it as bytes") from error

    def get_bytes(self, digest: str) -> bytes:
        """Return the bytes kept as `digest`.

        Raises:
            JournalDamaged: it is missing, cannot be read, or is not what was kept.
        """
        path = self.path(digest)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise JournalDamaged(
                f"artifact {digest} is missing in {self.folder}; copy the artifacts folder together with its journal"
            ) from None
        except OSError as error:
            raise JournalDamaged(f"cannot read artifact {path}: {error.strerror}; check its permissions") from error
        found = hashlib.sha256(content).hexdigest()
        if not found.startswith(digest):
            raise JournalDamaged(
                f"artifact {path} was changed: its hash is {found[:DIGEST_CHARS]}, expected {digest}; "
                "restore the file from a backup"
            )
        return content

    def has(self, digest: str) -> bool:
        """Tell whether there is a file for `digest`; its content is not looked at."""
        return self.path(digest).is_file()

    def path(self, digest: str) -> Path:
        """Return where `digest` is, or would be, kept.

        Raises:
            JournalDamaged: it is not a digest.
        """
        if not _DIGEST.fullmatch(digest):
            raise JournalDamaged(f"{digest!r} is not the hash of an artifact; 16 digits of 0-9 and a-f are")
        stem = self.folder / digest[:DIGEST_CHARS]
        binary = stem.with_suffix(".bin")
        return binary if binary.is_file() else stem.with_suffix(".txt")

    def shown_path(self, digest: str) -> str:
        """Return the path to tell the model: relative to the workspace, with slashes; whole when outside it."""
        path = self.path(digest)
        if self._root is not None and path.is_relative_to(self._root):
            return path.relative_to(self._root).as_posix()
        return path.as_posix()

    def _put(self, content: bytes, suffix: str) -> str:
        digest = digest_of(content)
        for path in (self.folder / f"{digest}.txt", self.folder / f"{digest}.bin"):
            if _holds(path, content):
                return digest
        make_private(self.folder)
        write_atomic(self.folder / f"{digest}{suffix}", content)
        return digest


class UnwrittenArtifacts(Artifacts):
    """Artifacts as a dry run has them: what is put is there for this object alone, and nothing is written."""

    def __init__(self, kept: Artifacts) -> None:
        super().__init__(kept.folder, kept._root)
        self._put_here: dict[str, bytes] = {}

    def get_bytes(self, digest: str) -> bytes:
        """Return the bytes put here as `digest`, else those on disk."""
        here = self._put_here.get(digest[:DIGEST_CHARS])
        return super().get_bytes(digest) if here is None else here

    def has(self, digest: str) -> bool:
        """Tell whether `digest` was put here, or has a file."""
        return digest[:DIGEST_CHARS] in self._put_here or super().has(digest)

    def _put(self, content: bytes, suffix: str) -> str:
        digest = digest_of(content)
        self._put_here[digest] = content
        return digest


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False
