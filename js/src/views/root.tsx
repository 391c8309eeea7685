import { useWidth } from "../draw/canvas.ts";
import type { Scene } from "../state/scene.ts";
import { VIEWS } from "./registry.tsx";

function layoutFor(width: number): string {
  if (width >= 1000) return "wide";
  return width >= 520 ? "medium" : "narrow";
}

/** The element that every view stands in: it carries the theme and the layout for the style sheet. */
export function Root({ scene, view }: { scene: Scene; view: string }) {
  const [box, width] = useWidth(1000);
  const View = VIEWS[view];
  if (!View) throw new Error(`There is no view named “${view}”.`);
  return (
    <div
      ref={box}
      class="prosect"
      data-view={view}
      data-theme={scene.shade.value}
      data-follows={scene.traits.theme.value === "auto" ? "host" : undefined}
      data-layout={layoutFor(width.value)}
      // Without this, JupyterLab handles keys before they reach the view.
      data-lm-suppress-shortcuts="true"
    >
      <View scene={scene} />
    </div>
  );
}
