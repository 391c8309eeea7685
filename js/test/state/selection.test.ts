import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../../src/model/bridge.ts";
import { createScene } from "../../src/state/scene.ts";
import { select } from "../../src/state/selection.ts";
import { browser } from "../support/dom.ts";
import { FakeModel, state } from "../support/model.ts";

browser();

function selected(more: Record<string, unknown> = {}) {
  const model = new FakeModel(state(["a", "b", "c"], more));
  const end = new AbortController().signal;
  const scene = createScene(model, document.createElement("div"), end);
  return { model, scene, ...scene };
}

test("the token under the pointer is the source, and the pinned one when it leaves", () => {
  const { model, scene, selection } = selected();
  selection.hover(2);
  assert.equal(scene.source.value, 2);
  selection.leave();
  assert.equal(scene.source.value, -1);
  selection.toggleSource(1);
  selection.hover(0);
  assert.deepEqual([scene.source.value, model.get("source")], [0, 1]);
  selection.leave();
  assert.equal(scene.source.value, 1);
});

test("a source set in Python is a pin, so that hovering does not lose it", () => {
  const { model, scene, selection } = selected();
  model.receive({ source: 2 });
  selection.hover(0);
  selection.leave();
  assert.equal(scene.source.value, 2);
});

test("a hovered token set in Python is shown in the place of the pinned one", () => {
  const { model, scene } = selected({ source: 1 });
  model.receive({ hovered: 2 });
  assert.equal(scene.source.value, 2);
  model.receive({ hovered: -1 });
  assert.equal(scene.source.value, 1);
});

test("a token released under the pointer stays lit until the pointer leaves", () => {
  const { scene, selection } = selected({ source: 1 });
  selection.hover(1);
  selection.toggleSource(1);
  assert.equal(scene.source.value, 1);
  selection.leave();
  assert.equal(scene.source.value, -1);
});

test("pressing the same cell again takes both pins away", () => {
  const { traits, selection } = selected();
  selection.toggleCell(1, 2);
  assert.deepEqual([traits.target.value, traits.source.value], [1, 2]);
  selection.toggleCell(1, 2);
  assert.deepEqual([traits.target.value, traits.source.value], [-1, -1]);
});

test("positions of a longer linked text are no selection here", () => {
  const { model, scene } = selected({ target: 40, source: 7 });
  assert.deepEqual([scene.target.value, scene.source.value], [-1, -1]);
  model.receive({ source: 1, hovered: 30 });
  assert.equal(scene.source.value, -1);
});

test("another view of the same model sees the hover", () => {
  const { model, selection } = selected();
  const other = connect(model, new AbortController().signal);
  selection.hover(2);
  assert.equal(other.hovered.value, 2);
  select(other).leave();
  assert.equal(model.get("hovered"), -1);
});
