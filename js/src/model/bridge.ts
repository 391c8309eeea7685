import { effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { About, Bytes, Kind, PackedSpec, Shared, Term, Token } from "./traits.ts";

type Callback = (...args: never[]) => void;

/** The part of an anywidget model that is used here. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: Callback): void;
  off(event: string, callback: Callback): void;
  send(content: unknown): void;
}

export interface Payload {
  specs: Record<string, PackedSpec>;
  data: Bytes;
  remote: string[];
}

export type Traits = { [name in keyof Shared]: Signal<Shared[name]> } & {
  tokens: ReadonlySignal<Token[]>;
  about: ReadonlySignal<About>;
  kinds: ReadonlySignal<Kind[]>;
  terms: ReadonlySignal<Term[]>;
  payload: ReadonlySignal<Payload>;
};

/** Subscribes until `end` aborts. */
export function listen(model: Model, event: string, callback: Callback, end: AbortSignal): void {
  model.on(event, callback);
  end.addEventListener("abort", () => model.off(event, callback), { once: true });
}

/** A signal that follows traits of the model, read together by `read` when any of them changes. */
function follow<T>(model: Model, names: string[], read: () => T, end: AbortSignal): Signal<T> {
  const followed = signal(read());
  const update = () => {
    followed.value = read();
  };
  for (const name of names) listen(model, `change:${name}`, update, end);
  return followed;
}

/**
 * The one place where the model's traits and the front end's signals meet.
 *
 * Each shared trait has an effect of its own. When Python changes two traits at once, the model holds both
 * new values before it announces the first: one effect over all traits would then write the second one's
 * old value back.
 */
export function connect(model: Model, end: AbortSignal): Traits {
  let saving = false;
  /** The hovered token as the kernel knows it. */
  let known = -1;
  // Traits that change together reach the kernel in one message.
  const save = () => {
    if (saving) return;
    saving = true;
    queueMicrotask(() => {
      saving = false;
      model.save_changes();
      // A message carries everything that was set since the last one, the hover included.
      known = model.get("hovered") as number;
    });
  };

  function shared<K extends keyof Shared>(
    name: K,
    set: (value: Shared[K]) => void = save,
    received: (value: Shared[K]) => void = () => {},
  ): Signal<Shared[K]> {
    const trait = follow(model, [name], () => model.get(name) as Shared[K], end);
    const dispose = effect(() => {
      const value = trait.value;
      if (model.get(name) === value) return received(value);
      model.set(name, value);
      set(value);
    });
    end.addEventListener("abort", dispose, { once: true });
    return trait;
  }

  /**
   * The hovered token is set in the model, where the other views of it in this page see it. It is not
   * saved, so that moving the pointer sends nothing to the kernel, with two exceptions: Python shares
   * it, or the pointer has left and the kernel still knows of a token.
   */
  const hovered = () =>
    shared(
      "hovered",
      (token) => {
        if (model.get("_shares_hover") === true || (token < 0 && known >= 0)) save();
      },
      (token) => {
        known = token;
      },
    );

  function given<T>(name: string): ReadonlySignal<T> {
    return follow(model, [name], () => model.get(name) as T, end);
  }

  return {
    layer: shared("layer"),
    head: shared("head"),
    target: shared("target"),
    source: shared("source"),
    hovered: hovered(),
    kind: shared("kind"),
    theme: shared("theme"),
    candidates: shared("candidates"),
    metric: shared("metric"),
    tokens: given("_tokens"),
    about: given("_about"),
    kinds: given("_kinds"),
    terms: given("_terms"),
    payload: follow(
      model,
      ["_arrays", "_data", "_remote"],
      () => ({
        specs: model.get("_arrays") as Payload["specs"],
        data: model.get("_data") as Bytes,
        remote: model.get("_remote") as string[],
      }),
      end,
    ),
  };
}
