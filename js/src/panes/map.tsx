import { useComputed, useSignal } from "@preact/signals";
import { useCanvas, useWidth } from "../draw/canvas.ts";
import { capital, ordinal } from "../draw/format.ts";
import { labelWidth } from "../draw/measure.ts";
import { paint } from "../draw/raster.ts";
import { type Cell, moved, under } from "../state/cursor.ts";
import { ARRAY as IDENTIFIABILITY } from "../state/identifiability.ts";
import type { Scene } from "../state/scene.ts";
import { Axis } from "./axis.tsx";
import { IdentifiabilityLine } from "./identifiability.tsx";
import { Legend } from "./legend.tsx";
import { Pane } from "./pane.tsx";
import { Readout } from "./readout.tsx";
import { Status } from "./status.tsx";
import { Steppers } from "./steppers.tsx";
import "./map.css";

const LARGEST_CELL = 28;
const LONGEST_LABEL = 92;
/** How far the last slanted label leans out of its column. */
const LEAN = 10;
const LARGEST_SIDE = 720;

/** The side of one cell: whole pixels while they suffice, and at most 28 pixels for short texts. */
export function cellSize(available: number, n: number): number {
  const exact = Math.min(available, LARGEST_SIDE) / Math.max(1, n);
  return Math.min(LARGEST_CELL, exact >= 3 ? Math.floor(exact) : exact);
}

/** Lines over the matrix that mark the selection. The matrix itself is not drawn again for them. */
function Crosshair({ scene, size, at }: { scene: Scene; size: number; at: Cell | undefined }) {
  const { target, source } = scene;
  const row = (index: number) => ({ top: `${index * size}px`, height: `${size}px` });
  return (
    <>
      {at && <span class="prosect-cross" style={row(at.row)} />}
      {target.value >= 0 && (
        <span
          class="prosect-pinned-row"
          data-testid="pinned-row"
          data-row={target.value}
          style={row(target.value)}
        />
      )}
      {source.value >= 0 && (
        <span
          class="prosect-lit-column"
          data-testid="lit-column"
          data-token={source.value}
          style={{ left: `${source.value * size}px`, width: `${size}px` }}
        />
      )}
    </>
  );
}

/** Whether the view knows if the attention of the open map is identifiable: only maps of heads have it. */
function hasIdentifiability({ arrays, maps, traits }: Scene): boolean {
  const { layers, heads } = traits.about.value;
  const there = traits.layer.value < layers && traits.head.value < heads;
  return maps.kind.value?.per_head === true && there && arrays.has(IDENTIFIABILITY);
}

