/** Makes the DASH presentation and its quality table from a video file. Done once: the same source and recipe are found again by hash. */
import { link, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { comparePsnr } from "../media/compare.ts";
import { checkRate, encodeLadder, measureRung, rungFile, writeDash } from "../media/encode.ts";
import * as ladder from "../media/ladder.ts";
import { mediaInfoSchema, parseJson, psnrTableSchema, type MediaInfo } from "../schema.ts";
import { EXIT, run, UsageError } from "./exit.ts";
import { keyOf, originOf, progress, removeWhenStopped, tellNotes, type Origin } from "./origin.ts";

const USAGE = "usage: npm run media -- --out DIR [--media FILE] [--length-s SECONDS]";
/** Segments of a second have five digits. */
const LENGTH_MAX_S = 36_000;

/** The finished work in `dir`, if it is this recipe's and complete. */
async function cached(dir: string, key: string): Promise<MediaInfo | null> {
  try {
    const info = parseJson(mediaInfoSchema, await readFile(join(dir, "media.json"), "utf8"), "media.json");
    parseJson(psnrTableSchema, await readFile(join(dir, "psnr.json"), "utf8"), "psnr.json");
    await stat(join(dir, "manifest.mpd"));
    for (const rung of ladder.LADDER) await stat(rungFile(dir, rung));
    return info.key === key ? info : null;
  } catch {
    return null;
  }
}

/** Encodes and compares. What is left in `work` is all but segments, manifest and description. */
async function encode(work: string, origin: Origin): Promise<MediaInfo["rungs"]> {
  const { source } = origin;
  await encodeLadder(source, work, progress("encoding"));
  const rungs: MediaInfo["rungs"] = [];
  for (const rung of ladder.LADDER) {
    const achieved = await measureRung(rungFile(work, rung), source.clip_s);
    const warning = checkRate(rung, achieved.achieved_kbps, origin.credit !== null);
    if (warning) process.stderr.write(`warning: ${warning}; the content needs no more\n`);
    rungs.push({ ...rung, ...achieved });
  }
  const table = await comparePsnr(source, work, progress("comparing"));
  for (const name of await readdir(work)) {
    if (/^(pass-|psnr-)/.test(name)) await rm(join(work, name));
  }
  await writeFile(join(work, "psnr.json"), JSON.stringify(psnrTableSchema.parse(table)));
  return rungs;
}

/** The same video in `dir`, only shorter: its rungs and tables are not made again. */
async function takeOver(work: string, dir: string): Promise<void> {
  for (const name of await readdir(dir)) {
    if (/^rung-.*\.mp4$|^(psnr|quality)\.json$/.test(name)) await link(join(dir, name), join(work, name));
  }
}

async function make(work: string, origin: Origin, key: string, length_s: number, shorter: { dir: string; info: MediaInfo } | null): Promise<void> {
  const { fps, clip_s } = origin.source;
  tellNotes(origin);
  if (shorter) await takeOver(work, shorter.dir);
  const rungs = shorter?.info.rungs ?? (await encode(work, origin));
  const loops = Math.ceil(length_s / clip_s);
  await writeDash(work, loops);
  const info: MediaInfo = {
    version: 1, key, credit: origin.credit, source: { name: basename(origin.file), sha256: origin.sha256, fps, clip_s },
    presentation_s: clip_s * loops, segment_s: ladder.SEGMENT_S, ffmpeg: origin.ffmpeg, rungs,
  };
  await writeFile(join(work, "media.json"), `${JSON.stringify(mediaInfoSchema.parse(info), null, 2)}\n`);
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { out: { type: "string" }, media: { type: "string" }, "length-s": { type: "string", default: String(ladder.PRESENTATION_MIN_S) } } });
  if (!values.out) throw new UsageError("--out is missing");
  const length_s = Number(values["length-s"]);
  if (!(length_s > 0 && length_s <= LENGTH_MAX_S)) throw new UsageError(`--length-s ${values["length-s"]}: allowed are 1 to ${LENGTH_MAX_S}`);
  const out = resolve(values.out);
  const origin = await originOf(values.media);
  const key = keyOf(origin, ladder);

  const found = await cached(out, key);
  const wasCached = found !== null && found.presentation_s >= length_s;
  let hit = wasCached ? found : null;
  if (!hit) {
    // Work beside the target and rename: what is in `out` is always complete.
    const work = join(dirname(out), `.${basename(out)}-${process.pid}`);
    removeWhenStopped(work);
    await mkdir(work, { recursive: true });
    try {
      await make(work, origin, key, length_s, found && { dir: out, info: found });
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
