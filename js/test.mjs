// Bundles the test files and runs them with Node's own test runner.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL(".", import.meta.url));
const out = join(root, ".test");
const tests = join(root, "test");
const files = readdirSync(tests, { recursive: true }).filter((name) => /\.test\.tsx?$/.test(name));

rmSync(out, { recursive: true, force: true });
await build({
  entryPoints: files.map((name) => join(tests, name)),
  outbase: tests,
  outdir: out,
  loader: { ".css": "empty" },
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
  external: ["happy-dom"],
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
const built = files.map((name) => join(out, name.replace(/\.tsx?$/, ".mjs")));
const { status } = spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" });
process.exit(status ?? 1);
