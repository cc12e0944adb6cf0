"""What `%skills` and its sub-commands return: the catalog, one skill, why it is hidden, faults, uses, the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from nbagent.core.errors import Diagnostic, counted
from nbagent.notebook.render import shortened
from nbagent.notebook.reports.tables import Code, Document, Line, Table, displayable

_DESCRIPTION_CHARS = 70
_SHOWN_DIAGNOSTICS = 20
_WHY_CHARS = 60


class SkillRow(Protocol):
    """A skill as this page shows it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def visible(self) -> bool: ...
    @property
    def usable(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def body_tokens(self) -> int: ...
    @property
    def uses(self) -> int: ...


class UseRow(Protocol):
    """One use of a skill."""

    @property
    def name(self) -> str: ...
    @property
    def by(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def tools(self) -> tuple[str, ...]: ...
    @property
    def outcome(self) -> str: ...
    @property
    def duration_s(self) -> float: ...


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SkillsReport(Sequence[SkillRow]):
    """The catalog: a sequence of skills in prompt order, hidden ones last.

    `prompt` is the text the model sees, of `prompt_tokens` tokens (estimated) in the form `tier`.
    """

    skills: tuple[SkillRow, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    prompt: str = ""
    prompt_tokens: int = 0
    tier: str = "none"

    def __len__(self) -> int:
        return len(self.skills)

    @overload
    def __getitem__(self, index: int) -> SkillRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SkillRow, ...]: ...
    def __getitem__(self, index: int | slice) -> SkillRow | tuple[SkillRow, ...]:
        return self.skills[index]

    def document(self) -> Document:
        """Return what is shown."""
        if not self.skills and not self.diagnostics:
            return [
                Line(text="no skills; put one in skills/NAME/SKILL.md beside the notebook, or in ~/.nbagent/skills")
            ]
        shown = sum(s.visible for s in self.skills)
        cost = f"{self.prompt_tokens:,} tokens in every request" + (
            "" if self.tier == "full" else f", {self.tier} form"
        )
        head = Line(text=f"{shown} of {len(self.skills)} skills visible to the model · {cost}", strong=True)
        return [head, *self._table(), *faults(self.diagnostics)]

    def _table(self) -> Iterator[Table]:
        if self.skills:
            rows = tuple(
                (s.name, s.source, "yes" if s.visible else "no", f"{s.tokens:,}", f"{s.uses:,}", about(s))
                for s in self.skills
            )
            head = ("skill", "source", "visible", "tokens", "uses", "what it is for, or why it is hidden")
            yield Table(head=head, rows=rows, numbers=frozenset({3, 4}))


def about(skill: SkillRow) -> str:
    """Return what a skill is for, or why the model is not told of it."""
    return shortened(skill.description, _DESCRIPTION_CHARS) if skill.visible else skill.reason


def faults(diagnostics: Sequence[Diagnostic]) -> list[Line]:
    """Return the first diagnostics as lines, and how many more there are."""
    lines = [Line(text=str(d), dim=True) for d in diagnostics[:_SHOWN_DIAGNOSTICS]]
    more = len(diagnostics) - len(lines)
    return [*lines, *([Line(text=f"and {more} more; %skills lint shows all", dim=True)] if more > 0 else [])]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SkillReport:
    """One skill with its text; `path` is its file as shown, "" for the skill's own, `arguments` its hint of them."""

    skill: SkillRow
    text: str
    path: str = ""
    diagnostics: tuple[Diagnostic, ...] = ()
    arguments: str = ""

    def document(self) -> Document:
        """Return what is shown."""
        s = self.skill
        rows = [("source", s.source), ("file", self.path or s.path)]
        rows += [("visible", "yes" if s.visible else f"no: {s.reason}")]
        rows += [("arguments", self.arguments)] if self.arguments else []
        rows += [("description", s.description), ("in every request", f"{s.tokens:,} tokens")]
        rows += [("when used", f"about {s.body_tokens:,} tokens"), ("uses", f"{s.uses:,}")]
        return [Table(head=("skill", s.name), rows=tuple(rows)), Code(text=self.text), *faults(self.diagnostics)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A skill that fits a request; scores compare within one request only."""

    name: str
    score: float
    about: str


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhyReport:
    """Why the model is told of a skill or not; `skill` is None when there is none of that `name`.

    With a `request`, `ranking` are the skills that fit it best by their words.
    """

    name: str
    skill: SkillRow | None
    diagnostics: tuple[Diagnostic, ...] = ()
    near: tuple[str, ...] = ()
    request: str = ""
    ranking: tuple[Ranked, ...] = ()

    @property
    def rank(self) -> int | None:
        """On which place the skill comes for the request, from 1; None when it is not among the first."""
        names = [r.name for r in self.ranking]
        return names.index(self.skill.name) + 1 if self.skill is not None and self.skill.name in names else None

    def document(self) -> Document:
        """Return what is shown."""
        return [Line(text=self._sentence(), strong=True), *faults(self.diagnostics), *self._fit()]

    def _fit(self) -> Iterator[Line | Table]:
        if not self.request:
            return
        if not self.ranking:
            yield Line(text=f"No skill shares a word with {shortened(self.request, _WHY_CHARS)!r}.")
            return
        place = f"comes on place {self.rank}" if self.rank else "is not among the first"
        yield Line(text=f"For {shortened(self.request, _WHY_CHARS)!r} it {place} by the words (find_skills):")
        rows = tuple((str(i), r.name, f"{r.score:.2f}", shortened(r.about, _DESCRIPTION_CHARS))
                     for i, r in enumerate(self.ranking, start=1))  # fmt: skip
        yield Table(head=("place", "skill", "score", "what it is for"), rows=rows, numbers=frozenset({0, 2}))

    def _sentence(self) -> str:
        skill = self.skill
        if skill is None:
            hint = f"; there is {', '.join(self.near)}" if self.near else "; %skills lists all"
            return f"no skill is called {self.name!r}{hint}"
        if skill.visible:
            return f"{skill.name} is visible to the model: {skill.description}"
        also = "" if not skill.usable else f" (%skills run {skill.name})"
        return f"{skill.name} is hidden from the model: {skill.reason}{also}"


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LintReport:
    """What could be better in the skills."""

    diagnostics: tuple[Diagnostic, ...]
    checked: int = 0

    def document(self) -> Document:
        """Return what is shown."""
        if not self.diagnostics:
            return [Line(text=f"{self.checked} skills checked, nothing found")]
        rows = tuple((f"{d.path}:{d.line}" if d.line else d.path, d.cause, d.remedy) for d in self.diagnostics)
        head = Line(text=f"{counted(self.checked, 'skill')} checked, {counted(len(rows), 'finding')}", strong=True)
        return [head, Table(head=("where", "what", "what to do"), rows=rows)]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SkillLogReport:
    """The uses of skills in this session, oldest first."""

    uses: tuple[UseRow, ...]

    def document(self) -> Document:
        """Return what is shown."""
        if not self.uses:
            return [Line(text="no skill was used yet")]
        rows = tuple(
            (
                u.name,
                u.by,
                shortened(u.why, _WHY_CHARS),
                f"{u.tokens:,}",
                ", ".join(u.tools),
                u.outcome,
                f"{u.duration_s:.1f} s",
            )
            for u in self.uses
        )
        head = ("skill", "chosen by", "for", "tokens", "tools", "outcome", "took")
        return [Table(head=head, rows=rows, numbers=frozenset({3, 6}))]


@displayable
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SkillPromptReport:
    """The text by which the model knows the skills."""

    text: str
    tokens: int = 0
    tier: str = "none"

    def document(self) -> Document:
        """Return what is shown."""
        if not self.text:
            return [Line(text="the model is told of no skill")]
        return [Line(text=f"{self.tokens:,} tokens, {self.tier} form", strong=True), Code(text=self.text)]
