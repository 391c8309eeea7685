import { batch } from "@preact/signals";
import type { Traits } from "../model/bridge.ts";

/** The actions of the reader. All views of one model share their outcome through the traits. */
export interface Selection {
  /** The pointer, or the keyboard's focus, is on a source token. */
  hover(token: number): void;
  leave(): void;
  /** Pin a token, or release it where it is pinned already. */
  toggleTarget(token: number): void;
  toggleSource(token: number): void;
  toggleCell(target: number, source: number): void;
  open(layer: number, head: number): void;
}

export function select({ layer, head, target, source, hovered }: Traits): Selection {
  return {
    hover: (token) => {
      hovered.value = token;
    },
    leave: () => {
      hovered.value = -1;
    },
    toggleTarget: (token) => {
      target.value = target.peek() === token ? -1 : token;
    },
    toggleSource: (token) => {
      source.value = source.peek() === token ? -1 : token;
    },
    toggleCell: (row, column) =>
      batch(() => {
        const same = target.peek() === row && source.peek() === column;
        target.value = same ? -1 : row;
        source.value = same ? -1 : column;
      }),
    open: (newLayer, newHead) =>
      batch(() => {
        layer.value = newLayer;
        head.value = newHead;
      }),
  };
}
