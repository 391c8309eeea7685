import assert from "node:assert/strict";
import { test } from "node:test";
import { extent, percent, stack } from "../../src/draw/stack.ts";

test("positive parts grow to the right of zero and negative ones to the left", () => {
  const ends = stack([0.75, -0.25, 1, -0.5]).map(({ start, end }) => [start, end]);
  assert.deepEqual(ends, [
    [0, 0.75],
    [-0.25, 0],
    [0.75, 1.75],
    [-0.75, -0.25],
  ]);
});

test("hidden parts leave no gap", () => {
  const [first, second] = stack([0.5, 0.3, 0.2], [true, false, true]);
  assert.equal(first?.end, second?.start);
  assert.equal(second?.index, 2);
});

test("the axis holds every bar, and always 0 and 1", () => {
  assert.deepEqual(extent([stack([0.4, 0.2])]), [0, 1]);
  assert.deepEqual(extent([stack([1.5, -0.5])]), [-0.5, 1.5]);
  assert.equal(percent([-0.5, 1.5])(0.5), 50);
});
