import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { browser } from "./support/dom.ts";
import { FakeModel, state } from "./support/model.ts";

browser();
// Preact asks for the document when it is loaded.
const { default: widget } = await import("../src/widget.tsx");
const { PANES } = await import("../src/panes/registry.ts");

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

test("hostile tokens are text, in the strip, on the axes and in the neighbors", async () => {
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
  const panes: Record<string, string[]> = {
    heatmap: ["map"],
    term_bars: ["terms"],
    ...Object.fromEntries(Object.keys(PANES).map((name) => [name, [name]])),
    explorer: Object.keys(PANES).filter((name) => PANES[name]?.explorer),
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
  assert.deepEqual([model.get("hovered"), model.get("source")], [1, -1]);
  assert.deepEqual(model.messages, []);
  for (const hook of ["token", "label-row", "label-column", "neighbor"]) {
    const lit = all(`[data-testid="${hook}"][data-lit]`);
    assert.ok(lit.length > 0, hook);
    assert.ok(lit.every(({ dataset }) => dataset.token === "1"));
  }
  one('[data-testid="strip"]').dispatchEvent(new PointerEvent("pointerleave"));
  assert.equal(model.get("hovered"), -1);
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

test("the certificate of the sum stands below the terms", () => {
  for (const _view of ["explorer", "term_bars"]) {
    const { one } = show(["a"], { _view });
    assert.match(one('[data-testid="certificate"]').textContent ?? "", /within 3e-7$/);
  }
});

test("a kind of map says what it shows and how to read it", () => {
  const [kind] = state(["a"])._kinds;
  const told = {
    ...kind,
    name: "norm",
    hint: "Norms.",
    reading: "Dark: large.",
    reference: "(A 2020)",
  };
  const { all } = show(["a"], { _kinds: [{ ...kind, hint: "Weights." }, told] });
  assert.deepEqual(
    all('[data-testid="kind"]').map(({ title }) => title),
    ["Weights.", "Norms. Dark: large. (A 2020)"],
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

const chips = (all: (selector: string) => HTMLElement[], row: number) =>
  all(`[data-testid="neighbor-row"][data-row="${row}"] [data-testid="neighbor"]`);

test("the switch leads to the vocabulary and back, and says so to Python", async () => {
  const { model, all, one } = show(["a", "b"], { target: 1, _view: "neighbors" });
  const choose = (name: string) => one(`[data-testid="candidates"][data-choice="${name}"]`);
  assert.equal(choose("sentence").getAttribute("aria-pressed"), "true");
  choose("vocabulary").click();
  await drawn();
  assert.equal(model.get("candidates"), "vocabulary");
  assert.equal(choose("vocabulary").getAttribute("aria-pressed"), "true");
  const names = chips(all, 0).map((chip) => chip.querySelector("bdi")?.textContent);
  assert.deepEqual(names, ["b", "<b>word</b>"]);
  assert.match(one('[data-testid="neighbors-title"]').textContent ?? "", /words of the vocabulary/);
  const recovered = one('[data-testid="recovered"]').textContent ?? "";
  assert.match(recovered, /250,000 words\. Recovered at 1 of 2 layers and in the embeddings\.$/);
  model.receive({ candidates: "sentence" });
  await drawn();
  assert.deepEqual(
    chips(all, 0).map((chip) => chip.querySelector("bdi")?.textContent),
    ["b", "a"],
  );
});

test("the switches have names, and the metric is Python's too", async () => {
  const { model, one } = show(["a", "b"], { metric: "l2", _view: "neighbors" });
  assert.equal(
    one('[data-testid="candidates"]').parentElement?.getAttribute("aria-label"),
    "Candidates",
  );
  const cosine = one('[data-testid="metric"][data-choice="cosine"]');
  assert.equal(cosine.parentElement?.getAttribute("aria-label"), "Metric");
  assert.equal(cosine.getAttribute("aria-pressed"), "false");
  cosine.click();
  assert.equal(model.get("metric"), "cosine");
});

test("the token itself is marked where it occurs, its layer where it is the nearest", () => {
  const { all } = show(["a", "b"], { target: 1, candidates: "vocabulary", _view: "neighbors" });
  const rows = all('[data-testid="neighbor-row"]');
  assert.deepEqual(
    rows.map(({ dataset }) => dataset.recovered),
    ["true", "true", undefined],
  );
  const own = rows.map((_, row) => chips(all, row).findIndex(({ dataset }) => dataset.own));
  assert.deepEqual(own, [0, 0, 1]);
  assert.match(
    rows[0]?.querySelector("button")?.getAttribute("aria-label") ?? "",
    /layer 0, recovered/,
  );
});

test("a word is followed down the layers: under the pointer, and where it is pressed for good", async () => {
  const { model, all, one } = show(["a", "b"], { target: 1, candidates: "vocabulary" });
  const lit = () => all('[data-testid="neighbor"][data-lit]').map(({ dataset }) => dataset.token);
  const [own, word] = chips(all, 0);
  word?.dispatchEvent(new PointerEvent("pointerenter"));
  await drawn();
  assert.deepEqual(lit(), ["100002", "100002", "100002"]);
  assert.equal(model.get("hovered"), -1); // it is not in the sentence
  word?.dispatchEvent(new PointerEvent("pointerleave"));
  word?.click();
  await drawn();
  assert.equal(lit().length, 3);
  assert.equal(word?.getAttribute("aria-pressed"), "true");
  own?.dispatchEvent(new PointerEvent("pointerenter"));
  await drawn();
  assert.deepEqual([...new Set(lit())], ["100001"]);
  assert.equal(model.get("hovered"), 1); // the token itself is
  assert.equal(one('[data-testid="token"][data-token="1"]').dataset.lit, "true");
  own?.dispatchEvent(new PointerEvent("pointerleave"));
  await drawn();
  assert.deepEqual([...new Set(lit())], ["100002"]);
});

test("words of the vocabulary are text", () => {
  const labels = [...HOSTILE];
  const { el, all } = show(labels, { target: 0, candidates: "vocabulary", _view: "neighbors" });
  const shown = all('[data-testid="neighbor"] bdi').map(({ textContent }) => textContent);
  assert.ok(shown.includes(HOSTILE[0] as string));
  assert.ok(shown.includes("<b>word</b>"));
  assert.equal(el.querySelectorAll("img, script, b").length, 0);
});

test("without a pinned token the vocabulary says which tokens are recovered", () => {
  const { all, el } = show(["a", "b"], { candidates: "vocabulary", _view: "neighbors" });
  const counts = all('[data-testid="identity-count"]').map(({ textContent }) => textContent);
  assert.deepEqual(counts, ["2", "2", "0"]);
  assert.match(el.textContent ?? "", /of 250,000 words, still nearest to its own/);
});

test("a search that fails is told in place of the neighbors, and can be tried again", async () => {
  const names = ["ids", "scores", "tokens", "words"].map((n) => `neighbors/vocabulary/cosine/${n}`);
  const remote = [...names, "recovered/vocabulary/cosine"];
  const { _arrays } = state(["a", "b"]);
  const here = Object.entries(_arrays).filter(([name]) => !remote.includes(name));
  const { model, one, all } = show(["a", "b"], {
    candidates: "vocabulary",
    _arrays: Object.fromEntries(here),
    _remote: remote,
    _view: "neighbors",
  });
  await drawn();
  assert.match(one(".prosect-status").textContent ?? "", /loading the neighbors/);
  for (const { request } of model.sent) model.reply({ reply: request, error: "It takes long." });
  await drawn();
  assert.match(one('[role="alert"]').textContent ?? "", /It takes long\./);
  one('[role="alert"] button').click();
  await drawn();
  assert.equal(model.sent.length, remote.length + 1);
  one('[data-testid="candidates"][data-choice="sentence"]').click();
  await drawn();
  assert.ok(all('[data-testid="identity"]').length > 0);
});

test("a page without the vocabulary does not offer it", () => {
  const { _arrays } = state(["a"]);
  const here = Object.entries(_arrays).filter(([name]) => !name.includes("vocabulary"));
  const { all } = show(["a"], { _arrays: Object.fromEntries(here), _view: "neighbors" });
  assert.equal(all('[data-testid="candidates"]').length, 0);
  assert.equal(all('[data-testid="metric"]').length, 2);
});

test("under the map of a head stands whether its attention is identifiable", async () => {
  const { model, one, all } = show(["a", "b", "c"], { layer: 1, head: 1, _view: "heatmap" });
  const line = () => one('[data-testid="identifiability"]');
  assert.equal(
    line().textContent,
    "n 3 · rank 1 · 2 directions leave the output unchanged, 1 with rows summing to one: not identifiable",
  );
  assert.equal(line().dataset.identifiable, "false");
  assert.match(line().title, /^Other attention weights .*Brunner et al\. 2020/);
  model.receive({ layer: 0 });
  await drawn();
  assert.equal(line().textContent, "n 3 · rank 3 · nothing can change: identifiable");
  assert.match(line().title, /^No other attention weights/);
  model.receive({ layer: 1, head: -1 });
  await drawn();
  assert.equal(line().textContent, "n 3 · 1 of 2 heads identifiable");
  assert.match(line().title, /^A head is identifiable where no other/);
  model.receive({ layer: -1 });
  await drawn();
  assert.equal(all('[data-testid="identifiability"]').length, 0);
});

test("where rows see different tokens, the line is for the one that sees most, and says so", () => {
  const { _about } = state(["a", "b"]);
  const { one } = show(["a", "b"], { _about: { ..._about, causal: true }, _view: "heatmap" });
  assert.match(one('[data-testid="identifiability"]').title, /the row that sees most tokens/);
});

test("maps of whole layers have no line on identifiability", () => {
  const { _kinds } = state(["a"]);
  const kinds = _kinds.map((kind) => ({ ...kind, per_head: false }));
  const { all } = show(["a", "b"], { _kinds: kinds, _view: "heatmap" });
  assert.equal(all('[data-testid="readout"]').length, 1);
  assert.equal(all('[data-testid="identifiability"]').length, 0);
});
