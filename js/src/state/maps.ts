import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { largest, type Matrix, mean } from "../draw/matrix.ts";
import type { Arrays, Loaded } from "../model/arrays.ts";
import type { Traits } from "../model/bridge.ts";
import type { Tensor } from "../model/decode.ts";
import type { Kind } from "../model/traits.ts";

/** The value at the end of the ramp, and the columns that have a ramp of their own. */
export interface Scale {
  top: number;
  aside: boolean[];
  asideTop: number;
}

export interface Thumbnail {
  values: Float32Array;
  size: number;
  scale: Scale;
}

/** One scale for all columns, or one for those set apart and one for the others. */
export function scaleOf(values: ArrayLike<number>, aside: boolean[]): Scale {
  const columns = aside.length;
  const others = largest(values, columns, (column) => !aside[column]);
  // Where all other columns are zero, the columns that are set apart share the one scale.
  if (others > 0) {
    return { top: others, aside, asideTop: largest(values, columns, (column) => !!aside[column]) };
  }
  const top = largest(values, columns, () => true);
  return { top, aside: aside.map(() => false), asideTop: top };
}

/** The maps of the kind that is shown: the open one, and thumbnails of all. */
export interface Maps {
  kind: ReadonlySignal<Kind | undefined>;
  /** Rows of the overview's heads: 1 for kinds that have one map per layer. */
  heads: ReadonlySignal<number>;
  open: ReadonlySignal<Loaded<Matrix>>;
  scale: ReadonlySignal<Scale>;
  /** Give the tokens that swamp the others a colour scale of their own. */
  apart: Signal<boolean>;
  /** Whether there are such tokens beside others. */
  divisible: ReadonlySignal<boolean>;
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

  /** Special tokens and, in causal models, the first take most attention: on one scale they hide the rest. */
  const swamping = computed(() =>
    tokens.value.map(({ special }, position) => special || (about.value.causal && position === 0)),
  );

  const slices = (tensor: Tensor, index: number): Float32Array =>
    (kind.value?.per_head === false ? tensor.slice() : tensor.slice(index)) as Float32Array;

  const open = computed<Loaded<Matrix>>(() => {
    const { layers } = about.value;
    const unknown = (part: string, index: number, count: number): Loaded<Matrix> => ({
      state: "error",
      message: `This model has no ${part} ${index + 1}: choose one from 1 to ${count}.`,
    });
    if (layer.value >= layers) return unknown("layer", layer.value, layers);
    if (kind.value?.per_head !== false && head.value >= heads.value) {
      return unknown("head", head.value, heads.value);
    }
    const loaded = arrays.get(`map/${kind.value?.name}/${layer.value}`);
    if (loaded.state !== "ready") return loaded;
    const tensor = loaded.value;
    const values =
      head.value >= 0 || heads.value === 1
        ? slices(tensor, Math.max(0, head.value))
        : mean(Array.from({ length: heads.value }, (_, index) => slices(tensor, index)));
    return ready({ n: tensor.shape.at(-1) ?? 0, values });
  });

  const asideNow = computed(() => swamping.value.map((swamps) => swamps && apart.value));

  const scale = computed<Scale>(() =>
    open.value.state === "ready"
      ? scaleOf(open.value.value.values, asideNow.value)
      : { top: 1, aside: [], asideTop: 1 },
  );

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
    // A pooled column stands for several tokens. It is set apart if one of them is.
    const n = tokens.value.length;
    const aside = Array.from({ length: size }, (_, bin) => {
      const start = Math.floor((bin * n) / size);
      const end = Math.max(start + 1, Math.ceil(((bin + 1) * n) / size));
      return asideNow.value.slice(start, end).some(Boolean);
    });
    return ready({ values, size, scale: scaleOf(values, aside) });
  }

  const divisible = computed(() => swamping.value.some(Boolean) && !swamping.value.every(Boolean));

  return { kind, heads, open, scale, apart, divisible, thumbnail };
}
