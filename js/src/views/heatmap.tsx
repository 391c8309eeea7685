import { Kinds } from "../panes/kinds.tsx";
import { MapPane } from "../panes/map.tsx";
import type { Scene } from "../scene.ts";

export function Heatmap({ scene }: { scene: Scene }) {
  return (
    <>
      <Kinds scene={scene} />
      <MapPane scene={scene} steppers />
    </>
  );
}
