import { computed, type ReadonlySignal } from "@preact/signals";
import type { Shade } from "../draw/colour.ts";
import { indices, shortened } from "../draw/labels.ts";
import { Arrays } from "../model/arrays.ts";
import { connect, type Model, type Traits } from "../model/bridge.ts";
import { type Maps, mapsOf } from "./maps.ts";
import { type Selection, select } from "./selection.ts";
import { resolveTheme } from "./theme.ts";

/** The state that panes read, and the actions that they take. */
export interface Scene {
  traits: Traits;
  arrays: Arrays;
  maps: Maps;
  selection: Selection;
  shade: ReadonlySignal<Shade>;
  /** The pinned target token; -1 for none, also for positions of a longer text that this view is linked with. */
  target: ReadonlySignal<number>;
  /** The source token under the pointer, else the pinned one; -1 for none. */
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
    source: within(
      computed(() => (traits.hovered.value >= 0 ? traits.hovered.value : traits.source.value)),
    ),
    arrays,
    maps: mapsOf(traits, arrays),
    selection: select(traits),
    shade: resolveTheme(traits.theme, element, end),
    indices: computed(() => indices(traits.tokens.value)),
  };
}

/** A token's label with its index, as plain text for a sentence: bank₁. Very long ones are cut. */
export function nameOf({ traits, indices }: Scene, token: number): string {
  return `${shortened(traits.tokens.value[token]?.label ?? "")}${indices.value[token] ?? ""}`;
}
