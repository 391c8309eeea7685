import { thinned } from "../draw/labels.ts";
import type { Scene } from "../state/scene.ts";
import { TokenName, tooltip } from "./token.tsx";
import "./axis.css";

interface Props {
  scene: Scene;
  side: "row" | "column";
  cell: number;
  /** The row under the pointer, -1 for none. */
  row: number;
}

/** Pixels that one label takes along its axis; slanted ones need more. */
const GAP = { row: 14, column: 17 };

/** The tokens along one side of the map: as many as fit, and always those that are selected. */
export function Axis({ scene, side, cell, row }: Props) {
  const { traits, selection } = scene;
  const tokens = traits.tokens.value;
  const target = scene.target.value;
  const source = scene.source.value;
  const shown = thinned(
    tokens.length,
    cell,
    GAP[side],
    side === "row" ? [target, row, source] : [source, target],
  );
  const crowded = cell < GAP[side];
  const press = side === "row" ? selection.toggleTarget : selection.toggleSource;
  return (
    <div
      class={`prosect-axis prosect-axis-${side}`}
      data-testid={`axis-${side}`}
      aria-hidden="true"
    >
      {shown.map((token) => {
        const selected = token === target || token === source || (side === "row" && token === row);
        return (
          <button
            key={token}
            type="button"
            tabIndex={-1}
            class="prosect-label"
            data-testid={`label-${side}`}
            data-token={token}
            data-special={tokens[token]?.special || undefined}
            data-pinned={token === target || undefined}
            data-lit={token === source || undefined}
            data-hovered={(side === "row" && token === row) || undefined}
            data-over={(crowded && selected) || undefined}
            title={tooltip(scene, token)}
            style={{ [side === "row" ? "top" : "left"]: `${(token + 0.5) * cell}px` }}
            onPointerEnter={() => selection.hover(token)}
            onPointerLeave={selection.leave}
            onClick={() => press(token)}
          >
            <TokenName scene={scene} token={token} quiet />
          </button>
        );
      })}
    </div>
  );
}
