import type { Bytes, Spec } from "./traits.ts";

const BYTES: Record<string, number> = { float32: 4, uint32: 4, uint16: 2, uint8: 1, log16: 2 };

/** The bytes of whatever a host hands over, without a copy. */
export function bytesOf(data: Bytes): Uint8Array {
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
}

/** Moves bytes to a boundary of `size` only where they do not start at one. */
function aligned(bytes: Uint8Array, size: number): Uint8Array {
  return bytes.byteOffset % size === 0 ? bytes : bytes.slice();
}

/** The value of a log16 code: 0, or ± exp(low + (m - 1) · step) with the sign in bit 15. */
export function fromLog16(code: number, low: number, step: number): number {
  const m = code & 0x7fff;
  if (m === 0) return 0;
  const size = Math.exp(low + (m - 1) * step);
  return code & 0x8000 ? -size : size;
}

/** An array as it was sent. Values are decoded slice by slice, only when asked for. */
export class Tensor {
  readonly shape: number[];
  private readonly size: number;
  private table: Float32Array | undefined;

  constructor(
    private readonly spec: Spec,
    private readonly bytes: Uint8Array,
  ) {
    const size = BYTES[spec.dtype];
    if (size === undefined) throw new Error(`An array came in the unknown format ${spec.dtype}.`);
    this.shape = spec.shape;
    this.size = size;
    const expected = size * spec.shape.reduce((product, length) => product * length, 1);
    if (bytes.byteLength < expected) {
      throw new Error(`An array is cut short: ${bytes.byteLength} of ${expected} bytes came.`);
    }
  }

  /** The values under the leading indices, e.g. `slice(head)` of [head, target, source]. */
  slice(...index: number[]): Float32Array | Uint32Array | Uint16Array | Uint8Array {
    let length = this.shape.reduce((product, axis) => product * axis, 1);
    let start = 0;
    index.forEach((position, axis) => {
      length /= this.shape[axis] as number;
      start += position * length;
    });
    const { dtype, low = 0, step = 0 } = this.spec;
    const bytes = aligned(
      this.bytes.subarray(start * this.size, (start + length) * this.size),
      this.size,
    );
    if (dtype === "uint8") return bytes;
    // Arrays travel little endian, as every browser's typed arrays are.
    if (dtype === "float32") return new Float32Array(bytes.buffer, bytes.byteOffset, length);
    if (dtype === "uint32") return new Uint32Array(bytes.buffer, bytes.byteOffset, length);
    const codes = new Uint16Array(bytes.buffer, bytes.byteOffset, length);
    return dtype === "log16" ? this.fromCodes(codes, low, step) : codes;
  }

  private fromCodes(codes: Uint16Array, low: number, step: number): Float32Array {
    const values = new Float32Array(codes.length);
    if (codes.length < 0x4000) {
      for (let i = 0; i < codes.length; i++) values[i] = fromLog16(codes[i] as number, low, step);
      return values;
    }
    // Large slices: one exponential per code, kept for the other slices, instead of one per value.
    this.table ??= Float32Array.from({ length: 0x10000 }, (_, code) => fromLog16(code, low, step));
    for (let i = 0; i < codes.length; i++) values[i] = this.table[codes[i] as number] as number;
    return values;
  }
}
