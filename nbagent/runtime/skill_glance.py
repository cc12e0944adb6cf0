"""Which skills there seem to be, for the line of `%load_ext` and for Tab: lists folders, reads none, imports little."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping

BUNDLED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "skills", "bundled")
FILE_NAME = "SKILL.md"


def skills_at_a_glance(
    folder: str, home: str, environ: Mapping[str, str], *, trusted: bool = False, extra: Iterable[str] = (),
    off: Collection[str] = (),
) -> frozenset[str]:  # fmt: skip
    """Return the names of the folders with a SKILL.md in the roots; a project's only when `trusted`.

    `off` are names that are switched off. Gates are not asked, so it may be a few more than the model is told of.
    """
    person = environ.get("HOME") or os.path.expanduser("~")
    roots = [*extra, BUNDLED, os.path.join(home, "skills")]
    roots += [os.path.join(person, d, "skills") for d in (".claude", ".agents")]
    if trusted:
        roots += [os.path.join(folder, *parts) for parts in ((".claude", "skills"), (".agents", "skills"), ("skills",))]
    names: set[str] = set()
    for root in roots:
        with contextlib.suppress(OSError), os.scandir(root) as entries:
            names |= {e.name for e in entries if os.path.isfile(os.path.join(e.path, FILE_NAME))}
    return frozenset(names - set(off))
