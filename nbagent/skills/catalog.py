"""Skill and Catalog: what `%skills` shows and what the model is told, as values; no effects.

A Catalog is made anew only when something changed, so "is it the same object" asks whether it did.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, overload

from nbagent.core.errors import Diagnostic
from nbagent.core.tokens import estimate_tokens
from nbagent.skills.discovery import Scan, SkillFile
from nbagent.skills.gating import same_name
from nbagent.skills.manifest import Manifest
from nbagent.skills.prompt import (
    MAX_DESCRIPTION_CHARS,
    PromptText,
    Way,
    build_prompt,
    escaped,
    one_line_of,
    shortened,
)
from nbagent.skills.roots import PRECEDENCE

_FAMILY: Final = "claude-4.7"
DELTA_CHARS: Final = 4_000  # of one announcement; what is over is counted, not named
_RANK: Final = {source: rank for rank, source in enumerate(PRECEDENCE)}
PLACE_TOKENS: Final = 55  # of the marks around an entry and a path of usual length


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill of the catalog.

    `source` is the kind of root it came from, `path` its SKILL.md, `location` that path as the
    model is given it. `visible`: the model is told; if not, `reason` says why. `usable`: the
    person can run it. `trusted`: it may run commands and have tools allowed. `uses`: how often
    it was used before.
    """

    name: str
    description: str
    source: str
    path: str
    visible: bool
    reason: str
    uses: int
    usable: bool
    trusted: bool
    location: str
    file: SkillFile
    manifest: Manifest

    @property
    def rank(self) -> int:
        """The precedence of its source; higher goes first."""
        return _RANK[self.file.source]

    @property
    def summary(self) -> str:
        """What the model is told it is for."""
        more = self.manifest.when_to_use
        return f"{self.description} {more}" if more else self.description

    @property
    def tokens(self) -> int:
        """Tokens, estimated, of its entry in a prompt that lists it in full; 0 when the model is not told of it.

        Where the file lies is taken at a flat rate, so that a skill costs the same on every machine.
        """
        told = one_line_of(self.summary)[:MAX_DESCRIPTION_CHARS]
        return estimate_tokens(f"{self.name} {told}", _FAMILY) + PLACE_TOKENS if self.visible else 0

    @property
    def body_tokens(self) -> int:
        """Tokens, estimated from its size, that using it costs."""
        return self.file.size_bytes // 4

    @property
    def folder(self) -> str:
        """The real folder it is in."""
        return self.file.folder


