"""SessionSkills: the catalog of one session: looked at every turn, listed in the prefix, its changes told at the tail.

Nothing of `nbagent.skills` is imported before a session needs its skills: loading the extension stays light.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nbagent.core.entries import Entry
from nbagent.core.errors import Diagnostic, JournalDamaged, UsageProblem
from nbagent.core.messages import Prefix
from nbagent.runtime.clock import wall_ns
from nbagent.runtime.rules import real_path
from nbagent.store.artifacts import Artifacts
from nbagent.store.settings import Settings
from nbagent.store.trust import trusted_folders
from nbagent.tools.skill_types import SkillHit

if TYPE_CHECKING:
    from nbagent.skills.catalog import Catalog, Skill
    from nbagent.skills.selector import Found, Selector

# Which of the two tools a conversation has, by `skills.mode`; any other mode has none (OpenClaw's way).
OFFERED: Final[Mapping[str, str]] = {"nbagent": "find_skills", "tool": "skill"}
TOOLS: Final = frozenset(OFFERED.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the tail says of the skills, "" for nothing, and the mark of what the model knows from then on."""

    text: str = ""
    mark: str = ""


@dataclass(slots=True, kw_only=True)
class SessionSkills:
    """The skills of a session. `settings` and `entries` give those in force now, `environ` is the person's."""

    folder: Path
    home: Path
    environ: Mapping[str, str]
    settings: Callable[[], Settings]
    entries: Callable[[], Iterable[Entry]]
    artifacts: Artifacts
    _catalog: Catalog | None = None
    _selector: Selector | None = None
    _roots: tuple[Catalog, tuple[Path, ...]] | None = None
    _marks: dict[int, tuple[Catalog, str]] = field(default_factory=dict)

    # ------------------------------------------------------------ the catalog

    @property
    def catalog(self) -> Catalog:
        """The catalog as it was last looked at."""
        return self._catalog if self._catalog is not None else self.look()

    @property
    def seen(self) -> Catalog | None:
        """The catalog as it was last looked at, None when nobody has looked yet."""
        return self._catalog

    def look(self) -> Catalog:
        """Look at the folders again; the same catalog as before when nothing changed, which takes a moment only."""
        from nbagent.skills.loading import load_catalog
        from nbagent.skills.uses import use_counts

        settings = self.settings()
        project = project_of(self.folder, settings)
        trust = (*settings.skills.trust, *sorted(trusted_folders(self.home)))
        self._catalog = load_catalog(
            _Chosen(settings.skills, trust), self.folder, self.home, is_trusted_project(project, settings, self.home),
            settings.window_tokens, self.environ, snapshot=self._catalog, project=project,
            uses=use_counts(self.entries()), config=lambda key: _setting(settings, key), now_ns=wall_ns(),
        )  # fmt: skip
        return self._catalog

    def prompt(self) -> str:
        """Return the list for a new prefix, of the skills as they are now."""
        return self.look().prompt

    def hidden_tools(self) -> frozenset[str]:
        """Return which of the tools for skills a new conversation does not get: without a skill none of them.

        A skill that comes later is told with its file, which `read` opens.
        """
        if not self.catalog.visible:
            return TOOLS
        return TOOLS - {OFFERED.get(self.settings().skills.mode, "")}

    # ------------------------------------------------------------ what the model knows

    def mark(self) -> str:
        """Return the mark of the catalog last looked at: where a record of what the model knows then is kept."""
        catalog = self.catalog
        known = self._marks.get(id(catalog))
        if known is None or known[0] is not catalog:
            record = json.dumps({n: list(v) for n, v in sorted(catalog.told.items())}, separators=(",", ":"))
            self._marks = {id(catalog): (catalog, self.artifacts.put_text(record))}
        return self._marks[id(catalog)][1]

    def tell(self, before: object, prefix: Prefix | None) -> Told:
        """Return what changed since the mark `before`, for a conversation whose stored prefix is `prefix`.

        Without a prefix yet nothing is told: the list in it is made of this very catalog.
        """
        if prefix is None:
            return Told(mark=self.mark())
        catalog = self.look()
        mark = self.mark()
        if mark == before:
            return Told()
        from nbagent.skills.catalog import announce

        names = {str(t["name"]) for t in prefix.tools}
        text = announce(
            self._known(before), catalog, way="tool" if "skill" in names else "read", search="find_skills" in names
        )
        return Told(text=text, mark=mark)

    def _known(self, mark: object) -> Mapping[str, Sequence[str]]:
        """Return the record behind a mark; nothing for a conversation from before there were skills."""
        if not isinstance(mark, str) or not mark:
            return {}
        try:
            known = json.loads(self.artifacts.get_text(mark))
        except (JournalDamaged, ValueError):
            return {}  # then all are told again
        return known if isinstance(known, dict) else {}

    # ------------------------------------------------------------ reading

    def read_roots(self) -> tuple[Path, ...]:
        """Return the folders outside the workspace in which `read` may open skills: the roots, and where links lead."""
        catalog = self.catalog
        if self._roots is not None and self._roots[0] is catalog:
            return self._roots[1]
        scanned = catalog.scan.roots if catalog.scan is not None else ()
        real = [os.path.realpath(r.root.path) for r in scanned if not r.root.of_project and os.path.isdir(r.root.path)]
        found = dict.fromkeys(real)
        known = tuple(os.path.join(r, "") for r in (os.path.realpath(self.folder), *real))
        for skill in catalog:
            if skill.trusted and not os.path.join(skill.folder, "").startswith(known):
                found.setdefault(skill.folder)
        self._roots = (catalog, tuple(map(Path, found)))
        return self._roots[1]

    def refusal(self, path: Path) -> str:
        """Return why the model may not read `path`, "" when it may: it belongs to a skill that cannot be used.

        A skill of a project that is not trusted is an ordinary file of the workspace: it may be worked on.
        """
        skill = self.owner(path)
        if skill is None or skill.usable or not skill.trusted:
            return ""
        return f"skill {skill.name!r} cannot be used: {skill.reason}"

    def owner(self, path: Path) -> Skill | None:
        """Return the skill in whose folder the real path lies, None for no skill."""
        real = str(path)
        for skill in self.catalog:
            if real.startswith(skill.folder) and (real == skill.folder or real[len(skill.folder)] == os.sep):
                return skill
        return None

    def read_as(self, path: str) -> Skill | None:
        """Return the usable skill whose SKILL.md a `read` of `path` opens, None for another file."""
        if os.path.basename(path) != "SKILL.md":
            return None
        full = real_path(os.path.join(self.folder, os.path.expanduser(path)))
        folder = os.path.dirname(full)
        return next((s for s in self.catalog if s.folder == folder and s.usable), None)

    def find(self, query: str, limit: int) -> Sequence[SkillHit]:
        """Return the visible skills that fit a task best, best first."""
        from nbagent.skills.selector import Selector

        catalog = self.catalog
        if self._selector is None or self._selector.catalog is not catalog:
            self._selector = Selector(catalog)
        hits = (f.skill for f in self._selector.find(query, limit))
        read = catalog.way == "read"
        return [SkillHit(name=s.name, description=s.summary, location=s.location if read else "") for s in hits]

    def ranking(self, request: str, limit: int = 5) -> Sequence[Found]:
        """Return the visible skills that fit a request best, with their scores, best first."""
        self.find(request, limit)
        assert self._selector is not None
        return self._selector.find(request, limit)

    def check(self, name: str) -> None:
        """Refuse a skill that the person cannot use, before anything else is done.

        Raises:
            UsageProblem: there is none of that name, or it is hidden.
        """
        skill = self.look().named(name)
        if skill is None:
            near = difflib.get_close_matches(name, [s.name for s in self.catalog], n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "`%skills` lists all"
            raise UsageProblem(f"there is no skill {name[:80]!r}; {hint}")
        if not skill.usable:
            raise UsageProblem(f"skill {skill.name!r} cannot be used: {skill.reason}")

    def diagnostics_of(self, name: str) -> tuple[Diagnostic, ...]:
        """Return what was found about the skill `name`: in its file, or that another took its place."""
        return tuple(filter(self.is_of(name), self.catalog.diagnostics))

    def is_of(self, name: str) -> Callable[[Diagnostic], bool]:
        """Return what tells whether a diagnostic is about the skill `name`; also of one that did not load."""
        skill = self.catalog.named(name)
        folder, end = skill.folder if skill is not None else None, os.path.join(os.sep, name, "SKILL.md")
        return lambda d: d.path.endswith(end) or (folder is not None and os.path.dirname(d.path) == folder)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The settings of skills with the folders that the person trusts."""

    own: Any
    trust: tuple[str, ...]

    @property
    def mode(self) -> str:
        return str(self.own.mode)

    @property
    def extra_dirs(self) -> tuple[str, ...]:
        return tuple(self.own.extra_dirs)

    @property
    def allow_bundled(self) -> tuple[str, ...]:
        return tuple(self.own.allow_bundled)

    @property
    def entries(self) -> Mapping[str, Any]:
        return dict(self.own.entries)


def project_of(folder: Path, settings: Settings) -> Path:
    """Return the project's folder: where its settings are, else the repository's top, else the notebook's folder."""
    given = Path(settings.project)
    if given != folder.resolve():
        return given
    return next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder)


def is_trusted_project(project: Path, settings: Settings, home: Path) -> bool:
    """Tell whether the person accepts what the project brings: its folder, or the one of its settings, is trusted."""
    return settings.trusted or str(project.resolve()) in trusted_folders(home)


def _setting(settings: Settings, key: str) -> Any:
    try:
        return settings.value(key)
    except KeyError:
        return None
