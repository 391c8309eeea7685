import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { contrast, luminance } from "./luminance.ts";

// Tests run in the folder of package.json.
const css = readFileSync("src/widget.css", "utf8");

function variables(block: RegExp): Map<string, number> {
  const text = css.match(block)?.[1] ?? "";
  const found = text.matchAll(/--prosect-([\w-]+): #([0-9a-f]{6});/g);
  return new Map(
    [...found].map(([, name = "", hex = ""]) => {
      const channels = [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
      return [name, luminance(channels as [number, number, number])];
    }),
  );
}

const themes = {
  light: variables(/^\.prosect \{(.*?)^\}/ms),
  dark: variables(/^\.prosect\[data-theme="dark"\] \{(.*?)^\}/ms),
};

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
