import type { Arrays, Loaded } from "../model/arrays.ts";
import type { Candidates, Metric } from "../model/traits.ts";

/** A word of the vocabulary: how it is shown, and its index there. */
export interface Word {
  label: string;
  token: number;
}

/** The nearest input embeddings of every token at every layer, row after row of `k`. */
export interface Neighbors {
  /** Positions in the sentence or, of the vocabulary, places in `words`. */
  ids: ArrayLike<number>;
  scores: ArrayLike<number>;
  /** Whether the token itself is the nearest, by layer and token. */
  recovered: Uint8Array;
  words?: Word[];
  layers: number;
  n: number;
  k: number;
}

function place(candidates: Candidates, metric: Metric): string {
  return candidates === "vocabulary" ? `vocabulary/${metric}` : metric;
}

/** Whether the view has these neighbors, or can ask for them. */
export function offers(arrays: Arrays, candidates: Candidates, metric: Metric): boolean {
  return arrays.has(`neighbors/${place(candidates, metric)}/ids`);
}

/** Many vocabulary words are near to several tokens, so each travels once, with its label. */
function read(tokens: ArrayLike<number>, labels: Uint8Array): Word[] {
  const texts = JSON.parse(new TextDecoder().decode(labels)) as string[];
  return texts.map((label, i) => ({ label, token: tokens[i] as number }));
}

/** The neighbors by one metric; they are asked for on first use. */
export function neighborsOf(
  arrays: Arrays,
  candidates: Candidates,
  metric: Metric,
): Loaded<Neighbors> {
  const at = place(candidates, metric);
  const names = [`neighbors/${at}/ids`, `neighbors/${at}/scores`, `recovered/${at}`];
  if (candidates === "vocabulary") names.push(`neighbors/${at}/tokens`, `neighbors/${at}/words`);
  const tensors = [];
  // All are asked for before the first is waited for.
  for (const loaded of names.map((name) => arrays.get(name))) {
    if (loaded.state !== "ready") return loaded;
    tensors.push(loaded.value);
  }
  const [layers = 0, n = 0, k = 0] = tensors[0]?.shape ?? [];
  const [ids = [], scores = [], recovered = [], tokens, labels] = tensors.map((t) => t.slice());
  return {
    state: "ready",
    value: {
      ids,
      scores,
      recovered: recovered as Uint8Array,
      words: tokens && labels && read(tokens, labels as Uint8Array),
      layers,
      n,
      k,
    },
  };
}
