import assert from "node:assert/strict";
import { test } from "node:test";
import { magnitude, share, value } from "../src/draw/format.ts";
import { indices, shortened, thinned, words } from "../src/draw/labels.ts";
import { largest, mean, rank } from "../src/draw/matrix.ts";
import { extent, percent, stack } from "../src/draw/stack.ts";
import type { Token } from "../src/model/traits.ts";
import { cellSize } from "../src/panes/map.tsx";
import { fit } from "../src/panes/neighbors.tsx";
import { moved } from "../src/state/cursor.ts";

const token = (label: string, continues = false): Token => ({
  label,
  text: label,
  id: 0,
  word: 0,
  special: false,
  continues,
});

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

test("equal labels are counted in small digits, single ones are not", () => {
  assert.deepEqual(indices(["bank", "river", "bank"].map((label) => token(label))), ["₁", "", "₂"]);
  assert.equal(indices(Array.from({ length: 12 }, () => token("a")))[11], "₁₂");
});

test("a long label is cut between characters", () => {
  assert.equal(shortened("bank"), "bank");
  assert.equal(shortened("𝒙".repeat(200)), `${"𝒙".repeat(27)}…`);
});

test("pieces of a word stand together", () => {
  assert.deepEqual(words([token("un"), token("believ", true), token("able", true), token("!")]), [
    [0, 1, 2],
    [3],
  ]);
});

test("labels along an axis never touch, and the selected one is always shown", () => {
  for (const [n, cell] of [
    [16, 26],
    [128, 4],
    [512, 0.9],
  ] as const) {
    const shown = thinned(n, cell, 14, [7]);
    assert.ok(shown.includes(7));
    shown.forEach((position, i) => {
      if (i > 0) assert.ok((position - (shown[i - 1] as number)) * cell >= 14);
    });
  }
});

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

test("a cell is never huge, and whole pixels while they suffice", () => {
  assert.equal(cellSize(600, 1), 28);
  assert.equal(cellSize(600, 0), 28);
  assert.equal(cellSize(400, 30), 13);
  assert.ok(cellSize(400, 512) * 512 <= 400);
});

test("numbers are written for readers", () => {
  assert.equal(value(0.02549), "0.025");
  assert.equal(value(0.000041), "4.1e-5");
  assert.equal(value(-0.5), "−0.500");
  assert.equal(value(1), "1");
  assert.equal(share(-0.126), "−0.13");
  assert.equal(share(-0.001), "0.00");
  assert.equal(magnitude(3.1e-7), "3e-7");
});

test("arrow keys stay inside the grid", () => {
  assert.deepEqual(moved("ArrowUp", { row: 0, column: 1 }, 2, 3), { row: 0, column: 1 });
  assert.deepEqual(moved("ArrowRight", { row: 0, column: 1 }, 2, 3), { row: 0, column: 2 });
  assert.deepEqual(moved("End", { row: 1, column: 0 }, 2, 3), { row: 1, column: 2 });
  assert.equal(moved("Tab", { row: 0, column: 0 }, 2, 3), undefined);
});

test("as many neighbours stand side by side as have room, and a long one further back costs none", () => {
  assert.equal(fit([90, 90, 90, 90], 300), 3);
  assert.equal(fit([90, 90, 120, 400], 300), 2);
  assert.equal(fit([400, 90], 300), 2); // cut to the widest that a chip gets
  assert.equal(fit([10, 10], 1000), 2);
  assert.equal(fit([90], 20), 1);
});
