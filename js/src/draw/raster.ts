import { pixels, position, type Shade } from "./colour.ts";

export interface Picture {
  values: ArrayLike<number>;
  rows: number;
  columns: number;
  /** The value at the end of the ramp; what lies beyond is shown as the end. */
  top: number;
  /** Columns set apart, on a grey ramp of their own that ends at `asideTop`. */
  aside: ArrayLike<boolean>;
  asideTop: number;
  signed: boolean;
  /** Leave what lies right of the diagonal empty: a causal model cannot look there. */
  causal: boolean;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** For each pixel along an axis, the first cell it shows and the one after the last. */
function spans(length: number, cells: number): [Uint16Array, Uint16Array] {
  const first = new Uint16Array(length);
  const last = new Uint16Array(length);
  for (let i = 0; i < length; i++) {
    first[i] = Math.floor((i * cells) / length);
    last[i] = Math.max((first[i] as number) + 1, Math.floor(((i + 1) * cells) / length));
  }
  return [first, last];
}

/** Draws a matrix into a box of device pixels. Where cells outnumber pixels, the largest of them shows. */
export function paint(image: ImageData, picture: Picture, box: Box, shade: Shade): void {
  const { values, rows, columns, top, aside, asideTop, signed, causal } = picture;
  const table = pixels(shade, signed ? "diverging" : "sequential");
  const grey = pixels(shade, "aside");
  const end = table.length - 1;
  const out = new Uint32Array(image.data.buffer, image.data.byteOffset, image.width * image.height);

  const colours = new Uint32Array(rows * columns);
  for (let row = 0, i = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, i++) {
      if (causal && column > row) continue;
      const value = values[i] as number;
      colours[i] = (
        aside[column]
          ? grey[Math.round(position(Math.abs(value), asideTop, false) * end)]
          : table[Math.round(position(value, top, signed) * end)]
      ) as number;
    }
  }

  const [firstRow, lastRow] = spans(box.height, rows);
  const [firstColumn, lastColumn] = spans(box.width, columns);
  const pooled = box.width < columns || box.height < rows;
  for (let y = 0; y < box.height; y++) {
    const row = firstRow[y] as number;
    const line = (box.y + y) * image.width + box.x;
    // Without pooling, the pixel rows of one matrix row are all alike.
    if (!pooled && y > 0 && firstRow[y - 1] === row) {
      out.copyWithin(line, line - image.width, line - image.width + box.width);
      continue;
    }
    for (let x = 0; x < box.width; x++) {
      let best = row * columns + (firstColumn[x] as number);
      if (pooled) {
        for (let r = row; r < (lastRow[y] as number); r++) {
          for (let c = firstColumn[x] as number; c < (lastColumn[x] as number); c++) {
            const here = r * columns + c;
            if (Math.abs(values[here] as number) > Math.abs(values[best] as number)) best = here;
          }
        }
      }
      out[line + x] = colours[best] as number;
    }
  }
}
