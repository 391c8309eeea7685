import { type Signal, useComputed, useSignal } from "@preact/signals";
import { ordinal, share } from "../draw/format.ts";
import { mean } from "../draw/matrix.ts";
import { extent, percent, stack } from "../draw/stack.ts";
import type { Loaded } from "../model/arrays.ts";
import { nameOf, type Scene } from "../state/scene.ts";
import { Pane } from "./pane.tsx";
import { Status } from "./status.tsx";
import "./term_colours.css";
import "./terms.css";

/** The importance of each term for each layer row of one token, or on average over all tokens. */
function rowsOf(
  values: Float32Array,
  terms: number,
  layers: number,
  n: number,
  token: number,
): number[][] {
  return Array.from({ length: layers }, (_, row) =>
    Array.from({ length: terms }, (_, term) => {
      const start = (term * layers + row) * n;
      if (token >= 0) return values[start + token] as number;
      return mean([...values.subarray(start, start + n)].map((v) => [v]))[0] as number;
    }),
  );
}

interface BarProps {
  scene: Scene;
  row: number;
  values: number[];
  shown: boolean[];
  domain: [number, number];
  hovered: Signal<number>;
}

function Bar({ scene, row, values, shown, domain, hovered }: BarProps) {
  const { layer, terms } = scene.traits;
  const at = percent(domain);
  const numbers = values.map((v, i) => `${terms.value[i]?.label} ${share(v)}`).join(", ");
  const current = layer.value === row - 1;
  return (
    <button
      type="button"
      class="prosect-bar"
      data-testid="term-row"
      data-layer={row - 1}
      data-row={row}
      data-current={current || undefined}
      aria-pressed={current}
      aria-label={`Layer ${row}: ${numbers}`}
      onPointerEnter={() => {
        hovered.value = row;
      }}
      onFocus={() => {
        hovered.value = row;
      }}
      onBlur={() => {
        hovered.value = -1;
      }}
      onClick={() => {
        layer.value = row - 1;
      }}
    >
      <span class="prosect-row-number">{row}</span>
      <span class="prosect-track">
        {stack(values, shown).map(({ index, start, end, value }) => (
          <span
            key={index}
            class="prosect-segment"
            data-testid="segment"
            data-term={terms.value[index]?.name}
            data-value={value}
            style={{ left: `${at(start)}%`, width: `${at(end) - at(start)}%` }}
          />
        ))}
      </span>
    </button>
  );
}

/** The terms as a key: press one to leave it out of the bars. Beside each stands its share in one layer. */
function TermKey({
  scene,
  shown,
  values,
}: {
  scene: Scene;
  shown: Signal<boolean[]>;
  values: number[];
}) {
  return (
    <div class="prosect-key" data-testid="terms-key">
      {scene.traits.terms.value.map(({ name, label }, index) => {
        const on = shown.value[index] !== false;
        return (
          <button
            key={name}
            type="button"
            class="prosect-term"
            data-testid="term-toggle"
            data-term={name}
            aria-pressed={on}
            title={on ? `Hide ${label}` : `Show ${label}`}
            onClick={() => {
              shown.value = scene.traits.terms
                .peek()
                .map((_, i) => (shown.peek()[i] !== false) !== (i === index));
            }}
          >
            <span class="prosect-swatch" data-term={name} />
            <span class="prosect-term-label">{label}</span>
            <span class="prosect-number" data-testid="term-value">
              {share(values[index] ?? 0)}
            </span>
          </button>
        );
      })}
    </div>
  );
}

/** A reference line at 0 or 1, named below the bars. */
function Tick({ at, name }: { at: number; name: string }) {
  return (
    <span class="prosect-tick" style={{ left: `${at}%` }}>
      <span class="prosect-tick-name">{name}</span>
    </span>
  );
}

export function TermsPane({ scene }: { scene: Scene }) {
  const { traits, arrays } = scene;
  const hovered = useSignal(-1);
  const shown = useSignal<boolean[]>([]);
  // A pinned token stays; without one, the bars follow the pointer.
  const token = useComputed(() =>
    scene.target.value >= 0 ? scene.target.value : scene.source.value,
  );
  const loaded = useComputed<Loaded<number[][]>>(() => {
    const found = arrays.get("importance");
    if (found.state !== "ready") return found;
    const [terms = 0, layers = 0, n = 0] = found.value.shape;
    return {
      state: "ready",
      value: rowsOf(found.value.slice() as Float32Array, terms, layers, n, token.value),
    };
  });

  const title =
    token.value >= 0 ? (
      <>
        Terms of “<bdi class="prosect-name">{nameOf(scene, token.value)}</bdi>”
      </>
    ) : (
      "Terms, mean over tokens"
    );
  if (loaded.value.state !== "ready") {
    return (
      <Pane name="terms" title={title}>
        <Status of={loaded.value} what="the terms" />
      </Pane>
    );
  }
  const rows = loaded.value.value;
  const domain = extent(rows.map((values) => stack(values, shown.value)));
  const at = percent(domain);
  const read = hovered.value >= 0 ? hovered.value : traits.layer.value + 1;
  return (
    <Pane name="terms" title={title} detail={token.value >= 0 ? "importance by layer" : "by layer"}>
      <div
        class="prosect-bars"
        data-dense={rows.length > 16 || undefined}
        onPointerLeave={() => {
          hovered.value = -1;
        }}
      >
        {rows.map((values, row) => (
          <Bar
            key={row}
            scene={scene}
            row={row}
            values={values}
            shown={shown.value}
            domain={domain}
            hovered={hovered}
          />
        ))}
        <span class="prosect-ticks" aria-hidden="true">
          <Tick at={at(0)} name="0" />
          <Tick at={at(1)} name="1" />
        </span>
      </div>
      <p class="prosect-caption prosect-muted">
        {read === 0 ? "The embeddings" : `Layer ${ordinal(read - 1)}`}
      </p>
      <TermKey scene={scene} shown={shown} values={rows[read] ?? []} />
    </Pane>
  );
}
