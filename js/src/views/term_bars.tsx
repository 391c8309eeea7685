import { Footer } from "../panes/footer.tsx";
import { Strip } from "../panes/strip.tsx";
import { TermsPane } from "../panes/terms.tsx";
import type { Scene } from "../state/scene.ts";

/** The terms, with the certificate of their sum below. */
export function TermBars({ scene }: { scene: Scene }) {
  return (
    <>
      <Strip scene={scene} />
      <TermsPane scene={scene} />
      <Footer scene={scene} />
    </>
  );
}
