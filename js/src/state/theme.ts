import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { Shade } from "../draw/colour.ts";
import { PAGE_CLASS, type Theme } from "../model/traits.ts";

/** The shade of the nearest painted background behind an element, or undefined if none is painted. */
function behind(element: Element): Shade | undefined {
  for (let at: Element | null = element; at; at = parent(at)) {
    const [red = 0, green = 0, blue = 0, alpha = 1] = (
      getComputedStyle(at).backgroundColor.match(/[\d.]+/g) ?? []
    ).map(Number);
    const painted = /^rgb/.test(getComputedStyle(at).backgroundColor) && alpha > 0.5;
    if (painted) return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128 ? "dark" : "light";
  }
  return undefined;
}

/** The parent, also out of a shadow tree (marimo puts widgets into one). */
function parent(element: Element): Element | null {
  if (element.parentElement) return element.parentElement;
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

/** What the host says about itself: JupyterLab by an attribute, VS Code by a class. */
function declared(): Shade | undefined {
  const { body } = document;
  const jupyter = body.getAttribute("data-jp-theme-light");
  if (jupyter !== null) return jupyter === "false" ? "dark" : "light";
  const { classList } = body;
  if (classList.contains("vscode-light") || classList.contains("vscode-high-contrast-light")) {
    return "light";
  }
  if (classList.contains("vscode-dark") || classList.contains("vscode-high-contrast"))
    return "dark";
  return undefined;
}

function preferred(): MediaQueryList {
  return window.matchMedia("(prefers-color-scheme: dark)");
}

function detect(element: Element): Shade {
  const own = document.documentElement.classList.contains(PAGE_CLASS);
  const seen = own ? undefined : (behind(element) ?? declared());
  return seen ?? (preferred().matches ? "dark" : "light");
}

/** The theme in force, kept up to date while the host changes its own. */
export function resolveTheme(
  theme: ReadonlySignal<Theme>,
  element: Element,
  end: AbortSignal,
): ReadonlySignal<Shade> {
  const host = signal(detect(element));
  const update = () => {
    if (!end.aborted) host.value = detect(element);
  };
  // Hosts announce a theme before its style sheet is loaded and its transitions are over.
  const timers = new Set<ReturnType<typeof setTimeout>>();
  const soon = () => {
    update();
    for (const timer of timers) clearTimeout(timer);
    timers.clear();
    for (const delay of [60, 400, 1500]) timers.add(setTimeout(update, delay));
  };
  const observer = new MutationObserver(soon);
  const attributes = {
    attributes: true,
    attributeFilter: ["class", "style", "data-jp-theme-light", "data-theme"],
  };
  observer.observe(document.documentElement, attributes);
  observer.observe(document.body, attributes);
  observer.observe(document.head, { childList: true });
  preferred().addEventListener("change", soon, { signal: end });
  // The element is not in the page yet when its background is first asked for.
  soon();
  end.addEventListener(
    "abort",
    () => {
      observer.disconnect();
      for (const timer of timers) clearTimeout(timer);
    },
    { once: true },
  );
  return computed(() => (theme.value === "auto" ? host.value : theme.value));
}
