// Bundles the widget module, its style sheet and the shim of the exported page into the Python package.
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const shared = {
  bundle: true,
  minify: true,
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
};

await build({
  ...shared,
  entryPoints: { widget: here("src/widget.tsx") },
  outdir: here("../widget/prosect/static"),
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
});
await build({
  ...shared,
  entryPoints: { widget: here("src/widget.css") },
  outdir: here("../widget/prosect/static"),
});
await build({
  ...shared,
  entryPoints: { page: here("src/page.ts") },
  outdir: here("../widget/prosect/static"),
  format: "iife",
});
