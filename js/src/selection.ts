import { batch, effect, type ReadonlySignal, signal } from "@preact/signals";
import type { Traits } from "./bridge.ts";

/** What the reader's hand does. All views of one model share the outcome through the traits. */
export interface Selection {
  /** The source that stays when the pointer leaves. */
  pinned: ReadonlySignal<number>;
  hover(token: number): void;
  leave(): void;
  toggleTarget(token: number): void;
  toggleSource(token: number): void;
  toggleCell(target: number, source: number): void;
  open(layer: number, head: number): void;
}

export function select(traits: Traits, end: AbortSignal): Selection {
  const { layer, head, target, source } = traits;
  const pinned = signal(source.peek());
  // What the pointer lights is no pin. Any other value, from Python or another view, is one, also -1.
  let pointed: number | undefined;
  const dispose = effect(() => {
    if (source.value !== pointed) pinned.value = source.value;
  });
  end.addEventListener("abort", dispose, { once: true });

  const hover = (token: number) => {
    pointed = token;
    source.value = token;
  };
  const pinSource = (token: number) => {
    pinned.value = token;
    if (token >= 0) hover(token);
  };

  return {
    pinned,
    hover,
    leave: () => {
      pointed = undefined;
      source.value = pinned.peek();
    },
    toggleTarget: (token) => {
      target.value = target.peek() === token ? -1 : token;
    },
    toggleSource: (token) => pinSource(pinned.peek() === token ? -1 : token),
    toggleCell: (row, column) =>
      batch(() => {
        const same = target.peek() === row && pinned.peek() === column;
        target.value = same ? -1 : row;
        pinSource(same ? -1 : column);
      }),
    open: (newLayer, newHead) =>
      batch(() => {
        layer.value = newLayer;
        head.value = newHead;
      }),
  };
}
