import { useComputed, useSignal } from "@preact/signals";
import { useCanvas, useWidth } from "../draw/canvas.ts";
import { ordinal } from "../draw/format.ts";
import { thinned } from "../draw/labels.ts";
import { paint } from "../draw/raster.ts";
import { type Cell, moved, under } from "../state/cursor.ts";
import type { Scene } from "../state/scene.ts";
import { Pane } from "./pane.tsx";
import { Status } from "./status.tsx";
import "./overview.css";

const LEFT = 24;
/** Room for the frame around the last head. */
const RIGHT = 4;
const TALLEST = 520;

/** The side of one thumbnail's cell, so that many layers and many heads still fit. */
function thumbnailSize(width: number, layers: number, heads: number): number {
  const across = Math.floor((width - LEFT - RIGHT) / Math.max(1, heads));
  const down = Math.floor(TALLEST / Math.max(1, layers));
  return Math.max(7, Math.min(26, across, Math.max(12, down)));
}

function Frame({ cell, size, name }: { cell: Cell; size: number; name: string }) {
  const style = {
    left: `${cell.column * size}px`,
    top: `${cell.row * size}px`,
    width: `${size}px`,
    height: `${size}px`,
  };
  return (
    <span
      class={`prosect-frame prosect-frame-${name}`}
      data-testid={`head-${name}`}
      style={style}
    />
  );
}

