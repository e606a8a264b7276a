/** Compares the encoded rungs with the source: PSNR of every second, and of frozen frames. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fit, rungFile } from "./encode.ts";
import { ffmpeg, inputOf } from "./ffmpeg.ts";
import { FREEZE_LAGS, FREEZE_SAMPLES_PER_S, LADDER, PSNR_CAP_DB } from "./ladder.ts";
import { clipFrames, sourceInput, type Source } from "./source.ts";
import type { PsnrTable } from "../schema.ts";

const WIDTH = 1920;
const HEIGHT = 1080;

/** Luma PSNR (dB) of a mean squared error of 8-bit samples, capped. */
export function psnrDb(mse: number): number {
  const db = mse > 0 ? 10 * Math.log10((255 * 255) / mse) : PSNR_CAP_DB;
  return Math.round(Math.min(PSNR_CAP_DB, db) * 1000) / 1000;
}

/** Mean of each group of `perGroup` frames. */
export function groupMeans(values: readonly number[], perGroup: number, groups: number, what: string): number[] {
  if (values.length < perGroup * groups) throw new Error(`${what}: ${values.length} frames compared instead of ${perGroup * groups}`);
  return Array.from({ length: groups }, (_, g) => values.slice(g * perGroup, (g + 1) * perGroup).reduce((a, b) => a + b, 0) / perGroup);
}

/** Reads the log of ffmpeg's psnr filter: mean luma error of each group of `perGroup` frames. */
export function groupMse(log: string, perGroup: number, groups: number, what: string): number[] {
  return groupMeans([...log.matchAll(/\bmse_y:([\d.]+)/g)].map((m) => Number(m[1])), perGroup, groups, what);
}

/** The log of ffmpeg's ssim filter: luma of each frame. */
export const ssimFrames = (log: string): number[] => [...log.matchAll(/\bY:([\d.]+)/g)].map((m) => Number(m[1]));

/** The log of ffmpeg's libvmaf filter: a value for each frame. */
export function vmafFrames(log: string): number[] {
  const { frames } = JSON.parse(log) as { frames: { metrics: { vmaf: number } }[] };
  return frames.map((frame) => frame.metrics.vmaf);
}

/** Expression of ffmpeg's select filter: `n` evenly spaced frames of each second. */
const sampled = (fps: number, n: number): string => Array.from({ length: n }, (_, i) => `eq(mod(n,${fps}),${Math.floor((i * fps) / n)})`).join("+");

/** An encoded file beside its source. */
export interface Comparison {
  /** Log of ffmpeg's psnr filter, a line for each frame. */
  readonly frames: string;
  /** [second whose last frame is frozen][seconds later - 1], in dB */
  readonly freeze_db: number[][];
}

/** Decodes `file` and the source's clip once for both. Logs are written into `dir`, and begin with `name`. */
export async function compareFile(source: Source, file: string, dir: string, name: string, onProgress: (done: number) => void): Promise<Comparison> {
  const log = (lag: number): string => `${name}-${lag}.log`;
  const lags = Array.from({ length: FREEZE_LAGS }, (_, i) => i + 1);
  const n = FREEZE_SAMPLES_PER_S;
  const { fps, clip_s } = source;
  const graph = [
    `[0:v]${fit(WIDTH, HEIGHT)},format=yuv420p,settb=AVTB,split=2[r0][rf]`,
    `${clipFrames(source, 1)},${fit(WIDTH, HEIGHT)},format=yuv420p,settb=AVTB,split=2[s0][sl]`,
    `[s0]setpts=N/${fps}/TB[s0t]`,
    `[r0]setpts=N/${fps}/TB[r0t]`,
    `[r0t][s0t]psnr=shortest=1:stats_file=${log(0)}[o0]`,
    // The last frame of each second, shown for a second each; compared with the source 1, 2, ... seconds later.
    `[rf]select='eq(mod(n,${fps}),${fps - 1})',setpts=N/TB,fps=1,tpad=stop=1:stop_mode=clone,fps=${n},trim=end_frame=${clip_s * n},setpts=N/${n}/TB,split=${lags.length}${lags.map((l) => `[f${l}]`).join("")}`,
    // After the clip's end the presentation is at its start again.
    `[sl]select='${sampled(fps, n)}',setpts=N/${n}/TB,loop=loop=${Math.ceil(FREEZE_LAGS / clip_s)}:size=${clip_s * n},setpts=N/${n}/TB,split=${lags.length}${lags.map((l) => `[l${l}]`).join("")}`,
    ...lags.map((l) => `[l${l}]trim=start_frame=${l * n}:end_frame=${(clip_s + l) * n},setpts=N/${n}/TB[t${l}]`),
    ...lags.map((l) => `[f${l}][t${l}]psnr=shortest=1:stats_file=${log(l)}[o${l}]`),
  ].join(";");
  const outputs = [0, ...lags].flatMap((l) => ["-map", `[o${l}]`, "-f", "null", "/dev/null"]);
  // A byte stream says nothing of its rate that a demuxer would believe.
  const rate = file.endsWith(".264") ? ["-framerate", String(fps)] : [];
  await ffmpeg([...rate, "-i", inputOf(file), ...sourceInput(source), "-filter_complex", graph, ...outputs], dir, clip_s, onProgress);

  const read = (lag: number): Promise<string> => readFile(join(dir, log(lag)), "utf8");
  const byLag = await Promise.all(lags.map(async (l) => groupMse(await read(l), n, clip_s, `${name}, lag ${l}`)));
  return {
    frames: await read(0),
    freeze_db: Array.from({ length: clip_s }, (_, s) => byLag.map((row) => psnrDb(row[s] ?? NaN))),
  };
}

/** Computes the table for all rungs. */
export async function comparePsnr(source: Source, dir: string, onProgress: (done: number) => void): Promise<PsnrTable> {
  const { fps, clip_s } = source;
  const rungs: PsnrTable["rungs"] = [];
  for (const [i, rung] of LADDER.entries()) {
    const name = `psnr-${rung.kbps}`;
    const found = await compareFile(source, rungFile(dir, rung), dir, name, (done) => onProgress((i + done) / LADDER.length));
    rungs.push({ kbps: rung.kbps, psnr_db: groupMse(found.frames, fps, clip_s, name).map(psnrDb), freeze_db: found.freeze_db });
  }
  return { version: 1, plane: "y", cap_db: PSNR_CAP_DB, clip_s, rungs };
}
