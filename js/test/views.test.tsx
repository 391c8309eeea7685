import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { browser } from "./dom.ts";
import { FakeModel, state } from "./model.ts";

browser();
// Preact asks for the document when it is loaded.
const { default: widget } = await import("../src/widget.tsx");

const HOSTILE = [
  "<img src=x onerror=alert(1)>",
  "</script>",
  "日本語",
  "👩‍👩‍👧",
  "x".repeat(200),
  "مرحبا",
  "&lt;b&gt;",
];

const shown: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of shown.splice(0)) cleanup();
});

function show(labels: string[], more: Record<string, unknown> = {}) {
  const model = new FakeModel(state(labels, more));
  return { model, ...display(model) };
}

function display(model: FakeModel) {
  const el = document.createElement("div");
  document.body.append(el);
  const cleanup = widget.render({ model, el });
  shown.push(cleanup);
  const all = (selector: string) => [...el.querySelectorAll<HTMLElement>(selector)];
  const one = (selector: string) => {
    const [found] = all(selector);
    assert.ok(found, `nothing matches ${selector}`);
    return found;
  };
  return { el, cleanup, all, one };
}

/** Signals draw in the next microtasks, effects after the next frame. */
const drawn = () => new Promise((resolve) => setTimeout(resolve, 60));

test("hostile tokens are text, in the strip, on the axes and in the neighbours", async () => {
  const { all, el } = show(HOSTILE, { target: 0 });
  await drawn();
  assert.deepEqual(
    all('[data-testid="token"]').map(({ textContent }) => textContent),
    HOSTILE,
  );
  for (const side of ["row", "column"]) {
    const labels = all(`[data-testid="label-${side}"]`).map(({ textContent }) => textContent);
    assert.ok(labels.includes(HOSTILE[0] as string));
  }
  assert.ok(
    all('[data-testid="neighbor"]').some(({ textContent }) => textContent?.includes("</script>")),
  );
  assert.equal(el.querySelectorAll("img, script, b").length, 0);
});

test("every token is isolated from the writing direction around it", () => {
  const { all } = show(HOSTILE);
  for (const token of all('[data-testid="token"]'))
    assert.equal(token.querySelectorAll("bdi").length, 1);
});

test("each view shows its own panes under the strip", () => {
  const panes = {
    heatmap: ["map"],
    term_bars: ["terms"],
    neighbors: ["neighbors"],
    explorer: ["overview", "map", "terms", "neighbors"],
  };
  for (const [view, expected] of Object.entries(panes)) {
    const { all, one } = show(["a", "b"], { _view: view });
    assert.equal(one(".prosect").dataset.view, view);
    assert.equal(all('[data-testid="token"]').length, 2);
    assert.deepEqual(
      all("[data-pane]").map(({ dataset }) => dataset.pane),
      expected,
    );
  }
});

test("pressing a token pins it, pressing it again lets go", async () => {
  const { model, one } = show(["a", "b", "c"]);
  one('[data-testid="token"][data-token="1"]').click();
  await drawn();
  assert.equal(model.get("target"), 1);
  assert.equal(one('[data-testid="token"][data-token="1"]').dataset.pinned, "true");
  assert.equal(one('[data-testid="terms-title"]').textContent?.includes("“b”"), true);
  one('[data-testid="token"][data-token="1"]').click();
  assert.equal(model.get("target"), -1);
});

test("pointing at a token lights it in every pane, and leaving puts it out", async () => {
  const { model, all, one } = show(["a", "b", "c"], { target: 0 });
  one('[data-testid="token"][data-token="1"]').dispatchEvent(new PointerEvent("pointerenter"));
  await drawn();
  assert.equal(model.get("source"), 1);
  for (const hook of ["token", "label-row", "label-column", "neighbor"]) {
    const lit = all(`[data-testid="${hook}"][data-lit]`);
    assert.ok(lit.length > 0, hook);
    assert.ok(lit.every(({ dataset }) => dataset.token === "1"));
  }
  one('[data-testid="strip"]').dispatchEvent(new PointerEvent("pointerleave"));
  assert.equal(model.get("source"), -1);
});

