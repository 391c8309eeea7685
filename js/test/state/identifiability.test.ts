import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor } from "../../src/model/decode.ts";
import { change, headsOf, identifiable, size } from "../../src/state/identifiability.ts";

const said = (rank: number, dimension: number, withSums: number) =>
  change({ rank, dimension, withSums });

test("what of attention could be otherwise is said in words", () => {
  assert.equal(said(21, 0, 0), "nothing can change");
  assert.equal(
    said(32, 480, 479),
    "480 directions leave the output unchanged, 479 with rows summing to one",
  );
  assert.equal(
    said(20, 1, 0),
    "1 direction leaves the output unchanged, none with rows summing to one",
  );
  assert.equal(
    said(20, 3, 3),
    "3 directions leave the output unchanged, all with rows summing to one",
  );
});

test("a sliding window is told beside the size of the text", () => {
  assert.equal(size(21, { rank: 20, dimension: 1, withSums: 0 }), "n 21");
  assert.equal(size(512, { rank: 32, dimension: 96, withSums: 95 }), "n 512, 128 seen at once");
});

test("a head is identifiable where no row can move and still sum to one", () => {
  assert.equal(identifiable({ rank: 20, dimension: 1, withSums: 0 }), true);
  assert.equal(identifiable({ rank: 20, dimension: 1, withSums: 1 }), false);
});

test("the array holds rank and dimensions by layer and head", () => {
  const values = Uint16Array.from({ length: 12 }, (_, i) => i);
  const array = new Tensor({ dtype: "uint16", shape: [3, 2, 2] }, new Uint8Array(values.buffer));
  assert.deepEqual(headsOf(array, 1), [
    { rank: 2, dimension: 6, withSums: 10 },
    { rank: 3, dimension: 7, withSums: 11 },
  ]);
});
