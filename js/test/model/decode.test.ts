import assert from "node:assert/strict";
import { test } from "node:test";
import { bytesOf, Tensor } from "../../src/model/decode.ts";

const LOW = -9;
const STEP = 0.0003;

/** The formula of the data contract, in its own words. */
function reference(code: number): number {
  const m = code % 32768;
  if (m === 0) return 0;
  return (code >= 32768 ? -1 : 1) * Math.exp(LOW + (m - 1) * STEP);
}

function log16(codes: number[]): Tensor {
  const spec = { dtype: "log16", shape: [codes.length], low: LOW, step: STEP };
  return new Tensor(spec, new Uint8Array(new Uint16Array(codes).buffer));
}

test("log16 follows its formula for zero, both signs and both ends", () => {
  const codes = [0, 1, 2, 777, 32767, 32769, 40000, 65535];
  log16(codes)
    .slice()
    .forEach((value, i) => {
      const expected = reference(codes[i] as number);
      assert.ok(Math.abs(value - expected) <= Math.abs(expected) * 1e-6);
    });
});

test("log16 means the same in long arrays, which are decoded by table", () => {
  const codes = Array.from({ length: 70000 }, (_, i) => (i * 7919) % 65536);
  const long = log16(codes).slice();
  const short = log16(codes.slice(0, 100)).slice();
  assert.deepEqual(long.slice(0, 100), short);
  assert.ok(Math.abs((long[69999] as number) / reference(codes[69999] as number) - 1) < 1e-6);
});

test("plain formats come back as they were", () => {
  const cases = [
    ["float32", new Float32Array([0.5, -1.25, 3e-9])],
    ["uint16", new Uint16Array([0, 65535, 12])],
    ["uint8", new Uint8Array([0, 1, 255])],
  ] as const;
  for (const [dtype, values] of cases) {
    const tensor = new Tensor({ dtype, shape: [3] }, bytesOf(values));
    assert.deepEqual([...tensor.slice()], [...values]);
  }
});

test("a slice holds the values under its leading indices", () => {
  const values = Float32Array.from({ length: 24 }, (_, i) => i);
  const tensor = new Tensor({ dtype: "float32", shape: [2, 3, 4] }, bytesOf(values));
  assert.deepEqual([...tensor.slice(1)], [...values.slice(12)]);
  assert.deepEqual([...tensor.slice(1, 2)], [20, 21, 22, 23]);
});

test("a DataView, an ArrayBuffer and a typed array give the same bytes, and offsets are kept", () => {
  const buffer = new Uint8Array([9, 9, 9, 1, 2, 3, 4]).buffer;
  const expected = [1, 2, 3, 4];
  assert.deepEqual([...bytesOf(new DataView(buffer, 3, 4))], expected);
  assert.deepEqual([...bytesOf(new Uint8Array(buffer, 3, 4))], expected);
  assert.deepEqual([...bytesOf(buffer.slice(3))], expected);
});

test("float32 at an odd offset is still read", () => {
  const bytes = new Uint8Array(13);
  bytes.set(new Uint8Array(new Float32Array([1.5, 2.5, -3.5]).buffer), 1);
  const tensor = new Tensor(
    { dtype: "float32", shape: [3] },
    bytesOf(new DataView(bytes.buffer, 1)),
  );
  assert.deepEqual([...tensor.slice()], [1.5, 2.5, -3.5]);
});

test("a cut or unknown array is refused in words", () => {
  assert.throws(() => new Tensor({ dtype: "float32", shape: [3] }, new Uint8Array(8)), /cut short/);
  assert.throws(
    () => new Tensor({ dtype: "int7", shape: [1] }, new Uint8Array(8)),
    /unknown format int7/,
  );
});
