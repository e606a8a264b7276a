/** Encodes what an RTSP server sends: H.264 as a byte stream (ITU-T H.264, Annex B), a file for each rate. */
import { createReadStream, createWriteStream } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { fit } from "./encode.ts";
import { ffmpeg } from "./ffmpeg.ts";
import { RATE_TOLERANCE } from "./ladder.ts";
import { clipFrames, sourceInput, type Source } from "./source.ts";

/** A stream, by its mean rate. */
export interface Stream {
  readonly mbps: number;
  readonly width: number;
  readonly height: number;
}

/** The rates of Vivace, Figure 12(a), each with the largest picture that looks better for it. */
export const STREAMS: readonly Stream[] = [
  { mbps: 15, width: 1920, height: 1080 },
  { mbps: 30, width: 2560, height: 1440 },
  { mbps: 50, width: 3840, height: 2160 },
  { mbps: 95, width: 3840, height: 2160 },
];

/** live555 cuts off NAL units that are longer than its buffer, which has 60 kB at least. */
export const NAL_MAX_BYTES = 50_000;
/** The paper's links have a tenth more than a stream's mean; its peaks stay below that. */
export const PEAK_FACTOR = 1.05;
export const VBV_S = 1;
/** Changed whenever what is written changes. */
export const RECIPE_VERSION = 1;

/**
 * Two passes over the clip into `name` in `dir`, and the second once more if its mean came out short: dark seconds cannot use a
 * high rate, and the others, whose peaks are bounded, make up for them only if told to. No B-frames: frames arrive in
 * the order in which they are shown.
 */
export async function encodeStream(source: Source, stream: Stream, dir: string, name: string, onProgress: (done: number) => void): Promise<void> {
  const kbps = stream.mbps * 1000;
  const { fps, clip_s } = source;
  const pass = (number: 1 | 2, aim_kbps: number, at: number): Promise<void> =>
    ffmpeg([
      ...sourceInput(source), "-filter_complex", `${clipFrames(source, 0)},${fit(stream.width, stream.height)},format=yuv420p[v]`, "-map", "[v]", "-an",
      "-c:v", "libx264", "-preset", "superfast", "-profile:v", "high", "-bf", "0",
      "-b:v", `${aim_kbps}k`, "-maxrate", `${Math.round(kbps * PEAK_FACTOR)}k`, "-bufsize", `${kbps * VBV_S}k`,
      // Closed GOPs of a second: after a loss the picture is right again at the next one.
      "-g", String(fps), "-keyint_min", String(fps), "-sc_threshold", "0", "-flags", "+cgop",
      "-x264-params", `slice-max-size=${NAL_MAX_BYTES}`,
      "-frames:v", String(clip_s * fps), "-pass", String(number), "-passlogfile", `${name}.pass`,
      "-f", "h264", number === 1 ? "/dev/null" : name,
    ], dir, clip_s, (done) => onProgress((at + done) / 2));
  await pass(1, kbps, 0);
  await pass(2, kbps, 1);
  const achieved_mbps = await rateOf(join(dir, name), clip_s);
  if (achieved_mbps < stream.mbps * (1 - RATE_TOLERANCE)) await pass(2, aimAgain(stream.mbps, achieved_mbps), 1);
}

/** What to ask for, kbit/s, when asking for `mbps` gave `achieved_mbps`; never more than the peaks may have. */
export const aimAgain = (mbps: number, achieved_mbps: number): number => Math.round(mbps * 1000 * Math.min(PEAK_FACTOR, mbps / achieved_mbps));

/** Writes `clip` into `file` so many times, one after the other: each begins with an IDR picture and its parameter sets. */
export async function repeat(clip: string, loops: number, file: string): Promise<void> {
  for (let i = 0; i < loops; i++) await pipeline(createReadStream(clip), createWriteStream(file, { flags: i === 0 ? "w" : "a" }));
}

/** Mean rate of a clip. */
export async function rateOf(clip: string, clip_s: number): Promise<number> {
  return Math.round(((await stat(clip)).size * 8) / clip_s / 1e3) / 1e3;
}
