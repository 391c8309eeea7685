import { useComputed } from "@preact/signals";
import { ARRAY, change, headsOf, identifiable, seen, size } from "../state/identifiability.ts";
import type { Scene } from "../state/scene.ts";
import { Status } from "./status.tsx";
import "./identifiability.css";

const SAME = "attention weights with rows summing to one would give the same output";
const SOURCE = "(Brunner et al. 2020)";
const RANK =
  "The rank is that of the value vectors as the head writes them, n the number of tokens";

/** What the line means, in full sentences. */
function meaning(one: boolean, determined: boolean, partly: boolean): string {
  const others = determined ? "No other" : "Other";
  const found = one ? `${others} ${SAME}` : `A head is identifiable where no other ${SAME}`;
  const most = partly ? "; this is for the row that sees most tokens, others see fewer" : "";
  return `${found} ${SOURCE}. ${RANK}${most}.`;
}

/** Whether the attention of the open head, or of the heads of the layer, is identifiable. */
export function IdentifiabilityLine({ scene }: { scene: Scene }) {
  const { layer, head, about } = scene.traits;
  const loaded = useComputed(() => scene.arrays.get(ARRAY));
  if (loaded.value.state !== "ready") return <Status of={loaded.value} what="its rank" />;
  const heads = headsOf(loaded.value.value, layer.value);
  const { tokens: n, causal } = about.value;
  const one = heads[head.value];
  const settled = heads.filter(identifiable).length;
  const partly = causal || heads.some((other) => seen(other) < n);
  const determined = one ? identifiable(one) : settled === heads.length;
  return (
    <p
      class="prosect-identifiability prosect-muted"
      data-testid="identifiability"
      data-identifiable={determined}
      title={meaning(!!one, determined, partly)}
    >
      {one ? (
        <>
          {size(n, one)} · rank {one.rank} · {change(one)}:{" "}
          <span class={determined ? "prosect-holds" : "prosect-open"}>
            {determined ? "identifiable" : "not identifiable"}
          </span>
        </>
      ) : (
        <>
          n {n} ·{" "}
          <span class={determined ? "prosect-holds" : "prosect-open"}>
            {settled} of {heads.length} heads identifiable
          </span>
        </>
      )}
    </p>
  );
}
