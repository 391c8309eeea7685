import { type ReadonlySignal, useSignal, useSignalEffect } from "@preact/signals";
import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** The width of an element, as it changes. `fallback` is used where there is no layout. */
export function useWidth(
  fallback: number,
): [RefObject<HTMLDivElement | null>, ReadonlySignal<number>] {
  const ref = useRef<HTMLDivElement>(null);
  const width = useSignal(fallback);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const measure = () => {
      if (element.clientWidth > 0) width.value = element.clientWidth;
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [width]);
  return [ref, width];
}

/**
 * A canvas of the given CSS size that `draw` fills in device pixels: again whenever a signal it reads
 * changes, the screen's density changes, or the canvas comes back into view (hosts that window their
 * outputs drop the contents of canvases that were scrolled away).
 */
export function useCanvas(
  size: () => { width: number; height: number },
  draw: (image: ImageData, density: number) => void,
): RefObject<HTMLCanvasElement | null> {
  const ref = useRef<HTMLCanvasElement>(null);
  const again = useSignal(0);

  useLayoutEffect(() => {
    const canvas = ref.current;
    if (!canvas) return;
    const redraw = () => {
      again.value = again.peek() + 1;
    };
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) redraw();
    });
    observer.observe(canvas);
    const end = new AbortController();
    let density = window.devicePixelRatio;
    const check = () => {
      if (window.devicePixelRatio === density) return;
      density = window.devicePixelRatio;
      redraw();
    };
    window.addEventListener("resize", check, { signal: end.signal });
    return () => {
      observer.disconnect();
      end.abort();
    };
  }, [again]);

  useSignalEffect(() => {
    again.value;
    const { width, height } = size();
    const canvas = ref.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context) return;
    const density = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(width * density));
    canvas.height = Math.max(1, Math.round(height * density));
    const image = context.createImageData(canvas.width, canvas.height);
    draw(image, density);
    context.putImageData(image, 0, 0);
  });

  return ref;
}
