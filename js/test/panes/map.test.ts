import assert from "node:assert/strict";
import { test } from "node:test";
import { cellSize } from "../../src/panes/map.tsx";

test("a cell is never huge, and whole pixels while they suffice", () => {
  assert.equal(cellSize(600, 1), 28);
  assert.equal(cellSize(600, 0), 28);
  assert.equal(cellSize(400, 30), 13);
  assert.ok(cellSize(400, 512) * 512 <= 400);
});
