import { magnitude } from "../format.ts";
import type { Scene } from "../scene.ts";
import type { Theme } from "../traits.ts";

const THEMES: Theme[] = ["auto", "light", "dark"];

function Certificate({ scene }: { scene: Scene }) {
  const { certificate, holds } = scene.traits.about.value;
  return holds ? (
    <span class="prosect-holds" data-testid="certificate" data-holds="true">
      ✓ parts sum to the hidden state within {magnitude(certificate)}
    </span>
  ) : (
    <span class="prosect-problem" data-testid="certificate" data-holds="false" role="alert">
      The parts miss the hidden state by {magnitude(certificate)}: do not rely on these pictures.
    </span>
  );
}

/** How far the pictures can be trusted, and the theme. */
export function Footer({ scene }: { scene: Scene }) {
  const { theme, about } = scene.traits;
  return (
    <footer class="prosect-footer">
      <Certificate scene={scene} />
      <span class="prosect-muted">{about.value.dtype}</span>
      <fieldset class="prosect-themes" aria-label="Theme">
        {THEMES.map((name) => (
          <button
            key={name}
            type="button"
            class="prosect-quiet"
            data-testid="theme"
            data-theme-choice={name}
            aria-pressed={theme.value === name}
            onClick={() => {
              theme.value = name;
            }}
          >
            {name}
          </button>
        ))}
      </fieldset>
    </footer>
  );
}
