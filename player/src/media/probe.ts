/** Looks at a video before anything is encoded, and refuses what can't be used. */
import { z } from "zod";
import { execute, inputOf } from "./ffmpeg.ts";
import { CLIP_MAX_S } from "./ladder.ts";
import { packetsOf, type Packets } from "./packets.ts";
import type { Source } from "./source.ts";

const LENGTH_MIN_S = 2;
const FPS_MIN = 10;
const FPS_MAX = 60;
/** What a clip may lack of a whole second: its last frame is repeated. */
const LACK_MAX_S = 0.05;
/** How much shorter a stream may be than it declares, by rounding and edit lists. */
const DECLARED_TOLERANCE_S = 0.5;
/** Differences that are no more than rounding. */
const ROUNDING_S = 1e-3;
/** Containers with an index. In others a search ends anywhere. */
const INDEXED = /\b(mp4|matroska|avi)\b/;
/** Transfer functions of HDR (ITU-T H.273, Table 3). */
const HDR: Readonly<Record<string, string>> = { smpte2084: "PQ", "arib-std-b67": "HLG" };

const figure = z.coerce.number().optional().catch(undefined);
const probedSchema = z.object({
  streams: z.array(
    z.object({
      index: z.int(),
      codec_type: z.string().default("unknown"),
      codec_name: z.string().default("unknown"),
      r_frame_rate: z.string().default(""),
      sample_aspect_ratio: z.string().default("1:1"),
      color_transfer: z.string().default(""),
      duration: figure,
      disposition: z.object({ default: z.int(), attached_pic: z.int(), timed_thumbnails: z.int() }).partial().default({}),
    }),
  ),
  format: z.object({ format_name: z.string().default(""), start_time: figure, duration: figure }),
});
type Probed = z.infer<typeof probedSchema>;
type Stream = Probed["streams"][number];

export async function probe(file: string): Promise<Source> {
  const probed = await streamsOf(file);
  const stream = videoOf(file, probed.streams);
  const packets = await packetsOf(file, stream.index, announcedRate(stream));
  if (packets.frames === 0) throw new Error(`${file}: its video stream ${stream.index} holds no frame`);
  // A file with audio too may be longer than its video.
  checkWhole(file, packets, stream.duration ?? (probed.streams.length === 1 ? probed.format.duration : undefined));
  if (packets.length_s < LENGTH_MIN_S) {
    throw new Error(`${file}: ${seconds(packets.length_s)} of video (${packets.frames} frame${packets.frames === 1 ? "" : "s"}); at least ${LENGTH_MIN_S} s are needed`);
  }
  const source = {
    file,
    stream: stream.index,
    fps: Math.min(FPS_MAX, Math.max(FPS_MIN, Math.round(packets.fps))),
    start_s: Math.max(0, packets.start_s - (probed.format.start_time ?? 0)),
    clip_s: Math.min(CLIP_MAX_S, Math.floor(packets.length_s + LACK_MAX_S)),
    isIndexed: INDEXED.test(probed.format.format_name),
    isAnamorphic: !["1:1", "0:1", "N/A"].includes(stream.sample_aspect_ratio),
  };
  return { ...source, notes: [...streamNotes(probed.streams, stream), ...timeNotes(source, packets)] };
}

const seconds = (s: number): string => `${Math.round(s * 1000) / 1000} s`;

async function streamsOf(file: string): Promise<Probed> {
  const entries =
    "stream=index,codec_type,codec_name,r_frame_rate,sample_aspect_ratio,color_transfer,duration:stream_disposition=default,attached_pic,timed_thumbnails:format=format_name,start_time,duration";
  const text = await execute("ffprobe", ["-v", "error", "-of", "json", "-show_entries", entries, "-i", inputOf(file)]).catch((cause: unknown) => {
    throw new Error(`${file} is no video that ffprobe reads, or not all of one: ${messageOf(cause)}`);
  });
  return probedSchema.parse(JSON.parse(text));
}

/** The first reason that ffprobe gives: it names the part of it, then its reason; the last line names the file. */
function messageOf(cause: unknown): string {
  const message = cause instanceof Error ? cause.message : String(cause);
  return /\[[^\]\n]* @ 0x[0-9a-f]+\] ([^\n]+)/.exec(message)?.[1] ?? message;
}

const isMoving = (s: Stream): boolean => s.codec_type === "video" && s.disposition.attached_pic !== 1 && s.disposition.timed_thumbnails !== 1;

/** The default stream, or the first one. Cover art and thumbnails are video streams as well. */
function videoOf(file: string, streams: readonly Stream[]): Stream {
  const moving = streams.filter(isMoving);
  const stream = moving.find((s) => s.disposition.default === 1) ?? moving[0];
  if (!stream) {
    const types = [...new Set(streams.map((s) => s.codec_type))].join(", ") || "none";
    const found = streams.some((s) => s.codec_type === "video") ? "its only pictures are cover art" : `it has no video stream (its streams: ${types})`;
    throw new Error(`${file}: ${found}; a file with a video is needed`);
  }
  if (stream.codec_name === "unknown") throw new Error(`${file}: ffmpeg does not know the codec of its video stream ${stream.index}`);
  return stream;
}

function announcedRate(stream: Stream): number {
  const [num = 0, den = 0] = stream.r_frame_rate.split("/").map(Number);
  return num > 0 && den > 0 ? num / den : 0;
}

/** Refuses a file that ends before its video does. */
function checkWhole(file: string, packets: Packets, declared_s = 0): void {
  const isShort = packets.isAll && packets.length_s < declared_s - DECLARED_TOLERANCE_S;
  if (packets.truncated === null && !isShort) return;
  const reason = isShort ? `it declares ${seconds(declared_s)}` : packets.truncated;
  throw new Error(`${file} is truncated: it holds ${seconds(packets.length_s)} of video (${reason}); copy it again, or cut it with ffmpeg -t`);
}

function streamNotes(streams: readonly Stream[], stream: Stream): string[] {
  const notes: string[] = [];
  if (streams.filter((s) => s.codec_type === "video").length > 1) notes.push(`several video streams: number ${stream.index} is used`);
  const hdr = HDR[stream.color_transfer];
  if (hdr) notes.push(`HDR (${hdr}): no tone mapping, so that colours look pale; what is measured compares equals`);
  return notes;
}

function timeNotes(source: Omit<Source, "notes">, packets: Packets): string[] {
  const notes: string[] = [];
  if (packets.isVariable) notes.push(`variable frame rate: ${source.fps} frames/s are made of it`);
  if (source.start_s > ROUNDING_S) notes.push(`its first frame comes after ${seconds(source.start_s)}: the clip begins with it`);
  if (source.isAnamorphic) notes.push("its pixels are not square: it is scaled so that they are");
  const lack_s = source.clip_s - packets.length_s;
  if (lack_s > ROUNDING_S) notes.push(`${seconds(packets.length_s)} of video: its last frame is repeated until ${source.clip_s} s`);
  if (-lack_s > ROUNDING_S && source.clip_s < CLIP_MAX_S) notes.push(`${seconds(packets.length_s)} of video: the first ${source.clip_s} s are used`);
  return notes;
}
