import assert from "node:assert/strict";
import { test } from "node:test";
import { largest, mean, rank } from "../../src/draw/matrix.ts";

test("the rank counts from the largest value of the row, and equal values share it", () => {
  const matrix = { n: 4, values: new Float32Array([0.4, 0.1, 0.4, 0.1, ...new Array(12).fill(0)]) };
  assert.deepEqual(
    [0, 1, 2, 3].map((column) => rank(matrix, 0, column)),
    [1, 3, 1, 3],
  );
});

test("the mean over heads is taken value by value", () => {
  assert.deepEqual(
    [
      ...mean([
        [1, 2],
        [3, 6],
      ]),
    ],
    [2, 4],
  );
});

test("the largest value looks only at the admitted columns, and at its size", () => {
  assert.equal(
    largest([9, -3, 9, 2], 2, (column) => column === 1),
    3,
  );
});
