import { useWidth } from "./canvas.ts";
import { Footer } from "./panes/footer.tsx";
import { Header } from "./panes/header.tsx";
import { Strip } from "./panes/strip.tsx";
import type { Scene } from "./scene.ts";
import type { ViewName } from "./traits.ts";
import { Explorer } from "./views/explorer.tsx";
import { Heatmap } from "./views/heatmap.tsx";
import { Neighbors } from "./views/neighbors.tsx";
import { TermBars } from "./views/term_bars.tsx";

const VIEWS = { heatmap: Heatmap, term_bars: TermBars, neighbors: Neighbors, explorer: Explorer };

function layoutFor(width: number): string {
  if (width >= 1000) return "wide";
  return width >= 520 ? "medium" : "narrow";
}

/** The frame that all views share: the strip of tokens on top, and the view below. */
export function Root({ scene, view }: { scene: Scene; view: ViewName }) {
  const [box, width] = useWidth(1000);
  const View = VIEWS[view];
  if (!View) throw new Error(`There is no view named “${view}”.`);
  const whole = view === "explorer";
  return (
    <div
      ref={box}
      class="prosect"
      data-view={view}
      data-theme={scene.shade.value}
      data-follows={scene.traits.theme.value === "auto" ? "host" : undefined}
      data-layout={layoutFor(width.value)}
      // JupyterLab takes keys before they get here, unless told not to.
      data-lm-suppress-shortcuts="true"
    >
      {whole && <Header scene={scene} />}
      <Strip scene={scene} />
      <View scene={scene} />
      {(whole || view === "term_bars") && <Footer scene={scene} />}
    </div>
  );
}
