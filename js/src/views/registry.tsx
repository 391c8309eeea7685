import type { ComponentType } from "preact";
import { PANES, type RegisteredPane } from "../panes/registry.ts";
import { Strip } from "../panes/strip.tsx";
import type { Scene } from "../state/scene.ts";
import { Explorer } from "./explorer.tsx";
import { Heatmap } from "./heatmap.tsx";
import { TermBars } from "./term_bars.tsx";

type View = ComponentType<{ scene: Scene }>;

/** The view of a single pane. */
function alone({ Content }: RegisteredPane): View {
  return ({ scene }) => (
    <>
      <Strip scene={scene} />
      <Content scene={scene} />
    </>
  );
}

/** What each view shows, by the name that its Python class has. */
export const VIEWS: Record<string, View> = {
  ...Object.fromEntries(Object.entries(PANES).map(([name, pane]) => [name, alone(pane)])),
  explorer: Explorer,
  heatmap: Heatmap,
  term_bars: TermBars,
};
