"""The harness itself, on a widget of three lines: what it reports about prosect can be believed."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.hosts import Lab, Notebook, eventually

COUNTER = '''
import anywidget, traitlets

class Counter(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
        const button = document.createElement("button");
        const show = () => { button.textContent = `count ${model.get("value")}`; };
        button.addEventListener("click", () => {
            model.set("value", model.get("value") + 1);
            model.save_changes();
        });
        model.on("change:value", show);
        show();
        el.append(button);
    }
    export default { render };
    """
    value = traitlets.Int(0).tag(sync=True)

counter = Counter()
counter
'''


def test_traits_cross_in_both_directions(notebook: Notebook) -> None:
    cell = notebook.add(COUNTER)
    button = cell.output.get_by_role("button")
    expect(button).to_have_text("count 0")
    button.click()
    eventually(lambda: notebook.ask("counter.value"), 1)
    notebook.tell("counter.value = 41")
    expect(button).to_have_text("count 41")

    again = notebook.add("counter")
    second = again.output.get_by_role("button")
    second.click()
    expect(button).to_have_text("count 42")
    expect(second).to_have_text("count 42")

    cell.run()
    expect(button).to_have_text("count 0")
    expect(second).to_have_text("count 42")


def test_what_goes_wrong_is_reported(notebook: Notebook) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        notebook.run("1 / 0")
    with pytest.raises(AssertionError, match="NameError"):
        notebook.ask("nowhere")
    window = notebook.lab.window
    notebook.page.evaluate("fetch('https://nowhere.invalid/').catch(() => undefined)")
    eventually(lambda: window.refused, ["https://nowhere.invalid/"])
    notebook.page.evaluate("setTimeout(() => { throw new Error('on purpose') })")
    eventually(lambda: any("on purpose" in error for error in window.errors))
    window.forget()


def test_themes_reach_the_page(notebook: Notebook, lab: Lab) -> None:
    cell = notebook.add("print('seen')")
    pictures = []
    for theme in ("light", "dark"):
        lab.theme(theme)
        pictures.append(cell.output.screenshot())
    lab.theme("light")
    assert cell.text == "seen"
    assert pictures[0] != pictures[1]
