import assert from "node:assert/strict";
import { test } from "node:test";
import { colourAt, position, type Ramp, type Shade } from "../../src/draw/colour.ts";
import { contrast, luminance } from "../support/luminance.ts";

const SHADES: Shade[] = ["light", "dark"];

function luminances(shade: Shade, ramp: Ramp, from: number, to: number): number[] {
  return Array.from({ length: 101 }, (_, i) =>
    luminance(colourAt(shade, ramp, from + ((to - from) * i) / 100)),
  );
}

function monotone(values: number[], sign: number): boolean {
  return values.every((value, i) => i === 0 || (value - (values[i - 1] as number)) * sign >= 0);
}

test("more is darker in the light theme and lighter in the dark one, without turning back", () => {
  for (const ramp of ["sequential", "aside"] as const) {
    assert.ok(monotone(luminances("light", ramp, 0, 1), -1));
    assert.ok(monotone(luminances("dark", ramp, 0, 1), 1));
  }
});

test("both arms of the diverging ramp move away from the middle", () => {
  for (const [shade, sign] of [
    ["light", -1],
    ["dark", 1],
  ] as const) {
    assert.ok(monotone(luminances(shade, "diverging", 0.5, 1), sign));
    assert.ok(monotone(luminances(shade, "diverging", 0.5, 0), sign));
  }
});

test("the ends of the blue ramp are told apart by luminance alone", () => {
  for (const shade of SHADES) {
    const [low, high] = [0, 1].map((at) => luminance(colourAt(shade, "sequential", at))) as [
      number,
      number,
    ];
    assert.ok(contrast(low, high) > 10, shade);
  }
});

test("the scale is the square root, symmetric where values are signed, and stops at its ends", () => {
  assert.equal(position(0.25, 1, false), 0.5);
  assert.equal(position(2, 1, false), 1);
  assert.equal(position(0.25, 1, true), 0.75);
  assert.equal(position(-0.25, 1, true), 0.25);
  assert.equal(position(0, 0, false), 0);
  assert.equal(position(0, 0, true), 0.5);
});
