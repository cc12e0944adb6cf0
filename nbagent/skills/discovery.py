"""Finds the SKILL.md files below the roots and reads those that changed since the last scan.

Every turn looks at folders and files again, so nothing new is missed; but a folder is listed and a file
read only when its status changed, or when it is so young that its status could not tell. What is left out
is named in a Diagnostic, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nbagent.core.errors import Diagnostic
from nbagent.skills.manifest import MAX_BYTES, Manifest, parse_manifest
from nbagent.skills.roots import Limits, Root, Source

FILE_NAME: Final = "SKILL.md"
NEVER: Final = frozenset({"node_modules", "__pycache__"})  # and every folder that begins with a dot
# A change within one tick of the file system's clock leaves size and times equal; Linux ticks are up to 10 ms.
RACY_NS: Final = 20_000_000

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """One SKILL.md as read. `manifest` is None when it could not be used; `folder` is its real folder.

    `digest` is the SHA-256 of the bytes, "" when they were not read.
    """

    path: str
    folder: str
    source: Source
    manifest: Manifest | None
    diagnostics: tuple[Diagnostic, ...]
    digest: str
    size_bytes: int
    stamp: Stamp
    linked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A folder that was listed: its status then (None: it was not there) and a hash of the names in it."""

    path: str
    stamp: Stamp | None
    names: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RootScan:
    """What a root held. `settled` is False when links outside decide, which no status of ours tells.

    `times` are path, change, writing and digest of the files that are no links: for a quick look at thousands.
    """

    root: Root
    limits: Limits
    files: tuple[SkillFile, ...]
    diagnostics: tuple[Diagnostic, ...]
    listings: tuple[Listing, ...]
    settled: bool
    times: tuple[tuple[str, int, int, str], ...]
    linked: tuple[SkillFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a scan found, lowest precedence first, by name within a root; also the index for the next scan.

    `variables` and `settings` are those that some skill asks for.
    """

    roots: tuple[RootScan, ...]
    files: tuple[SkillFile, ...]
    diagnostics: tuple[Diagnostic, ...]
    newest_ns: int
    variables: frozenset[str] = frozenset()
    settings: frozenset[str] = frozenset()


def scan(roots: Iterable[Root], *, limits: Limits, before: Scan | None = None, now_ns: int = 0) -> Scan:
    """Return the skills of the roots; the very scan `before` when nothing changed since.

    Folders and files are looked at each time by their status; only what changed, or is so young
    that its status could not tell, is read. An unchanged file gives the very same SkillFile. How
    young is measured from `now_ns` (since the epoch); without it from the youngest thing found.
    """
    known = {} if before is None else {r.root: r for r in before.roots}
    old_ns = 0 if before is None else before.newest_ns - RACY_NS
    found = tuple(_scan_root(root, limits, known.get(root), old_ns) for root in roots)
    if before is not None and [id(r) for r in found] == [id(r) for r in before.roots]:
        return before
    manifests = [f.manifest for r in found for f in r.files if f.manifest is not None and f.manifest.metadata]
    stamps = [f.stamp[1] for r in found for f in r.files]
    stamps += [e.stamp[1] for r in found for e in r.listings if e.stamp]
    return Scan(
        roots=found, files=tuple(f for r in found for f in r.files),
        diagnostics=tuple(d for r in found for d in r.diagnostics), newest_ns=max([now_ns, *stamps]),
        variables=frozenset(n for m in manifests for n in m.requires.env),
        settings=frozenset(p for m in manifests for p in m.requires.config),
    )  # fmt: skip


def _scan_root(root: Root, limits: Limits, before: RootScan | None, old_ns: int) -> RootScan:
    if before is not None and before.limits == limits and before.settled and _unchanged(before, old_ns):
        return before
    index = {} if before is None else {f.path: f for f in before.files}
    walk = _Walk(root=root, limits=limits, index=index, old_ns=old_ns)
    walk.start()
    return RootScan(
        root=root, limits=limits, files=tuple(walk.files), diagnostics=tuple(walk.notes),
        listings=tuple(walk.listings), settled=walk.settled,
        times=tuple((f.path, f.stamp[1], f.stamp[0], f.digest) for f in walk.files if not f.linked),
        linked=tuple(f for f in walk.files if f.linked),
    )  # fmt: skip


def _unchanged(before: RootScan, old_ns: int) -> bool:
    """Tell whether folders and files are as they were. What is younger than `old_ns` is looked into."""
    lstat, look = os.lstat, os.stat
    try:
        for listing in before.listings:
            if listing.stamp is None:
                if os.path.lexists(listing.path):
                    return False
                continue
            if stamp_of(look(listing.path)) != listing.stamp:
                return False
            if listing.stamp[1] >= old_ns and _names(os.listdir(listing.path)) != listing.names:
                return False
        for path, changed_ns, written_ns, digest in before.times:
            status = lstat(path)
            if status.st_ctime_ns != changed_ns or status.st_mtime_ns != written_ns:
                return False
            if changed_ns >= old_ns and digest and digest_of(read_bytes(path, status)) != digest:
                return False
        for file in before.linked:
            status = look(file.path)
            if stamp_of(status) != file.stamp or digest_of(read_bytes(file.path, status)) != file.digest:
                return False
    except (OSError, ValueError):
        return False
    return True


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what of a status changes with the content."""
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _names(names: Iterable[str]) -> int:
    return hash(tuple(sorted(names)))


def digest_of(raw: bytes) -> str:
    """Return the hash by which a content is known."""
    return hashlib.sha256(raw).hexdigest()


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The scan of one root."""

    root: Root
    limits: Limits
    index: Mapping[str, SkillFile]
    old_ns: int
    listings: list[Listing] = field(default_factory=list)
    settled: bool = True
    files: list[SkillFile] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    real_root: str = ""
    seen: set[str] = field(default_factory=set)
    loaded: int = 0
    candidates: int = 0
    folders: int = 0
    full: bool = False

    def start(self) -> None:
        root = replace(self.root, path=os.path.normpath(self.root.path))
        self.real_root = os.path.realpath(root.path)
        if not os.path.isdir(self.real_root):
            self.listings.append(Listing(path=root.path, stamp=None, names=0))
            if os.path.lexists(root.path):
                self.settled = False
                self.note(root.path, "it is no folder", "make it one, or take it away")
            return
        if root.within and not inside(self.real_root, os.path.realpath(root.within)):
            self.settled = False
            self.note(root.path, f"symlink-escape: it leads to {self.real_root}", "use skills.extra_dirs for it")
            return
        if self.file_in(root.path, self.real_root):
            return
        named = os.path.basename(root.path) == "skills" or root.source != "extra"
        self.folder(root.path, self.real_root, self.limits.depth if named else self.limits.extra_depth, top=True)

    def note(self, path: str, cause: str, remedy: str) -> None:
        self.notes.append(Diagnostic(path=path, line=None, cause=cause, remedy=remedy))

    def folder(self, path: str, real: str, depth: int, *, top: bool = False) -> None:
        """Look at the folders in a folder that is no skill itself."""
        entries = self.listed(path)
        odd = next((e.name for e in entries if e.name != FILE_NAME and e.name.lower() == "skill.md"), None)
        if odd is not None:
            self.note(os.path.join(path, odd), f"a skill's file is called {FILE_NAME}", f"rename it to {FILE_NAME}")
            self.file_in(path, real, odd)
            return
        groups: list[tuple[str, str]] = []
        pending = [e for e in entries if e.name[0] != "." and e.name not in NEVER]
        for entry in pending:
            if self.full:
                break
            place = self.place(entry, path, real)
            if place is None or (self.over_candidates(path) and not (top and entry.name == "skills")):
                continue
            if not self.file_in(*place):
                groups.append(place)
        if top and not self.files:
            self.skills_child(groups)
        for child, child_real in groups:
            if depth > 1 and not self.full:
                self.folder(child, child_real, depth - 1)

    def skills_child(self, groups: list[tuple[str, str]]) -> None:
        """When a child called `skills` holds skills and the root none of its own, that child is the root."""
        child = next((g for g in groups if os.path.basename(g[0]) == "skills"), None)
        if child is not None:
            groups.remove(child)
            self.folder(*child, self.limits.depth)
            if self.files:
                groups.clear()

    def listed(self, path: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder by name."""
        self.folders += 1
        if self.folders > self.limits.max_folders:
            if not self.full:
                self.note(path, f"over {self.limits.max_folders:,} folders below {self.root.path}", "divide the root")
            self.full = True
            return []
        try:
            stamp = stamp_of(os.stat(path))
            with os.scandir(path) as found:
                entries = sorted(found, key=lambda e: e.name)
            self.listings.append(Listing(path=path, stamp=stamp, names=_names(e.name for e in entries)))
        except OSError as error:
            self.settled = False
            self.note(path, f"the folder cannot be read ({error.strerror})", "correct its permissions")
            return []
        most = self.limits.max_entries
        if len(entries) > most:
            self.note(path, f"{len(entries):,} entries, of which {most:,} are looked at", "divide the folder")
        return entries[:most]

    def over_candidates(self, path: str) -> bool:
        self.candidates += 1
        most = self.limits.max_candidates
        if self.candidates == most + 1:
            self.note(path, f"over {most:,} folders that may be skills; the last by name are left out", "divide it")
        return self.candidates > most

    def place(self, entry: os.DirEntry[str], path: str, real: str) -> tuple[str, str] | None:
        """Return path and real path of a sub-folder that may be looked at."""
        child = f"{path}{os.sep}{entry.name}"
        if not entry.is_symlink():
            if not entry.is_dir(follow_symlinks=False):
                return None
            child_real = f"{real}{os.sep}{entry.name}"
        else:
            resolved = self.link(child, real)
            if resolved is None:
                return None
            child_real = resolved
        if child_real in self.seen:
            self.note(child, f"it is the same folder as one listed before ({child_real})", "remove one of them")
            return None
        self.seen.add(child_real)
        return child, child_real

    def link(self, path: str, parent_real: str) -> str | None:
        """Return where a link in the root leads, None when it must not be followed."""
        target = os.path.realpath(path)
        if not os.path.isdir(target):
            self.settled = False
            if not os.path.exists(target):
                self.note(path, f"the link leads nowhere ({target})", "correct or remove it")
            return None
        if inside(parent_real, target):
            self.note(path, f"symlink-loop: it leads back to {target}", "remove the link")
            return None
        if not self.root.takes_links and not inside(target, self.real_root):
            self.settled = False
            reason = "bundled-symlink-escape" if self.root.source == "bundled" else "symlink-escape"
            self.note(
                path, f"{reason}: it leads to {target}, out of {self.real_root} (source {self.root.source})",
                "copy the folder here, or name its place in skills.extra_dirs",
            )  # fmt: skip
            return None
        return target

    def file_in(self, folder: str, real: str, name: str = FILE_NAME) -> bool:
        """Take the skill of a folder; tell whether there is one, also when it cannot be used."""
        path = f"{folder}{os.sep}{name}"
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.note(path, f"it cannot be looked at ({error.strerror})", "correct its permissions")
            return False
        if self.loaded >= self.limits.max_loaded:
            most = self.limits.max_loaded
            self.note(path, f"over {most:,} skills in this root; this and those after it are left out", "divide it")
            self.full = True
            return True
        self.take(path, real, status)
        return True

    def take(self, path: str, real: str, status: os.stat_result) -> None:
        linked = stat.S_ISLNK(status.st_mode)
        if linked:
            target = os.path.realpath(path)
            if not inside(target, real):
                self.settled = False
                self.note(path, f"path-escape: it leads to {target}, out of its folder {real}", "copy the file here")
                return
            try:
                status = os.stat(target)
            except OSError as error:
                self.settled = False
                self.note(path, f"the link leads nowhere ({error.strerror})", "correct or remove it")
                return
        stamp = stamp_of(status)
        known = self.index.get(path)
        if known is not None and (known.folder != real or known.stamp != stamp):
            known = None
        if known is None or status.st_ctime_ns >= self.old_ns:
            known = self.read(path, real, status=status, stamp=stamp, known=known, linked=linked)
        self.files.append(known)
        self.loaded += known.manifest is not None

    def read(
        self, path: str, real: str, *, status: os.stat_result, stamp: Stamp, known: SkillFile | None, linked: bool
    ) -> SkillFile:
        """Read a file; the known object is kept when neither content nor status changed."""
        manifest: Manifest | None = None
        digest, notes = "", tuple[Diagnostic, ...]()
        try:
            raw = read_bytes(path, status)
            digest = digest_of(raw)
        except (OSError, ValueError) as error:
            cause = f"it cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
            notes = (Diagnostic(path=path, line=None, cause=cause, remedy="correct or remove it"),)
        else:
            if known is not None and known.digest == digest:
                return known
            parsed = parse_manifest(raw, path=path, folder=path.rsplit(os.sep, 2)[-2])
            manifest, notes = parsed.manifest, parsed.diagnostics
        return SkillFile(
            path=path, folder=real, source=self.root.source, manifest=manifest, diagnostics=notes,
            digest=digest, size_bytes=status.st_size, stamp=stamp, linked=linked,
        )  # fmt: skip


def read_bytes(path: str, status: os.stat_result) -> bytes:
    """Return a SKILL.md's bytes; what is no ordinary file or too large is not opened.

    Raises:
        ValueError: no ordinary file, or over 256,000 bytes; the text says so.
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no ordinary file")
    if status.st_size > MAX_BYTES:
        raise ValueError(f"it has {status.st_size:,} bytes, over {MAX_BYTES:,}")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        raw = os.read(handle, status.st_size + 1)
    finally:
        os.close(handle)
    if len(raw) != status.st_size:
        raise ValueError("it changed while it was read")
    return raw


def inside(path: str, folder: str) -> bool:
    """Tell whether a real path is `folder` or below it."""
    return path == folder or path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)
