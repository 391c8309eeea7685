import type { Scene } from "../state/scene.ts";
import "./token.css";

interface Props {
  scene: Scene;
  token: number;
  /** Keep the index out of the text itself, where tokens stand side by side as in the sentence. */
  quiet?: boolean;
}

/** A token's label. It is a text node, isolated from the writing direction around it. */
export function TokenName({ scene, token, quiet }: Props) {
  const label = scene.traits.tokens.value[token]?.label ?? "";
  const index = scene.indices.value[token] ?? "";
  return (
    <>
      <bdi class="prosect-name">{label}</bdi>
      {index && quiet && <span class="prosect-index" data-index={index} />}
      {index && !quiet && <span class="prosect-index">{index}</span>}
    </>
  );
}

/** The tooltip of a token: its raw text where that differs from the label, and its position. */
export function tooltip(scene: Scene, token: number): string {
  const { label = "", text = "" } = scene.traits.tokens.value[token] ?? {};
  const raw = text !== label && text !== "" ? ` (${JSON.stringify(text)})` : "";
  return `${label}${raw} · token ${token}`;
}
