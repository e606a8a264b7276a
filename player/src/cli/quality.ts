/** SSIM and VMAF of each rung and second of a presentation, beside the PSNR that it has. Done once for each presentation. */
import { mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { groupMeans, ssimFrames, vmafFrames } from "../media/compare.ts";
import { fit, rungFile } from "../media/encode.ts";
import { execute, ffmpeg, inputOf } from "../media/ffmpeg.ts";
import type { Rung } from "../media/ladder.ts";
import { clipFrames, sourceInput, type Source } from "../media/source.ts";
import { mediaInfoSchema, parseJson, qualitySchema, type Quality } from "../schema.ts";
import { EXIT, run, UsageError } from "./exit.ts";
import { originOf, progress, removeWhenStopped } from "./origin.ts";

const USAGE = "usage: npm run quality -- --dir DIR [--media FILE] [--ffmpeg PROGRAM]\nDIR is what npm run media made of FILE; PROGRAM has libvmaf.";
const WIDTH = 1920;
const HEIGHT = 1080;

const rounded = (values: number[]): number[] => values.map((value) => Math.round(value * 1e4) / 1e4);

async function compare(program: string, work: string, dir: string, source: Source, rung: Rung, onProgress: (done: number) => void): Promise<Quality["rungs"][number]> {
  const { fps, clip_s } = source;
  const { kbps } = rung;
  const [ssim, vmaf] = ["ssim.log", "vmaf.json"];
  const graph = [
    `[0:v]${fit(WIDTH, HEIGHT)},format=yuv420p,setpts=N/${fps}/TB,split=2[d0][d1]`,
    `${clipFrames(source, 1)},${fit(WIDTH, HEIGHT)},format=yuv420p,setpts=N/${fps}/TB,split=2[s0][s1]`,
    `[d0][s0]ssim=shortest=1:stats_file=${ssim}[o0]`,
    `[d1][s1]libvmaf=shortest=1:log_fmt=json:log_path=${vmaf}:n_threads=2[o1]`,
  ].join(";");
  const outputs = ["[o0]", "[o1]"].flatMap((output) => ["-map", output, "-f", "null", "/dev/null"]);
  await ffmpeg(["-i", inputOf(rungFile(dir, rung)), ...sourceInput(source), "-filter_complex", graph, ...outputs], work, clip_s, onProgress, program);
  const what = `rung ${kbps}`;
  return {
    kbps,
    ssim: rounded(groupMeans(ssimFrames(await readFile(join(work, ssim), "utf8")), fps, clip_s, what)),
    vmaf: rounded(groupMeans(vmafFrames(await readFile(join(work, vmaf), "utf8")), fps, clip_s, what)),
  };
}

async function cached(file: string, key: string): Promise<Quality | null> {
  try {
    const found = parseJson(qualitySchema, await readFile(file, "utf8"), "quality.json");
    return found.key === key ? found : null;
  } catch {
    return null;
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { dir: { type: "string" }, media: { type: "string" }, ffmpeg: { type: "string", default: "ffmpeg" } } });
  if (!values.dir) throw new UsageError("--dir is missing");
  const dir = resolve(values.dir);
  const info = parseJson(mediaInfoSchema, await readFile(join(dir, "media.json"), "utf8"), "media.json");
  const out = join(dir, "quality.json");
  let quality = await cached(out, info.key);
  if (!quality) {
    const origin = await originOf(values.media);
    if (origin.sha256 !== info.source.sha256) throw new UsageError(`${dir} was not made of ${origin.file}`);
    // A path, not a name to look for, is relative to this directory.
    const program = values.ffmpeg.includes("/") ? resolve(values.ffmpeg) : values.ffmpeg;
    if (!/\blibvmaf\b/.test(await execute(program, ["-hide_banner", "-filters"]))) throw new Error(`${program} has no libvmaf; tests/scripts/vmaf.sh fetches one that has`);
    const source = { ...origin.source, fps: info.source.fps, clip_s: info.source.clip_s };
    const work = await mkdtemp(join(dir, ".quality-"));
    removeWhenStopped(work);
    try {
      const rungs: Quality["rungs"] = [];
      for (const rung of info.rungs) rungs.push(await compare(program, work, dir, source, rung, progress(`rung ${rung.kbps}`)));
      const version = (await execute(program, ["-version"])).split("\n")[0] ?? "";
      quality = qualitySchema.parse({ version: 1, key: info.key, ffmpeg: version, rungs });
      await writeFile(join(work, "quality.json"), JSON.stringify(quality));
      await rename(join(work, "quality.json"), out);
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  }
  const mean = (values: readonly number[]): string => (values.reduce((a, b) => a + b, 0) / values.length).toPrecision(4);
  for (const rung of quality.rungs) process.stderr.write(`${rung.kbps} kbit/s: SSIM ${mean(rung.ssim)}, VMAF ${mean(rung.vmaf)}\n`);
  return EXIT.ok;
}

await run("quality", USAGE, main);
