/** Runs ffmpeg and ffprobe; bounded in time and output, stopped with the program that started them. */
import { spawn, type ChildProcess } from "node:child_process";

const OUTPUT_MAX_BYTES = 4 * 1024 * 1024;
const TIMEOUT_MS = 30 * 60 * 1000;
const running = new Set<ChildProcess>();

/** Kills what still runs; for signal handlers. */
export function stopAll(): void {
  for (const child of running) child.kill("SIGKILL");
}

/** Runs `command`; resolves with its standard output, rejects with the end of its standard error. */
export function execute(command: string, args: readonly string[], onLine?: (line: string) => void): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    running.add(child);
    let out = "";
    let err = "";
    let rest = "";
    const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
    child.stdout.setEncoding("utf8").on("data", (data: string) => {
      if (onLine) {
        const lines = (rest + data).split("\n");
        rest = lines.pop() ?? "";
        lines.forEach(onLine);
      } else if (out.length < OUTPUT_MAX_BYTES) out += data;
    });
    child.stderr.setEncoding("utf8").on("data", (data: string) => {
      err = (err + data).slice(-4000);
    });
    const done = (error?: Error): void => {
      clearTimeout(timer);
      running.delete(child);
      if (error) reject(error);
      else resolve(out);
    };
    child.on("error", (cause) => done(new Error(`cannot run ${command}: ${cause.message}; install ffmpeg`)));
    child.on("close", (code, signal) => {
      done(code === 0 ? undefined : new Error(`${command} ended with ${signal ?? String(code)}: ${err.trim() || "no message"}`));
    });
  });
}

/** Runs ffmpeg; `onProgress` gets the fraction of `duration_s` that is done. */
export async function ffmpeg(args: readonly string[], duration_s: number, onProgress: (done: number) => void, program = "ffmpeg"): Promise<void> {
  await execute(program, ["-nostdin", "-hide_banner", "-v", "error", "-y", "-progress", "pipe:1", ...args], (line) => {
    const match = /^out_time_us=(\d+)$/.exec(line);
    if (match?.[1]) onProgress(Math.min(1, Number(match[1]) / 1e6 / duration_s));
  });
}

/** What the ladder is made from. */
export interface Source {
  readonly file: string;
  readonly fps: number;
  readonly duration_s: number;
}

/** Looks at `file`; refuses what has no usable video. */
export async function probe(file: string): Promise<Source> {
  const text = await execute("ffprobe", ["-v", "error", "-select_streams", "v:0", "-show_entries", "stream=r_frame_rate:format=duration", "-of", "json", file]);
  const info = JSON.parse(text) as { streams?: { r_frame_rate?: string }[]; format?: { duration?: string } };
  const [num, den] = (info.streams?.[0]?.r_frame_rate ?? "").split("/").map(Number);
  const duration_s = Number(info.format?.duration);
  if (!num || !den) throw new Error(`${file}: no video stream with a frame rate`);
  if (!(duration_s >= 2)) throw new Error(`${file}: ${info.format?.duration ?? "no duration"} s long; at least 2 s are needed`);
  // A whole number of frames a second lets every segment start at a whole second.
  return { file, fps: Math.min(60, Math.max(10, Math.round(num / den))), duration_s };
}
