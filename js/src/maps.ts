import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Arrays, Loaded } from "./arrays.ts";
import type { Traits } from "./bridge.ts";
import type { Tensor } from "./decode.ts";
import { largest, type Matrix, mean } from "./matrix.ts";
import type { Kind } from "./traits.ts";

export interface Scale {
  /** The value at the end of the ramp. */
  top: number;
  /** The largest value of all, set-apart tokens included. */
  whole: number;
  /** Whether some tokens may be left out of the scale at all. */
  divisible: boolean;
}

export interface Thumbnail {
  values: Float32Array;
  size: number;
  top: number;
}

/** The maps of the kind that is shown: the open one, and thumbnails of all. */
export interface Maps {
  kind: ReadonlySignal<Kind | undefined>;
  /** Rows of the overview's heads: 1 for kinds that have one map per layer. */
  heads: ReadonlySignal<number>;
  open: ReadonlySignal<Loaded<Matrix>>;
  scale: ReadonlySignal<Scale>;
  /** Leave the tokens that swamp the others out of the colour scale. */
  apart: Signal<boolean>;
  thumbnail(layer: number, head: number): Loaded<Thumbnail>;
}

function ready<T>(value: T): Loaded<T> {
  return { state: "ready", value };
}

export function mapsOf(traits: Traits, arrays: Arrays): Maps {
  const { about, tokens, layer, head } = traits;
  const kind = computed(
    () =>
      traits.kinds.value.find(({ name }) => name === traits.kind.value) ?? traits.kinds.value[0],
  );
  const heads = computed(() => (kind.value?.per_head === false ? 1 : about.value.heads));
  const apart = signal(true);

  /** Attention collects on special tokens and, in causal models, on the first: they hide all else. */
  const swamping = computed(() =>
    tokens.value.map(({ special }, position) => special || (about.value.causal && position === 0)),
  );

  const slices = (tensor: Tensor, index: number): Float32Array =>
    (kind.value?.per_head === false ? tensor.slice() : tensor.slice(index)) as Float32Array;

  const open = computed<Loaded<Matrix>>(() => {
    const loaded = arrays.get(`map/${kind.value?.name}/${layer.value}`);
    if (loaded.state !== "ready") return loaded;
    const tensor = loaded.value;
    const values =
      head.value >= 0 || heads.value === 1
        ? slices(tensor, Math.min(Math.max(0, head.value), heads.value - 1))
        : mean(Array.from({ length: heads.value }, (_, index) => slices(tensor, index)));
    return ready({ n: tensor.shape.at(-1) ?? 0, values });
  });

  const scale = computed<Scale>(() => {
    if (open.value.state !== "ready") return { top: 1, whole: 1, divisible: false };
    const { n, values } = open.value.value;
    const whole = largest(values, n, () => true);
    const others = largest(values, n, (column) => !swamping.value[column]);
    const divisible = others > 0 && others < whole;
    return { top: divisible && apart.value ? others : whole, whole, divisible };
  });

  function thumbnail(row: number, column: number): Loaded<Thumbnail> {
    const pooled = `overview/${kind.value?.name}`;
    const small = arrays.has(pooled);
    const loaded = arrays.get(small ? pooled : `map/${kind.value?.name}/${row}`);
    if (loaded.state !== "ready") return loaded;
    const tensor = loaded.value;
    const size = tensor.shape.at(-1) ?? 1;
    const values = small
      ? ((tensor.shape.length === 4
          ? tensor.slice(row, column)
          : tensor.slice(row)) as Float32Array)
      : slices(tensor, column);
    const n = tokens.value.length;
    // A pooled column stands for several tokens; one swamping token among them swamps it.
    const counts = (bin: number) => {
      const start = Math.floor((bin * n) / size);
      const end = Math.max(start + 1, Math.ceil(((bin + 1) * n) / size));
      return !swamping.value.slice(start, end).some(Boolean);
    };
    const top = largest(values, size, counts) || largest(values, size, () => true);
    return ready({ values, size, top });
  }

  return { kind, heads, open, scale, apart, thumbnail };
}
