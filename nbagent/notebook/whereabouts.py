"""Where the notebook is: as the front end told it when the kernel started, and after a rename."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Whereabouts:
    """The path of the notebook's file; `told` gives what the front end told at the kernel's start."""

    def __init__(self, told: Callable[[], str | None]) -> None:
        self._told = told
        self._server_root: Path | None = None
        self._renamed: Path | None = None

    def path(self) -> Path | None:
        """Return the notebook's file; None where nobody told it."""
        if self._renamed is not None:
            return self._renamed
        told = self._told()
        return Path(told) if told else None

    def seen_as(self, server_path: str) -> None:
        """Learn the server's folder from the name that a front end knows the notebook by.

        What is not the end of the path known here says nothing: it may have been renamed before.
        """
        known, parts = self.path(), _parts(server_path)
        if known is not None and parts and self._server_root is None and known.parts[-len(parts) :] == parts:
            self._server_root = known.parents[len(parts) - 1]

    def renamed(self, server_path: str) -> None:
        """Believe a new name, when it is that of a notebook inside the server's folder."""
        parts = _parts(server_path)
        if self._server_root is None or not parts:
            return
        path = self._server_root.joinpath(*parts)
        if path.suffix == ".ipynb" and path.is_file():
            self._renamed = path


def _parts(server_path: str) -> tuple[str, ...]:
    """Return the parts of a path as a server knows it; none when it leads out of the server's folder."""
    parts = tuple(p for p in server_path.replace("\\", "/").split("/") if p)
    return () if ".." in parts or any(":" in p for p in parts) else parts
