import { computed, type ReadonlySignal } from "@preact/signals";
import { Arrays } from "./arrays.ts";
import { connect, type Model, type Traits } from "./bridge.ts";
import type { Shade } from "./colour.ts";
import { indices, shortened } from "./labels.ts";
import { type Maps, mapsOf } from "./maps.ts";
import { type Selection, select } from "./selection.ts";
import { resolveTheme } from "./theme.ts";

/** Everything a pane may read, and the one hand it may act with. */
export interface Scene {
  traits: Traits;
  arrays: Arrays;
  maps: Maps;
  selection: Selection;
  shade: ReadonlySignal<Shade>;
  /** The selected tokens, -1 for none: also for positions of a longer text that this view is linked with. */
  target: ReadonlySignal<number>;
  source: ReadonlySignal<number>;
  /** "" or ₁, ₂, … for each token whose label is not the only one of its kind. */
  indices: ReadonlySignal<string[]>;
}

export function createScene(model: Model, element: Element, end: AbortSignal): Scene {
  const traits = connect(model, end);
  const arrays = new Arrays(traits.payload, model, end);
  const within = (trait: ReadonlySignal<number>) =>
    computed(() =>
      trait.value >= 0 && trait.value < traits.tokens.value.length ? trait.value : -1,
    );
  return {
    traits,
    target: within(traits.target),
    source: within(traits.source),
    arrays,
    maps: mapsOf(traits, arrays),
    selection: select(traits, end),
    shade: resolveTheme(traits.theme, element, end),
    indices: computed(() => indices(traits.tokens.value)),
  };
}

/** A token's label with its index, as plain text for a sentence: bank₁. Very long ones are cut. */
export function nameOf({ traits, indices }: Scene, token: number): string {
  return `${shortened(traits.tokens.value[token]?.label ?? "")}${indices.value[token] ?? ""}`;
}
