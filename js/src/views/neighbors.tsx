import { NeighborsPane } from "../panes/neighbors.tsx";
import type { Scene } from "../scene.ts";

export function Neighbors({ scene }: { scene: Scene }) {
  return <NeighborsPane scene={scene} />;
}
