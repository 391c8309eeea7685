import { TermsPane } from "../panes/terms.tsx";
import type { Scene } from "../scene.ts";

export function TermBars({ scene }: { scene: Scene }) {
  return <TermsPane scene={scene} />;
}
