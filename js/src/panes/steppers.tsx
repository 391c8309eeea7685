import { ordinal } from "../draw/format.ts";
import type { Scene } from "../state/scene.ts";
import "./steppers.css";

interface Choice {
  name: string;
  value: number;
  /** From this value on. */
  first: number;
  count: number;
  label: (value: number) => string;
  choose: (value: number) => void;
}

function Choose({ name, value, first, count, label, choose }: Choice) {
  const values = Array.from({ length: count - first }, (_, i) => first + i);
  return (
    <label class="prosect-stepper">
      {name}{" "}
      <select
        data-testid={`choose-${name}`}
        value={String(value)}
        onChange={(event) => choose(Number(event.currentTarget.value))}
      >
        {values.map((option) => (
          <option key={option} value={String(option)} selected={option === value}>
            {label(option)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Layer and head, where no overview offers them. */
export function Steppers({ scene }: { scene: Scene }) {
  const { layer, head, about } = scene.traits;
  const { layers, heads } = about.value;
  return (
    <>
      <Choose
        name="layer"
        value={layer.value}
        first={-1}
        count={layers}
        label={(value) => (value < 0 ? "0 (embeddings)" : ordinal(value))}
        choose={(value) => {
          layer.value = value;
        }}
      />
      {scene.maps.kind.value?.per_head !== false && (
        <Choose
          name="head"
          value={head.value}
          first={-1}
          count={heads}
          label={(value) => (value < 0 ? "mean" : ordinal(value))}
          choose={(value) => {
            head.value = value;
          }}
        />
      )}
      <span>target ↓ source →</span>
    </>
  );
}
