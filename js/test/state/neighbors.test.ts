import assert from "node:assert/strict";
import { test } from "node:test";
import { Arrays } from "../../src/model/arrays.ts";
import { connect } from "../../src/model/bridge.ts";
import { neighborsOf, offers } from "../../src/state/neighbors.ts";
import { FakeModel, state } from "../support/model.ts";

function arraysOf(more: Record<string, unknown> = {}) {
  const model = new FakeModel(state(["a", "b"], more));
  const end = new AbortController().signal;
  return { model, arrays: new Arrays(connect(model, end).payload, model, end) };
}

test("neighbors in the sentence are positions", () => {
  const found = neighborsOf(arraysOf().arrays, "sentence", "l2");
  assert.ok(found.state === "ready");
  const { ids, words, layers, n, k } = found.value;
  assert.deepEqual([layers, n, k], [3, 2, 2]);
  assert.deepEqual(ids[2], 1);
  assert.equal(words, undefined);
});

test("neighbors in the vocabulary are words, each with its label and its index there", () => {
  const found = neighborsOf(arraysOf().arrays, "vocabulary", "cosine");
  assert.ok(found.state === "ready");
  const { ids, words } = found.value;
  assert.deepEqual(
    [0, 1, 2].map((place) => words?.[ids[place] as number]),
    [
      { label: "a", token: 100_000 },
      { label: "<b>word</b>", token: 100_002 },
      { label: "##ing", token: 100_003 },
    ],
  );
});

test("what the kernel keeps is asked for all at once, and only what is looked at", async () => {
  const names = ["ids", "scores", "tokens", "words"].map((n) => `neighbors/vocabulary/l2/${n}`);
  const remote = [...names, "recovered/vocabulary/l2", "neighbors/vocabulary/cosine/ids"];
  const { model, arrays } = arraysOf({ _arrays: {}, _remote: remote });
  assert.equal(neighborsOf(arrays, "vocabulary", "l2").state, "loading");
  await Promise.resolve();
  assert.deepEqual(model.sent.map(({ array }) => array).sort(), remote.slice(0, 5).sort());
  model.reply({ reply: model.sent[0]?.request, error: "That takes long." });
  const failed = neighborsOf(arrays, "vocabulary", "l2");
  assert.ok(failed.state === "error");
  assert.equal(failed.message, "That takes long.");
  for (const { request } of model.sent) model.reply({ reply: request, error: "" });
});

test("a view offers what it has or can ask for", () => {
  const { arrays } = arraysOf({ _arrays: {}, _remote: ["neighbors/vocabulary/cosine/ids"] });
  assert.equal(offers(arrays, "vocabulary", "cosine"), true);
  assert.equal(offers(arrays, "vocabulary", "l2"), false);
  assert.equal(offers(arrays, "sentence", "cosine"), false);
});
