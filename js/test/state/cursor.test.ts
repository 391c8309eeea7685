import assert from "node:assert/strict";
import { test } from "node:test";
import { moved } from "../../src/state/cursor.ts";

test("arrow keys stay inside the grid", () => {
  assert.deepEqual(moved("ArrowUp", { row: 0, column: 1 }, 2, 3), { row: 0, column: 1 });
  assert.deepEqual(moved("ArrowRight", { row: 0, column: 1 }, 2, 3), { row: 0, column: 2 });
  assert.deepEqual(moved("End", { row: 1, column: 0 }, 2, 3), { row: 1, column: 2 });
  assert.equal(moved("Tab", { row: 0, column: 0 }, 2, 3), undefined);
});
