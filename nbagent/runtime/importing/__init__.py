"""Import: recordings of other agents become sessions (docs/import.md)."""

from nbagent.runtime.importing.sessions import import_transcript, imported_entries

__all__ = ["import_transcript", "imported_entries"]
