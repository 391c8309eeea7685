import type { Scene } from "../state/scene.ts";
import { Kinds } from "./kinds.tsx";
import "./header.css";

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

export function Header({ scene }: { scene: Scene }) {
  const { model, layers, heads, tokens } = scene.traits.about.value;
  return (
    <header class="prosect-header">
      <div class="prosect-about">
        <strong>prosect</strong>{" "}
        <span class="prosect-muted" data-testid="about">
          {model} · {count(layers, "layer")} × {count(heads, "head")} · {count(tokens, "token")}
        </span>
      </div>
      <Kinds scene={scene} />
    </header>
  );
}
