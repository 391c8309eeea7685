"""The real hosts that the browser tests drive: Chromium, a JupyterLab server, its notebooks.

All waiting is for a condition. ``PATIENCE`` only bounds how long a condition that never comes
true is waited for, so that a broken test ends.
"""

from __future__ import annotations

import ast
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright, Route

from browser import chromium

T = TypeVar("T")

PATIENCE = 60.0  # seconds
BUILD = Path(__file__).parents[2] / "build"

#: Nothing of Chromium's own may reach for the network, and root needs no sandbox to run it.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def eventually(probe: Callable[[], T], wanted: T | Callable[[T], bool] = bool) -> T:
    """Ask ``probe`` until it gives what is wanted (a value, or a condition that holds)."""
    test = wanted if callable(wanted) else lambda got: got == wanted
    end = time.monotonic() + PATIENCE
    while not test(got := probe()):
        if time.monotonic() > end:
            expected = "something else" if callable(wanted) else repr(wanted)
            raise AssertionError(f"got {got!r} to the end, not {expected}")
        time.sleep(0.05)
    return got


def start_chromium(playwright: Playwright) -> Browser:
    """Start the installed Chromium or Chrome without a window."""
    path = chromium.find()
    if path is None:
        raise RuntimeError(chromium.MISSING)
    return playwright.chromium.launch(executable_path=path, args=FLAGS)


@dataclass
class Window:
    """One page in its own browser profile, with a record of all that it said and asked for."""

    page: Page
    context: BrowserContext
    #: What the console and uncaught exceptions said: (kind, text).
    log: list[tuple[str, str]] = field(default_factory=list)
    _refused: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Browser, allow: tuple[str, ...], **options: Any) -> Window:
        """Open an empty window that reaches only addresses that start as ``allow`` says."""
        options.setdefault("viewport", {"width": 1280, "height": 1000})
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE * 1000)
        context.set_default_navigation_timeout(PATIENCE * 1000)
        window = cls(context.new_page(), context)

        def decide(route: Route) -> None:
            url = route.request.url
            if url.startswith(allow):
                route.continue_()
            else:
                window._refused.append(url)
                route.abort()

        context.route("**/*", decide)
        window.page.on("console", lambda said: window.log.append((said.type, said.text)))
        window.page.on("pageerror", lambda error: window.log.append(("exception", str(error))))
        window.page.on("dialog", lambda dialog: window._dialog(dialog))
        return window

    def _dialog(self, dialog: Any) -> None:
        # The page asks nothing of its reader, so a dialog can only be markup that ran.
        self.log.append(("exception", f"a dialog opened: {dialog.message}"))
        dialog.dismiss()

    def _listen(self) -> None:
        # Events are heard in their order, so an answer comes after all that happened before it.
        self.page.evaluate("0")

    @property
    def errors(self) -> list[str]:
        """What went wrong so far, in the page's own words."""
        self._listen()
        return [text for kind, text in self.log if kind in ("error", "exception")]

    @property
    def refused(self) -> list[str]:
        """Addresses that the page asked for and did not reach."""
        self._listen()
        return list(self._refused)

    def forget(self) -> None:
        """Forget what was said and asked for so far."""
        self._listen()
        self.log.clear()
        self._refused.clear()

    def keep(self, name: str) -> None:
        """Keep a picture of the page, its markup and its log under ``build/failures``."""
        folder = BUILD / "failures"
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png")
        (folder / f"{name}.html").write_text(self.page.content())
        lines = [f"{kind}: {text}" for kind, text in self.log]
        lines += [f"refused: {url}" for url in self._refused]
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")


# --- JupyterLab ---------------------------------------------------------------------------------

#: JupyterLab as it comes, except that it asks nobody for news.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}


