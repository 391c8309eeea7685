/** The traits of the Python views as the front end reads them: plain JSON. */

export interface Token {
  /** What to show. */
  label: string;
  /** The raw text, for a tooltip. */
  text: string;
  /** Its index in the vocabulary. */
  id: number;
  /** Index of the word the token belongs to, -1 for none. */
  word: number;
  special: boolean;
  /** A piece that continues the word of the token before it. */
  continues: boolean;
}

export interface About {
  model: string;
  layers: number;
  heads: number;
  tokens: number;
  /** The size of the vocabulary. */
  words: number;
  dtype: string;
  /** The largest relative gap between the sum of the parts and what the model computed. */
  certificate: number;
  causal: boolean;
}

export interface Kind {
  name: string;
  label: string;
  group: string;
  /** What the map shows. */
  hint: string;
  /** How to read it, and where it is defined. */
  reading?: string;
  reference?: string;
  per_head: boolean;
  signed: boolean;
}

export interface Term {
  name: string;
  label: string;
}

export interface Spec {
  dtype: string;
  shape: number[];
  low?: number;
  step?: number;
}

export interface PackedSpec extends Spec {
  offset: number;
  nbytes: number;
}

export type Bytes = ArrayBuffer | ArrayBufferView;
/** Set on the exported page's root, which paints itself in the theme and so cannot be asked for it. */
export const PAGE_CLASS = "prosect-page";

export type Theme = "auto" | "light" | "dark";

/** Among which input embeddings neighbors are looked for. */
export type Candidates = "sentence" | "vocabulary";
export type Metric = "cosine" | "l2";

/** The traits that go both ways; the last two only where neighbors are shown. */
export interface Shared {
  layer: number;
  head: number;
  target: number;
  /** The pinned source token. */
  source: number;
  /** The source token under the pointer. It stays in the browser unless Python shares it. */
  hovered: number;
  kind: string;
  theme: Theme;
  candidates: Candidates;
  metric: Metric;
}
