export type Shade = "light" | "dark";

/** From zero to the largest value. Each starts near its theme's background, and its luminance never turns back. */
const SEQUENTIAL: Record<Shade, string[]> = {
  light: ["#f3f7fb", "#dce9f5", "#b9d5ed", "#86b8df", "#4a93c9", "#216eb2", "#0d4690", "#07275c"],
  dark: ["#1a212a", "#1b2d44", "#1c406a", "#1f5b98", "#2f7dc2", "#5ba3e1", "#9accf6", "#e6f4ff"],
};

/** From the most negative value over zero to the most positive. */
const DIVERGING: Record<Shade, string[]> = {
  light: ["#7d1630", "#c2483f", "#eba48c", "#f6f5f4", "#9cc5e6", "#3a82c2", "#0b3f86"],
  dark: ["#ffddd3", "#ee8f7b", "#a9443f", "#1d2127", "#275f9f", "#5ba3e1", "#e6f4ff"],
};

/** For tokens that have a scale of their own: grey, so that it does not compete with the blue. */
const ASIDE: Record<Shade, string[]> = {
  light: ["#f5f6f7", "#e3e5e8", "#cdd1d6", "#b4b9c0", "#989ea7"],
  dark: ["#1b1f24", "#272c33", "#383e47", "#4e555f", "#6b737e"],
};

export type Ramp = "sequential" | "diverging" | "aside";

const RAMPS = { sequential: SEQUENTIAL, diverging: DIVERGING, aside: ASIDE };

type Channels = [red: number, green: number, blue: number];

function channels(hex: string): Channels {
  const number = Number.parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/** The colour at a position from 0 to 1 on a ramp, between its two nearest stops. */
export function colourAt(shade: Shade, ramp: Ramp, position: number): Channels {
  const stops = RAMPS[ramp][shade];
  const along = Math.min(1, Math.max(0, position)) * (stops.length - 1);
  const before = Math.min(stops.length - 2, Math.floor(along));
  const from = channels(stops[before] as string);
  const to = channels(stops[before + 1] as string);
  const mix = (i: 0 | 1 | 2) => Math.round(from[i] + (to[i] - from[i]) * (along - before));
  return [mix(0), mix(1), mix(2)];
}

/** A ramp as a CSS background. */
export function gradient(shade: Shade, ramp: Ramp): string {
  return `linear-gradient(to right, ${RAMPS[ramp][shade].join(", ")})`;
}

const STEPS = 1024;
const tables = new Map<string, Uint32Array>();

/** A ramp as pixels (alpha, blue, green, red in one number), ready for an ImageData. */
export function pixels(shade: Shade, ramp: Ramp): Uint32Array {
  const key = `${shade} ${ramp}`;
  let table = tables.get(key);
  if (!table) {
    table = Uint32Array.from({ length: STEPS }, (_, i) => {
      const [red, green, blue] = colourAt(shade, ramp, i / (STEPS - 1));
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
