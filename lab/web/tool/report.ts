/** Turns a directory of sessions into one HTML file that needs no network. */
import { readFile, rename, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { EXIT, run, UsageError } from "millrace-player/exit";
import { fill } from "./fill.ts";
import { readSessions } from "./results.ts";

const USAGE = "usage: report --in DIR --out report.html";

/** The built page, beside this program. */
const PAGE = new URL("./sessions.html", import.meta.url);

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { in: { type: "string" }, out: { type: "string" } } });
  if (!values.in) throw new UsageError("--in is missing");
  if (!values.out) throw new UsageError("--out is missing");
  const html = fill(await readFile(PAGE, "utf8"), await readSessions(resolve(values.in)));
  const out = resolve(values.out);
  const part = join(dirname(out), `.${basename(out)}.${process.pid}`);
  await writeFile(part, html);
  await rename(part, out);
  process.stdout.write(`${out}\n`);
  return EXIT.ok;
}

await run("report", USAGE, main);
