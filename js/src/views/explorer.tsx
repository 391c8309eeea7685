import { Footer } from "../panes/footer.tsx";
import { Header } from "../panes/header.tsx";
import { PANES, type RegisteredPane } from "../panes/registry.ts";
import { Strip } from "../panes/strip.tsx";
import type { Scene } from "../state/scene.ts";
import "./explorer.css";

/** All panes with one selection: all heads, the open map, and the pinned token layer by layer. */
export function Explorer({ scene }: { scene: Scene }) {
  const shown = (place: RegisteredPane["explorer"]) =>
    Object.entries(PANES)
      .filter(([, { explorer }]) => explorer === place)
      .map(([name, { Content }]) => <Content key={name} scene={scene} />);
  return (
    <>
      <Header scene={scene} />
      <Strip scene={scene} />
      <div class="prosect-columns">
        {shown("column")}
        <div class="prosect-story">{shown("story")}</div>
      </div>
      <Footer scene={scene} />
    </>
  );
}
