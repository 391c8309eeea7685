import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { words } from "../draw/labels.ts";
import { nameOf, type Scene } from "../state/scene.ts";
import { TokenName, tooltip } from "./token.tsx";
import "./strip.css";

function StripToken({ scene, token, stop }: { scene: Scene; token: number; stop: boolean }) {
  const { traits, selection } = scene;
  const pinned = useComputed(() => scene.target.value === token);
  const lit = useComputed(() => scene.source.value === token);
  return (
    <button
      type="button"
      class="prosect-token"
      data-testid="token"
      data-token={token}
      data-special={traits.tokens.value[token]?.special || undefined}
      data-pinned={pinned.value || undefined}
      data-lit={lit.value || undefined}
      aria-pressed={pinned.value}
      aria-label={nameOf(scene, token)}
      title={tooltip(scene, token)}
      tabIndex={stop ? 0 : -1}
      onPointerEnter={() => selection.hover(token)}
      onFocus={() => selection.hover(token)}
      onClick={() => selection.toggleTarget(token)}
    >
      <TokenName scene={scene} token={token} quiet />
    </button>
  );
}

/** The tokens of the text, on top of every view: hover or pin one here. */
export function Strip({ scene }: { scene: Scene }) {
  const { traits, selection } = scene;
  const ref = useRef<HTMLDivElement>(null);
  // One tab stop for the whole strip; arrows move within.
  const stop = useSignal(Math.max(0, scene.target.peek()));

  const at = (token: number) =>
    ref.current?.querySelector<HTMLElement>(`[data-token="${token}"]`) ?? undefined;

  // A token pinned elsewhere comes into view inside the strip; the page itself must not move.
  useSignalEffect(() => {
    const button = at(scene.target.value);
    const strip = ref.current;
    if (!button || !strip || strip.scrollHeight <= strip.clientHeight) return;
    const above = button.offsetTop - strip.offsetTop - strip.scrollTop;
    if (above < 0 || above > strip.clientHeight - button.offsetHeight) {
      strip.scrollTop += above - strip.clientHeight / 2;
    }
  });

  const onKeyDown = (event: KeyboardEvent) => {
    const last = traits.tokens.peek().length - 1;
    const steps: Record<string, number> = {
      ArrowLeft: stop.peek() - 1,
      ArrowRight: stop.peek() + 1,
      Home: 0,
      End: last,
    };
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    stop.value = Math.min(last, Math.max(0, next));
    at(stop.peek())?.focus();
  };

  return (
    <div
      ref={ref}
      class="prosect-strip"
      data-testid="strip"
      role="toolbar"
      aria-label="Tokens: hover to light one, press to pin it"
      onPointerLeave={selection.leave}
      onFocusOut={selection.leave}
      onFocusIn={(event) => {
        const { token } = (event.target as HTMLElement).dataset;
        if (token !== undefined) stop.value = Number(token);
      }}
      onKeyDown={onKeyDown}
    >
      {words(traits.tokens.value).map((pieces) => (
        <span class="prosect-word" key={pieces[0]}>
          {pieces.map((token) => (
            <StripToken key={token} scene={scene} token={token} stop={token === stop.value} />
          ))}
        </span>
      ))}
    </div>
  );
}
