import { effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { listen, type Model, type Payload } from "./bridge.ts";
import { bytesOf, Tensor } from "./decode.ts";
import type { Bytes, Spec } from "./traits.ts";

/** The state of something that is fetched: it is there, on its way, or cannot be had. */
export type Loaded<T> =
  | { state: "loading" }
  | { state: "ready"; value: T }
  | { state: "error"; message: string; retry?: () => void };

export const SILENCE = "The kernel does not answer: run the cell again.";
const PATIENCE = 20_000; // milliseconds

interface Reply {
  reply?: string;
  working?: boolean;
  spec?: Spec;
  error?: string;
}

interface Waiting {
  settle(reply: Reply, buffers: Bytes[]): void;
  fail(message: string): void;
}

function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The arrays of one view: those that came with it, and those that the kernel keeps until asked. */
export class Arrays {
  private readonly found = new Map<string, Signal<Loaded<Tensor>>>();
  private readonly waiting = new Map<string, Waiting>();
  private silence: ReturnType<typeof setTimeout> | undefined;
  private readonly prefix = Math.random().toString(36).slice(2);
  private asked = 0;
  private readonly version = signal(0);

  constructor(
    private readonly payload: ReadonlySignal<Payload>,
    private readonly model: Model,
    private readonly end: AbortSignal,
  ) {
    listen(
      model,
      "msg:custom",
      (content: Reply, buffers: Bytes[] = []) => this.hear(content, buffers),
      end,
    );
    end.addEventListener("abort", () => clearTimeout(this.silence), { once: true });
    let first = true;
    const dispose = effect(() => {
      this.payload.value;
      if (first) {
        first = false;
        return;
      }
      this.found.clear();
      this.version.value = this.version.peek() + 1;
    });
    end.addEventListener("abort", dispose, { once: true });
  }

  has(name: string): boolean {
    const { specs, remote } = this.payload.value;
    return name in specs || remote.includes(name);
  }

  /** The array of that name; a remote one is asked for on first use. */
  get(name: string): Loaded<Tensor> {
    this.version.value;
    let array = this.found.get(name);
    if (!array) {
      array = signal(this.open(name));
      this.found.set(name, array);
    }
    return array.value;
  }

  private open(name: string): Loaded<Tensor> {
    const { specs, data, remote } = this.payload.peek();
    const spec = specs[name];
    try {
      if (spec) {
        const bytes = bytesOf(data).subarray(spec.offset, spec.offset + spec.nbytes);
        return { state: "ready", value: new Tensor(spec, bytes) };
      }
    } catch (error) {
      return { state: "error", message: sentence(error) };
    }
    if (!remote.includes(name)) {
      return { state: "error", message: `This view was made without ${name}.` };
    }
    // Later, because this may run inside a computed signal, where an immediate reply could not be written.
    queueMicrotask(() => this.ask(name));
    return { state: "loading" };
  }

  private ask(name: string): void {
    const array = this.found.get(name);
    if (!array || this.end.aborted) return;
    this.asked += 1;
    const request = `${this.prefix}-${this.asked}`;
    const finish = (loaded: Loaded<Tensor>) => {
      this.waiting.delete(request);
      if (this.waiting.size === 0) clearTimeout(this.silence);
      array.value = loaded;
    };
    const fail = (message: string) =>
      finish({
        state: "error",
        message,
        retry: () => {
          array.value = { state: "loading" };
          this.ask(name);
        },
      });
    const settle = ({ error, spec }: Reply, [buffer]: Bytes[]) => {
      if (error !== undefined) return fail(error);
      if (!spec || !buffer) return fail("The kernel sent an answer without an array.");
      try {
        finish({ state: "ready", value: new Tensor(spec, bytesOf(buffer)) });
      } catch (problem) {
        fail(sentence(problem));
      }
    };
    this.waiting.set(request, { settle, fail });
    if (this.waiting.size === 1) this.listen();
    try {
      this.model.send({ request, array: name });
    } catch (problem) {
      fail(sentence(problem));
    }
  }

  private hear(content: Reply, buffers: Bytes[]): void {
    // The kernel computes this array. It answers the other requests after it, however long that takes.
    if (content?.working) {
      clearTimeout(this.silence);
      return;
    }
    this.waiting.get(content?.reply ?? "")?.settle(content, buffers);
    if (this.waiting.size > 0) this.listen();
  }

  /** Start to wait for the next answer: without one in time, the requests that are open fail. */
  private listen(): void {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      for (const { fail } of [...this.waiting.values()]) fail(SILENCE);
    }, PATIENCE);
  }
}