class Catalog(Sequence[Skill]):
    """The skills in prompt order (by name), hidden ones last; with what was found wrong, and the prompt.

    `way` is how the model gets a skill: by reading its file, or through the tool `skill`.
    `search` says that `find_skills` is offered. `scan` and `inputs` are what it was made from.
    """

    def __init__(
        self, skills: Iterable[Skill] = (), *, diagnostics: Iterable[Diagnostic] = (), way: Way = "read",
        search: bool = False, limit_chars: int = 18_000, scan: Scan | None = None, inputs: object = None,
    ) -> None:  # fmt: skip
        self._skills = tuple(sorted(skills, key=lambda s: (not s.visible, s.name.casefold(), s.name)))
        self._found = tuple(diagnostics)
        self.way: Way = way
        self.search = search
        self.limit_chars = limit_chars
        self.scan = scan
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self._skills)

    @overload
    def __getitem__(self, index: int) -> Skill: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Skill, ...]: ...
    def __getitem__(self, index: int | slice) -> Skill | tuple[Skill, ...]:
        return self._skills[index]

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills)

    def __repr__(self) -> str:
        return f"<Catalog: {len(self.visible)} of {len(self)} skills visible, {len(self.diagnostics)} diagnostics>"

    @cached_property
    def _by_name(self) -> Mapping[str, Skill]:
        return {same_name(s.name): s for s in self._skills}

    def named(self, name: str) -> Skill | None:
        """Return the skill of that name; case and Unicode form do not matter."""
        return self._by_name.get(same_name(name.strip()))

    @cached_property
    def visible(self) -> tuple[Skill, ...]:
        """The skills that the model is told of."""
        return tuple(s for s in self._skills if s.visible)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What is wrong or doubtful, by path; also what the prompt had to cut or leave out."""
        return tuple(sorted((*self._found, *self._cuts()), key=lambda d: (d.path, d.line or 0, d.cause)))

    @cached_property
    def prompt_text(self) -> PromptText:
        """The prompt with its form and the names that are in it."""
        return build_prompt(self.visible, limit_chars=self.limit_chars, way=self.way, search=self.search)

    @property
    def prompt(self) -> str:
        """The text that the model sees; "" without a visible skill."""
        return self.prompt_text.text

    @property
    def prompt_tokens(self) -> int:
        """Tokens, estimated, of the prompt."""
        return estimate_tokens(self.prompt, _FAMILY)

    @cached_property
    def digest(self) -> str:
        """A hash of what the model could see and read: equal catalogs have equal ones."""
        parts = (f"{s.name}\0{s.location}\0{s.visible}\0{s.file.digest}\n" for s in self._skills)
        text = "".join(parts) + f"{self.way} {self.search} {self.limit_chars}"
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()

    @cached_property
    def read_allowed_roots(self) -> tuple[Path, ...]:
        """The real folders of the visible skills, which `read` may open beside the workspace."""
        return tuple(Path(f) for f in sorted({s.folder for s in self.visible}))

    def refusal(self, path: Path | str) -> str:
        """Return why the model may not read `path`: it belongs to a skill hidden from it; "" when it may."""
        real = os.path.realpath(path)
        for skill in self._skills:
            if not skill.usable and (real == skill.folder or real.startswith(skill.folder + os.sep)):
                return f"skill {skill.name!r} cannot be used: {skill.reason}"
        return ""

    @cached_property
    def told(self) -> Mapping[str, tuple[str, str]]:
        """What the model knows once this was listed: name -> marks of what it was told, and of the file."""
        return {s.name: (_told(s), s.file.digest[:16]) for s in self.visible}

    def delta(self, previous: Catalog) -> str:
        """Return what the model has to be told when this takes the place of `previous`; "" when nothing.

        For the end of the context; the prompt that was sent stays as it is.
        """
        if previous is self or previous.digest == self.digest:
            return ""
        return announce(previous.told, self, way=self.way, search=self.search)

    def _cuts(self) -> Iterator[Diagnostic]:
        """Yield what the model is told only a part of, or not at all for want of room."""
        for skill in self.visible:
            length = len(skill.description) + len(skill.manifest.when_to_use)  # a quick test before the exact one
            if length >= MAX_DESCRIPTION_CHARS and len(one_line_of(skill.summary)) > MAX_DESCRIPTION_CHARS:
                yield Diagnostic(
                    path=skill.path, line=None,
                    cause=f"the description has {length:,} characters; the model is told {MAX_DESCRIPTION_CHARS:,}",
                    remedy="say first what it does and when",
                )  # fmt: skip
        if self.prompt_text.left_out and self.prompt_text.tier != "search":
            left = self.prompt_text.left_out
            names = ", ".join(left[:10]) + (f" and {len(left) - 10} more" if len(left) > 10 else "")
            yield Diagnostic(
                path=self.visible[0].path, line=None,
                cause=f"{len(left)} of {len(self.visible)} skills do not fit the prompt: {names}",
                remedy="switch off what is not used, or turn on find_skills",
            )  # fmt: skip


def announce(before: Mapping[str, Sequence[str]], catalog: Catalog, *, way: Way, search: bool) -> str:
    """Return what changed since `before` (see `Catalog.told`), "" when nothing did.

    It is for a model that takes skills in the `way`; `search`: it has `find_skills`.
    """
    now = {s.name: s for s in catalog.visible}
    gone = [n for n in before if n not in now]
    new = [s for n, s in now.items() if n not in before]
    told = [s for n, s in now.items() if n in before and _told(s) != before[n][0]]
    text = [
        s for n, s in now.items() if n in before and _told(s) == before[n][0] and s.file.digest[:16] != before[n][1]
    ]  # fmt: skip

    def line(skill: Skill) -> str:
        where = f" ({escaped(skill.location)})" if way == "read" else ""
        return f"{escaped(skill.name)}{where}: {escaped(shortened(skill.summary, 300))}"

    lines = [f"- gone: {escaped(n)}. Do not use it.{_why(catalog.named(n))}" for n in gone]
    lines += [f"- changed: {line(s)}" for s in told]
    lines += [f"- its text changed: {escaped(s.name)}. Take it again before you follow it." for s in text]
    lines += [f"- new: {line(s)}" for s in new]
    return _announced(lines, search=search)


def _told(skill: Skill) -> str:
    """Return a mark of what the model is told of a skill; where bundled ones lie differs by machine, not by content."""
    place = "" if skill.source == "bundled" else skill.location
    return hashlib.blake2b(f"{skill.summary}\0{place}".encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _why(skill: Skill | None) -> str:
    return f" ({escaped(skill.reason)})" if skill is not None and skill.reason else ""


def _announced(lines: Sequence[str], *, search: bool) -> str:
    if not lines:
        return ""
    room, fitting = DELTA_CHARS, list[str]()
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        fitting.append(line)
    more = len(lines) - len(fitting)
    if more:
        fitting.append(f"- and {more} more{'; find_skills finds them' if search else ''}")
    return "\n".join(("The skills changed since they were listed:", *fitting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One file for each name, and what was found about the others."""

    files: tuple[SkillFile, ...]
    diagnostics: tuple[Diagnostic, ...]


def merge(files: Iterable[SkillFile], *, trusted: Callable[[SkillFile], bool]) -> Merged:
    """Keep of each name the file of the highest precedence; `files` come lowest first.

    Names that differ in case or Unicode form are the same. Within one source the first stays.
    A file that is not trusted never takes the place of one that is.
    """
    kept: dict[str, SkillFile] = {}
    notes: list[Diagnostic] = []
    for file in files:
        if file.manifest is None:
            continue
        key = same_name(file.manifest.name)
        other = kept.get(key)
        if other is None:
            kept[key] = file
            continue
        stays = other.source == file.source or (trusted(other) and not trusted(file))
        winner, loser = (other, file) if stays else (file, other)
        kept[key] = winner
        notes.append(
            Diagnostic(
                path=loser.path, line=None,
                cause=f"skill {file.manifest.name!r} is taken from {winner.path} ({winner.source}) instead",
                remedy="rename one of them if both are wanted",
            )
        )  # fmt: skip
    return Merged(files=tuple(kept.values()), diagnostics=tuple(notes))