class LabServer:
    """A JupyterLab server of its own: its own folder, settings, port and token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "notebooks"
        self.token = secrets.token_hex(16)
        places = {
            "JUPYTER_CONFIG_DIR": folder / "config",
            "JUPYTER_DATA_DIR": folder / "data",
            "JUPYTER_RUNTIME_DIR": folder / "runtime",
            "JUPYTERLAB_SETTINGS_DIR": folder / "settings",
            "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
            "IPYTHONDIR": folder / "ipython",
        }
        for place in (self.root, *places.values()):
            place.mkdir(parents=True)
        overrides = folder / "config" / "labconfig" / "default_setting_overrides.json"
        overrides.parent.mkdir()
        overrides.write_text(json.dumps(SETTINGS))
        environment = os.environ | {name: str(place) for name, place in places.items()}
        environment |= {"JUPYTER_PREFER_ENV_PATH": "1", "HF_HUB_OFFLINE": "1"}
        self.log = folder / "server.log"
        words = [
            "--no-browser",
            "--allow-root",
            "--ServerApp.ip=127.0.0.1",
            "--ServerApp.port=0",
            f"--ServerApp.root_dir={self.root}",
            f"--IdentityProvider.token={self.token}",
            "--LabApp.expose_app_in_browser=True",
            "--LabApp.extension_manager=readonly",
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = eventually(self._address)

    def _address(self) -> str:
        if self.process.poll() is not None:
            raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()}")
        file = self.folder / "runtime" / f"jpserver-{self.process.pid}.json"
        if "is running at" not in self.log.read_text() or not file.exists():
            return ""
        return json.loads(file.read_text())["url"]

    def stop(self) -> None:
        """Stop the server and its kernels."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Lab:
    """JupyterLab in a browser window."""

    def __init__(self, browser: Browser, server: LabServer) -> None:
        self.server = server
        size = {"width": 1440, "height": 1200}
        allow = (server.url, "blob:", "data:")
        self.window = Window.open(browser, allow, viewport=size)
        self.page = self.window.page
        self.page.goto(f"{server.url}lab?token={server.token}&reset")
        self.page.wait_for_function("window.jupyterapp !== undefined")
        self.page.evaluate("window.jupyterapp.restored")
        self.page.locator("#jp-main-dock-panel").wait_for()
        # The notebook gets the whole window, as far as a reader can give it.
        self.command("application:toggle-left-area")

    def command(self, name: str, **words: Any) -> Any:
        """Run one of JupyterLab's commands, as its menus do, to its end."""
        script = "async ([name, words]) => { await jupyterapp.commands.execute(name, words); }"
        return self.page.evaluate(script, [name, words])

    def theme(self, name: str) -> None:
        """Switch to ``"light"`` or ``"dark"``."""
        self.command("apputils:change-theme", theme=f"JupyterLab {name.title()}")
        light = json.dumps(name == "light")
        self.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{light}'")
        # JupyterLab covers itself while the style sheet loads.
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    @contextmanager
    def resized(self, width: int, height: int) -> Iterator[None]:
        """Give the window another size for a while; at the end it is light and as it was."""
        before = self.page.viewport_size
        assert before is not None
        self.page.set_viewport_size({"width": width, "height": height})
        try:
            yield
        finally:
            self.page.set_viewport_size(before)
            self.theme("light")

    def open(self, path: str) -> Notebook:
        """Open a notebook of the server's folder, with its kernel running."""
        self.command("docmanager:open", path=path, factory="Notebook")
        return Notebook(self, path)

    def new(self, path: str) -> Notebook:
        """Write an empty notebook into the server's folder and open it."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        empty = {"cells": [], "metadata": {"kernelspec": kernel}, "nbformat": 4}
        (self.server.root / path).write_text(json.dumps(empty | {"nbformat_minor": 5}))
        return self.open(path)

    def close(self) -> None:
        """Close the window."""
        self.window.context.close()


#: Finds the open notebook by its path; every script of ``Notebook`` begins with it.
_PANEL = """
const find = (path) => {
    for (const widget of jupyterapp.shell.widgets('main')) {
        if (widget.context?.path === path && widget.content?.widgets) return widget;
    }
    return undefined;
};
const panel = find(path);
"""


class Notebook:
    """A notebook open in JupyterLab, with a real kernel."""

    def __init__(self, lab: Lab, path: str) -> None:
        self.lab = lab
        self.page = lab.page
        self.path = path
        eventually(lambda: self._script("return panel !== undefined"))
        script = """
            await panel.context.ready;
            await panel.sessionContext.ready;
            await panel.revealed;
            await panel.sessionContext.session.kernel.info;
        """
        self._script(script)
        self.wait_idle()

    def _script(self, body: str, argument: Any = None) -> Any:
        source = f"async ([path, argument]) => {{ {_PANEL} {body} }}"
        return self.page.evaluate(source, [self.path, argument])

    # The kernel

    def wait_idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        status = "return panel.sessionContext.session?.kernel?.status"
        eventually(lambda: self._script(status), "idle")

    def ask(self, expression: str) -> Any:
        """Value of a Python expression in the kernel, carried as JSON. No cell is touched."""
        source = f"__import__('json').dumps({expression})"
        body = """
            const kernel = panel.sessionContext.session.kernel;
            const words = { code: '', silent: true, user_expressions: { it: argument } };
            const { content } = await kernel.requestExecute(words).done;
            return content.user_expressions?.it ?? content;
        """
        answer = self._script(body, source)
        if answer["status"] != "ok":
            raise AssertionError(f"{expression}: {answer.get('ename')}: {answer.get('evalue')}")
        # The answer is the repr of a str.
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    def tell(self, statement: str) -> None:
        """Run a Python statement in the kernel, as another cell would. No cell is touched."""
        body = """
            const kernel = panel.sessionContext.session.kernel;
            const { content } = await kernel.requestExecute({ code: argument }).done;
            return content;
        """
        answer = self._script(body, statement)
        if answer["status"] != "ok":
            raise AssertionError(f"{statement}: {answer.get('ename')}: {answer.get('evalue')}")

    def start(self, statement: str) -> None:
        """Run a Python statement in the kernel without waiting for its end."""
        body = "panel.sessionContext.session.kernel.requestExecute({ code: argument });"
        self._script(body, statement)

    # Cells

    def add(self, source: str) -> Cell:
        """Append a code cell and run it."""
        body = """
            const model = panel.content.model.sharedModel;
            model.insertCell(model.cells.length, { cell_type: 'code', source: argument });
            return model.cells.length - 1;
        """
        cell = Cell(self, self._script(body, source))
        cell.run()
        return cell

    def run(self, source: str) -> str:
        """Append a code cell, run it, and return the text that it printed or gave."""
        return self.add(source).text

    def run_all(self) -> list[Cell]:
        """Run every cell, as the menu does, and return the code cells."""
        body = """
            jupyterapp.shell.activateById(panel.id);
            await jupyterapp.commands.execute('notebook:run-all-cells');
            return panel.content.widgets.flatMap((w, i) => w.model.type === 'code' ? [i] : []);
        """
        cells = [Cell(self, index) for index in self._script(body)]
        for cell in cells:
            cell.check()
        self.wait_idle()
        return cells

    def clear(self) -> None:
        """Delete all cells, and close the widgets that they showed."""
        body = """
            const model = panel.content.model.sharedModel;
            model.deleteCellRange(0, model.cells.length);
        """
        self._script(body)
        self.tell("__import__('ipywidgets').Widget.close_all()")

    def close(self) -> None:
        """Shut the kernel down and close the notebook without keeping it."""
        body = """
            await panel.sessionContext.shutdown();
            panel.context.model.dirty = false;
            panel.dispose();
        """
        self._script(body)


class Cell:
    """One code cell of an open notebook."""

    def __init__(self, notebook: Notebook, index: int) -> None:
        self.notebook = notebook
        self.index = index

    def _script(self, body: str, argument: Any = None) -> Any:
        body = f"const cell = panel.content.widgets[argument.index]; {body}"
        return self.notebook._script(body, {"index": self.index, "it": argument})

    def run(self) -> None:
        """Run the cell (again), as Ctrl+Enter does, and wait for its end."""
        body = """
            jupyterapp.shell.activateById(panel.id);
            panel.content.activeCellIndex = argument.index;
            panel.content.deselectAll();
            await jupyterapp.commands.execute('notebook:run-cell');
        """
        self._script(body)
        self.check()

    def check(self) -> None:
        """Complain with Python's words where the cell ended in an exception."""
        for output in self.outputs:
            if output["output_type"] == "error":
                raise AssertionError(f"{output['ename']}: {output['evalue']}")

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The outputs as the notebook file would hold them."""
        return self._script("return cell.model.outputs.toJSON();")

    @property
    def text(self) -> str:
        """The text that the cell printed or gave."""
        parts = []
        for output in self.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append(text if isinstance(text, str) else "".join(text))
        return "\n".join(parts).strip()

    @property
    def output(self) -> Locator:
        """The element that holds the cell's outputs."""
        notebook = self.notebook._script("return panel.id;")
        cells = self.notebook.page.locator(f"[id='{notebook}'] .jp-Notebook .jp-Cell")
        return cells.nth(self.index).locator(".jp-Cell-outputArea")
