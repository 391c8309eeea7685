import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { stubModel, unpack } from "../../src/model/stub.ts";

const packed = (bytes: number[]) => gzipSync(Uint8Array.from(bytes)).toString("base64");

function page() {
  return stubModel({
    module: "",
    state: { layer: 0 },
    buffers: { _data: packed([1, 2, 250]) },
    remote: { far: { dtype: "uint8", shape: [2], data: packed([7, 8]) } },
  });
}

type Reply = { reply: string; error?: string; spec?: { shape: number[]; data?: string } };

async function ask(array: string): Promise<[Reply, DataView[]]> {
  const model = await page();
  return new Promise((resolve) => {
    model.on("msg:custom", (content: Reply, buffers: DataView[]) => resolve([content, buffers]));
    model.send({ request: "r1", array });
  });
}

const bytes = (view: DataView) => [
  ...new Uint8Array(view.buffer, view.byteOffset, view.byteLength),
];

test("base64 of gzip comes back byte by byte", async () => {
  assert.deepEqual([...new Uint8Array(await unpack(packed([0, 255, 60])))], [0, 255, 60]);
});

test("the page's model holds the traits and the bytes", async () => {
  const model = await page();
  assert.equal(model.get("layer"), 0);
  assert.deepEqual(bytes(model.get("_data") as DataView), [1, 2, 250]);
});

test("a change is announced once, and not to those who left", async () => {
  const model = await page();
  let calls = 0;
  const count = () => {
    calls += 1;
  };
  model.on("change:layer", count);
  model.set("layer", 1);
  model.set("layer", 1);
  model.off("change:layer", count);
  model.set("layer", 0);
  assert.equal(calls, 1);
});

test("a request is answered from the page", async () => {
  const [content, [buffer]] = await ask("far");
  assert.equal(content.reply, "r1");
  assert.deepEqual(content.spec?.shape, [2]);
  assert.equal(content.spec?.data, undefined);
  assert.deepEqual(bytes(buffer as DataView), [7, 8]);
});

test("an array that was not saved is named in the answer", async () => {
  const [content] = await ask("map/attention/3");
  assert.match(content.error ?? "", /map\/attention\/3/);
});
