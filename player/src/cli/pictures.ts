/** What was on the screen at some instants of measured sessions: each frame decoded again from what was sent, which costs the measurement nothing. */
import { access, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { rungFile } from "../media/encode.ts";
import { drawPicture, type Clip } from "../media/picture.ts";
import type { Source } from "../media/source.ts";
import { atInstant, atStreamInstant, type Instant, type OnScreen } from "../pictures.ts";
import { mediaInfoSchema, parseJson, picturesSchema, recordSchema, sessionSchema, streamInfoSchema, streamSessionSchema, type Pictures } from "../schema.ts";
import { EXIT, run, UsageError } from "./exit.ts";
import { originOf } from "./origin.ts";

const USAGE = "usage: npm run pictures -- (--media-dir DIR | --stream FILE.json) --at SECONDS... [--media FILE] SESSION_DIR...\nSESSION_DIR has session.json, and of DASH record.json; DIR or FILE.json is what was played, made of FILE.";
/** Each costs up to 100 kB. */
const MOST_PICTURES = 12;

/** What was played. */
interface Played {
  readonly source: Source;
  readonly clip_s: number;
  readonly credit: string | null;
  readonly clip: (shown: OnScreen) => Clip;
  /** `null` after the session's end. */
  readonly instants: (directory: string, at: readonly number[]) => Promise<(Instant | null)[]>;
}

const PICTURE_NAME = /^at-\d+\.\d+s(-part|-source|-source-part)?\.webp$/;

const read = (directory: string, name: string): Promise<string> => readFile(join(directory, name), "utf8");

/** The source, which must be the one that was encoded. */
async function sourceOf(media: string | undefined, made: { readonly sha256: string; readonly fps: number; readonly clip_s: number }, of: string): Promise<Source> {
  const origin = await originOf(media);
  if (origin.sha256 !== made.sha256) throw new UsageError(`${of} was not made of ${origin.file}`);
  return { ...origin.source, fps: made.fps, clip_s: made.clip_s };
}

async function presentation(dir: string, media: string | undefined): Promise<Played> {
  const info = parseJson(mediaInfoSchema, await read(dir, "media.json"), "media.json");
  const { fps, clip_s } = info.source;
  const clip = (shown: OnScreen): Clip => {
    const rung = info.rungs.find((r) => r.kbps === shown.rung_kbps);
    if (!rung) throw new Error(`${dir} has no rung of ${shown.rung_kbps ?? "unknown"} kbit/s`);
    return { file: rungFile(dir, rung), isByteStream: false };
  };
  const instants: Played["instants"] = async (directory, at) => {
    const record = parseJson(recordSchema, await read(directory, "record.json"), `${directory}/record.json`);
    const { session_s } = parseJson(sessionSchema, await read(directory, "session.json"), `${directory}/session.json`);
    return at.map((t) => atInstant(record, session_s, fps, t));
  };
  return { source: await sourceOf(media, info.source, dir), clip_s, credit: info.credit, clip, instants };
}

async function stream(file: string, media: string | undefined): Promise<Played> {
  const info = parseJson(streamInfoSchema, await readFile(file, "utf8"), file);
  const { fps, clip_s } = info.source;
  const clip: Clip = { file: join(dirname(file), `stream-${info.mbps}.264`), isByteStream: true };
  const instants: Played["instants"] = async (directory, at) => {
    const session = parseJson(streamSessionSchema, await read(directory, "session.json"), `${directory}/session.json`);
    return at.map((t) => atStreamInstant(session, fps, t));
  };
  return { source: await sourceOf(media, info.source, file), clip_s, credit: info.credit, clip: () => clip, instants };
}

async function draw(played: Played, directory: string, instant: Instant): Promise<Pictures["pictures"][number]> {
  const { t, buffer_s, shown } = instant;
  if (shown === null) return { t, rung_kbps: null, media_s: null, frozen_s: 0, psnr_db: null, buffer_s, files: null };
  const name = `at-${t.toFixed(3).padStart(8, "0")}s`;
  const files = { whole: `${name}.webp`, part: `${name}-part.webp`, source: `${name}-source.webp`, source_part: `${name}-source-part.webp` };
  const frames = played.clip_s * played.source.fps;
  const at = (file: string): string => join(directory, file);
  // The presentation is the clip again and again.
  const psnr_db = await drawPicture(played.clip(shown), shown.frame % frames, played.source, shown.due % frames, { whole: at(files.whole), part: at(files.part), source: at(files.source), source_part: at(files.source_part) });
  const round = (x: number): number => Math.round(x * 1e3) / 1e3;
  return { t, rung_kbps: shown.rung_kbps, media_s: round(shown.media_s), frozen_s: round(shown.frozen_s), psnr_db, buffer_s, files };
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { "media-dir": { type: "string" }, stream: { type: "string" }, media: { type: "string" }, at: { type: "string", multiple: true } } });
  const at = [...new Set((values.at ?? []).map(Number))].sort((a, b) => a - b);
  if (at.length === 0 || at.length > MOST_PICTURES || !at.every((t) => t >= 0)) throw new UsageError(`--at: 1 to ${MOST_PICTURES} times in seconds are needed`);
  if (positionals.length === 0) throw new UsageError("no SESSION_DIR");
  let played: Played;
  if (values["media-dir"] !== undefined && values.stream === undefined) played = await presentation(resolve(values["media-dir"]), values.media);
  else if (values.stream !== undefined && values["media-dir"] === undefined) played = await stream(resolve(values.stream), values.media);
  else throw new UsageError("either --media-dir or --stream");
  for (const directory of positionals.map((p) => resolve(p))) {
    await access(join(directory, "session.json"));
    // Those of other instants, of a time before.
    for (const name of await readdir(directory)) if (PICTURE_NAME.test(name)) await rm(join(directory, name));
    const pictures: Pictures["pictures"] = [];
    for (const instant of await played.instants(directory, at)) if (instant) pictures.push(await draw(played, directory, instant));
    // Renamed when all its pictures are there.
    const part = join(directory, `.pictures.json.${process.pid}`);
    try {
      await writeFile(part, `${JSON.stringify(picturesSchema.parse({ version: 1, credit: played.credit, pictures }))}\n`);
      await rename(part, join(directory, "pictures.json"));
    } finally {
      await rm(part, { force: true });
    }
    process.stderr.write(`${directory}: ${pictures.length} pictures\n`);
  }
  return EXIT.ok;
}

await run("pictures", USAGE, main);
