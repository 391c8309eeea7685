import { MapPane } from "../panes/map.tsx";
import { NeighborsPane } from "../panes/neighbors.tsx";
import { Overview } from "../panes/overview.tsx";
import { TermsPane } from "../panes/terms.tsx";
import type { Scene } from "../scene.ts";

/** From the whole to the one: all heads, the open map, the chosen token's story. */
export function Explorer({ scene }: { scene: Scene }) {
  return (
    <div class="prosect-columns">
      <Overview scene={scene} />
      <MapPane scene={scene} />
      <div class="prosect-story">
        <TermsPane scene={scene} />
        <NeighborsPane scene={scene} />
      </div>
    </div>
  );
}
