import assert from "node:assert/strict";
import { test } from "node:test";
import { batch } from "@preact/signals";
import { connect } from "../../src/model/bridge.ts";
import { select } from "../../src/state/selection.ts";
import { FakeModel, state } from "../support/model.ts";

function connected() {
  const model = new FakeModel(state(["a", "b", "c"]));
  const end = new AbortController();
  return { model, end, traits: connect(model, end.signal) };
}

test("a trait set in Python reaches the signal and is not sent back", async () => {
  const { model, traits } = connected();
  model.receive({ layer: 1 });
  await null;
  assert.equal(traits.layer.value, 1);
  assert.deepEqual([model.sets, model.saves], [[], 0]);
});

test("a signal written in the view reaches the model once", async () => {
  const { model, traits } = connected();
  traits.target.value = 2;
  await null;
  assert.deepEqual([model.sets, model.saves], [[["target", 2]], 1]);
});

test("signals written together reach the kernel in one message", async () => {
  const { model, traits } = connected();
  batch(() => {
    traits.layer.value = 1;
    traits.head.value = 1;
  });
  await null;
  assert.equal(model.sets.length, 2);
  assert.equal(model.saves, 1);
});

test("traits set together in Python do not undo each other", () => {
  const { model, traits } = connected();
  model.receive({ layer: 1, head: 1 });
  assert.deepEqual([traits.layer.value, traits.head.value], [1, 1]);
  assert.deepEqual([model.get("layer"), model.get("head"), model.sets.length], [1, 1, 0]);
});

test("two views of one model stay in step", () => {
  const { model, traits } = connected();
  const other = connect(model, new AbortController().signal);
  traits.target.value = 1;
  assert.equal(other.target.value, 1);
  other.target.value = -1;
  assert.equal(traits.target.value, -1);
});

test("ending a view releases every listener and stops both directions", async () => {
  const { model, end, traits } = connected();
  assert.ok(model.listening > 0);
  end.abort();
  assert.equal(model.listening, 0);
  model.receive({ layer: 1 });
  assert.equal(traits.layer.value, 0);
  traits.layer.value = -1;
  await null;
  assert.deepEqual([model.get("layer"), model.saves], [1, 0]);
});

test("leaving a token brings the pinned source back", () => {
  const { traits, end } = connected();
  const selection = select(traits, end.signal);
  selection.hover(2);
  selection.leave();
  assert.equal(traits.source.value, -1);
  selection.toggleSource(1);
  selection.hover(0);
  selection.leave();
  assert.equal(traits.source.value, 1);
});

test("a source set in Python is a pin, so that hovering does not lose it", () => {
  const { model, traits, end } = connected();
  const selection = select(traits, end.signal);
  model.receive({ source: 2 });
  selection.hover(0);
  selection.leave();
  assert.equal(traits.source.value, 2);
});

test("pressing the same cell again takes both pins away", () => {
  const { traits, end } = connected();
  const selection = select(traits, end.signal);
  selection.toggleCell(1, 2);
  assert.deepEqual([traits.target.value, traits.source.value], [1, 2]);
  selection.toggleCell(1, 2);
  selection.leave();
  assert.deepEqual([traits.target.value, traits.source.value], [-1, -1]);
});
