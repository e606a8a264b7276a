/** Compares the encoded rungs with the source: PSNR of every second, and of frozen frames. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fit, rungFile } from "./encode.ts";
import { ffmpeg, type Source } from "./ffmpeg.ts";
import { FREEZE_LAGS, FREEZE_SAMPLES_PER_S, LADDER, PSNR_CAP_DB, type Rung } from "./ladder.ts";
import type { PsnrTable } from "../schema.ts";

const WIDTH = 1920;
const HEIGHT = 1080;

/** Luma PSNR (dB) of a mean squared error of 8-bit samples, capped. */
export function psnrDb(mse: number): number {
  const db = mse > 0 ? 10 * Math.log10((255 * 255) / mse) : PSNR_CAP_DB;
  return Math.round(Math.min(PSNR_CAP_DB, db) * 1000) / 1000;
}

/** Reads the log of ffmpeg's psnr filter: mean luma error of each group of `perGroup` frames. */
export function groupMse(log: string, perGroup: number, groups: number, what: string): number[] {
  const errors = [...log.matchAll(/\bmse_y:([\d.]+)/g)].map((m) => Number(m[1]));
  if (errors.length < perGroup * groups) throw new Error(`${what}: ${errors.length} frames compared instead of ${perGroup * groups}`);
  return Array.from({ length: groups }, (_, g) => errors.slice(g * perGroup, (g + 1) * perGroup).reduce((a, b) => a + b, 0) / perGroup);
}

/** Expression of ffmpeg's select filter: `n` evenly spaced frames of each second. */
const sampled = (fps: number, n: number): string => Array.from({ length: n }, (_, i) => `eq(mod(n,${fps}),${Math.floor((i * fps) / n)})`).join("+");

/** One decode of the rung and of the source for the whole row of the table. */
async function compareRung(source: Source, clip_s: number, dir: string, rung: Rung, onProgress: (done: number) => void): Promise<PsnrTable["rungs"][number]> {
  const log = (lag: number): string => join(dir, `psnr-${rung.kbps}-${lag}.log`);
  const lags = Array.from({ length: FREEZE_LAGS }, (_, i) => i + 1);
  const n = FREEZE_SAMPLES_PER_S;
  const { fps } = source;
  const graph = [
    `[0:v]${fit(WIDTH, HEIGHT)},format=yuv420p,settb=AVTB,split=2[r0][rf]`,
    `[1:v]fps=${fps},${fit(WIDTH, HEIGHT)},format=yuv420p,settb=AVTB,split=2[s0][sl]`,
    `[s0]trim=end_frame=${clip_s * fps},setpts=N/${fps}/TB[s0t]`,
    `[r0]setpts=N/${fps}/TB[r0t]`,
    `[r0t][s0t]psnr=shortest=1:stats_file=${log(0)}[o0]`,
    // The last frame of each second, shown for a second each; compared with the source 1, 2, ... seconds later.
    `[rf]select='eq(mod(n,${fps}),${fps - 1})',setpts=N/TB,fps=1,tpad=stop=1:stop_mode=clone,fps=${n},trim=end_frame=${clip_s * n},setpts=N/${n}/TB,split=${lags.length}${lags.map((l) => `[f${l}]`).join("")}`,
    // After the clip's end the presentation is at its start again.
    `[sl]trim=end_frame=${clip_s * fps},select='${sampled(fps, n)}',setpts=N/${n}/TB,loop=loop=${Math.ceil(FREEZE_LAGS / clip_s)}:size=${clip_s * n},setpts=N/${n}/TB,split=${lags.length}${lags.map((l) => `[l${l}]`).join("")}`,
    ...lags.map((l) => `[l${l}]trim=start_frame=${l * n}:end_frame=${(clip_s + l) * n},setpts=N/${n}/TB[t${l}]`),
    ...lags.map((l) => `[f${l}][t${l}]psnr=shortest=1:stats_file=${log(l)}[o${l}]`),
  ].join(";");
  const outputs = [0, ...lags].flatMap((l) => ["-map", `[o${l}]`, "-f", "null", "/dev/null"]);
  await ffmpeg(["-i", rungFile(dir, rung), "-i", source.file, "-filter_complex", graph, ...outputs], clip_s, onProgress);

  const mse = (lag: number, perGroup: number): Promise<number[]> => readFile(log(lag), "utf8").then((text) => groupMse(text, perGroup, clip_s, `rung ${rung.kbps}, lag ${lag}`));
  const byLag = await Promise.all(lags.map((l) => mse(l, n)));
  return {
    kbps: rung.kbps,
    psnr_db: (await mse(0, fps)).map(psnrDb),
    freeze_db: Array.from({ length: clip_s }, (_, s) => byLag.map((row) => psnrDb(row[s] ?? NaN))),
  };
}

/** Computes the table for all rungs. */
export async function comparePsnr(source: Source, clip_s: number, dir: string, onProgress: (done: number) => void): Promise<PsnrTable> {
  const rungs: PsnrTable["rungs"] = [];
  for (const [i, rung] of LADDER.entries()) {
    rungs.push(await compareRung(source, clip_s, dir, rung, (done) => onProgress((i + done) / LADDER.length)));
  }
  return { version: 1, plane: "y", cap_db: PSNR_CAP_DB, clip_s, rungs };
}
