import assert from "node:assert/strict";
import { test } from "node:test";
import { scaleOf } from "../../src/state/maps.ts";

test("swamping columns get a scale of their own, unless nothing else is left", () => {
  const values = [0.9, 0.1, 0.8, 0.2];
  assert.deepEqual(scaleOf(values, [true, false]), {
    top: 0.2,
    aside: [true, false],
    asideTop: 0.9,
  });
  assert.equal(scaleOf([0.9], [true]).top, 0.9);
  assert.deepEqual(scaleOf([0.9], [true]).aside, [false]);
});
