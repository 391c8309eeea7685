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
  // A value of `source` that was not written here comes from Python or another view: it is a pin.
  let written = source.peek();
  const dispose = effect(() => {
    if (source.value !== written) pinned.value = source.value;
  });
  end.addEventListener("abort", dispose, { once: true });

  const write = (token: number) => {
    written = token;
    source.value = token;
  };
  const pinSource = (token: number) => {
    pinned.value = token;
    if (token >= 0) write(token);
  };

  return {
    pinned,
    hover: write,
    leave: () => write(pinned.peek()),
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
