import type { Tensor } from "../model/decode.ts";

/** The array that Python sends: [rank, dimension, dimension with sums; layer; head]. */
export const ARRAY = "identifiability";

/** How far the output of one head determines its attention (Brunner et al. 2020). */
export interface Identifiability {
  /** Of the value vectors, as the head writes them. */
  rank: number;
  /** In how many directions a row of attention can change without a change of the output. */
  dimension: number;
  /** The same with the row still summing to one. */
  withSums: number;
}

/** Every head of a layer. */
export function headsOf(array: Tensor, layer: number): Identifiability[] {
  const [rank = [], dimension = [], withSums = []] = [0, 1, 2].map((part) => [
    ...array.slice(part, layer),
  ]);
  return rank.map((value, head) => ({
    rank: value,
    dimension: dimension[head] as number,
    withSums: withSums[head] as number,
  }));
}

/** How many tokens the row sees that sees most: of n, or within a sliding window. */
export function seen({ rank, dimension }: Identifiability): number {
  return rank + dimension;
}

/** The size of the text, and how much of it a row sees where that is less. */
export function size(n: number, head: Identifiability): string {
  return seen(head) < n ? `n ${n}, ${seen(head)} seen at once` : `n ${n}`;
}

/** What can change without a change of the output, in words. */
export function change({ dimension, withSums }: Identifiability): string {
  if (dimension === 0) return "nothing can change";
  const leave = dimension === 1 ? "1 direction leaves" : `${dimension} directions leave`;
  const sums = withSums === dimension ? "all" : withSums === 0 ? "none" : withSums;
  return `${leave} the output unchanged, ${sums} with rows summing to one`;
}

export function identifiable({ withSums }: Identifiability): boolean {
  return withSums === 0;
}
