import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { count } from "../draw/format.ts";
import { type Cell, moved } from "../state/cursor.ts";
import type { Neighbors } from "../state/neighbors.ts";
import { nameOf, type Scene } from "../state/scene.ts";
import "./identity.css";

/** The width of a cell, in pixels; longer texts scroll. */
const NARROWEST = 3;
const WIDEST = 28;

interface Props {
  scene: Scene;
  found: Neighbors;
}

function cellOf(event: Event): Cell | undefined {
  const cell = (event.target as Element).closest<HTMLElement>("[data-token]");
  return cell ? { row: Number(cell.dataset.row), column: Number(cell.dataset.token) } : undefined;
}

/** Which tokens are still their own nearest input embedding, at every layer. */
export function Identity({ scene, found: { recovered, layers, words } }: Props) {
  const { traits, selection } = scene;
  const { layer, target } = traits;
  const n = traits.tokens.value.length;
  const cursor = useSignal<Cell | undefined>(undefined);
  const rows = Array.from({ length: layers }, (_, row) => row);

  const choose = ({ row, column }: Cell) => {
    layer.value = row - 1;
    target.value = column;
  };
  const point = (cell: Cell | undefined) => {
    cursor.value = cell;
    if (cell) selection.hover(cell.column);
    else selection.leave();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const at = cursor.peek() ?? { row: layer.peek() + 1, column: 0 };
    const next = moved(event.key, at, layers, n);
    if (next) point(next);
    else if (event.key === "Enter" || event.key === " ") choose(at);
    else return;
    event.preventDefault();
  };

  // Thousands of cells: made once, not again for every move of the pointer.
  const cells = useMemo(
    () =>
      rows.map((row) =>
        Array.from({ length: n }, (_, token) => (
          <span
            key={token}
            class="prosect-identity-cell"
            data-testid="identity"
            data-row={row}
            data-layer={row - 1}
            data-token={token}
            data-recovered={recovered[row * n + token] ? "true" : undefined}
          />
        )),
      ),
    [recovered, n, layers],
  );
  const counts = useMemo(
    () =>
      rows.map((row) =>
        recovered.subarray(row * n, row * n + n).reduce((sum, one) => sum + one, 0),
      ),
    [recovered, n, layers],
  );

  const at = cursor.value;
  const lit = scene.source.value;
  return (
    <>
      <div
        class="prosect-identity"
        data-dense={layers > 16 || undefined}
        data-fine={n > 60 || undefined}
      >
        <div class="prosect-identity-side">
          {rows.map((row) => (
            <span
              class="prosect-row-number"
              key={row}
              data-current={layer.value === row - 1 || undefined}
            >
              {row}
            </span>
          ))}
        </div>
        <div
          class="prosect-identity-grid"
          role="application"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move over the cells
          tabIndex={0}
          aria-label={`Recovered tokens, ${layers} layers by ${n} tokens. Arrow keys move, Enter pins.`}
          onPointerOver={(event) => {
            const cell = cellOf(event);
            if (cell) point(cell);
          }}
          onPointerLeave={() => point(undefined)}
          onBlur={() => point(undefined)}
          onKeyDown={onKeyDown}
          onClick={(event) => {
            const cell = cellOf(event);
            if (cell) choose(cell);
          }}
        >
          <div
            class="prosect-identity-rows"
            style={{ minWidth: `${n * NARROWEST}px`, maxWidth: `${n * WIDEST}px` }}
          >
            {rows.map((row) => (
              <div
                class="prosect-identity-row"
                key={row}
                data-current={layer.value === row - 1 || undefined}
              >
                {cells[row]}
              </div>
            ))}
            {lit >= 0 && (
              <span
                class="prosect-identity-lit"
                style={{ left: `${(lit / n) * 100}%`, width: `${100 / n}%` }}
              />
            )}
          </div>
        </div>
        <div class="prosect-identity-side">
          {rows.map((row) => (
            <span class="prosect-count" key={row} data-testid="identity-count" data-row={row}>
              {counts[row]}
            </span>
          ))}
        </div>
      </div>
      <p class="prosect-caption prosect-muted">
        {at ? (
          <>
            <bdi>{nameOf(scene, at.column)}</bdi> is{" "}
            {recovered[at.row * n + at.column] ? "recovered" : "not recovered"} at layer {at.row}.
          </>
        ) : words ? (
          `Filled: of ${count(traits.about.value.words)} words, still nearest to its own. Click one to follow it.`
        ) : (
          "Filled: still nearest to its own input embedding. Click one to follow it."
        )}
      </p>
    </>
  );
}
