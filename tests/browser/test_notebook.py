"""The views in a real notebook: JupyterLab, a kernel, and a reader's pointer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.hosts import BUILD, Cell, Lab, Notebook, eventually
from browser.view import (
    FIRST_BANK,
    HOSTILE,
    HOSTILE_LENS,
    LAST_BANK,
    TEXT,
    TOKENS,
    ShownView,
    check_hostile,
    check_selection,
)

#: The cell of the README.
CELL = f"""
import prosect
trace = prosect.load().trace("{TEXT}")
view = trace.explore()
view
"""

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def shown(notebook: Notebook, cell: Cell, name: str = "view") -> ShownView:
    """Wait for the view in a cell's output; ``name`` is what the kernel calls it."""
    root = cell.output.locator(".prosect")
    return ShownView(root, lambda trait: notebook.ask(f"{name}.{trait}"))


@pytest.fixture
def trace(notebook: Notebook) -> Notebook:
    """A notebook in which the README's sentence has been traced."""
    notebook.run(CELL.removesuffix("view\n"))
    return notebook


def test_hover_click_and_open_reach_the_kernel(notebook: Notebook) -> None:
    cell = notebook.add(CELL)
    check_selection(shown(notebook, cell))


def test_a_hover_reaches_the_kernel_once_it_is_observed(notebook: Notebook) -> None:
    view = shown(notebook, notebook.add(CELL))
    view.token(FIRST_BANK).hover()
    view.shows_source(FIRST_BANK)
    assert notebook.ask("[view.hovered, view.source]") == [-1, -1]
    view.rest()
    notebook.tell("seen = []; view.observe(lambda change: seen.append(change.new), 'hovered')")
    for token in (FIRST_BANK, LAST_BANK):
        view.token(token).hover()
        view.reads(hovered=token)
    view.rest()
    view.reads(hovered=-1, source=-1)
    assert notebook.ask("[seen[0], seen[-1]]") == [FIRST_BANK, -1]


def test_the_view_follows_python(notebook: Notebook) -> None:
    view = shown(notebook, notebook.add(CELL))
    notebook.tell("view.layer, view.head = 4, 10")
    view.shows_head(4, 10)
    notebook.tell(f"view.target, view.source = {LAST_BANK}, {FIRST_BANK}")
    view.shows_target(LAST_BANK)
    view.shows_source(FIRST_BANK)
    notebook.tell("view.target = view.source = -1")
    view.shows_target(-1)
    view.shows_source(-1)
    notebook.tell("view.head = -1")
    expect(view.part("map-title")).to_contain_text("mean over heads")
    notebook.tell("view.layer = -1")
    expect(view.part("map-empty")).to_be_visible()
    notebook.tell("view.theme = 'dark'")
    expect(view.root).to_have_attribute("data-theme", "dark")
    assert notebook.ask("[view.layer, view.head, view.target, view.source]") == [-1, -1, -1, -1]


def test_one_widget_shown_twice(notebook: Notebook) -> None:
    first = shown(notebook, notebook.add(CELL))
    second = shown(notebook, notebook.add("view"))
    second.click_thumbnail(1, 3)
    for view in (first, second):
        view.shows_head(1, 3)
    second.token(LAST_BANK).click()
    for view in (first, second):
        view.shows_target(LAST_BANK)
    second.token(FIRST_BANK).hover()
    for view in (first, second):
        view.shows_source(FIRST_BANK)
    second.rest()
    for view in (first, second):
        view.shows_source(-1)
    notebook.tell("view.layer = 5")
    for view in (first, second):
        view.shows_head(5, 3)


def test_running_the_cell_again_leaves_nothing_behind(notebook: Notebook) -> None:
    cell = notebook.add(CELL)
    view = shown(notebook, cell)
    view.click_thumbnail(2, 2)
    view.shows_head(2, 2)
    notebook.tell("before = view")
    cell.run()
    view = shown(notebook, cell)
    view.shows_head(0, 0)
    assert not notebook.ask("before is view")
    # The widget of the first run is no longer on the page, and moves nothing there.
    notebook.tell("before.layer = 4")
    notebook.tell("view.target = 1")
    view.shows_target(1)
    view.shows_head(0, 0)
    check_selection(view)
    assert notebook.page.locator(".prosect").count() == 1


def test_layer_and_head_need_no_kernel(notebook: Notebook, lab: Lab) -> None:
    view = shown(notebook, notebook.add(CELL))
    gate = lab.server.root / "gate"
    notebook.start(f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)")
    view.click_thumbnail(5, 11)
    view.shows_head(5, 11)
    view.token(LAST_BANK).click()
    view.shows_target(LAST_BANK)
    expect(view.part("neighbor-row").first).to_be_visible()
    assert not gate.exists()
    gate.touch()
    view.reads(layer=5, head=11, target=LAST_BANK)
    gate.unlink()


def test_linked_views(trace: Notebook) -> None:
    trace.tell("heatmap, bars = prosect.Heatmap(trace), prosect.TermBars(trace)")
    trace.tell("near = prosect.Neighbors(trace)")
    trace.tell("links = prosect.link(heatmap, bars, near)")
    names = ("heatmap", "bars", "near")
    views = {name: shown(trace, trace.add(name), name) for name in names}
    views["heatmap"].token(LAST_BANK).click()
    for view in views.values():
        view.shows_target(LAST_BANK)
        view.reads(target=LAST_BANK)
    views["heatmap"].rest()
    for view in views.values():
        view.shows_source(-1)
    views["near"].token(FIRST_BANK).hover()
    for view in views.values():
        view.shows_source(FIRST_BANK)
    views["near"].rest()
    for view in views.values():
        view.shows_source(-1)
    views["heatmap"].part("choose-layer").select_option(label="3")
    for view in views.values():
        view.reads(layer=2)
        view.nothing_sticks_out()
    trace.tell("[link.unlink() for link in links]")
    views["bars"].token(3).click()
    views["bars"].reads(target=3)
    views["heatmap"].shows_target(LAST_BANK)


