import type { Tensor } from "../model/decode.ts";

/** How far the attention of one head is determined by what it does (Brunner et al. 2020). */
export interface Freedom {
  /** Of the value vectors, as the head writes them. */
  rank: number;
  /** In how many directions a row of attention can be moved without any change of the output. */
  directions: number;
  /** The same with the row still summing to one. */
  withSums: number;
}

/** The freedom of every head of a layer, from an array [rank, freedom, freedom with sums; layer; head]. */
export function freedomOf(array: Tensor, layer: number): Freedom[] {
  const [rank = [], directions = [], withSums = []] = [0, 1, 2].map((part) => [
    ...array.slice(part, layer),
  ]);
  return rank.map((value, head) => ({
    rank: value,
    directions: directions[head] as number,
    withSums: withSums[head] as number,
  }));
}

/** How many tokens the row sees that sees most: of n, or within a sliding window. */
export function seen({ rank, directions }: Freedom): number {
  return rank + directions;
}

/** The size of the text, and how much of it a row sees where that is less. */
export function size(n: number, freedom: Freedom): string {
  return seen(freedom) < n ? `n ${n}, ${seen(freedom)} seen at once` : `n ${n}`;
}

/** What could be otherwise, in words. */
export function change({ directions, withSums }: Freedom): string {
  if (directions === 0) return "nothing can change";
  const leave = directions === 1 ? "1 direction leaves" : `${directions} directions leave`;
  const sums = withSums === directions ? "all" : withSums === 0 ? "none" : withSums;
  return `${leave} the output unchanged, ${sums} with rows summing to one`;
}

export function identifiable({ withSums }: Freedom): boolean {
  return withSums === 0;
}
