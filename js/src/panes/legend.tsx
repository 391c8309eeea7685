import { gradient, type Ramp } from "../draw/colour.ts";
import { value } from "../draw/format.ts";
import type { Scene } from "../state/scene.ts";
import "./legend.css";

interface RampProps {
  scene: Scene;
  ramp: Ramp;
  top: number;
  name?: string;
}

/** A ramp with the values at its ends and middle, and the tokens that it is for. */
function RampKey({ scene, ramp, top, name }: RampProps) {
  const signed = ramp === "diverging";
  return (
    <span class="prosect-ramp-box" data-ramp={ramp}>
      <span class="prosect-ramp" style={{ background: gradient(scene.shade.value, ramp) }} />
      <span class="prosect-ramp-values">
        <span data-testid="legend-min">{signed ? value(-top) : "0"}</span>
        {/* The square root puts a quarter of the range at the middle of the ramp. */}
        <span>{ramp === "aside" ? "" : signed ? "0" : value(top / 4)}</span>
        <span data-testid="legend-max">{value(top)}</span>
      </span>
      {name && <span class="prosect-ramp-name">{name}</span>}
    </span>
  );
}

/** What the map's colours mean, and which tokens have a scale of their own. */
export function Legend({ scene }: { scene: Scene }) {
  const { maps, traits } = scene;
  const { top, asideTop, aside } = maps.scale.value;
  const apart = aside.some(Boolean);
  const special = traits.tokens.value.some((token) => token.special);
  const who = special ? "special tokens" : "first token";
  return (
    <div class="prosect-legend" data-testid="legend">
      <RampKey
        scene={scene}
        ramp={maps.kind.value?.signed ? "diverging" : "sequential"}
        top={top}
        name="square-root scale"
      />
      {apart && <RampKey scene={scene} ramp="aside" top={asideTop} name={who} />}
      {maps.divisible.value && (
        <button
          type="button"
          class="prosect-link"
          data-testid="scale-toggle"
          title={
            maps.apart.value
              ? `The ${who} would hide the rest, so they are grey, on a scale of their own`
              : `Show the ${who} in grey, on a scale of their own`
          }
          onClick={() => {
            maps.apart.value = !maps.apart.peek();
          }}
        >
          {maps.apart.value ? "one scale" : `set ${who} apart`}
        </button>
      )}
    </div>
  );
}
