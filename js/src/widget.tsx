// The base style comes first, so that the rules of the panes go before it.
import "./base.css";
import "./page.css";
import { render as mount } from "preact";
import { useMemo } from "preact/hooks";
import type { Model } from "./model/bridge.ts";
import { createScene } from "./state/scene.ts";
import { Boundary } from "./views/boundary.tsx";
import { Root } from "./views/root.tsx";

interface Shown {
  model: Model;
  el: HTMLElement;
  /** Ends with the view, in hosts that know of it. */
  signal?: AbortSignal;
}

/** Keys that act in a view. Hosts bind some of them to their cells. */
const OWN_KEYS = /^(Arrow|Enter$| $|Home$|End$)/;

interface Begun {
  model: Model;
  element: Element;
  end: AbortSignal;
}

/** Reads the model inside the boundary, so that an error in its data is shown to the reader too. */
function Start({ model, element, end }: Begun) {
  const scene = useMemo(() => createScene(model, element, end), [model, element, end]);
  return <Root scene={scene} view={model.get("_view") as string} />;
}

/** Shows a view of the model in `el`. What it subscribes to ends with the returned cleanup. */
function render({ model, el, signal }: Shown): () => void {
  const end = new AbortController();
  const cleanup = () => {
    if (end.signal.aborted) return;
    end.abort();
    mount(null, el);
  };
  signal?.addEventListener("abort", cleanup, { once: true });
  el.addEventListener(
    "keydown",
    (event) => {
      if (OWN_KEYS.test(event.key)) event.stopPropagation();
    },
    { signal: end.signal },
  );
  mount(
    <Boundary>
      <Start model={model} element={el} end={end.signal} />
    </Boundary>,
    el,
  );
  return cleanup;
}

export default { render };
