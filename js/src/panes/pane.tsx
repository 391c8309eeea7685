import type { ComponentChildren } from "preact";
import "./pane.css";

interface Props {
  /** As in the registry. */
  name: string;
  title: ComponentChildren;
  detail?: ComponentChildren;
  children: ComponentChildren;
}

/** A titled part of a view: what it shows in bold, how to read it beside that. */
export function Pane({ name, title, detail, children }: Props) {
  return (
    <section class={`prosect-pane prosect-${name}`} data-pane={name}>
      <h3 class="prosect-title" data-testid={`${name}-title`}>
        <strong>{title}</strong> <span class="prosect-muted">{detail}</span>
      </h3>
      {children}
    </section>
  );
}
