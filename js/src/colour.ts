import { scaleLinear } from "d3-scale";

export type Shade = "light" | "dark";

/** From nothing to most. Each starts near its theme's background, and its luminance never turns back. */
const SEQUENTIAL: Record<Shade, string[]> = {
  light: ["#f3f7fb", "#dce9f5", "#b9d5ed", "#86b8df", "#4a93c9", "#216eb2", "#0d4690", "#07275c"],
  dark: ["#1a212a", "#1b2d44", "#1c406a", "#1f5b98", "#2f7dc2", "#5ba3e1", "#9accf6", "#e6f4ff"],
};

/** From the most negative over nothing to the most positive. */
const DIVERGING: Record<Shade, string[]> = {
  light: ["#7d1630", "#c2483f", "#eba48c", "#f6f5f4", "#9cc5e6", "#3a82c2", "#0b3f86"],
  dark: ["#ffddd3", "#ee8f7b", "#a9443f", "#1d2127", "#275f9f", "#5ba3e1", "#e6f4ff"],
};

/** Colours of a ramp between 0 and 1, as CSS. */
export function ramp(shade: Shade, signed: boolean): (position: number) => string {
  const stops = (signed ? DIVERGING : SEQUENTIAL)[shade];
  return scaleLinear<string>()
    .domain(stops.map((_, i) => i / (stops.length - 1)))
    .range(stops)
    .clamp(true);
}

const STEPS = 1024;
const tables = new Map<string, Uint32Array>();

/** A ramp as pixels (alpha, blue, green, red in one number), ready for an ImageData. */
export function pixels(shade: Shade, signed: boolean): Uint32Array {
  const key = `${shade}${signed}`;
  let table = tables.get(key);
  if (!table) {
    const colour = ramp(shade, signed);
    table = Uint32Array.from({ length: STEPS }, (_, i) => {
      const [red = 0, green = 0, blue = 0] = (colour(i / (STEPS - 1)).match(/\d+/g) ?? []).map(
        Number,
      );
      return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
    tables.set(key, table);
  }
  return table;
}

/** Where a value lies on the ramp, 0 to 1: by its square root, because attention is heavy-tailed. */
export function position(value: number, top: number, signed: boolean): number {
  const size = top > 0 ? Math.min(1, Math.sqrt(Math.abs(value) / top)) : 0;
  if (!signed) return value < 0 ? 0 : size;
  return 0.5 + (value < 0 ? -size : size) / 2;
}
