import assert from "node:assert/strict";
import { test } from "node:test";
import { fit } from "../../src/panes/neighbors.tsx";

test("as many neighbors stand side by side as have room, and a long one further back costs none", () => {
  assert.equal(fit([90, 90, 90, 90], 300), 3);
  assert.equal(fit([90, 90, 120, 400], 300), 2);
  assert.equal(fit([400, 90], 300), 2); // cut to the widest that a chip gets
  assert.equal(fit([10, 10], 1000), 2);
  assert.equal(fit([90], 20), 1);
});
