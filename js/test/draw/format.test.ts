import assert from "node:assert/strict";
import { test } from "node:test";
import { magnitude, share, value } from "../../src/draw/format.ts";

test("numbers are written for readers", () => {
  assert.equal(value(0.02549), "0.025");
  assert.equal(value(0.000041), "4.1e-5");
  assert.equal(value(-0.5), "−0.500");
  assert.equal(value(1), "1");
  assert.equal(share(-0.126), "−0.13");
  assert.equal(share(-0.001), "0.00");
  assert.equal(magnitude(3.1e-7), "3e-7");
});
