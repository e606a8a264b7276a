/** Runs ffmpeg and ffprobe; bounded in time and output, stopped with the program that started them. */
import { spawn, type ChildProcess } from "node:child_process";

const OUTPUT_MAX_BYTES = 4 * 1024 * 1024;
const MESSAGES_MAX_CHARACTERS = 4000;
const TIMEOUT_MS = 30 * 60 * 1000;
const running = new Set<ChildProcess>();

/** Kills what still runs; for signal handlers. */
export function stopAll(): void {
  for (const child of running) child.kill("SIGKILL");
}

export interface Options {
  /** Gets each line of standard output, which is not kept then. */
  readonly onLine?: (line: string) => void;
  /**
   * Where the program runs. ffmpeg's filters, its log files and the DASH muxer take names with patterns and quotes of
   * their own: they get names of ours, relative to this directory.
   */
  readonly cwd?: string;
}

export interface Output {
  readonly stdout: string;
  /** The end of it. */
  readonly stderr: string;
}

/** A file as ffmpeg's input: `a:b` alone would be a protocol, `-x` an option. */
export const inputOf = (file: string): string => `file:${file}`;

/** Runs `command`; rejects with the end of its standard error. */
export function run(command: string, args: readonly string[], { onLine, cwd }: Options = {}): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], cwd });
    running.add(child);
    let stdout = "";
    let stderr = "";
    let rest = "";
    const timer = setTimeout(() => child.kill("SIGKILL"), TIMEOUT_MS);
    child.stdout.setEncoding("utf8").on("data", (data: string) => {
      if (onLine) {
        const lines = (rest + data).split("\n");
        rest = lines.pop() ?? "";
        lines.forEach(onLine);
      } else if (stdout.length < OUTPUT_MAX_BYTES) stdout += data;
    });
    child.stderr.setEncoding("utf8").on("data", (data: string) => {
      stderr = (stderr + data).slice(-MESSAGES_MAX_CHARACTERS);
    });
    const done = (error?: Error): void => {
      clearTimeout(timer);
      running.delete(child);
      if (error) reject(error);
      else resolve({ stdout, stderr });
    };
    child.on("error", (cause) => done(new Error(`cannot run ${command}: ${cause.message}; install ffmpeg`)));
    child.on("close", (code, signal) => {
      done(code === 0 ? undefined : new Error(`${command} ended with ${signal ?? String(code)}: ${stderr.trim() || "no message"}`));
    });
  });
}

/** Runs `command`; resolves with its standard output. */
export const execute = async (command: string, args: readonly string[], options?: Options): Promise<string> => (await run(command, args, options)).stdout;

/** Runs ffmpeg in `cwd`; `onProgress` gets the fraction of `duration_s` that is done. */
export async function ffmpeg(args: readonly string[], cwd: string, duration_s: number, onProgress: (done: number) => void, program = "ffmpeg"): Promise<void> {
  const onLine = (line: string): void => {
    const match = /^out_time_us=(\d+)$/.exec(line);
    if (match?.[1]) onProgress(Math.min(1, Number(match[1]) / 1e6 / duration_s));
  };
  await run(program, ["-nostdin", "-hide_banner", "-v", "error", "-y", "-progress", "pipe:1", ...args], { onLine, cwd });
}
