import type { Token } from "../model/traits.ts";

const DIGITS = "₀₁₂₃₄₅₆₇₈₉";

function subscript(number: number): string {
  return [...String(number)].map((digit) => DIGITS[Number(digit)]).join("");
}

/** For each token "" or, where its label occurs more than once, which one it is: ₁, ₂, … */
export function indices(tokens: Token[]): string[] {
  const total = new Map<string, number>();
  for (const { label } of tokens) total.set(label, (total.get(label) ?? 0) + 1);
  const seen = new Map<string, number>();
  return tokens.map(({ label }) => {
    if (total.get(label) === 1) return "";
    const index = (seen.get(label) ?? 0) + 1;
    seen.set(label, index);
    return subscript(index);
  });
}

const LONGEST = 28;

/** A label as it can stand in a sentence. */
export function shortened(label: string): string {
  const characters = [...label];
  return characters.length > LONGEST ? `${characters.slice(0, LONGEST - 1).join("")}…` : label;
}

/** Runs of tokens that are pieces of one word, as lists of positions. */
export function words(tokens: Token[]): number[][] {
  const groups: number[][] = [];
  tokens.forEach((token, position) => {
    const last = groups.at(-1);
    if (token.continues && last) last.push(position);
    else groups.push([position]);
  });
  return groups;
}

/**
 * The positions whose labels fit along an axis when each needs `gap` pixels.
 * Those in `always` are kept; neighbors that would touch them make room.
 */
export function thinned(n: number, cell: number, gap: number, always: number[]): number[] {
  const step = Math.max(1, Math.ceil(gap / cell));
  const kept = new Set(always.filter((position) => position >= 0 && position < n));
  const free = (position: number) =>
    [...kept].every((other) => Math.abs(other - position) * cell >= gap);
  const regular = Array.from({ length: Math.ceil(n / step) }, (_, i) => i * step).filter(
    (position) => kept.has(position) || free(position),
  );
  return [...new Set([...regular, ...kept])].sort((a, b) => a - b);
}