function Matrix({ scene }: { scene: Scene }) {
  const { traits, maps, selection, shade } = scene;
  const [box, width] = useWidth(440);
  const cell = useSignal<Cell | undefined>(undefined);
  const n = useComputed(() => traits.tokens.value.length);
  const longest = useComputed(() =>
    Math.min(
      LONGEST_LABEL,
      Math.max(
        ...traits.tokens.value.map(({ label }, i) => labelWidth(label + scene.indices.value[i])),
      ),
    ),
  );
  const gutter = useComputed(() => Math.ceil(longest.value) + 12);
  const size = useComputed(() => cellSize(width.value - gutter.value - LEAN, n.value));
  const side = useComputed(() => size.value * n.value);

  const canvas = useCanvas(
    () => ({ width: side.value, height: side.value }),
    (image) => {
      const open = maps.open.value;
      if (open.state !== "ready") return;
      const whole = { x: 0, y: 0, width: image.width, height: image.height };
      const picture = {
        values: open.value.values,
        rows: open.value.n,
        columns: open.value.n,
        ...maps.scale.value,
        signed: maps.kind.value?.signed ?? false,
        causal: traits.about.value.causal,
      };
      paint(image, picture, whole, shade.value);
    },
  );

  const point = (at: Cell) => {
    const { row, column } = cell.peek() ?? { row: -1, column: -1 };
    if (row === at.row && column === at.column) return;
    cell.value = at;
    selection.hover(at.column);
  };
  const leave = () => {
    cell.value = undefined;
    selection.leave();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const start = {
      row: Math.max(0, scene.target.peek()),
      column: Math.max(0, scene.source.peek()),
    };
    const at = cell.peek();
    if (event.key === "Enter" || event.key === " ") {
      if (at) selection.toggleCell(at.row, at.column);
    } else {
      const next = at ? moved(event.key, at, n.peek(), n.peek()) : start;
      if (!next || !event.key.startsWith("Arrow")) return;
      point(next);
    }
    event.preventDefault();
  };

  const open = maps.open.value;
  const px = (pixels: number) => `${pixels}px`;
  return (
    <div ref={box} class="prosect-matrix">
      <div
        class="prosect-plot"
        data-waiting={open.state !== "ready" || undefined}
        style={{
          width: px(side.value),
          height: px(side.value),
          marginLeft: px(gutter.value),
          // Labels taller than their cells stand out above the first row.
          marginTop: px(Math.max(0, (15 - size.value) / 2)),
          // Slanted labels hang this deep.
          marginBottom: px(longest.value * 0.77 + 18),
          "--prosect-gutter": px(gutter.value),
          "--prosect-longest": px(longest.value),
        }}
      >
        <div
          class="prosect-surface"
          role="application"
          // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move over the cells
          tabIndex={0}
          aria-label={`Map of ${n.value} by ${n.value} tokens, targets down, sources across. Arrow keys move, Enter pins.`}
          onPointerMove={(event) => point(under(event, size.value, n.value, n.value))}
          onPointerLeave={leave}
          onBlur={leave}
          onKeyDown={onKeyDown}
          onClick={(event) => {
            const { row, column } = under(event, size.value, n.value, n.value);
            selection.toggleCell(row, column);
          }}
        >
          <canvas
            ref={canvas}
            class="prosect-canvas"
            data-testid="map-canvas"
            data-cell={size.value}
            data-left="0"
            data-top="0"
            style={{ width: px(side.value), height: px(side.value) }}
          />
        </div>
        <Crosshair scene={scene} size={size.value} at={cell.value} />
        <Axis scene={scene} side="row" cell={size.value} row={cell.value?.row ?? -1} />
        <Axis scene={scene} side="column" cell={size.value} row={-1} />
        {open.state !== "ready" && (
          <div class="prosect-veil">
            <Status of={open} what={`layer ${ordinal(traits.layer.value)}`} />
          </div>
        )}
      </div>
      <div class="prosect-under" style={{ marginLeft: px(gutter.value) }}>
        <Readout scene={scene} cell={cell.value} />
        {hasIdentifiability(scene) && <IdentifiabilityLine scene={scene} />}
        <Legend scene={scene} />
      </div>
    </div>
  );
}

/** The open map. `steppers` where no overview stands beside it to choose the layer and head. */
export function MapPane({ scene, steppers }: { scene: Scene; steppers?: boolean }) {
  const { layer, head, about } = scene.traits;
  const kind = scene.maps.kind.value;
  const perHead = scene.maps.heads.value > 1 || kind?.per_head;
  const where = [
    `layer ${ordinal(layer.value)}`,
    perHead && (head.value < 0 ? "mean over heads" : `head ${ordinal(head.value)}`),
    "target ↓ source →",
  ];
  const embeddings = layer.value < 0;
  return (
    <Pane
      name="map"
      title={capital(kind?.label ?? "map")}
      detail={
        steppers ? (
          <Steppers scene={scene} />
        ) : embeddings ? (
          "embeddings"
        ) : (
          where.filter(Boolean).join(" · ")
        )
      }
    >
      {embeddings ? (
        <p class="prosect-empty" data-testid="map-empty">
          The embeddings have no {kind?.label ?? "attention"} map: choose a layer from 1 to{" "}
          {about.value.layers}.
        </p>
      ) : (
        <Matrix scene={scene} />
      )}
    </Pane>
  );
}
