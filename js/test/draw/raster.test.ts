import assert from "node:assert/strict";
import { test } from "node:test";
import { pixels } from "../../src/draw/colour.ts";
import { paint } from "../../src/draw/raster.ts";

function painted(values: number[], n: number, side: number, causal = false): Uint32Array {
  const data = new Uint8ClampedArray(side * side * 4);
  const image = { data, width: side, height: side } as ImageData;
  const picture = {
    values,
    rows: n,
    columns: n,
    top: 1,
    aside: [],
    asideTop: 1,
    signed: false,
    causal,
  };
  paint(image, picture, { x: 0, y: 0, width: side, height: side }, "light");
  return new Uint32Array(data.buffer);
}

test("each cell fills its own pixels", () => {
  const table = pixels("light", "sequential");
  const [none, full] = [table[0], table.at(-1)];
  assert.deepEqual([...painted([1, 0, 0, 1], 2, 4)].slice(0, 4), [full, full, none, none]);
  assert.deepEqual([...painted([1, 0, 0, 1], 2, 4)].slice(12), [none, none, full, full]);
});

test("where cells outnumber pixels, the largest stays visible", () => {
  const values = new Array(64).fill(0);
  values[9] = 1;
  assert.equal(painted(values, 8, 2)[0], pixels("light", "sequential").at(-1));
});

test("what a causal model cannot see is left empty", () => {
  assert.equal(painted([1, 1, 1, 1], 2, 2, true)[1], 0);
});
