import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { useWidth } from "../draw/canvas.ts";
import { count, share } from "../draw/format.ts";
import { shortened } from "../draw/labels.ts";
import { labelWidth } from "../draw/measure.ts";
import type { Candidates, Metric } from "../model/traits.ts";
import { type Neighbors, neighborsOf, offers, type Word } from "../state/neighbors.ts";
import { nameOf, type Scene } from "../state/scene.ts";
import { Identity } from "./identity.tsx";
import { Pane } from "./pane.tsx";
import { Status } from "./status.tsx";
import { type Choice, Switch } from "./switch.tsx";
import { TokenName } from "./token.tsx";
import "./neighbors.css";

const METRICS: Choice<Metric>[] = [
  { name: "cosine", label: "cosine", hint: "by angle: larger is nearer" },
  { name: "l2", label: "L2", hint: "by distance: smaller is nearer" },
];
const CANDIDATES: Choice<Candidates>[] = [
  {
    name: "sentence",
    label: "sentence",
    hint: "among the input embeddings of this sentence's own tokens",
  },
  {
    name: "vocabulary",
    label: "vocabulary",
    hint: "among the word embeddings of the model's whole vocabulary",
  },
];

/** A chip holds its label, within reason, and its score. */
const NARROWEST = 84;
const WIDEST = 132;

/** How many chips stand side by side, all as wide as the widest of them wants to be; at least one. */
export function fit(chips: number[], width: number): number {
  let widest = NARROWEST;
  let fitting = 0;
  for (const chip of chips) {
    widest = Math.min(WIDEST, Math.max(widest, chip));
    if ((fitting + 1) * widest > width) break;
    fitting += 1;
  }
  return Math.max(1, fitting);
}

interface ChipProps {
  token: number;
  score: number;
  own: boolean;
  lit: boolean;
  /** Whether it stays lit, where a press keeps it so. */
  kept?: boolean;
  title: string;
  children: ComponentChildren;
  point(): void;
  leave(): void;
  press(): void;
}

function Chip({ token, score, own, lit, kept, title, children, point, leave, press }: ChipProps) {
  return (
    <button
      type="button"
      class="prosect-chip"
      data-testid="neighbor"
      data-token={token}
      data-own={own || undefined}
      data-lit={lit || undefined}
      aria-pressed={kept}
      title={`${title}${own ? ": the token itself" : ""}`}
      onPointerEnter={point}
      onPointerLeave={leave}
      onFocus={point}
      onBlur={leave}
      onClick={press}
    >
      <span class="prosect-chip-name">{children}</span>
      <span class="prosect-number">{share(score)}</span>
    </button>
  );
}

interface NeighborProps {
  scene: Scene;
  target: number;
  score: number;
}

/** A token of the sentence: lit and pinned here, it is lit and pinned everywhere. */
function TokenChip({ scene, token, target, score }: NeighborProps & { token: number }) {
  const { selection } = scene;
  const lit = useComputed(() => scene.source.value === token);
  return (
    <Chip
      token={token}
      score={score}
      own={token === target}
      lit={lit.value}
      title={`${nameOf(scene, token)} ${share(score)}`}
      point={() => selection.hover(token)}
      leave={selection.leave}
      press={() => selection.toggleTarget(token)}
    >
      <TokenName scene={scene} token={token} />
    </Chip>
  );
}

/** The word under the pointer, and the one that stays lit: as indices in the vocabulary. */
interface Followed {
  pointed: Signal<number>;
  kept: Signal<number>;
}

/** A word of the vocabulary: lit at every layer where it occurs, and in the sentence if it is there. */
function WordChip({
  scene,
  word: { label, token },
  target,
  score,
  followed: { pointed, kept },
}: NeighborProps & { word: Word; followed: Followed }) {
  const { selection } = scene;
  const { tokens } = scene.traits;
  const own = tokens.value[target]?.id === token;
  const lit = useComputed(() => {
    const followed = pointed.value >= 0 ? pointed.value : kept.value;
    return followed === token || tokens.value[scene.source.value]?.id === token;
  });
  return (
    <Chip
      token={token}
      score={score}
      own={own}
      lit={lit.value}
      kept={kept.value === token}
      title={`${shortened(label)} ${share(score)} · ${token} in the vocabulary`}
      point={() => {
        pointed.value = token;
        const here = own ? target : tokens.peek().findIndex(({ id }) => id === token);
        if (here >= 0) selection.hover(here);
      }}
      leave={() => {
        pointed.value = -1;
        selection.leave();
      }}
      press={() => {
        kept.value = kept.peek() === token ? -1 : token;
      }}
    >
      <bdi class="prosect-name">{label}</bdi>
    </Chip>
  );
}

