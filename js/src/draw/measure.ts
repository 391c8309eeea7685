let context: CanvasRenderingContext2D | null | undefined;

/** The width of a label in the token font, in pixels. */
export function labelWidth(text: string, size = 12): number {
  context ??= document.createElement("canvas").getContext("2d");
  // A label of hundreds of characters is cut off anyway.
  const short = text.slice(0, 40);
  if (!context) return short.length * size * 0.6;
  context.font = `${size}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
  return context.measureText(short).width;
}
