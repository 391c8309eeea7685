import type { Signal } from "@preact/signals";
import "./switch.css";

export interface Choice<Name extends string> {
  name: Name;
  label: string;
  hint: string;
}

interface Props<Name extends string> {
  name: string;
  label: string;
  choices: readonly Choice<Name>[];
  chosen: Signal<Name>;
}

/** Buttons of which one is pressed. Nothing where there is only one choice. */
export function Switch<Name extends string>({ name, label, choices, chosen }: Props<Name>) {
  if (choices.length < 2) return null;
  return (
    <fieldset class="prosect-switch" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.name}
          type="button"
          class="prosect-quiet"
          data-testid={name}
          data-choice={choice.name}
          aria-pressed={chosen.value === choice.name}
          title={choice.hint}
          onClick={() => {
            chosen.value = choice.name;
          }}
        >
          {choice.label}
        </button>
      ))}
    </fieldset>
  );
}
