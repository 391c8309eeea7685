/** A matrix of targets (rows) by sources (columns), row after row. */
export interface Matrix {
  n: number;
  values: Float32Array;
}

/** The mean of matrices of one size, e.g. over heads. */
export function mean(all: ArrayLike<number>[]): Float32Array {
  const total = new Float32Array(all[0]?.length ?? 0);
  for (const values of all) {
    for (let i = 0; i < total.length; i++) total[i] = (total[i] as number) + (values[i] as number);
  }
  return total.map((sum) => sum / all.length);
}

/** The largest size of a value among the columns that `counts` admits. */
export function largest(
  values: ArrayLike<number>,
  columns: number,
  counts: (column: number) => boolean,
): number {
  let top = 0;
  const admitted = Array.from({ length: columns }, (_, column) => counts(column));
  for (let i = 0; i < values.length; i++) {
    if (admitted[i % columns]) top = Math.max(top, Math.abs(values[i] as number));
  }
  return top;
}

/** 1 for the largest value of the row; equal values share the better rank. */
export function rank({ n, values }: Matrix, row: number, column: number, width = n): number {
  const own = values[row * n + column] as number;
  let above = 0;
  for (let j = 0; j < width; j++) if ((values[row * n + j] as number) > own) above += 1;
  return above + 1;
}
