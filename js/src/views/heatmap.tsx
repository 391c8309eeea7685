import { Kinds } from "../panes/kinds.tsx";
import { MapPane } from "../panes/map.tsx";
import { Strip } from "../panes/strip.tsx";
import type { Scene } from "../state/scene.ts";

/** One map, with the choices that the overview and the header offer in the Explorer. */
export function Heatmap({ scene }: { scene: Scene }) {
  return (
    <>
      <Strip scene={scene} />
      <Kinds scene={scene} />
      <MapPane scene={scene} steppers />
    </>
  );
}
