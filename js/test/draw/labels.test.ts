import assert from "node:assert/strict";
import { test } from "node:test";
import { indices, shortened, thinned, words } from "../../src/draw/labels.ts";
import type { Token } from "../../src/model/traits.ts";

const token = (label: string, continues = false): Token => ({
  label,
  text: label,
  id: 0,
  word: 0,
  special: false,
  continues,
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
