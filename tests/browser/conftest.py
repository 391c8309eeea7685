"""Fixtures of the browser tests. A failure keeps its picture under build/failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from browser.hosts import PATIENCE, Lab, LabServer, Notebook, Window, start_chromium

expect.set_options(timeout=PATIENCE * 1000)

#: The windows open now, by the fixture that opened them: what a failed test saw is kept.
_windows: dict[str, list[Window]] = {"lab": [], "open_page": []}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.failed and belongs_here(item):
        name = re.sub(r"[^\w.-]+", "-", f"{item.path.stem}-{item.name}-{report.when}")
        fixtures = getattr(item, "fixturenames", ())
        seen = [window for name in _windows if name in fixtures for window in _windows[name]]
        for number, window in enumerate(seen):
            try:
                window.keep(f"{name}-{number}" if number else name)
            except Exception as error:  # the window itself may be what broke
                report.sections.append(("no picture", str(error)))
        report.sections.append(("pictures", f"build/failures/{name}*"))
    return report


def belongs_here(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The installed Chromium or Chrome."""
    with sync_playwright() as playwright:
        chromium = start_chromium(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """A JupyterLab server, shared by all tests."""
    server = LabServer(tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def lab(browser: Browser, lab_server: LabServer) -> Iterator[Lab]:
    """JupyterLab, open in a window that all tests share."""
    lab = Lab(browser, lab_server)
    _windows["lab"].append(lab.window)
    yield lab
    _windows["lab"].remove(lab.window)
    lab.close()


@pytest.fixture(scope="module")
def kernel(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Notebook]:
    """An empty notebook for the tests of one module, with its kernel."""
    notebook = lab.new(f"{request.path.stem}.ipynb")
    yield notebook
    notebook.close()


@pytest.fixture
def notebook(kernel: Notebook) -> Iterator[Notebook]:
    """An empty notebook for one test: at its end nothing went wrong, and nothing was asked for."""
    window = kernel.lab.window
    window.forget()
    yield kernel
    errors, refused = window.errors, window.refused
    kernel.clear()
    assert errors == []
    assert refused == []


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Open a page from disk, with all of the network out of reach."""
    opened: list[Window] = []

    def open_page(path: Path, **options: object) -> Window:
        window = Window.open(browser, allow=("file:", "blob:", "data:"), **options)
        opened.append(window)
        _windows["open_page"].append(window)
        window.page.goto(path.resolve().as_uri())
        return window

    yield open_page
    for window in opened:
        _windows["open_page"].remove(window)
        errors, refused = window.errors, window.refused
        window.context.close()
        assert errors == []
        assert refused == []
