// Bundles the widget module with its style sheet, and the shim of the exported page, into the Python
// package. The style sheet holds what the modules import, in the order of the imports.
import { readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { termColours } from "./colours.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const shared = {
  bundle: true,
  minify: true,
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
};

// Left alone where it is up to date: a newer source would mean that a build is due.
const colours = here("src/panes/term_colours.css");
const made = await termColours();
if ((await readFile(colours, "utf8").catch(() => "")) !== made) await writeFile(colours, made);

const { metafile } = await build({
  ...shared,
  metafile: true,
  entryPoints: { widget: here("src/widget.tsx") },
  outdir: here("../widget/prosect/static"),
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
});
await build({
  ...shared,
  entryPoints: { page: here("src/page.ts") },
  outdir: here("../widget/prosect/static"),
  format: "iife",
});

/** The bundle carries other people's code: their licences travel beside it. */
async function licences(inputs) {
  const packages = new Set(
    inputs.map((input) => input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean),
  );
  const texts = [...packages].sort().map(async (name) => {
    const folder = here(`node_modules/${name}`);
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} is bundled and brings no licence`);
    return `${name}\n\n${await readFile(`${folder}/${file}`, "utf8")}`;
  });
  return (await Promise.all(texts)).join(`\n${"-".repeat(80)}\n\n`);
}

await writeFile(
  here("../widget/prosect/static/licences.txt"),
  await licences(Object.keys(metafile.inputs)),
);
