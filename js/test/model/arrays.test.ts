import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Arrays, SILENCE } from "../../src/model/arrays.ts";
import { connect } from "../../src/model/bridge.ts";
import { FakeModel, state } from "../support/model.ts";

const SPEC = { dtype: "float32", shape: [2] };

function opened(t: TestContext, remote = ["far"]) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const model = new FakeModel(state(["a", "b"], { _remote: remote }));
  const end = new AbortController();
  return { model, end, arrays: new Arrays(connect(model, end.signal).payload, model, end.signal) };
}

const asked = () => Promise.resolve();

test("an array that came along is there at once and is not asked for", async (t) => {
  const { model, arrays } = opened(t);
  const loaded = arrays.get("importance");
  await asked();
  assert.equal(loaded.state, "ready");
  assert.equal(model.sent.length, 0);
});

test("a remote array is asked for once, by its first reader", async (t) => {
  const { model, arrays } = opened(t);
  assert.equal(arrays.get("far").state, "loading");
  arrays.get("far");
  await asked();
  assert.deepEqual(
    model.sent.map(({ array }) => array),
    ["far"],
  );
});

test("the reply to the request fills the array; other replies do not", async (t) => {
  const { model, arrays } = opened(t);
  arrays.get("far");
  await asked();
  const buffer = new DataView(new Float32Array([1, 2]).buffer);
  model.reply({ reply: "someone else's", array: "far", spec: SPEC }, [buffer]);
  assert.equal(arrays.get("far").state, "loading");
  model.reply({ reply: model.sent[0]?.request, array: "far", spec: SPEC }, [buffer]);
  const loaded = arrays.get("far");
  assert.ok(loaded.state === "ready");
  assert.deepEqual([...loaded.value.slice()], [1, 2]);
});

test("an error of the kernel reaches the reader, who can try again", async (t) => {
  const { model, arrays } = opened(t);
  arrays.get("far");
  await asked();
  model.reply({ reply: model.sent[0]?.request, error: "The model is gone." });
  const failed = arrays.get("far");
  assert.ok(failed.state === "error");
  assert.equal(failed.message, "The model is gone.");
  failed.retry?.();
  assert.equal(arrays.get("far").state, "loading");
  assert.equal(model.sent.length, 2);
  assert.notEqual(model.sent[0]?.request, model.sent[1]?.request);
});

test("a kernel that keeps silent for 20 seconds is reported", async (t) => {
  const { arrays } = opened(t);
  arrays.get("far");
  await asked();
  t.mock.timers.tick(19_000);
  assert.equal(arrays.get("far").state, "loading");
  t.mock.timers.tick(1_001);
  const loaded = arrays.get("far");
  assert.ok(loaded.state === "error");
  assert.equal(loaded.message, SILENCE);
});

test("while the kernel works on one array the others wait, however long that takes", async (t) => {
  const { model, arrays } = opened(t, ["far", "farther"]);
  arrays.get("far");
  arrays.get("farther");
  await asked();
  const [first, second] = model.sent.map(({ request }) => request);
  model.reply({ reply: first, working: true });
  t.mock.timers.tick(600_000);
  assert.equal(arrays.get("farther").state, "loading");
  model.reply({ reply: first, error: "It cannot be had." });
  t.mock.timers.tick(19_000);
  assert.equal(arrays.get("farther").state, "loading");
  model.reply({ reply: second, working: true });
  t.mock.timers.tick(600_000);
  model.reply({ reply: second, spec: SPEC }, [new Float32Array(2)]);
  assert.equal(arrays.get("farther").state, "ready");
});

test("a kernel that falls silent after one answer is reported to those who still wait", async (t) => {
  const { model, arrays } = opened(t, ["far", "farther"]);
  arrays.get("far");
  arrays.get("farther");
  await asked();
  model.reply({ reply: model.sent[0]?.request, working: true });
  model.reply({ reply: model.sent[0]?.request, spec: SPEC }, [new Float32Array(2)]);
  t.mock.timers.tick(20_001);
  assert.equal(arrays.get("far").state, "ready");
  const loaded = arrays.get("farther");
  assert.ok(loaded.state === "error");
  assert.equal(loaded.message, SILENCE);
  loaded.retry?.();
  t.mock.timers.tick(20_001);
  assert.equal(arrays.get("farther").state, "error");
});

test("a damaged reply is an error, not an exception", async (t) => {
  const { model, arrays } = opened(t);
  arrays.get("far");
  await asked();
  model.reply({ reply: model.sent[0]?.request, spec: SPEC }, [new DataView(new ArrayBuffer(4))]);
  assert.equal(arrays.get("far").state, "error");
});

test("an array that exists nowhere is named", (t) => {
  const loaded = opened(t).arrays.get("map/none/0");
  assert.ok(loaded.state === "error");
  assert.match(loaded.message, /map\/none\/0/);
});

test("nothing is asked after the view has ended", async (t) => {
  const { model, arrays, end } = opened(t);
  arrays.get("far");
  end.abort();
  await asked();
  assert.equal(model.sent.length, 0);
});
