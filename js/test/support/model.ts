import type { Model } from "../../src/model/bridge.ts";

type Callback = (...args: never[]) => void;

/** A model like the hosts': `set` announces a change at once, and listeners can be counted. */
export class FakeModel implements Model {
  readonly sent: { request: string; array: string }[] = [];
  readonly sets: [string, unknown][] = [];
  /** What the kernel was sent: each message holds all that was set since the one before. */
  readonly messages: Record<string, unknown>[] = [];
  private pending: Record<string, unknown> = {};
  private readonly listeners = new Map<string, Set<Callback>>();

  constructor(private readonly values: Record<string, unknown>) {}

  get(name: string): unknown {
    return this.values[name];
  }

  set(name: string, value: unknown): void {
    this.sets.push([name, value]);
    this.pending[name] = value;
    this.receive({ [name]: value });
  }

  save_changes(): void {
    this.messages.push(this.pending);
    this.pending = {};
  }

  on(event: string, callback: Callback): void {
    const set = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, set.add(callback));
  }

  off(event: string, callback: Callback): void {
    this.listeners.get(event)?.delete(callback);
  }

  send(content: unknown): void {
    this.sent.push(content as { request: string; array: string });
  }

  /** Values from Python: all are stored before the first is announced. */
  receive(values: Record<string, unknown>): void {
    const changed = Object.keys(values).filter((name) => this.values[name] !== values[name]);
    Object.assign(this.values, values);
    for (const name of changed) this.emit(`change:${name}`);
  }

  reply(content: unknown, buffers: unknown[] = []): void {
    this.emit("msg:custom", content, buffers);
  }

  get listening(): number {
    return [...this.listeners.values()].reduce((sum, set) => sum + set.size, 0);
  }

  private emit(event: string, ...args: unknown[]): void {
    for (const callback of [...(this.listeners.get(event) ?? [])]) {
      (callback as (...args: unknown[]) => void)(...args);
    }
  }
}

const FORMATS = {
  float32: Float32Array,
  uint32: Uint32Array,
  uint16: Uint16Array,
  uint8: Uint8Array,
  log16: Uint16Array,
};

export interface Given {
  dtype: keyof typeof FORMATS;
  shape: number[];
  values: number[];
  low?: number;
  step?: number;
}

/** Packs arrays back to back on boundaries of 8 bytes, as Python does. */
export function pack(arrays: Record<string, Given>) {
  const specs: Record<string, object> = {};
  const chunks: number[] = [];
  for (const [name, { values, ...spec }] of Object.entries(arrays)) {
    while (chunks.length % 8) chunks.push(0);
    const bytes = new Uint8Array(new FORMATS[spec.dtype](values).buffer);
    specs[name] = { ...spec, offset: chunks.length, nbytes: bytes.length };
    chunks.push(...bytes);
  }
  return { specs, bytes: Uint8Array.from(chunks) };
}

/** The vocabulary of a small view: a token of the text has its label's place as its index. */
export const VOCABULARY = ["<b>word</b>", "##ing", "␣the"];

/** Of every token at every layer: itself and two words of the vocabulary; at the last, itself is second. */
function words(labels: string[]): Record<string, Given> {
  const own = [...new Set(labels)];
  const list = [...own, ...VOCABULARY];
  const ids = [0, 1, 2].flatMap((row) =>
    labels.flatMap((label) => {
      const [first, second] = [own.indexOf(label), own.length];
      return row < 2 ? [first, second, second + 1] : [second, first, second + 2];
    }),
  );
  const shape = [3, labels.length, 3];
  const json = [...new TextEncoder().encode(JSON.stringify(list))];
  return {
    ids: { dtype: "uint16", shape, values: ids },
    scores: { dtype: "float32", shape, values: ids.map((_, i) => 0.9 - (i % 3) / 10) },
    tokens: { dtype: "uint32", shape: [list.length], values: list.map((_, i) => 100_000 + i) },
    words: { dtype: "uint8", shape: [json.length], values: json },
    recovered: {
      dtype: "uint8",
      shape: [3, labels.length],
      values: [1, 1, 0].flatMap((is) => labels.map(() => is)),
    },
  };
}

/** The traits of a small view on the given labels: 2 layers, 2 heads, uniform attention. */
export function state(labels: string[], more: Record<string, unknown> = {}) {
  const n = labels.length;
  const fill = (length: number, value: (i: number) => number) =>
    Array.from({ length }, (_, i) => value(i));
  const k = Math.min(3, n);
  const neighbors = {
    ids: {
      dtype: "uint16",
      shape: [3, n, k],
      values: fill(3 * n * k, (i) => (Math.floor(i / k) + (i % k)) % n),
    },
    scores: {
      dtype: "float32",
      shape: [3, n, k],
      values: fill(3 * n * k, (i) => 1 - (i % k) / 10),
    },
    recovered: { dtype: "uint8", shape: [3, n], values: fill(3 * n, () => 1) },
  } satisfies Record<string, Given>;
  const map: Given = { dtype: "float32", shape: [2, n, n], values: fill(2 * n * n, () => 1 / n) };
  const { specs, bytes } = pack({
    "map/attention/0": map,
    "map/attention/1": map,
    importance: {
      dtype: "float32",
      shape: [4, 3, n],
      values: fill(12 * n, (i) => [0.75, 0.5, -0.5, 0.25][Math.floor(i / (3 * n))] as number),
    },
    "neighbors/cosine/ids": neighbors.ids,
    "neighbors/cosine/scores": neighbors.scores,
    "recovered/cosine": neighbors.recovered,
    "neighbors/l2/ids": neighbors.ids,
    "neighbors/l2/scores": neighbors.scores,
    "recovered/l2": neighbors.recovered,
    ...Object.fromEntries(
      ["cosine", "l2"].flatMap((metric) =>
        Object.entries(words(labels)).map(([name, given]) => [
          name === "recovered"
            ? `recovered/vocabulary/${metric}`
            : `neighbors/vocabulary/${metric}/${name}`,
          given,
        ]),
      ),
    ),
    // Of the first layer's heads nothing can change; of the second's, the second head is free.
    identifiability: {
      dtype: "uint16",
      shape: [3, 2, 2],
      values: [n, n, n - 1, n - 2, 0, 0, 1, 2, 0, 0, 0, 1],
    },
  });
  return {
    layer: 0,
    head: 0,
    target: -1,
    source: -1,
    hovered: -1,
    kind: "attention",
    theme: "light",
    candidates: "sentence",
    metric: "cosine",
    _view: "explorer",
    _tokens: labels.map((label, word) => ({
      label,
      text: label,
      id: 100_000 + [...new Set(labels)].indexOf(label),
      word,
      special: false,
      continues: false,
    })),
    _about: {
      model: "small",
      layers: 2,
      heads: 2,
      tokens: n,
      words: 250_000,
      dtype: "float32",
      certificate: 3e-7,
      causal: false,
    },
    _kinds: [
      {
        name: "attention",
        label: "attention",
        group: "weights",
        hint: "",
        per_head: true,
        signed: false,
      },
    ],
    _terms: ["input", "attention", "feed_forward", "bias"].map((name) => ({ name, label: name })),
    _arrays: specs,
    _data: new DataView(bytes.buffer),
    _remote: [] as string[],
    ...more,
  };
}
