/** Encodes the ladder and writes it as DASH. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { execute, ffmpeg, inputOf } from "./ffmpeg.ts";
import { LADDER, MAX_RATE_FACTOR, RATE_TOLERANCE, SEGMENT_S, VBV_S, type Rung } from "./ladder.ts";
import { clipFrames, sourceInput, type Source } from "./source.ts";

const rungName = (rung: Rung): string => `rung-${rung.kbps}.mp4`;
export const rungFile = (dir: string, rung: Rung): string => join(dir, rungName(rung));

/** Filter that puts every source onto a 16:9 canvas of the rung's size. */
export const fit = (width: number, height: number): string =>
  `scale=${width}:${height}:force_original_aspect_ratio=decrease:flags=bicubic,pad=${width}:${height}:(ow-iw)/2:(oh-ih)/2:eval=frame,setsar=1`;

/** Two passes over the clip, all rungs at once: the source is decoded twice instead of ten times. */
export async function encodeLadder(source: Source, dir: string, onProgress: (done: number) => void): Promise<void> {
  const { fps, clip_s } = source;
  const heads = LADDER.map((_, i) => `[s${i}]`).join("");
  const graph = [`${clipFrames(source, 0)},split=${LADDER.length}${heads}`, ...LADDER.map((r, i) => `[s${i}]${fit(r.width, r.height)},format=yuv420p[v${i}]`)].join(";");
  for (const pass of [1, 2]) {
    const outputs = LADDER.flatMap((rung, i) => [
      "-map", `[v${i}]`, "-an", "-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high",
      "-b:v", `${rung.kbps}k`, "-maxrate", `${Math.round(rung.kbps * MAX_RATE_FACTOR)}k`, "-bufsize", `${rung.kbps * VBV_S}k`,
      // Closed GOPs of one segment: any rung can follow any other at every second.
      "-g", String(fps * SEGMENT_S), "-keyint_min", String(fps * SEGMENT_S), "-sc_threshold", "0", "-flags", "+cgop",
      "-frames:v", String(clip_s * fps), "-pass", String(pass), "-passlogfile", `pass-${rung.kbps}`,
      ...(pass === 1 ? ["-f", "null", "/dev/null"] : [rungName(rung)]),
    ]);
    await ffmpeg([...sourceInput(source), "-filter_complex", graph, ...outputs], dir, clip_s, (done) => onProgress((pass - 1 + done) / 2));
  }
}

/** What an encoded rung really needs. */
export interface Achieved {
  readonly achieved_kbps: number;
  readonly segment_kbps_max: number;
}

/** Sums the packets of an encoded rung, whole and second by second. */
export async function measureRung(file: string, clip_s: number): Promise<Achieved> {
  const text = await execute("ffprobe", ["-v", "error", "-show_entries", "packet=size,pts_time", "-of", "csv=p=0", "-i", inputOf(file)]);
  const seconds = new Array<number>(clip_s).fill(0);
  for (const line of text.trim().split("\n")) {
    const [pts_s, bytes] = line.split(",").map(Number);
    const second = Math.floor((pts_s ?? NaN) + 1e-4);
    if (!(second >= 0 && second < clip_s) || !bytes) throw new Error(`${file}: packet "${line}" is outside of 0..${clip_s} s`);
    seconds[second] = (seconds[second] ?? 0) + (bytes * 8) / 1000;
  }
  return { achieved_kbps: round1(seconds.reduce((a, b) => a + b, 0) / clip_s), segment_kbps_max: round1(Math.max(...seconds)) };
}

const round1 = (x: number): number => Math.round(x * 10) / 10;

/** Refuses a rung whose mean is not what the manifest says. Low content may stay below: only a source that fills the rate can be checked from both sides. */
export function checkRate(rung: Rung, achieved_kbps: number, strict: boolean): string | null {
  const deviation = achieved_kbps / rung.kbps - 1;
  if (Math.abs(deviation) <= RATE_TOLERANCE) return null;
  const message = `rung ${rung.kbps} kbit/s came out at ${achieved_kbps} kbit/s, ${(deviation * 100).toFixed(1)} % off (allowed: ${RATE_TOLERANCE * 100} %)`;
  if (strict || deviation > 0) throw new Error(message);
  return message;
}

/** Repeats each rung `loops` times by copying packets, cuts segments, writes the manifest. */
export async function writeDash(dir: string, loops: number): Promise<void> {
  const inputs = LADDER.flatMap((rung) => ["-stream_loop", String(loops - 1), "-i", rungName(rung)]);
  const maps = LADDER.flatMap((_, i) => ["-map", `${i}:v`]);
  const manifest = "manifest.mpd";
  await execute("ffmpeg", [
    "-nostdin", "-v", "error", "-y", ...inputs, ...maps, "-c", "copy", "-f", "dash", "-seg_duration", String(SEGMENT_S), "-use_template", "1", "-use_timeline", "0",
    // Without this each rung becomes an adaptation set of its own and nothing can be switched.
    "-adaptation_sets", "id=0,streams=v",
    "-init_seg_name", "init-$RepresentationID$.mp4", "-media_seg_name", "seg-$RepresentationID$-$Number%05d$.m4s", manifest,
  ], { cwd: dir });
  await writeFile(join(dir, manifest), finishManifest(await readFile(join(dir, manifest), "utf8")));
}

/**
 * Announces the ladder's rates, so that a rung has one name everywhere, and takes back
 * `bitstreamSwitching`: the rungs differ in size, each needs its own initialisation segment.
 */
export function finishManifest(mpd: string): string {
  let next = 0;
  const out = mpd
    .replace(/ bitstreamSwitching="true"/g, "")
    .replace(/ bandwidth="\d+" width="(\d+)"/g, (whole, width: string) => {
      const rung = LADDER[next++];
      if (rung?.width !== Number(width)) throw new Error(`manifest: representation ${next - 1} has "${whole.trim()}", not width ${rung?.width ?? "of a rung"}`);
      return ` bandwidth="${rung.kbps * 1000}" width="${width}"`;
    });
  if (next !== LADDER.length) throw new Error(`manifest: ${next} representations instead of ${LADDER.length}`);
  return out;
}