interface PathProps {
  scene: Scene;
  found: Neighbors;
  target: number;
  followed: Followed;
}

/** The nearest input embeddings of one token, layer by layer. */
function Path({ scene, found, target, followed }: PathProps) {
  const { layer, tokens, about } = scene.traits;
  const [box, width] = useWidth(300);
  const { ids, scores, recovered, words, layers, n, k } = found;
  const rows = Array.from({ length: layers }, (_, row) => row);
  const chips = useMemo(() => {
    const name = (id: number) => words?.[id]?.label ?? nameOf(scene, id);
    return Array.from({ length: k }, (_, place) => {
      const names = rows.map((row) => name(ids[(row * n + target) * k + place] as number));
      return Math.max(...names.map((text) => labelWidth(text))) + 50;
    });
  }, [scene, tokens.value, found, target]);
  const fitting = fit(chips, width.value - 24);
  const kept = rows.filter((row) => row > 0 && recovered[row * n + target]).length;
  return (
    <div ref={box}>
      <div class="prosect-paths" style={{ "--prosect-chips": fitting }}>
        {rows.map((row) => {
          const nearest = recovered[row * n + target] === 1;
          return (
            <div
              key={row}
              class="prosect-path"
              data-testid="neighbor-row"
              data-layer={row - 1}
              data-row={row}
              data-recovered={nearest || undefined}
              data-current={layer.value === row - 1 || undefined}
            >
              <button
                type="button"
                class="prosect-row-number"
                aria-label={`Choose layer ${row}${nearest ? ", recovered" : ""}`}
                aria-pressed={layer.value === row - 1}
                onClick={() => {
                  layer.value = row - 1;
                }}
              >
                {row}
              </button>
              {Array.from({ length: fitting }, (_, place) => {
                const at = (row * n + target) * k + place;
                const id = ids[at] as number;
                const shown = { scene, target, score: scores[at] as number };
                const word = words?.[id];
                return word ? (
                  <WordChip key={id} word={word} followed={followed} {...shown} />
                ) : (
                  <TokenChip key={id} token={id} {...shown} />
                );
              })}
            </div>
          );
        })}
      </div>
      <p class="prosect-caption prosect-muted" data-testid="recovered">
        <span class="prosect-holds">Green</span>: the token itself, filled where it is nearest
        {words && ` of ${count(about.value.words)} words`}. Recovered at {kept} of {layers - 1}{" "}
        layers
        {recovered[target] === 1 && " and in the embeddings"}.
      </p>
    </div>
  );
}

/** The choices of candidates and metric that this view has arrays for. */
function Switches({ scene }: { scene: Scene }) {
  const { arrays, traits } = scene;
  const { candidates, metric } = traits;
  return (
    <span class="prosect-switches">
      <Switch
        name="candidates"
        label="Candidates"
        chosen={candidates}
        choices={CANDIDATES.filter(({ name }) => offers(arrays, name, metric.value))}
      />
      <Switch
        name="metric"
        label="Metric"
        chosen={metric}
        choices={METRICS.filter(({ name }) => offers(arrays, candidates.value, name))}
      />
    </span>
  );
}

export function NeighborsPane({ scene }: { scene: Scene }) {
  const { candidates, metric, about } = scene.traits;
  const followed = { pointed: useSignal(-1), kept: useSignal(-1) };
  const found = useComputed(() => neighborsOf(scene.arrays, candidates.value, metric.value));
  const target = scene.target.value;
  const one = target >= 0;
  const loaded = found.value;
  const among = candidates.value === "vocabulary" ? "words of the vocabulary" : "input embeddings";
  return (
    <Pane
      name="neighbors"
      title={one ? `Nearest ${among}` : "Recovered tokens"}
      detail={<Switches scene={scene} />}
    >
      {loaded.state !== "ready" ? (
        // As high as the neighbors will be, so that nothing below moves when they come.
        <div style={{ minHeight: `${(about.value.layers + 1) * (one ? 29 : 20) + 26}px` }}>
          <Status of={loaded} what="the neighbors" />
        </div>
      ) : one ? (
        <Path scene={scene} found={loaded.value} target={target} followed={followed} />
      ) : (
        <Identity scene={scene} found={loaded.value} />
      )}
    </Pane>
  );
}
