/** Makes the streams for RTSP and a quality table beside each. Done once for each: what is there already is found again by hash. */
import { mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { compareFile, groupMse, psnrDb } from "../media/compare.ts";
import { checkRate } from "../media/encode.ts";
import { PRESENTATION_MIN_S } from "../media/ladder.ts";
import * as recipe from "../media/streams.ts";
import { encodeStream, rateOf, repeat, STREAMS, type Stream } from "../media/streams.ts";
import { parseJson, streamInfoSchema, type StreamInfo } from "../schema.ts";
import { EXIT, run, UsageError } from "./exit.ts";
import { keyOf, originOf, progress, removeWhenStopped, tellNotes, type Origin } from "./origin.ts";

const USAGE = "usage: npm run streams -- --out DIR [--mbps RATE]... [--media FILE]";

const nameOf = (stream: Stream): string => `stream-${stream.mbps}`;

/** The finished stream in `out`, if it is this recipe's. */
async function cached(out: string, name: string, key: string): Promise<StreamInfo | null> {
  try {
    const info = parseJson(streamInfoSchema, await readFile(join(out, `${name}.json`), "utf8"), `${name}.json`);
    return info.key === key && (await stat(join(out, `${name}.264`))).size === info.clip_bytes * info.loops ? info : null;
  } catch {
    return null;
  }
}

async function make(out: string, work: string, origin: Origin, stream: Stream, key: string): Promise<StreamInfo> {
  const name = nameOf(stream);
  const { source } = origin;
  const { fps, clip_s } = source;
  const loops = Math.ceil(PRESENTATION_MIN_S / clip_s);
  const clip = join(work, "clip.264");
  await encodeStream(source, stream, work, basename(clip), progress(`${name}: encoding`));
  const achieved_mbps = await rateOf(clip, clip_s);
  const warning = checkRate({ ...stream, kbps: stream.mbps * 1000 }, achieved_mbps * 1000, origin.credit !== null);
  if (warning) process.stderr.write(`warning: ${warning}; the content needs no more\n`);
  const found = await compareFile(source, clip, work, "psnr", progress(`${name}: comparing`));
  await repeat(clip, loops, join(work, "stream.264"));
  const info: StreamInfo = {
    version: 1, key, credit: origin.credit, source: { name: basename(origin.file), sha256: origin.sha256, fps, clip_s }, ffmpeg: origin.ffmpeg,
    ...stream, achieved_mbps, clip_bytes: (await stat(clip)).size, loops,
    frame_db: groupMse(found.frames, 1, clip_s * fps, name).map(psnrDb), freeze_db: found.freeze_db,
  };
  await writeFile(join(work, "stream.json"), JSON.stringify(streamInfoSchema.parse(info)));
  // The description last: a stream without one is not there.
  await rm(join(out, `${name}.json`), { force: true });
  await rename(join(work, "stream.264"), join(out, `${name}.264`));
  await rename(join(work, "stream.json"), join(out, `${name}.json`));
  return info;
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { out: { type: "string" }, mbps: { type: "string", multiple: true }, media: { type: "string" } } });
  if (!values.out) throw new UsageError("--out is missing");
  const wanted = values.mbps?.map((text) => {
    const stream = STREAMS.find((s) => String(s.mbps) === text);
    if (!stream) throw new UsageError(`--mbps ${text}: there are ${STREAMS.map((s) => s.mbps).join(", ")}`);
    return stream;
  });
  const out = resolve(values.out);
  const origin = await originOf(values.media);
  tellNotes(origin);
  await mkdir(out, { recursive: true });
  const work = join(out, `.work-${process.pid}`);
  removeWhenStopped(work);
  for (const stream of wanted ?? STREAMS) {
    const key = keyOf(origin, [recipe, stream]);
    let info = await cached(out, nameOf(stream), key);
    if (!info) {
      await mkdir(work);
      try {
        info = await make(out, work, origin, stream, key);
      } finally {
        await rm(work, { recursive: true, force: true });
      }
    }
    process.stderr.write(`${nameOf(stream)}: ${info.width}x${info.height}, ${info.achieved_mbps} Mbit/s achieved\n`);
  }
  return EXIT.ok;
}

await run("streams", USAGE, main);
