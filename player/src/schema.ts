/** Shapes of every file that crosses a program boundary. A file that does not fit is refused with the path of the field. */
import { z } from "zod";

const finite = z.number().refine(Number.isFinite, "must be finite");
const notNegative = finite.min(0);

/** psnr.json: luma PSNR (dB) per rung and second of the clip, and of a frozen frame against later seconds. */
export const psnrTableSchema = z.strictObject({
  version: z.literal(1),
  plane: z.literal("y"),
  cap_db: z.number().positive(),
  /** The clip repeats after so many seconds. */
  clip_s: z.int().positive(),
  rungs: z.array(
    z.strictObject({
      kbps: z.number().positive(),
      /** [second of the clip] */
      psnr_db: z.array(finite),
      /** [second whose last frame is frozen][seconds later - 1] */
      freeze_db: z.array(z.array(finite).min(1)),
    }),
  ).min(1),
});
export type PsnrTable = z.infer<typeof psnrTableSchema>;

/** media.json: what was encoded, from what, and what came out. */
export const mediaInfoSchema = z.strictObject({
  version: z.literal(1),
  key: z.string(),
  credit: z.string().nullable(),
  source: z.strictObject({ name: z.string(), sha256: z.string(), fps: z.number(), clip_s: z.int() }),
  presentation_s: z.int(),
  segment_s: z.number(),
  ffmpeg: z.string(),
  rungs: z.array(
    z.strictObject({
      kbps: z.number(),
      width: z.int(),
      height: z.int(),
      achieved_kbps: z.number(),
      segment_kbps_max: z.number(),
    }),
  ),
});
export type MediaInfo = z.infer<typeof mediaInfoSchema>;

/** quality.json: what else there is to say of each rung and second of the clip; SSIM of luma, VMAF of `vmaf_v0.6.1`. */
export const qualitySchema = z.strictObject({
  version: z.literal(1),
  /** Of the presentation. */
  key: z.string(),
  ffmpeg: z.string(),
  rungs: z.array(z.strictObject({ kbps: z.number().positive(), ssim: z.array(finite), vmaf: z.array(finite) })).min(1),
});
export type Quality = z.infer<typeof qualitySchema>;

/** stream-RATE.json: a stream for RTSP, and what its frames are like; luma PSNR in dB. */
export const streamInfoSchema = z.strictObject({
  version: z.literal(1),
  key: z.string(),
  credit: z.string().nullable(),
  source: z.strictObject({ name: z.string(), sha256: z.string(), fps: z.number(), clip_s: z.int() }),
  ffmpeg: z.string(),
  mbps: z.number().positive(),
  width: z.int(),
  height: z.int(),
  achieved_mbps: z.number(),
  /** The stream is the same clip `loops` times. */
  clip_bytes: z.int().positive(),
  loops: z.int().positive(),
  /** [frame of the clip] */
  frame_db: z.array(finite).min(1),
  /** [second whose last frame is frozen][seconds later - 1] */
  freeze_db: z.array(z.array(finite).min(1)),
});
export type StreamInfo = z.infer<typeof streamInfoSchema>;

/**
 * An event as the page saw it, `t` in seconds since the play request. By `type`:
 *
 * - `play_request` (`mpd`), `first_frame` (`media_s`, `height`), `playing` and `waiting` (`media_s`), `ended`
 * - `quality_requested` (`rung_kbps`), `request_abandoned`
 * - `algorithm` (`algorithm`): from the proxy; the first congestion control that carried the session, and each that took its place
 * - `paused` and `seeking` (`media_s`); `rung_selected` (`rung_kbps`, null: by the strategy again): what the viewer did, and dash.js too
 * - `error` (`message`)
 */
export const playerEventSchema = z.object({ t: finite, type: z.string() }).catchall(z.union([z.string(), z.number(), z.boolean(), z.null()]));
export type PlayerEvent = z.infer<typeof playerEventSchema>;

/** The player's state at one instant. */
export const sampleSchema = z.strictObject({
  t: notNegative,
  /** Media time of the last presented frame; null before the first. */
  frame_media_s: notNegative.nullable(),
  /** Height of the last presented frame, in lines. */
  frame_height: z.int().nullable(),
  buffer_s: notNegative.nullable(),
  throughput_kbps: notNegative.nullable(),
  dropped_frames: z.int().min(0),
  /** Of a live stream: how long ago what is shown was live, from the first frame on. */
  latency_s: notNegative.nullable().default(null),
  playback_rate: notNegative.default(1),
});
export type Sample = z.infer<typeof sampleSchema>;

/** A media segment that reached the source buffer. A later entry of the same start replaces it. */
export const appendedSchema = z.strictObject({ t: notNegative, start_s: notNegative, duration_s: z.number().positive(), rung_kbps: z.number().positive() });
export type Appended = z.infer<typeof appendedSchema>;

/** A segment, initialisation included, that came over the network: asked for, first byte, last byte. */
export const downloadSchema = z.strictObject({ start_s: finite, first_byte_s: finite, end_s: finite, bytes: z.int().min(0), rung_kbps: z.number().positive() });
export type Download = z.infer<typeof downloadSchema>;

/** A rung as the manifest announces it. */
export const announcedRungSchema = z.strictObject({ kbps: z.number().positive(), height: z.int() });
export type AnnouncedRung = z.infer<typeof announcedRungSchema>;

