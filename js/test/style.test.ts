import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { contrast, luminance } from "./support/luminance.ts";

// Tests run in the folder of package.json.
const sheets = new Map(
  readdirSync("src", { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".css"))
    .map((name) => [name, readFileSync(`src/${name}`, "utf8")]),
);
const css = [...sheets.values()].join("\n");
const terms: Record<string, Record<"light" | "dark", string>> = JSON.parse(
  readFileSync("../widget/prosect/colours.json", "utf8"),
);

type Channels = [red: number, green: number, blue: number];

function variables(block: RegExp): Map<string, Channels> {
  const text = [...css.matchAll(block)].map(([, inside]) => inside).join("\n");
  const found = text.matchAll(/--prosect-([\w-]+): #([0-9a-f]{6});/g);
  return new Map(
    [...found].map(([, name = "", hex = ""]) => {
      const channels = [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
      return [name, channels as Channels];
    }),
  );
}

const colours = {
  light: variables(/^\.prosect \{(.*?)^\}/gms),
  dark: variables(/^\.prosect\[data-theme="dark"\] \{(.*?)^\}/gms),
};
const luminances = (of: Map<string, Channels>) =>
  new Map([...of].map(([name, channels]) => [name, luminance(channels)]));
const themes = { light: luminances(colours.light), dark: luminances(colours.dark) };

/** The luminance of a share of one colour mixed with another. */
function mixed(theme: "light" | "dark", one: string, other: string, share: number): number {
  const [a, b] = [one, other].map((name) => colours[theme].get(name) as Channels);
  return luminance(
    [0, 1, 2].map((i) => share * (a?.[i] ?? 0) + (1 - share) * (b?.[i] ?? 0)) as Channels,
  );
}

test("text stands out from every ground it stands on, in both themes (WCAG AA)", () => {
  for (const [theme, colours] of Object.entries(themes)) {
    for (const text of ["text", "muted", "accent", "orange", "green", "red"]) {
      for (const ground of ["ground", "soft"]) {
        const found = contrast(colours.get(text) ?? 0, colours.get(ground) ?? 0);
        assert.ok(found >= 4.5, `${theme}: ${text} on ${ground} ${found.toFixed(2)}`);
      }
    }
  }
});

test("text stands out from the ground of the token itself, green and mixed", () => {
  const [, percent] =
    css.match(
      /\[data-own\] \{\s*background: color-mix\(in srgb, var\(--prosect-green-line\) (\d+)%/,
    ) ?? [];
  assert.ok(percent);
  for (const theme of ["light", "dark"] as const) {
    const ground = mixed(theme, "green-line", "ground", Number(percent) / 100);
    for (const text of ["text", "muted", "orange"]) {
      const found = contrast(themes[theme].get(text) ?? 0, ground);
      assert.ok(found >= 4.5, `${theme}: ${text} ${found.toFixed(2)}`);
    }
  }
});

test("lines and filled parts stand out from the ground", () => {
  for (const [theme, colours] of Object.entries(themes)) {
    for (const mark of ["accent", "orange-line", "green-line", "input", "feed-forward"]) {
      const found = contrast(colours.get(mark) ?? 0, colours.get("ground") ?? 0);
      assert.ok(found >= 2.9, `${theme}: ${mark} ${found.toFixed(2)}`);
    }
  }
});

test("every rule stays inside the view", () => {
  const selectors = css.replace(/\/\*.*?\*\//gs, "").matchAll(/([^{}]+)\{/g);
  for (const [, selector = ""] of selectors) {
    for (const part of selector.split(/,(?![^(]*\))/)) assert.match(part.trim(), /^\.prosect/);
  }
});

test("the terms have the colours of the file that Python reads, in both themes", () => {
  for (const [term, shades] of Object.entries(terms)) {
    const name = term.replaceAll("_", "-");
    for (const theme of ["light", "dark"] as const) {
      const hex = colours[theme].get(name)?.map((channel) => channel.toString(16).padStart(2, "0"));
      assert.equal(`#${hex?.join("")}`, shades[theme], `${theme} ${term}: run npm run build`);
    }
    assert.ok(css.includes(`.prosect-segment[data-term="${term}"]`), term);
  }
});

test("every style sheet belongs to a module of its name, but those of the widget and the page", () => {
  for (const name of sheets.keys()) {
    if (["base.css", "page.css", "panes/term_colours.css"].includes(name)) continue;
    const module = readFileSync(`src/${name.replace(/\.css$/, ".tsx")}`, "utf8");
    assert.ok(module.includes(`import "./${name.split("/").at(-1)}";`), name);
  }
});
