import assert from "node:assert/strict";
import { test } from "node:test";
import { batch } from "@preact/signals";
import { connect } from "../../src/model/bridge.ts";
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
  assert.deepEqual([model.sets, model.messages.length], [[], 0]);
});

test("a signal written in the view reaches the model once", async () => {
  const { model, traits } = connected();
  traits.target.value = 2;
  await null;
  assert.deepEqual([model.sets, model.messages.length], [[["target", 2]], 1]);
});

test("signals written together reach the kernel in one message", async () => {
  const { model, traits } = connected();
  batch(() => {
    traits.layer.value = 1;
    traits.head.value = 1;
  });
  await null;
  assert.equal(model.sets.length, 2);
  assert.equal(model.messages.length, 1);
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
  assert.deepEqual([model.get("layer"), model.messages.length], [1, 0]);
});

test("a hover stays in the page: it is set in the model and not sent", async () => {
  const { model, traits } = connected();
  traits.hovered.value = 2;
  await null;
  traits.hovered.value = -1;
  await null;
  assert.deepEqual(model.sets, [
    ["hovered", 2],
    ["hovered", -1],
  ]);
  assert.deepEqual(model.messages, []);
});

test("a hover is sent where Python shares it", async () => {
  const { model, traits } = connected();
  model.receive({ _shares_hover: true });
  traits.hovered.value = 2;
  await null;
  traits.hovered.value = -1;
  await null;
  assert.deepEqual(model.messages, [{ hovered: 2 }, { hovered: -1 }]);
});

test("a hover from Python is shown and not sent back", async () => {
  const { model, traits } = connected();
  model.receive({ _shares_hover: true });
  model.receive({ hovered: 1 });
  await null;
  assert.equal(traits.hovered.value, 1);
  assert.deepEqual(model.messages, []);
});

test("a pin is sent, and the hover that went with it is taken back when the pointer leaves", async () => {
  const { model, traits } = connected();
  traits.hovered.value = 2;
  traits.source.value = 2;
  await null;
  traits.hovered.value = 1;
  await null;
  assert.deepEqual(model.messages, [{ hovered: 2, source: 2 }]);
  traits.hovered.value = -1;
  await null;
  traits.hovered.value = 0;
  traits.hovered.value = -1;
  await null;
  assert.deepEqual(model.messages, [{ hovered: 2, source: 2 }, { hovered: -1 }]);
});

test("a hover that Python set ends for Python too when the pointer leaves", async () => {
  const { model, traits } = connected();
  model.receive({ hovered: 1 });
  traits.hovered.value = 2;
  traits.hovered.value = -1;
  await null;
  assert.deepEqual(model.messages, [{ hovered: -1 }]);
});