/** What the page collects; the figures are derived from it by `qoe.ts`. */
export const recordSchema = z.strictObject({
  version: z.literal(1),
  /** Seconds since the play request, when this was read; null while nothing was requested. */
  now_s: notNegative.nullable(),
  abr: z.string(),
  buffer_target_s: z.number(),
  cmcd: z.string(),
  /** How far behind the live edge the player wants to be; null of what is not live. */
  live_target_s: notNegative.nullable().default(null),
  ladder: z.array(announcedRungSchema),
  events: z.array(playerEventSchema),
  samples: z.array(sampleSchema),
  appended: z.array(appendedSchema),
  downloads: z.array(downloadSchema),
  truncated: z.boolean(),
  error: z.string().nullable(),
});
export type PlayerRecord = z.infer<typeof recordSchema>;

export const secondSchema = z.strictObject({
  t: z.int().min(0),
  rung_kbps: z.number().nullable(),
  psnr_db: finite.nullable(),
  /** Of what played; null without a quality.json. */
  ssim: finite.nullable(),
  vmaf: finite.nullable(),
  buffer_s: notNegative.nullable(),
  throughput_kbps: notNegative.nullable(),
  stalled: z.boolean(),
  stalled_s: notNegative,
  /** At the second's end; null of what is not live. */
  latency_s: notNegative.nullable().default(null),
});
export type Second = z.infer<typeof secondSchema>;

/** A live session: samples from start-up on, stalls included, and the playback rates while it played. */
export const liveSchema = z.strictObject({
  target_s: notNegative.nullable(),
  latency_mean_s: notNegative.nullable(),
  latency_p95_s: notNegative.nullable(),
  rate_min: notNegative.nullable(),
  rate_max: notNegative.nullable(),
});
export type Live = z.infer<typeof liveSchema>;

/** session.json: one measurement. Null means that it did not happen, never that it was not looked at. */
export const sessionSchema = z.strictObject({
  version: z.literal(1),
  startup_s: notNegative.nullable(),
  stalls: z.int().min(0),
  stall_s: notNegative,
  stall_list: z.array(z.strictObject({ start_s: notNegative, end_s: notNegative, to_end: z.boolean() })),
  rebuffer_ratio: z.number().min(0).max(1),
  bitrate_kbps: z.number().positive().nullable(),
  switches: z.int().min(0),
  /** QoE_lin in Mbit/s, with and without its term for changes of the rung; null of sessions that were recorded before it was there. */
  qoe_lin: finite.nullable().default(null),
  qoe_lin_without_switches: finite.nullable().default(null),
  psnr_db: finite.nullable(),
  /** Of what played: frozen pictures don't count, for which there is no table. Null without a quality.json. */
  ssim: finite.nullable(),
  vmaf: finite.nullable(),
  dropped_frames: z.int().min(0),
  /** Of these, while it played and had played for a second: this machine's doing. */
  dropped_undisturbed: z.int().min(0),
  /** Time in which the picture stood still although the player said that it played. */
  frozen_outside_stalls_s: notNegative,
  played_s: notNegative,
  session_s: notNegative,
  /** Null of what is not live. */
  live: liveSchema.nullable().default(null),
  seconds: z.array(secondSchema),
  events: z.array(playerEventSchema),
  downloads: z.array(downloadSchema),
  screenshots: z.array(z.strictObject({ t: notNegative, file: z.string() })),
  abr: z.string(),
  buffer_target_s: z.number(),
  cmcd: z.string(),
  ladder_kbps: z.array(z.number()),
  url: z.string(),
  browser: z.string(),
  error: z.string().nullable(),
});
export type Session = z.infer<typeof sessionSchema>;

/** What became of a frame of a stream, in seconds since the play request. */
export const frameSeenSchema = z.object({ shown_s: notNegative.nullable() });
export type FrameSeen = z.infer<typeof frameSeenSchema>;

/** What is read of a session with a stream, which `millrace-lab run` writes with the emulator. */
export const streamSessionSchema = z.object({
  session_s: notNegative,
  seconds: z.array(z.object({ buffer_s: notNegative })),
  /** In the order of the stream. */
  frames: z.array(frameSeenSchema),
});
export type StreamSession = z.infer<typeof streamSessionSchema>;

/** pictures.json: what was on the screen at some instants of a session; files lie beside it. */
export const picturesSchema = z.strictObject({
  version: z.literal(1),
  credit: z.string().nullable(),
  pictures: z.array(
    z.strictObject({
      /** Asked for, in seconds since the play request. */
      t: notNegative,
      /** The rung on the screen; null of a stream, and before the first frame. */
      rung_kbps: z.number().positive().nullable(),
      /** Media time of the frame on the screen; null before the first. */
      media_s: notNegative.nullable(),
      /** How long it had stood by then; 0 while it played. */
      frozen_s: notNegative,
      /** Luma, of this frame against the source's that was due. */
      psnr_db: finite.nullable(),
      buffer_s: notNegative.nullable(),
      /** The picture, a part of it at full size, and the same of the source's that was due; null before the first frame. */
      files: z.strictObject({ whole: z.string(), part: z.string(), source: z.string(), source_part: z.string() }).nullable(),
    }),
  ),
});
export type Pictures = z.infer<typeof picturesSchema>;

/** Parses `text` as JSON of `schema`; the error says which file and which field. */
export function parseJson<T>(schema: z.ZodType<T>, text: string, file: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Error(`${file}: not JSON: ${String(cause)}`);
  }
  const result = schema.safeParse(value);
  if (!result.success) throw new Error(`${file}: ${z.prettifyError(result.error)}`);
  return result.data;
}
