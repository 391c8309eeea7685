import { magnitude } from "../draw/format.ts";
import type { Theme } from "../model/traits.ts";
import type { Scene } from "../state/scene.ts";
import "./footer.css";

const THEMES: Theme[] = ["auto", "light", "dark"];

function Certificate({ scene }: { scene: Scene }) {
  const { certificate } = scene.traits.about.value;
  return (
    <span class="prosect-holds" data-testid="certificate">
      ✓ parts sum to the hidden state within {magnitude(certificate)}
    </span>
  );
}

/** The certificate of the sum, the type of the numbers, and the switch between themes. */
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
