import { type Signal, useComputed, useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { Loaded } from "../arrays.ts";
import { useWidth } from "../canvas.ts";
import { share } from "../format.ts";
import { labelWidth } from "../measure.ts";
import { nameOf, type Scene } from "../scene.ts";
import { Identity } from "./identity.tsx";
import { Pane } from "./pane.tsx";
import { Status } from "./status.tsx";
import { TokenName } from "./token.tsx";

const METRICS = [
  { name: "cosine", label: "cosine", hint: "by angle: larger is nearer" },
  { name: "l2", label: "L2", hint: "by distance: smaller is nearer" },
] as const;

type Metric = (typeof METRICS)[number]["name"];

/** A chip holds its label, within reason, and its score. */
const NARROWEST = 84;
const WIDEST = 132;

interface Found {
  ids: Uint16Array;
  scores: Float32Array;
  recovered: Uint8Array;
  layers: number;
  n: number;
  k: number;
}

function find({ arrays }: Scene, metric: Metric): Loaded<Found> {
  const ids = arrays.get(`neighbors/${metric}/ids`);
  const scores = arrays.get(`neighbors/${metric}/scores`);
  const recovered = arrays.get(`recovered/${metric}`);
  if (ids.state !== "ready") return ids;
  if (scores.state !== "ready") return scores;
  if (recovered.state !== "ready") return recovered;
  const [layers = 0, n = 0, k = 0] = ids.value.shape;
  return {
    state: "ready",
    value: {
      ids: ids.value.slice() as Uint16Array,
      scores: scores.value.slice() as Float32Array,
      recovered: recovered.value.slice() as Uint8Array,
      layers,
      n,
      k,
    },
  };
}

function Chip({
  scene,
  token,
  score,
  own,
}: {
  scene: Scene;
  token: number;
  score: number;
  own: boolean;
}) {
  const { selection } = scene;
  const lit = useComputed(() => scene.source.value === token);
  return (
    <button
      type="button"
      class="prosect-chip"
      data-testid="neighbor"
      data-token={token}
      data-own={own || undefined}
      data-lit={lit.value || undefined}
      title={`${nameOf(scene, token)} ${share(score)}${own ? ": the token itself" : ""}`}
      onPointerEnter={() => selection.hover(token)}
      onPointerLeave={selection.leave}
      onFocus={() => selection.hover(token)}
      onBlur={selection.leave}
      onClick={() => selection.toggleTarget(token)}
    >
      <span class="prosect-chip-name">
        <TokenName scene={scene} token={token} />
      </span>
      <span class="prosect-number">{share(score)}</span>
    </button>
  );
}

/** The nearest input embeddings of one token, layer by layer. */
function Path({ scene, found, target }: { scene: Scene; found: Found; target: number }) {
  const { layer } = scene.traits;
  const [box, width] = useWidth(300);
  const { ids, scores, recovered, layers, n, k } = found;
  const chip = useMemo(() => {
    const names = scene.traits.tokens.value.map((_, token) => labelWidth(nameOf(scene, token)));
    return Math.min(WIDEST, Math.max(NARROWEST, ...names.map((name) => name + 50)));
  }, [scene, scene.traits.tokens.value]);
  const count = Math.max(1, Math.min(k, Math.floor((width.value - 24) / chip)));
  const rows = Array.from({ length: layers }, (_, row) => row);
  const kept = rows.filter((row) => recovered[row * n + target]).length;
  return (
    <div ref={box}>
      <div class="prosect-paths" style={{ "--prosect-chips": count }}>
        {rows.map((row) => (
          <div
            key={row}
            class="prosect-path"
            data-testid="neighbor-row"
            data-layer={row - 1}
            data-row={row}
            data-current={layer.value === row - 1 || undefined}
          >
            <button
              type="button"
              class="prosect-row-number"
              aria-label={`Choose layer ${row}`}
              aria-pressed={layer.value === row - 1}
              onClick={() => {
                layer.value = row - 1;
              }}
            >
              {row}
            </button>
            {Array.from({ length: count }, (_, place) => {
              const at = (row * n + target) * k + place;
              const token = ids[at] as number;
              return (
                <Chip
                  key={token}
                  scene={scene}
                  token={token}
                  score={scores[at] as number}
                  own={token === target}
                />
              );
            })}
          </div>
        ))}
      </div>
      <p class="prosect-caption prosect-muted" data-testid="recovered">
        <span class="prosect-holds">Green</span>: the token itself. Recovered at {kept} of {layers}{" "}
        layers.
      </p>
    </div>
  );
}

function MetricSwitch({ metric }: { metric: Signal<Metric> }) {
  return (
    <span class="prosect-switch">
      {METRICS.map(({ name, label, hint }) => (
        <button
          key={name}
          type="button"
          class="prosect-quiet"
          data-testid="metric"
          data-metric={name}
          aria-pressed={metric.value === name}
          title={hint}
          onClick={() => {
            metric.value = name;
          }}
        >
          {label}
        </button>
      ))}
    </span>
  );
}

export function NeighborsPane({ scene }: { scene: Scene }) {
  const metric = useSignal<Metric>("cosine");
  const found = useComputed(() => find(scene, metric.value));
  const target = scene.target.value;
  const one = target >= 0;
  const loaded = found.value;
  return (
    <Pane
      name="neighbors"
      title={one ? "Nearest input embeddings" : "Recovered tokens"}
      detail={<MetricSwitch metric={metric} />}
    >
      {loaded.state !== "ready" ? (
        <Status of={loaded} what="the neighbours" />
      ) : one ? (
        <Path scene={scene} found={loaded.value} target={target} />
      ) : (
        <Identity scene={scene} recovered={loaded.value.recovered} layers={loaded.value.layers} />
      )}
    </Pane>
  );
}
