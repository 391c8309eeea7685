"""A view of prosect on a page, seen and handled as a reader does, whatever hosts it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Position, expect

from browser.hosts import eventually

TEXT = "The bank raised its rates, so we walked along the river bank."
#: What the demo model makes of it. The two banks are tokens 2 and 13.
TOKENS = [
    "[CLS]",
    "the",
    "bank",
    "raised",
    "its",
    "rates",
    ",",
    "so",
    "we",
    "walked",
    "along",
    "the",
    "river",
    "bank",
    ".",
    "[SEP]",
]
FIRST_BANK, LAST_BANK = 2, 13

#: Names of everything inside a view that sticks out of its pane, or is wider than it.
_OUTSIDE = """
(root) => {
    const found = [];
    const name = (e) => `${e.tagName.toLowerCase()}.${e.className} "${e.textContent.slice(0, 20)}"`;
    const clips = (e) => getComputedStyle(e).overflowX !== "visible";
    const host = root.parentElement.getBoundingClientRect();
    for (const pane of [root, ...root.querySelectorAll("[data-pane], [data-testid=strip]")]) {
        // Both are rounded to whole pixels, each on its own.
        if (pane.scrollWidth > pane.clientWidth + 1) {
            found.push(`${name(pane)}: ${pane.scrollWidth} > ${pane.clientWidth}`);
        }
        const box = pane.getBoundingClientRect();
        const moved = box.right > host.right + 1 || box.left < host.left - 1;
        if (moved) found.push(`${name(pane)} has left the view`);
        for (const element of pane.querySelectorAll("*")) {
            const { left, right, width, height } = element.getBoundingClientRect();
            if (width === 0 || height === 0) continue;
            let up = element.parentElement;
            while (up !== pane && !clips(up)) up = up.parentElement;
            if (up !== pane) continue;  // cut off, or scrolled, by something inside the pane
            const out = Math.max(right - box.right, box.left - left);
            if (out > 1) found.push(`${name(element)}: ${out} px out of ${name(pane)}`);
        }
    }
    return found;
}
"""

#: Whether anything was drawn on a canvas: it begins transparent.
_PAINTED = """
(canvas) => {
    if (!canvas.width || !canvas.height) return false;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value, index) => index % 4 === 3 && value > 0);
}
"""


class ShownView:
    """One view on a page.

    Parameters
    ----------
    root
        The element that the view fills.
    read
        Gives the value of a trait where it counts: in the kernel, or in the exported page.
    """

    def __init__(self, root: Locator, read: Callable[[str], Any]) -> None:
        self.root = root
        self.read = read
        expect(root).to_have_count(1)
        root.scroll_into_view_if_needed()
        for canvas in root.locator("canvas").all():
            eventually(lambda canvas=canvas: canvas.evaluate(_PAINTED))

    # What a reader sees

    def part(self, name: str, token: int | None = None) -> Locator:
        """Return the parts of a name, all of them or that of one token."""
        which = "" if token is None else f'[data-token="{token}"]'
        return self.root.locator(f'[data-testid="{name}"]{which}')

    def token(self, position: int) -> Locator:
        """Return a token of the strip."""
        return self.part("token", position)

    @property
    def labels(self) -> list[str]:
        """What the strip says, token by token."""
        return self.part("token").locator("bdi").all_text_contents()

    def shows_head(self, layer: int, head: int) -> None:
        """Wait until the map of a head is open. Readers count from 1."""
        title = re.compile(rf"layer {layer + 1}\b.*head {head + 1}\b")
        expect(self.part("map-title")).to_have_text(title)
        expect(self.root.locator("[data-waiting]")).to_have_count(0)

    def shows_target(self, position: int) -> None:
        """Wait until a token is pinned in the strip, and no other (-1: none)."""
        self._only("token", "pinned", position)

    def shows_source(self, position: int) -> None:
        """Wait until a token is lit in the strip and on both axes, and no other (-1: none)."""
        for part in ("token", "label-row", "label-column"):
            if self.part(part).count():
                self._only(part, "lit", position)

    def _only(self, part: str, mark: str, position: int) -> None:
        marked = self.root.locator(f'[data-testid="{part}"][data-{mark}]')
        expect(marked).to_have_count(0 if position < 0 else 1)
        if position >= 0:
            expect(marked).to_have_attribute("data-token", str(position))

    def reads(self, **traits: Any) -> None:
        """Wait until the traits have these values where they count."""
        for name, value in traits.items():
            eventually(lambda name=name: self.read(name), value)

    def nothing_sticks_out(self) -> None:
        """Assert that each pane holds what is in it."""
        outside = self.root.evaluate(_OUTSIDE)
        assert not outside, "\n".join(outside)

    def picture(self, path: Path, margin: int = 8) -> None:
        """Take a picture of the view, with a little of what surrounds it."""
        self.root.scroll_into_view_if_needed()
        box = self.root.bounding_box()
        assert box is not None
        left, top = max(0.0, box["x"] - margin), max(0.0, box["y"] - margin)
        width, height = box["width"] + 2 * margin, box["height"] + 2 * margin
        path.parent.mkdir(parents=True, exist_ok=True)
        self.root.page.screenshot(
            path=path, clip={"x": left, "y": top, "width": width, "height": height}
        )

    # What a reader does

    def rest(self) -> None:
        """Take the pointer off the view."""
        self.root.page.mouse.move(0, 0)

    def click_thumbnail(self, layer: int, head: int) -> None:
        """Click a head in the overview of all heads."""
        canvas = self.part("overview-canvas")
        cell = float(canvas.get_attribute("data-cell") or "nan")
        canvas.click(position={"x": (head + 0.5) * cell, "y": (layer + 0.5) * cell})

    def choose(self, switch: str, choice: str) -> None:
        """Press a word of a switch with the keyboard, and wait until it stays pressed."""
        word = self.root.locator(f'[data-testid="{switch}"][data-choice="{choice}"]')
        word.focus()
        self.root.page.keyboard.press("Enter")
        expect(word).to_have_attribute("aria-pressed", "true")

    def neighbors(self, row: int) -> Locator:
        """Return the neighbors of a row, nearest first; row 0 is the embeddings."""
        return self.root.locator(f'[data-testid="neighbor-row"][data-row="{row}"]').locator(
            '[data-testid="neighbor"]'
        )

    def point_at_cell(self, target: int, source: int) -> None:
        """Hover a cell of the open map."""
        self.part("map-canvas").hover(position=self._cell(target, source))

    def click_cell(self, target: int, source: int) -> None:
        """Pin a cell of the open map, or release it."""
        self.part("map-canvas").click(position=self._cell(target, source))

    def _cell(self, target: int, source: int) -> Position:
        cell = float(self.part("map-canvas").get_attribute("data-cell") or "nan")
        return {"x": (source + 0.5) * cell, "y": (target + 0.5) * cell}


def check_selection(view: ShownView) -> None:
    """Hover, pin and open on the Explorer of ``TEXT``: the traits follow, and so do all panes."""
    eventually(lambda: view.labels, TOKENS)
    view.token(FIRST_BANK).hover()
    view.shows_source(FIRST_BANK)
    view.rest()
    view.shows_source(-1)
    view.reads(source=-1, hovered=-1)

    view.click_thumbnail(3, 7)
    view.shows_head(3, 7)
    view.reads(layer=3, head=7)

    view.token(LAST_BANK).click()
    view.shows_target(LAST_BANK)
    view.reads(target=LAST_BANK)
    expect(view.part("neighbor-row").first).to_be_visible()
    view.rest()

    view.point_at_cell(FIRST_BANK, LAST_BANK)
    expect(view.part("readout")).to_have_text(re.compile(r"bank₁ → bank₂\s.*rank \d+ of 16"))
    view.shows_source(LAST_BANK)
    view.click_cell(LAST_BANK, FIRST_BANK)
    view.reads(target=LAST_BANK, source=FIRST_BANK)
    view.rest()
    view.shows_source(FIRST_BANK)
    view.reads(source=FIRST_BANK, hovered=-1)
    view.click_cell(LAST_BANK, FIRST_BANK)
    view.reads(target=-1, source=-1)
    view.rest()
    view.shows_source(-1)
    view.nothing_sticks_out()


#: Tokens that would do harm as markup, or break a layout that trusts lengths.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script>",
    "<!--",
    "日本語",
    "👩‍👩‍👧",
    "x" * 200,
    "{{7*7}}",
    "\u202eright\u202c",
]

#: Python that opens a small random model whose tokens are whole: ``hostile_lens``.
HOSTILE_LENS = f"""
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import prosect

hostile = {HOSTILE!r}
words = Tokenizer(models.WordLevel({{w: i for i, w in enumerate(["?", *hostile])}}, unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Split("|", "removed")
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
torch.manual_seed(0)
config = BertConfig(
    vocab_size=16,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    pad_token_id=None,
)
hostile_lens = prosect.Lens(BertModel(config).eval(), tokenizer)
"""


def check_hostile(view: ShownView) -> None:
    """Every hostile token stands in the strip as it was written, and does nothing."""
    eventually(lambda: view.labels, HOSTILE)
    view.nothing_sticks_out()
    for position, text in enumerate(HOSTILE):
        view.token(position).hover()
        view.shows_source(position)
        view.token(position).click()
        view.shows_target(position)
        view.nothing_sticks_out()
        expect(view.part("terms-title")).to_contain_text(text[:8])
    view.rest()
    assert view.root.locator("img, script").count() == 0
    assert view.root.page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
