"""What the tests of skills share: folders with skills, settings, and a catalog of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbagent.skills.catalog import Catalog
from nbagent.skills.loading import load_catalog
from nbagent.skills.manifest import Parsed, parse_manifest


@dataclass(frozen=True, kw_only=True)
class Settings:
    mode: str = "read"
    extra_dirs: tuple[str, ...] = ()
    allow_bundled: tuple[str, ...] = ()
    entries: Mapping[str, Any] = field(default_factory=dict)
    trust: tuple[str, ...] = ()


class Place:
    """A machine in a temporary folder: a project, a person's home, nbagent's home, bundled skills."""

    def __init__(self, tmp_path: Path) -> None:
        self.project = tmp_path / "person" / "project"
        self.person = tmp_path / "person"
        self.home = tmp_path / "person" / ".nbagent"
        self.bundled = tmp_path / "package" / "bundled"
        for folder in (self.project, self.home, self.bundled):
            folder.mkdir(parents=True)
        self.workspace = self.project / "skills"
        self.managed = self.home / "skills"
        self.personal = self.person / ".agents" / "skills"
        self.agents = self.project / ".agents" / "skills"

    def load(self, before: Catalog | None = None, *, window_tokens: int = 200_000, **given: Any) -> Catalog:
        settings = Settings(**{k: given.pop(k) for k in list(given) if k in Settings.__dataclass_fields__})
        trusted = given.pop("trusted", True)
        environ = given.pop("environ", {"PATH": ""})
        return load_catalog(
            settings, self.project, self.home, trusted, window_tokens, environ, given.pop("agent_filter", None), before,
            person=self.person, **{"bundled": self.bundled, **given},
        )  # fmt: skip


def skill(folder: Path, name: str | None = None, description: str = "Does it. Use when asked.", **given: str) -> Path:
    """Write a skill into `folder` and return its file; `given` are further lines (`_` is `-`) and the body."""
    body = given.pop("body", "Do it well.\n")
    head = [f"name: {name}"] if name else []
    head += [f"description: {description}"] if description else []
    head += [f"{k.replace('_', '-')}: {v}" for k, v in given.items()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_text("---\n" + "".join(f"{line}\n" for line in head) + f"---\n\n{body}", encoding="utf-8")
    return path


def names(catalog: Catalog) -> list[str]:
    """The names the model is told of."""
    return [s.name for s in catalog.visible]


def causes(catalog: Catalog) -> str:
    """All diagnostics as text."""
    return "\n".join(map(str, catalog.diagnostics))


def parsed(head: str, body: str = "Body.\n", folder: str = "demo") -> Parsed:
    """A SKILL.md with this frontmatter, parsed."""
    return parse_manifest(f"---\n{head}\n---\n{body}".encode(), path="demo/SKILL.md", folder=folder)


def described(text: str) -> Parsed:
    """A SKILL.md whose description line is `description: text`."""
    return parsed(f"name: demo\ndescription: {text}")
