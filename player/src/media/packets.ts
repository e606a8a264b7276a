/** When the frames of a video stream are shown, by its packets: what a container says of durations and rates may be wrong. */
import { inputOf, run } from "./ffmpeg.ts";
import { CLIP_MAX_S } from "./ladder.ts";

/** The longest clip, and what an edit list may cut off before it. */
const READ_S = CLIP_MAX_S + 30;
/** How far from the usual interval between frames one may be. */
const USUAL_TOLERANCE = 0.25;
/** Matroska counts milliseconds: 60 frames/s are 16 and 17 of them. */
const TIME_UNIT_S = 0.001;

/** Of the frames that are shown, in seconds of the file. */
export interface Timing {
  readonly frames: number;
  readonly fps: number;
  readonly isVariable: boolean;
  readonly start_s: number;
  readonly length_s: number;
}

export interface Packets extends Timing {
  /** Not only the part that a clip needs. */
  readonly isAll: boolean;
  /** What ffprobe says of a file that ends early. */
  readonly truncated: string | null;
}

interface Shown {
  readonly start_s: number;
  readonly end_s: number;
}

/** Reads stream number `stream` of `file`, which announces `announced_fps`. */
export async function packetsOf(file: string, stream: number, announced_fps: number): Promise<Packets> {
  const shown: Shown[] = [];
  let untimed = 0;
  let [first_s, last_s] = [Infinity, -Infinity];
  const onLine = (line: string): void => {
    const packet = new Map(line.split("|").map((field) => field.split("=") as [string, string | undefined]));
    const flags = packet.get("flags");
    if (flags === undefined) return;
    const [pts_s, dts_s, duration_s] = ["pts_time", "dts_time", "duration_time"].map((name) => Number(packet.get(name)));
    const start_s = Number.isFinite(pts_s) ? (pts_s ?? NaN) : (dts_s ?? NaN);
    [first_s, last_s] = [Math.min(first_s, Number.isFinite(start_s) ? start_s : Infinity), Math.max(last_s, Number.isFinite(start_s) ? start_s : -Infinity)];
    // An edit list cuts these off.
    if (flags.includes("D")) return;
    if (Number.isFinite(start_s)) shown.push({ start_s, end_s: start_s + (duration_s !== undefined && duration_s > 0 ? duration_s : 0) });
    else untimed += 1;
  };
  const args = ["-v", "error", "-of", "compact=p=0", "-select_streams", String(stream), "-read_intervals", `%+${READ_S}`, "-show_entries", "packet=pts_time,dts_time,duration_time,flags"];
  const { stderr } = await run("ffprobe", [...args, "-i", inputOf(file)], { onLine });
  const timing = shown.length > 0 ? timingOf(shown, announced_fps) : untimedOf(untimed, announced_fps);
  return { ...timing, isAll: !(last_s - first_s > READ_S - 1), truncated: /partial file|ended prematurely/.exec(stderr)?.[0] ?? null };
}

/** A byte stream has a rate and no times. */
const untimedOf = (frames: number, fps: number): Timing => ({ frames, fps, isVariable: false, start_s: 0, length_s: fps > 0 ? frames / fps : 0 });

/** The rate is that of the intervals near the usual one: the median, which long pauses of a variable rate do not move. */
export function timingOf(shown: readonly Shown[], announced_fps: number): Timing {
  const starts = shown.map((frame) => frame.start_s).sort((a, b) => a - b);
  const start_s = starts[0] ?? 0;
  const intervals = starts.slice(1).map((s, i) => s - (starts[i] ?? s)).filter((s) => s > 0).sort((a, b) => a - b);
  const median_s = intervals[Math.floor((intervals.length - 1) / 2)] ?? 0;
  const usual = intervals.filter((s) => Math.abs(s - median_s) <= USUAL_TOLERANCE * median_s + TIME_UNIT_S);
  const fps = usual.length > 0 ? usual.length / usual.reduce((a, b) => a + b, 0) : announced_fps;
  const last = shown.reduce((latest, frame) => (frame.start_s > latest.start_s ? frame : latest), { start_s: -Infinity, end_s: -Infinity });
  const end_s = last.end_s > last.start_s || fps === 0 ? last.end_s : last.start_s + 1 / fps;
  return { frames: shown.length, fps, isVariable: usual.length < intervals.length, start_s, length_s: end_s - start_s };
}
