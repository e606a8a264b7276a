/** Serves the made presentation as a live stream of low latency, with the page, until it is stopped. */
import { readdir, readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { extname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { readClip } from "../live/clip.ts";
import { WINDOW_S } from "../live/manifest.ts";
import { openLiveOrigin, type Files } from "../live/origin.ts";
import { EXIT, run, UsageError } from "./exit.ts";

const USAGE = "usage: npm run live -- --dir DIR [--listen 127.0.0.1:8090] [--latency-s 2] [--chunk-frames 5]";
const PAGE = fileURLToPath(new URL("page/", import.meta.url));
const TYPES: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

/** The page is small; in memory no path can lead out of it. */
async function readPage(): Promise<Files> {
  const files = new Map<string, { type: string; body: Buffer }>();
  for (const entry of await readdir(PAGE, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath, entry.name);
    files.set(`/${relative(PAGE, file).split(sep).join("/")}`, { type: TYPES[extname(file)] ?? "application/octet-stream", body: await readFile(file) });
  }
  return files;
}

function addressOf(text: string): { host: string; port: number } {
  const [, host = "", port = ""] = /^\[?([^\]]*)\]?:(\d{1,5})$/.exec(text) ?? [];
  if (isIP(host) === 0 || Number(port) > 65535) throw new UsageError(`--listen ${text}: not an IP address and a port such as 127.0.0.1:8090`);
  return { host, port: Number(port) };
}

function between(name: string, text: string, low: number, high: number, whole = false): number {
  const value = Number(text);
  if (text === "" || !(value >= low && value <= high) || (whole && !Number.isInteger(value))) throw new UsageError(`--${name} ${text}: allowed are ${low} to ${high}`);
  return value;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: { dir: { type: "string" }, listen: { type: "string", default: "127.0.0.1:8090" }, "latency-s": { type: "string", default: "2" }, "chunk-frames": { type: "string", default: "5" } },
  });
  if (!values.dir) throw new UsageError("--dir is missing: where `npm run media` has written to");
  const at = addressOf(values.listen);
  const latency_s = between("latency-s", values["latency-s"], 0.5, 30);
  const clip = await readClip(resolve(values.dir), between("chunk-frames", values["chunk-frames"], 1, 24, true));
  // A player that comes at once finds a whole window.
  const origin = await openLiveOrigin(clip, { zero_ms: Date.now() - (WINDOW_S + 10) * 1000, latency_s }, await readPage(), at);
  const { address, family, port } = origin.address;
  const host = family === "IPv6" ? `[${address}]` : address;
  process.stdout.write(`${JSON.stringify({ page: `http://${host}:${port}/?live=on`, manifest: `http://${host}:${port}/live/manifest.mpd` })}\n`);
  const code = await new Promise<number>((done) => {
    process.once("SIGINT", () => done(EXIT.interrupted));
    process.once("SIGTERM", () => done(EXIT.terminated));
  });
  await origin.close();
  return code;
}

await run("live", USAGE, main);
