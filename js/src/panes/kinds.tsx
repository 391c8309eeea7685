import type { Kind } from "../model/traits.ts";
import type { Scene } from "../state/scene.ts";
import "./kinds.css";

/** The switch between kinds of map, by group. Nothing where there is only one kind. */
export function Kinds({ scene }: { scene: Scene }) {
  const { kinds, kind } = scene.traits;
  if (kinds.value.length < 2) return null;
  const groups = new Map<string, Kind[]>();
  for (const entry of kinds.value) {
    groups.set(entry.group, [...(groups.get(entry.group) ?? []), entry]);
  }
  return (
    <div class="prosect-kinds" role="toolbar" aria-label="Kind of map">
      {[...groups].map(([group, entries]) => (
        <fieldset class="prosect-group" key={group} aria-label={group}>
          <span class="prosect-group-name">{group}</span>
          {entries.map(({ name, label, hint, reading, reference }) => (
            <button
              key={name}
              type="button"
              class="prosect-choice"
              data-testid="kind"
              data-kind={name}
              aria-pressed={scene.maps.kind.value?.name === name}
              title={[hint, reading, reference].filter(Boolean).join(" ")}
              onClick={() => {
                kind.value = name;
              }}
            >
              {label}
            </button>
          ))}
        </fieldset>
      ))}
    </div>
  );
}