def test_the_figure_leads_and_follows(trace: Notebook) -> None:
    trace.tell("figure = prosect.figures.importance(trace)")
    trace.tell("figure.layer = 0; link = prosect.link(figure, view)")
    view = shown(trace, trace.add("view"))
    bars = trace.add("figure").output.locator(".bqplot rect.bar, .bqplot .bar rect")
    eventually(bars.count, lambda count: count >= 4 * 7)
    # bars come layer by layer or term by term: the one whose datum is layer 4 of the readers'
    number = bars.evaluate_all("(all) => all.findIndex((bar) => `${bar.__data__?.x}` === '4')")
    bars.nth(number).hover()
    eventually(lambda: trace.ask("figure.layer"), 3)
    view.shows_head(3, 0)
    trace.tell("view.layer = 1")
    eventually(lambda: trace.ask("figure.layer"), 1)


def test_hostile_tokens_are_only_text(notebook: Notebook) -> None:
    notebook.run(HOSTILE_LENS)
    cell = notebook.add("view = hostile_lens.trace('|'.join(hostile)).explore(); view")
    check_hostile(shown(notebook, cell))
    text = " ".join(HOSTILE)
    cell = notebook.add(f"view = prosect.load().trace({text!r}).explore(); view")
    view = shown(notebook, cell)
    view.nothing_sticks_out()
    assert "<" in view.labels


def test_one_single_token(notebook: Notebook) -> None:
    notebook.run(HOSTILE_LENS)
    view = shown(notebook, notebook.add("view = hostile_lens.trace('日本語').explore(); view"))
    assert view.labels == ["日本語"]
    view.nothing_sticks_out()
    view.token(0).click()
    view.shows_target(0)
    view.nothing_sticks_out()
    view.point_at_cell(0, 0)
    expect(view.part("readout")).to_contain_text("rank 1 of 1")


def test_a_long_text_sends_its_layers_when_they_are_looked_at(notebook: Notebook) -> None:
    notebook.run("import prosect")
    text = "' '.join(['bank'] * 300)"
    view = shown(notebook, notebook.add(f"view = prosect.load().trace({text}).explore(); view"))
    assert notebook.ask("[n for n in view._remote if 'attention/' in n and n[:3] == 'map']") == [
        f"map/attention/{layer}" for layer in range(6)
    ]
    view.click_thumbnail(5, 2)
    view.shows_head(5, 2)
    view.point_at_cell(150, 10)
    expect(view.part("readout")).to_contain_text("of 302")
    view.nothing_sticks_out()


def test_the_vocabulary_is_searched_when_it_is_asked_for(notebook: Notebook) -> None:
    text = "' '.join(['bank'] * 100)"
    notebook.run(f"import prosect; trace = prosect.load().trace({text})")
    view = shown(notebook, notebook.add("view = prosect.Neighbors(trace, target=50); view"))
    assert notebook.ask("trace.identified(candidates='vocabulary')") is False
    view.choose("candidates", "vocabulary")
    view.reads(candidates="vocabulary")
    expect(view.neighbors(0).first.locator("bdi")).to_have_text("bank")
    assert notebook.ask("trace.identified(candidates='vocabulary')") is True
    view.nothing_sticks_out()
    notebook.tell("view.candidates, view.metric = 'sentence', 'l2'")
    expect(view.neighbors(0).first.locator("bdi")).to_have_text("bank")
    expect(view.part("neighbors-title")).to_contain_text("Nearest input embeddings")
    pressed = view.root.locator("[data-choice][aria-pressed=true]")
    expect(pressed).to_have_text(["sentence", "L2"])
    notebook.tell("view.candidates = 'vocabulary'; view.target = -1")
    expect(view.part("identity-count")).to_have_count(7)


def test_the_tour_runs(lab: Lab) -> None:
    for file in NOTEBOOKS.glob("tour*"):
        shutil.copy(file, lab.server.root)
    lab.window.forget()
    tour = lab.open("tour.ipynb")
    tour.run_all()
    views = tour.page.locator(".jp-Notebook:visible .prosect[data-view=explorer]")
    expect(views.first).to_be_attached()
    assert lab.window.errors == []
    assert lab.window.refused == []
    tour.close()


@pytest.mark.parametrize("width", [1440, 900, 620])
def test_pictures(notebook: Notebook, lab: Lab, width: int) -> None:
    """Light and dark, wide and narrow; the pictures are kept under build/screenshots."""
    with lab.resized(width, 1600):
        view = shown(notebook, notebook.add(CELL))
        notebook.tell(f"view.layer, view.head, view.target = 2, 4, {LAST_BANK}")
        view.shows_head(2, 4)
        view.shows_target(LAST_BANK)
        pictures = []
        for theme in ("light", "dark"):
            lab.theme(theme)
            expect(view.root).to_have_attribute("data-theme", theme)
            view.nothing_sticks_out()
            path = BUILD / "screenshots" / f"explorer-{width}-{theme}.png"
            view.picture(path)
            pictures.append(path.read_bytes())
        assert pictures[0] != pictures[1]


def test_tokens_stand_as_the_tokenizer_made_them(notebook: Notebook) -> None:
    notebook.run(CELL.removesuffix("view\n"))
    assert notebook.ask("[token.label for token in trace.tokens]") == TOKENS
