/** A value as a reader wants it: three decimals, or two digits where that would hide it. */
export function value(v: number): string {
  const size = Math.abs(v);
  if (Number.isInteger(v)) return String(v).replace("-", "−");
  if (size < 0.0005) return v.toExponential(1);
  if (size >= 100) return v.toFixed(0);
  return v.toFixed(size >= 10 ? 1 : 3).replace("-", "−");
}

/** A share or a score: two decimals, with a true minus sign. */
export function share(v: number): string {
  const text = v.toFixed(Math.abs(v) >= 100 ? 0 : 2);
  return (text === "-0.00" ? "0.00" : text).replace("-", "−");
}

/** The size of an error: one digit and a power of ten. */
export function magnitude(v: number): string {
  return v === 0 ? "0" : v.toExponential(0);
}

/** A count, with its thousands set apart. */
export function count(number: number): string {
  return number.toLocaleString("en-US");
}

/** Readers count layers and heads from 1; layer 0 is the embeddings. */
export function ordinal(index: number): string {
  return String(index + 1);
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
