"""The browser tests share one JupyterLab and one window; each has a notebook and a folder of its own."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.desk import CHROMIUM, FLAGS, NOTES, ROOT, Kernels, Notebook, Service, Window, lab

PICTURES = ROOT / "build" / "browser-failures"
LOG_LINES = 40
WINDOWS = pytest.StashKey[dict[str, "Watched"]]()
SERVER_LOG = pytest.StashKey[Path]()
ENV = {"ANTHROPIC_API_KEY": "x", "NBAGENT_MODE": "auto", "NBAGENT_OFFLINE": "1"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where a browser, or the built panel, is missing."""
    here = Path(__file__).parent
    built = (ROOT / "nbagent" / "labextension" / "package.json").is_file()
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(CHROMIUM is None, reason="no Chromium was found"))
            item.add_marker(pytest.mark.skipif(not built, reason="the panel is not built: there is no node"))


class Watched:
    """A window of the tests, and what its console said during the running one."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.lines: deque[str] = deque(maxlen=LOG_LINES)
        page.on("console", lambda message: self.lines.append(f"{message.type}: {message.text[:500]}"))
        page.on("pageerror", lambda error: self.lines.append(f"error nobody caught: {str(error)[:1000]}"))
        page.on("crash", lambda _: self.lines.append("the page crashed"))
        page.on("requestfailed", lambda asked: self.lines.append(f"failed: {asked.method} {asked.url} {asked.failure}"))

    def told(self, path: Path) -> Iterator[tuple[str, str]]:
        """Give what there is to look at: a picture, kept in `path`, and what the console said."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.page.screenshot(path=str(path), timeout=10_000)
        except Exception as error:
            yield "picture", f"none of {path.stem}: {error}"
        else:
            yield "picture", str(path)
        yield f"console of {path.stem}", "\n".join(self.lines) or "(nothing)"


def watch(session: pytest.Session, name: str, page: Any) -> None:
    """Look at `page` when a test fails."""
    session.stash.setdefault(WINDOWS, {})[name] = Watched(page)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for watched in item.session.stash.get(WINDOWS, {}).values():
        watched.lines.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Of a test that fails keep a picture of every window, and tell what the consoles and the server said."""
    report = yield
    if report.failed:
        name = re.sub(r"[^a-z0-9]+", "-", item.name.lower())
        for window, watched in item.session.stash.get(WINDOWS, {}).items():
            report.sections.extend(watched.told(PICTURES / f"{name}-{report.when}-{window}.png"))
        log = item.session.stash.get(SERVER_LOG, None)
        if log is not None and log.is_file():
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            report.sections.append(("server", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """The fake of the Messages API that all kernels talk to."""
    service = Service()
    with service.fake:
        yield service


@pytest.fixture(scope="session")
def address(
    service: Service, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[str, Path]]:
    """JupyterLab's address, and the folder that it shows."""
    folder = tmp_path_factory.mktemp("lab") / "work"
    folder.mkdir()
    request.session.stash[SERVER_LOG] = folder.parent / "server.log"
    with lab(folder, ANTHROPIC_BASE_URL=service.fake.base_url, **ENV) as url:
        yield url, folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shared(browser: Any, address: tuple[str, Path], request: pytest.FixtureRequest) -> Window:
    """The window that most tests share."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    watch(request.session, "shared", page)
    return Window(page, address[0], "shared", address[1])


@pytest.fixture
def window(shared: Window, service: Service) -> Iterator[Window]:
    """The shared window; what a test leaves open is closed."""
    service.replies.clear()
    yield shared
    left = shared.page.locator(".jp-Dialog").all_inner_texts()
    for _ in left:  # each would lie over the next test
        shared.page.keyboard.press("Escape")
    for path in shared.page.evaluate("() => Object.keys(window.books ?? {})"):
        shared.page.evaluate(
            """async (path) => { const w = books[path]; delete books[path];
               await w.sessionContext.shutdown(); w.context.model.dirty = false; w.dispose(); }""",
            path,
        )
    assert left == [], "a dialog was left open"


@pytest.fixture
def another(browser: Any, address: tuple[str, Path], request: pytest.FixtureRequest) -> Iterator[Window]:
    """A window of its own, beside the shared one or in place of it."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    watch(request.session, "another", page)
    yield Window(page, address[0], "another", address[1])
    del request.session.stash[WINDOWS]["another"]
    page.close()


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A folder name of this test alone."""
    return place_of(request.node)


def place_of(item: Any) -> str:
    return re.sub(r"[^a-z0-9]+", "-", item.name.lower())[:60].strip("-")


@pytest.fixture(scope="session")
def kernels(address: tuple[str, Path]) -> Iterator[Kernels]:
    """Kernels that are begun ahead."""
    kernels = Kernels(*address)
    yield kernels
    kernels.close()


@pytest.fixture(autouse=True)
def ahead(request: pytest.FixtureRequest, kernels: Kernels) -> Iterator[None]:
    """Begin this test's kernel, and while it runs that of the next one."""
    items = request.session.items
    here = items.index(request.node)
    for item in items[here : here + 2]:
        if item.path.is_relative_to(Path(__file__).parent):
            kernels.begin(kernel_path(item))
    yield
    kernels.end(kernel_path(request.node))


def kernel_path(item: pytest.Item) -> str:
    """Return the notebook that a test opens, or would."""
    return f"{place_of(item)}/{'played.ipynb' if item.path.stem == 'test_played' else NOTES}"


@pytest.fixture
def notebook(window: Window, place: str) -> Notebook:
    """A notebook with nbagent loaded and a few turns to run, in the shared window with the panel open."""
    cells = ("%load_ext nbagent", "%%agent\nFirst question", "%%agent\nSecond question", "%%agent\nThird question")
    notebook = window.notebook(f"{place}/notes.ipynb", *cells)
    window.command("nbagent:open")
    notebook.run(0)
    return notebook
