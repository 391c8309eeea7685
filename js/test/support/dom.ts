import { Window } from "happy-dom";

/** Puts a browser's globals in place. Canvases stay blank: their drawing is tested as pixels elsewhere. */
export function browser(): void {
  const window = new Window({ url: "https://example.org/" });
  const names = [
    "window",
    "document",
    "HTMLElement",
    "Element",
    "Event",
    "MouseEvent",
    "PointerEvent",
    "KeyboardEvent",
    "MutationObserver",
    "ResizeObserver",
    "IntersectionObserver",
    "ShadowRoot",
    "getComputedStyle",
    "requestAnimationFrame",
    "cancelAnimationFrame",
  ] as const;
  for (const name of names) {
    const value = name === "window" ? window : (window as unknown as Record<string, unknown>)[name];
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
}