/** All heads of all layers at a glance; one of them is open. */
export function Overview({ scene }: { scene: Scene }) {
  const { traits, maps, selection, shade } = scene;
  const { layer, head, about } = traits;
  const [box, width] = useWidth(280);
  const cursor = useSignal<Cell | undefined>(undefined);
  const layers = useComputed(() => about.value.layers);
  const size = useComputed(() => thumbnailSize(width.value, layers.value, maps.heads.value));

  const canvas = useCanvas(
    () => ({ width: maps.heads.value * size.value, height: layers.value * size.value }),
    (image, density) => {
      const gap = Math.max(1, Math.round((size.value < 12 ? 1 : 2) * density));
      const edge = (index: number) => Math.round(index * size.value * density);
      for (let row = 0; row < layers.value; row++) {
        for (let column = 0; column < maps.heads.value; column++) {
          const loaded = maps.thumbnail(row, column);
          if (loaded.state !== "ready") continue;
          const { values, size: n, scale } = loaded.value;
          const picture = {
            values,
            rows: n,
            columns: n,
            ...scale,
            signed: maps.kind.value?.signed ?? false,
            causal: about.value.causal,
          };
          const place = {
            x: edge(column),
            y: edge(row),
            width: edge(column + 1) - edge(column) - gap,
            height: edge(row + 1) - edge(row) - gap,
          };
          paint(image, picture, place, shade.value);
        }
      }
    },
  );

  const openCell = ({ row, column }: Cell) => selection.open(row, column);
  const onKeyDown = (event: KeyboardEvent) => {
    const at = cursor.peek() ?? {
      row: Math.max(0, layer.peek()),
      column: Math.max(0, head.peek()),
    };
    if (event.key === "Enter" || event.key === " ") openCell(at);
    else {
      const next = moved(event.key, at, layers.peek(), maps.heads.peek());
      if (!next) return;
      cursor.value = next;
    }
    event.preventDefault();
  };

  const leave = () => {
    cursor.value = undefined;
  };

  const heads = maps.heads.value;
  const at = cursor.value;
  const px = (pixels: number) => `${pixels}px`;
  const shownHead = layer.value >= 0 && head.value >= 0 && head.value < heads;
  // Pending and failed thumbnails say so once, below.
  const pending = Array.from({ length: layers.value }, (_, row) => maps.thumbnail(row, 0)).find(
    ({ state }) => state !== "ready",
  );
  return (
    <Pane
      name="overview"
      title={heads > 1 ? "Heads" : "Layers"}
      detail={heads > 1 ? "layer × head" : "one map a layer"}
    >
      <div ref={box}>
        <div
          class="prosect-heads"
          style={{
            marginLeft: px(LEFT),
            width: px(heads * size.value),
            height: px(layers.value * size.value),
          }}
        >
          <div class="prosect-head-numbers" aria-hidden="true">
            {thinned(heads, size.value, heads > 9 ? 18 : 11, [head.value]).map((index) => (
              <span
                key={index}
                data-open={(layer.value >= 0 && index === head.value) || undefined}
                style={{ left: px((index + 0.5) * size.value) }}
              >
                {ordinal(index)}
              </span>
            ))}
          </div>
          <div class="prosect-layer-numbers">
            {thinned(layers.value, size.value, 12, [layer.value]).map((index) => (
              <button
                key={index}
                type="button"
                tabIndex={-1}
                class="prosect-layer-number"
                data-testid="overview-layer"
                data-layer={index}
                data-open={index === layer.value || undefined}
                title={`Layer ${ordinal(index)}: mean over its heads`}
                aria-label={`Layer ${ordinal(index)}: mean over its heads`}
                style={{ top: px((index + 0.5) * size.value) }}
                onClick={() => selection.open(index, -1)}
              >
                {ordinal(index)}
              </button>
            ))}
          </div>
          <div
            class="prosect-surface"
            role="application"
            // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move over the heads
            tabIndex={0}
            aria-label={`Overview of ${layers.value} layers by ${heads} heads. Arrow keys move, Enter opens.`}
            onPointerMove={(event) => {
              const next = under(event, size.value, layers.value, heads);
              if (next.row !== at?.row || next.column !== at?.column) cursor.value = next;
            }}
            onPointerLeave={leave}
            onBlur={leave}
            onKeyDown={onKeyDown}
            onClick={(event) => openCell(under(event, size.value, layers.value, heads))}
          >
            <canvas
              ref={canvas}
              class="prosect-canvas"
              data-testid="overview-canvas"
              data-cell={size.value}
              data-left="0"
              data-top="0"
              style={{ width: px(heads * size.value), height: px(layers.value * size.value) }}
            />
          </div>
          {layer.value >= 0 && head.value < 0 && (
            <span
              class="prosect-frame prosect-frame-open"
              data-testid="head-open"
              style={{
                left: "0",
                top: px(layer.value * size.value),
                width: px(heads * size.value),
                height: px(size.value),
              }}
            />
          )}
          {shownHead && (
            <Frame cell={{ row: layer.value, column: head.value }} size={size.value} name="open" />
          )}
          {at && <Frame cell={at} size={size.value} name="cursor" />}
        </div>
        <Caption scene={scene} at={at} />
        {pending && <Status of={pending} what="the other layers" />}
      </div>
    </Pane>
  );
}

/** Which head is open or under the pointer, in words, and the way to all of them. */
function Caption({ scene, at }: { scene: Scene; at: Cell | undefined }) {
  const { layer, head } = scene.traits;
  const perHead = scene.maps.kind.value?.per_head !== false;
  const name = (row: number, column: number) =>
    perHead ? `Layer ${ordinal(row)}, head ${ordinal(column)}` : `Layer ${ordinal(row)}`;
  const open = () => {
    if (layer.value < 0) return "No head is open.";
    if (perHead && head.value < 0) return `Layer ${ordinal(layer.value)}, mean over heads.`;
    return `${name(layer.value, head.value)} is open.`;
  };
  return (
    <p class="prosect-caption prosect-muted" data-testid="overview-caption">
      {at ? `${name(at.row, at.column)}: click to open.` : open()}{" "}
      {perHead && layer.value >= 0 && head.value >= 0 && (
        <button
          type="button"
          class="prosect-link"
          data-testid="all-heads"
          title="The mean over all heads of this layer"
          onClick={() => scene.selection.open(layer.peek(), -1)}
        >
          all heads
        </button>
      )}
    </p>
  );
}
