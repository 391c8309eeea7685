import type { Model } from "./bridge.ts";
import type { Spec } from "./traits.ts";

/** What a page carries in the place of a kernel. */
export interface PageState {
  module: string;
  state: Record<string, unknown>;
  buffers: Record<string, string>;
  remote: Record<string, Spec & { data: string }>;
}

/** The bytes of a base64 text that holds gzip. */
export async function unpack(text: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** A model with no kernel behind it: it holds the traits and answers requests from the page. */
export async function stubModel({ state, buffers, remote }: PageState): Promise<Model> {
  const values: Record<string, unknown> = { ...state };
  for (const [name, text] of Object.entries(buffers)) {
    values[name] = new DataView(await unpack(text));
  }
  const listeners = new Map<string, Set<(...args: unknown[]) => void>>();
  const emit = (event: string, ...args: unknown[]) => {
    for (const callback of [...(listeners.get(event) ?? [])]) callback(...args);
  };

  async function answer({ request, array }: { request: string; array: string }): Promise<void> {
    const found = remote[array];
    if (!found) {
      emit(
        "msg:custom",
        { reply: request, array, error: `This page was saved without ${array}.` },
        [],
      );
      return;
    }
    const { data, ...spec } = found;
    try {
      const bytes = new DataView(await unpack(data));
      emit("msg:custom", { reply: request, array, spec }, [bytes]);
    } catch {
      emit("msg:custom", { reply: request, array, error: `The page's ${array} is damaged.` }, []);
    }
  }

  return {
    get: (name) => values[name],
    set: (name, value) => {
      if (values[name] === value) return;
      values[name] = value;
      emit(`change:${name}`, value);
    },
    save_changes: () => {},
    on: (event, callback) => {
      const set = listeners.get(event) ?? new Set();
      set.add(callback as (...args: unknown[]) => void);
      listeners.set(event, set);
    },
    off: (event, callback) => {
      listeners.get(event)?.delete(callback as (...args: unknown[]) => void);
    },
    send: (content) => {
      void answer(content as { request: string; array: string });
    },
  };
}
