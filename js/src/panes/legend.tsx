import { ramp } from "../colour.ts";
import { value } from "../format.ts";
import type { Scene } from "../scene.ts";

const STOPS = Array.from({ length: 13 }, (_, i) => i / 12);

/** What the map's colours mean, and which tokens are left out of the scale. */
export function Legend({ scene }: { scene: Scene }) {
  const { maps, shade, traits } = scene;
  const { top, whole, divisible } = maps.scale.value;
  const signed = maps.kind.value?.signed ?? false;
  const colour = ramp(shade.value, signed);
  const clamped = divisible && maps.apart.value;
  const who = traits.tokens.value.some(({ special }) => special)
    ? "special tokens"
    : "the first token";
  return (
    <div class="prosect-legend" data-testid="legend">
      <span class="prosect-ramp-box">
        <span
          class="prosect-ramp"
          style={{ background: `linear-gradient(to right, ${STOPS.map(colour).join(", ")})` }}
        />
        <span class="prosect-ramp-values">
          <span data-testid="legend-min">{signed ? value(-top) : "0"}</span>
          {/* The square root puts a quarter of the range at the middle of the ramp. */}
          <span>{signed ? "0" : value(top / 4)}</span>
          <span data-testid="legend-max">
            {clamped && "≥ "}
            {value(top)}
          </span>
        </span>
      </span>
      <span class="prosect-muted prosect-scale-note">
        square-root scale
        {divisible && (
          <>
            {clamped ? ` without ${who} (up to ${value(whole)}) ` : ` with ${who} `}
            <button
              type="button"
              class="prosect-link"
              data-testid="scale-toggle"
              onClick={() => {
                maps.apart.value = !maps.apart.peek();
              }}
            >
              {clamped ? "include" : "leave out"}
            </button>
          </>
        )}
      </span>
    </div>
  );
}
