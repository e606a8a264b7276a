/** The made presentation in CMAF chunks (ISO/IEC 23000-19, Section 7.3.2.3): nothing is encoded again. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rungFile } from "../media/encode.ts";
import { execute, inputOf } from "../media/ffmpeg.ts";
import { LADDER, SEGMENT_S, type Rung } from "../media/ladder.ts";
import { mediaInfoSchema, parseJson } from "../schema.ts";
import { boxes, findBox, needBox } from "./boxes.ts";

/** A few frames, `moof` and `mdat`, as they go out at once. */
export interface Chunk {
  readonly bytes: Buffer;
  /** Where in `bytes` its decode time is, and that in the clip. */
  readonly tfdtAt: number;
  readonly tfdt: bigint;
  /** When an encoder could have it, in seconds from its segment's begin. */
  readonly due_s: number;
}

export interface LiveRung extends Rung {
  /** RFC 6381. */
  readonly codecs: string;
  readonly timescale: number;
  readonly init: Buffer;
  readonly segments: readonly (readonly Chunk[])[];
}

export interface Clip {
  readonly fps: number;
  /** It has as many segments of a second. */
  readonly clip_s: number;
  readonly rungs: readonly LiveRung[];
}

/** Version 1 has 64 bits, which a stream of any length needs (Section 8.8.12); ffmpeg writes no other. */
function tfdtOf(moof: Buffer): Pick<Chunk, "tfdtAt" | "tfdt"> {
  const box = needBox(moof, ["moof", "traf", "tfdt"]);
  if (moof[box.content] !== 1) throw new Error(`tfdt of version ${moof[box.content] ?? "?"}, not 1`);
  const tfdtAt = box.content + 4;
  return { tfdtAt, tfdt: moof.readBigUInt64BE(tfdtAt) };
}

const samplesOf = (moof: Buffer): number => moof.readUInt32BE(needBox(moof, ["moof", "traf", "trun"]).content + 4);

/** How much later than its decode time a frame is shown, in time units: B-frames need frames after them. */
function delayOf(init: Buffer): number {
  const list = findBox(init, ["moov", "trak", "edts", "elst"]);
  if (!list) return 0;
  // Version, number of entries, duration, then media_time (Section 8.6.6).
  const wide = init[list.content] === 1;
  return wide ? Number(init.readBigInt64BE(list.content + 16)) : init.readInt32BE(list.content + 12);
}

export function timescaleOf(init: Buffer): number {
  const box = needBox(init, ["moov", "trak", "mdia", "mdhd"]);
  return init.readUInt32BE(box.content + (init[box.content] === 1 ? 20 : 12));
}

/** Cuts segment number `index` of the clip into its chunks. `sidx`, which counts bytes of a whole file, is omitted. */
export function chunksOf(segment: Buffer, index: number, init: Buffer, fps: number): Chunk[] {
  const timescale = timescaleOf(init);
  const chunks: Chunk[] = [];
  let parts: Buffer[] = [];
  for (const box of boxes(segment)) {
    if (box.type === "sidx") continue;
    parts.push(segment.subarray(box.start, box.end));
    if (box.type !== "mdat") continue;
    const bytes = Buffer.concat(parts);
    parts = [];
    const time = tfdtOf(bytes);
    const end_s = Number(time.tfdt) / timescale + samplesOf(bytes) / fps;
    chunks.push({ bytes, ...time, due_s: end_s + delayOf(init) / timescale - index * SEGMENT_S });
  }
  if (chunks.length === 0) throw new Error(`segment ${index} has no chunk`);
  return chunks;
}

/** The same chunk in the clip's repetition number `loop`. */
export function shifted(chunk: Chunk, loop: number, clip: Clip, rung: LiveRung): Buffer {
  const bytes = Buffer.from(chunk.bytes);
  bytes.writeBigUInt64BE(chunk.tfdt + BigInt(loop) * BigInt(clip.clip_s * rung.timescale), chunk.tfdtAt);
  return bytes;
}

/** Reads what `npm run media` made in `dir`, in chunks of `frames` frames. */
export async function readClip(dir: string, frames: number): Promise<Clip> {
  const info = parseJson(mediaInfoSchema, await readFile(join(dir, "media.json"), "utf8"), join(dir, "media.json"));
  const { fps, clip_s } = info.source;
  const manifest = await readFile(join(dir, "manifest.mpd"), "utf8");
  const codecs = [...manifest.matchAll(/<Representation [^>]*codecs="([^"]+)"/g)].map((m) => m[1]);
  if (codecs.length !== LADDER.length) throw new Error(`${dir}/manifest.mpd: ${codecs.length} representations instead of ${LADDER.length}; make it with the media tool`);
  const work = await mkdtemp(join(tmpdir(), "millrace-live-"));
  try {
    await execute("ffmpeg", [
      "-nostdin", "-v", "error", ...LADDER.flatMap((rung) => ["-i", inputOf(rungFile(dir, rung))]), ...LADDER.flatMap((_, i) => ["-map", `${i}:v`]), "-c", "copy",
      // Cut at the first frame after this time: half a frame keeps rounding out.
      "-f", "dash", "-seg_duration", String(SEGMENT_S), "-frag_type", "duration", "-frag_duration", String((frames - 0.5) / fps),
      "-init_seg_name", "init-$RepresentationID$.mp4", "-media_seg_name", "seg-$RepresentationID$-$Number$.m4s", "manifest.mpd",
    ], { cwd: work });
    const rungs = await Promise.all(
      LADDER.map(async (rung, i): Promise<LiveRung> => {
        const init = await readFile(join(work, `init-${i}.mp4`));
        const segments = await Promise.all(Array.from({ length: clip_s }, async (_, s) => chunksOf(await readFile(join(work, `seg-${i}-${s + 1}.m4s`)), s, init, fps)));
        return { ...rung, codecs: codecs[i] ?? "", timescale: timescaleOf(init), init, segments };
      }),
    );
    return { fps, clip_s, rungs };
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
