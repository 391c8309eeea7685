import { value } from "../draw/format.ts";
import { rank } from "../draw/matrix.ts";
import type { Cell } from "../state/cursor.ts";
import { nameOf, type Scene } from "../state/scene.ts";
import "./readout.css";

/** A cell's value, and its rank among the sources that its target can see. */
function reading(scene: Scene, { row, column }: Cell): string {
  const open = scene.maps.open.value;
  if (open.state !== "ready") return "";
  const { causal } = scene.traits.about.value;
  if (causal && column > row) return "not seen: the model only looks back";
  const { n, values } = open.value;
  const width = causal ? row + 1 : n;
  const here = values[row * n + column] as number;
  return `${value(here)} · rank ${rank(open.value, row, column, width)} of ${width}`;
}

/** The cell under the pointer, else the pinned one, else a sentence on how to choose one. */
export function Readout({ scene, cell }: { scene: Scene; cell: Cell | undefined }) {
  const { target, source } = scene;
  const selected =
    target.value >= 0 && source.value >= 0
      ? { row: target.value, column: source.value }
      : undefined;
  const at = cell ?? selected;
  return (
    <p class="prosect-readout" data-testid="readout" aria-live="polite">
      {at ? (
        <>
          <bdi>{nameOf(scene, at.row)}</bdi> → <bdi>{nameOf(scene, at.column)}</bdi>
          {"  "}
          {reading(scene, at)}
        </>
      ) : (
        <span class="prosect-muted">Point at a cell for its value; click to pin it.</span>
      )}
    </p>
  );
}
