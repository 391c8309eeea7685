/** One part of a stacked bar, from `start` to `end` on the value axis. */
export interface Segment {
  index: number;
  value: number;
  start: number;
  end: number;
}

/** Stacks signed values around zero: positive parts grow to the right, negative ones to the left. */
export function stack(values: number[], shown: boolean[] = []): Segment[] {
  let right = 0;
  let left = 0;
  const segments: Segment[] = [];
  values.forEach((value, index) => {
    if (shown[index] === false) return;
    if (value < 0) {
      segments.push({ index, value, start: left + value, end: left });
      left += value;
    } else {
      segments.push({ index, value, start: right, end: right + value });
      right += value;
    }
  });
  return segments;
}

/** The value axis that holds all bars, and always 0 and 1. */
export function extent(bars: Segment[][]): [number, number] {
  let low = 0;
  let high = 1;
  for (const segment of bars.flat()) {
    low = Math.min(low, segment.start);
    high = Math.max(high, segment.end);
  }
  return [low, high];
}

/** Where a value lies on an axis, in percent of its length. */
export function percent([low, high]: [number, number]): (value: number) => number {
  return (value) => ((value - low) / (high - low)) * 100;
}
