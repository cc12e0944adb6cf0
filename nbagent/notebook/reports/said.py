"""Lines and lists that show themselves: what commands say that have no figures to report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbagent.notebook.reports.tables import Document, Line, Table, as_html, as_markdown


class Said:
    """A line or a text that shows itself without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


class Listing(Said):
    """Names, each with a text: as `text` where text is shown, as a table of two columns elsewhere."""

    def __init__(
        self, text: str, *, head: tuple[str, str], rows: Sequence[tuple[str, str]], title: str = ""
    ) -> None:
        super().__init__(text)
        self.title, self.table = title, Table(head=head, rows=tuple(rows))

    def _document(self) -> Document:
        return [Line(text=self.title, strong=True), self.table]

    def _repr_html_(self) -> str:
        return as_html(self._document())

    def _repr_markdown_(self) -> str:
        return as_markdown(self._document())


def help_of(magic: str, commands: Mapping[str, Callable[..., Any]], *, width: int) -> Listing:
    """Return the list of a magic's sub-commands, each with the first line of its docstring."""
    first = {name: (fn.__doc__ or "").strip().split("\n")[0] for name, fn in commands.items()}
    return Listing(
        "\n".join(f"{magic} {name:<{width}} {line}" for name, line in first.items()),
        head=("command", "what it does"), rows=[(f"{magic} {name}", line) for name, line in first.items()],
    )  # fmt: skip
