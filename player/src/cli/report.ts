/** Turns a directory of results into one HTML file that needs no network. */
import { readFile, rename, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { renderReport } from "../report/html.ts";
import { readResults } from "../report/results.ts";
import { EXIT, run, UsageError } from "./exit.ts";

const USAGE = "usage: report --in DIR --out report.html";

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { in: { type: "string" }, out: { type: "string" } } });
  if (!values.in) throw new UsageError("--in is missing");
  if (!values.out) throw new UsageError("--out is missing");
  const built = (name: string): Promise<string> => readFile(new URL(`./report/${name}`, import.meta.url), "utf8");
  const [script, style] = await Promise.all([built("client.js"), built("client.css")]);
  const html = renderReport(await readResults(resolve(values.in)), script, style);
  const out = resolve(values.out);
  const part = join(dirname(out), `.${basename(out)}.${process.pid}`);
  await writeFile(part, html);
  await rename(part, out);
  process.stdout.write(`${out}\n`);
  return EXIT.ok;
}

await run("report", USAGE, main);
