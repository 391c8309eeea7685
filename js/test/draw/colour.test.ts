import assert from "node:assert/strict";
import { test } from "node:test";
import { colourAt, pixels, position, type Ramp, type Shade } from "../../src/draw/colour.ts";
import { paint } from "../../src/draw/raster.ts";
import { scaleOf } from "../../src/state/maps.ts";
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

function painted(values: number[], n: number, side: number, causal = false): Uint32Array {
  const data = new Uint8ClampedArray(side * side * 4);
  const image = { data, width: side, height: side } as ImageData;
  const picture = {
    values,
    rows: n,
    columns: n,
    top: 1,
    aside: [],
    asideTop: 1,
    signed: false,
    causal,
  };
  paint(image, picture, { x: 0, y: 0, width: side, height: side }, "light");
  return new Uint32Array(data.buffer);
}

test("each cell fills its own pixels", () => {
  const table = pixels("light", "sequential");
  const [none, full] = [table[0], table.at(-1)];
  assert.deepEqual([...painted([1, 0, 0, 1], 2, 4)].slice(0, 4), [full, full, none, none]);
  assert.deepEqual([...painted([1, 0, 0, 1], 2, 4)].slice(12), [none, none, full, full]);
});

test("where cells outnumber pixels, the largest stays visible", () => {
  const values = new Array(64).fill(0);
  values[9] = 1;
  assert.equal(painted(values, 8, 2)[0], pixels("light", "sequential").at(-1));
});

test("what a causal model cannot see is left empty", () => {
  assert.equal(painted([1, 1, 1, 1], 2, 2, true)[1], 0);
});