test("a pressed bar chooses its layer, and the first row is the embeddings", async () => {
  const { model, one } = show(["a", "b"]);
  one('[data-testid="term-row"][data-row="2"]').click();
  assert.equal(model.get("layer"), 1);
  one('[data-testid="term-row"][data-row="0"]').click();
  await drawn();
  assert.equal(model.get("layer"), -1);
  assert.match(one('[data-testid="map-empty"]').textContent ?? "", /choose a layer from 1 to 2/);
});

test("a hidden term leaves the bars, which close the gap", async () => {
  const { all, one } = show(["a", "b"]);
  const segments = () => all('[data-testid="term-row"][data-row="1"] [data-testid="segment"]');
  assert.equal(segments().length, 4);
  one('[data-testid="term-toggle"][data-term="attention"]').click();
  await drawn();
  assert.deepEqual(
    segments().map(({ dataset }) => dataset.term),
    ["input", "feed_forward", "bias"],
  );
});

test("a layer's number in the overview opens the mean over its heads", async () => {
  const { model, one } = show(["a", "b"]);
  one('[data-testid="overview-layer"][data-layer="1"]').click();
  await drawn();
  assert.deepEqual([model.get("layer"), model.get("head")], [1, -1]);
  assert.match(one('[data-testid="map-title"]').textContent ?? "", /layer 2 · mean over heads/);
});

test("a selected pair is read out with its value and rank", async () => {
  const { one } = show(["a", "b", "a", "d"], { target: 0, source: 2 });
  await drawn();
  assert.equal(one('[data-testid="readout"]').textContent, "a₁ → a₂  0.250 · rank 1 of 4");
});

test("the sum that fails is said in a sentence", () => {
  const { _about } = state(["a"]);
  const { one } = show(["a"], { _about: { ..._about, holds: false, certificate: 0.02 } });
  assert.match(
    one('[data-testid="certificate"]').textContent ?? "",
    /miss the hidden state by 2e-2/,
  );
});

test("a silent or failing kernel is told in place of the map", async () => {
  const { model, one } = show(["a", "b"], {
    _remote: ["map/attention/0"],
    _arrays: {},
    _view: "heatmap",
  });
  await drawn();
  assert.match(one(".prosect-status").textContent ?? "", /loading layer 1/);
  model.reply({ reply: model.sent[0]?.request, error: "The trace is gone." });
  await drawn();
  assert.match(one('[role="alert"]').textContent ?? "", /The trace is gone\./);
});

test("data that cannot be read is told to the reader instead of a blank cell", async () => {
  const { el } = show(["a"], { _view: "no_such_view" });
  await drawn();
  assert.match(el.textContent ?? "", /could not be drawn.*no_such_view/);
});

test("two displays of one model stay in step, and one may end before the other", async () => {
  const { model, cleanup, one } = show(["a", "b"]);
  const other = display(model);
  one('[data-testid="token"][data-token="1"]').click();
  await drawn();
  assert.equal(other.one('[data-testid="token"][data-token="1"]').dataset.pinned, "true");
  cleanup();
  model.receive({ target: 0 });
  await drawn();
  assert.equal(other.one('[data-testid="token"][data-token="0"]').dataset.pinned, "true");
});

test("a view that has ended leaves neither listeners nor markup", () => {
  const { model, cleanup, el } = show(["a", "b"]);
  cleanup();
  cleanup();
  assert.equal(model.listening, 0);
  assert.equal(el.childElementCount, 0);
});

test("positions and heads of a larger linked view are no reason to fail", async () => {
  const { model, all, one } = show(["a", "b"], { target: 40, source: 7 });
  await drawn();
  assert.equal(all("[data-pinned], [data-lit]").length, 0);
  assert.match(one('[data-testid="terms-title"]').textContent ?? "", /mean over tokens/);
  model.receive({ layer: 11 });
  await drawn();
  assert.match(one('[role="alert"]').textContent ?? "", /no layer 12: choose one from 1 to 2/);
});
