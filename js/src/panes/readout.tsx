import type { Cell } from "../cursor.ts";
import { value } from "../format.ts";
import { rank } from "../matrix.ts";
import { nameOf, type Scene } from "../scene.ts";

/** One cell in words: both tokens, the value, and its rank among the sources of that target. */
export function cellText(scene: Scene, { row, column }: Cell): string {
  const { about } = scene.traits;
  const open = scene.maps.open.value;
  if (open.state !== "ready") return "";
  const pair = `${nameOf(scene, row)} → ${nameOf(scene, column)}`;
  const { causal } = about.value;
  if (causal && column > row) return `${pair}  not seen: the model looks only back`;
  const { n, values } = open.value;
  const width = causal ? row + 1 : n;
  const here = values[row * n + column] as number;
  return `${pair}  ${value(here)} · rank ${rank(open.value, row, column, width)} of ${width}`;
}

/** The cell under the pointer, else the selected one, else how to get one. */
export function Readout({ scene, cell }: { scene: Scene; cell: Cell | undefined }) {
  const { target, source } = scene.traits;
  const selected =
    target.value >= 0 && source.value >= 0
      ? { row: target.value, column: source.value }
      : undefined;
  const at = cell ?? selected;
  return (
    <p class="prosect-readout" data-testid="readout" aria-live="polite">
      {at ? (
        <bdi>{cellText(scene, at)}</bdi>
      ) : (
        <span class="prosect-muted">Point at a cell for its value; click to pin it.</span>
      )}
    </p>
  );
}
