"""SeenResults: which results the model still has in its context, looked up only when a tool asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from nbagent.core.entries import Entry
from nbagent.core.messages import JsonObject
from nbagent.core.view import build_view, visible_results


class SeenResults(Mapping[str, JsonObject]):
    """The `meta` of visible results by their key. The path is folded at the first access, once."""

    def __init__(self, path: Callable[[], Sequence[Entry]]) -> None:
        self._path = path
        self._found: dict[str, JsonObject] | None = None

    def _load(self) -> dict[str, JsonObject]:
        if self._found is None:
            path = tuple(self._path())
            results = visible_results(build_view(path), path)
            self._found = {str(meta["key"]): meta for meta in results.values() if "key" in meta}
        return self._found

    def __getitem__(self, key: str) -> JsonObject:
        return self._load()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())
