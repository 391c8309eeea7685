import type { Model } from "./model/bridge.ts";
import { type PageState, stubModel } from "./model/stub.ts";
import { PAGE_CLASS } from "./model/traits.ts";

interface Module {
  default: { render(shown: { model: Model; el: Element }): unknown };
}

async function start(el: Element): Promise<void> {
  document.documentElement.classList.add(PAGE_CLASS);
  const text = document.querySelector("#prosect-state")?.textContent;
  if (!text) throw new Error("its data is missing.");
  const page = JSON.parse(text) as PageState;
  const model = await stubModel(page);
  Object.assign(globalThis, { prosect: { model } });
  const address = URL.createObjectURL(new Blob([page.module], { type: "text/javascript" }));
  try {
    const module = (await import(address)) as Module;
    module.default.render({ model, el });
  } finally {
    URL.revokeObjectURL(address);
  }
}

const el = document.querySelector("#prosect");
if (el) {
  start(el).catch((error: unknown) => {
    const reason = error instanceof Error ? error.message : String(error);
    el.textContent = `This page could not be shown: ${reason}`;
  });
}
