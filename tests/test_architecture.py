"""Who may import whom (docs/architecture.md), and how long a module may be. Imports for types alone count too."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "nbagent"
ROOT = PACKAGE.parent

PURE_STDLIB = frozenset(
    [
        "__future__",
        "collections",
        "base64",
        "binascii",
        "bisect",
        "collections.abc",
        "dataclasses",
        "difflib",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "itertools",
        "json",
        "math",
        "re",
        "string",
        "textwrap",
        "typing",
        "unicodedata",
        "zlib",
    ]
)
LEAVES = ("skills", "memory", "models", "tools", "store")
MAY_IMPORT = {
    "core": {"core"},
    "context": {"core", "context"},
    "skills": {"core", "skills"},
    "memory": {"core", "memory"},
    "models": {"core", "models"},
    "store": {"core", "store"},
    "tools": {"core", "tools", "skills", "memory"},
    "runtime": {"core", "context", *LEAVES, "runtime"},
    "notebook": {"runtime", "core", "tools.tool", "tools.kernel_types", "notebook"},
}
THIRD_PARTIES = {
    "anthropic": ("models/anthropic",),
    "aiohttp": ("models/connections.py",),
    "sqlite3": ("memory/index.py",),
    "IPython": ("notebook/",),
    "ipywidgets": ("notebook/",),
    "anywidget": ("notebook/panel/widgets.py",),
    "comm": ("notebook/panel/door.py",),
    "traitlets": ("notebook/",),
}
CLOCK_MODULES = frozenset({"time", "random", "uuid", "secrets"})
CLOCK_FILES = ("runtime/driver.py", "runtime/clock.py")
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})
THROTTLES = frozenset({"monotonic"})  # allowed in notebook/: how often a display is updated is nobody's record
MAX_LINES = 400
MAX_SESSION_LINES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module, by its full name, and the names taken from it."""

    module: str
    names: tuple[str, ...]
    line: int


@functools.cache
def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "node_modules" not in p.parts)


def short(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    return tuple(found_imports(path))


def found_imports(path: Path) -> Iterator[Import]:
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module=alias.name, names=(), line=node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield Import(module=module, names=tuple(a.name for a in node.names), line=node.lineno)


def ours(found: Import) -> list[str]:
    """Return what is imported of our own package, as "folder.module"."""
    if found.module == "nbagent":
        return [n for n in found.names if (PACKAGE / n).is_dir() or (PACKAGE / f"{n}.py").exists()]
    if not found.module.startswith("nbagent."):
        return []
    inner = found.module.removeprefix("nbagent.")
    if "." in inner:
        return [inner]
    return [f"{inner}.{n}" for n in found.names] or [inner]


def in_folder(folder: str) -> list[Path]:
    return [p for p in modules() if short(p).startswith(f"{folder}/")]


def allowed(name: str, rules: set[str]) -> bool:
    return any(name == rule or name.startswith(f"{rule}.") for rule in rules)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_stands_below_it(folder: str) -> None:
    wrong = [
        f"{short(path)}:{found.line} imports {name}"
        for path in in_folder(folder)
        for found in imports(path)
        for name in ours(found)
        if not allowed(name, MAY_IMPORT[folder])
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_the_package_has_its_rule() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert folders <= MAY_IMPORT.keys()


@pytest.mark.parametrize("folder", ["core", "context"])
def test_pure_folders_use_only_what_has_no_effects(folder: str) -> None:
    wrong = [
        f"{short(path)}:{found.line} imports {found.module}"
        for path in in_folder(folder)
        for found in imports(path)
        if not ours(found) and found.module not in PURE_STDLIB and not found.module.startswith("nbagent")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["core", "context"])
def test_pure_folders_open_nothing_and_print_nothing(folder: str) -> None:
    wrong = [
        f"{short(path)}:{node.lineno} calls {node.func.id}"
        for path in in_folder(folder)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input", "exec", "eval"}
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", THIRD_PARTIES)
def test_a_third_party_is_imported_in_its_room_only(name: str) -> None:
    wrong = [
        f"{short(path)}:{found.line}"
        for path in modules()
        for found in imports(path)
        if found.module.partition(".")[0] == name and not short(path).startswith(THIRD_PARTIES[name])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_clock_and_random_ids_belong_to_the_driver() -> None:
    wrong = []
    for path in modules():
        if short(path) in CLOCK_FILES:
            continue
        wrong += [f"{short(path)}:{line} {what}" for line, what in clock_uses(path)]
    assert not wrong, "\n".join(wrong)


def clock_uses(path: Path) -> Iterator[tuple[int, str]]:
    throttles = short(path).startswith("notebook/")
    tree = parsed(path)
    for found in imports(path):
        if found.module not in CLOCK_MODULES:
            continue
        if not (throttles and found.module == "time" and set(found.names) <= THROTTLES):  # `import time` has no names
            yield found.line, f"imports {found.module}"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if throttles and node.value.id == "time" and node.attr not in THROTTLES:
            yield node.lineno, f"uses time.{node.attr}"
        if node.value.id in {"datetime", "date"} and node.attr in CLOCK_CALLS:
            yield node.lineno, f"asks {node.value.id}.{node.attr}"


PANEL_PURE = ("protocol", "commands", "results", "live")


@pytest.mark.parametrize("name", PANEL_PURE)
def test_the_protocol_of_the_panel_has_no_effects(name: str) -> None:
    """It may use what is pure of the notebook, and knows no session, thread, comm or widget."""
    path = PACKAGE / "notebook" / "panel" / f"{name}.py"
    beside = {"markdown", "render", "reports.context", "panel.comms", *(f"panel.{n}" for n in PANEL_PURE)}
    wrong = [
        f"{short(path)}:{found.line} imports {found.module}"
        for found in imports(path)
        if found.module not in PURE_STDLIB and not allowed(found.module, {"nbagent.core"})
        and found.module not in {f"nbagent.notebook.{n}" for n in beside}
    ]  # fmt: skip
    assert not wrong, "\n".join(wrong)


def test_the_modules_of_the_widgets_need_no_build_and_no_network() -> None:
    static = PACKAGE / "notebook" / "panel" / "static"
    modules = sorted(static.glob("*.js"))
    assert {m.stem for m in modules} == {"common", "context", "skills", "memory"}
    for module in modules:
        text = module.read_text(encoding="utf-8")
        wrong = [w for w in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "http:", "https:") if w in text]
        assert wrong == [], f"{module.name}: {wrong}"


def test_modules_are_short_or_say_why_not() -> None:
    wrong = []
    for path in modules():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        why = ast.get_docstring(parsed(path)) or ""
        if lines > MAX_LINES and f"{MAX_LINES} lines" not in why:
            wrong.append(f"{short(path)} has {lines} lines")
    assert wrong == [], f"split them, or say in the docstring why they are 'Above {MAX_LINES} lines'"


def test_the_session_stays_a_facade() -> None:
    session = PACKAGE / "runtime" / "session.py"
    if session.exists():
        assert len(session.read_text(encoding="utf-8").splitlines()) <= MAX_SESSION_LINES


def test_every_module_says_in_its_first_line_what_it_is_for() -> None:
    wrong = []
    for path in modules():
        text = path.read_text(encoding="utf-8")
        if text.strip() and not (ast.get_docstring(ast.parse(text)) or "").strip():
            wrong.append(short(path))
    assert not wrong, "\n".join(wrong)


def test_the_rules_name_modules_that_exist_in_the_standard_library() -> None:
    assert {m.partition(".")[0] for m in PURE_STDLIB | CLOCK_MODULES} <= sys.stdlib_module_names
