// The style sheet of the terms' colours, made from the file that Python reads them from.
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const SOURCE = new URL("../widget/prosect/colours.json", import.meta.url);

export async function termColours() {
  const terms = Object.entries(JSON.parse(await readFile(fileURLToPath(SOURCE), "utf8")));
  const variable = (term) => `--prosect-${term.replaceAll("_", "-")}`;
  const shades = (shade) => terms.map(([term, of]) => `  ${variable(term)}: ${of[shade]};\n`);
  const rules = terms.map(
    ([term]) =>
      `.prosect-segment[data-term="${term}"],\n.prosect-swatch[data-term="${term}"] {\n` +
      `  background: var(${variable(term)});\n}\n`,
  );
  return [
    "/* Written by npm run build from widget/prosect/colours.json: change the colours there. */\n",
    `.prosect {\n${shades("light").join("")}}\n`,
    `.prosect[data-theme="dark"] {\n${shades("dark").join("")}}\n`,
    ...rules,
  ].join("\n");
}
