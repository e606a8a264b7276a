/** Which frame was on the screen at an instant of a session. Pure: no clock, no I/O. */
import { shownRung, timeline } from "./qoe.ts";
import type { PlayerRecord, StreamSession } from "./schema.ts";

/** A frame on the screen, and the one of the source that was due. Frames are counted from the presentation's start. */
export interface OnScreen {
  readonly frame: number;
  readonly due: number;
  readonly media_s: number;
  readonly frozen_s: number;
  /** Null of a stream. */
  readonly rung_kbps: number | null;
}

/** What there is to say of an instant; `shown` is null before the first frame. */
export interface Instant {
  readonly t: number;
  readonly buffer_s: number | null;
  readonly shown: OnScreen | null;
}

/** Media times are rounded by a microsecond or so. */
const EPSILON = 1e-3;

/** Of a session with DASH: by the player's last sample before `t`, a tenth of a second old at most. Null after the session's end. */
export function atInstant(record: PlayerRecord, session_s: number, fps: number, t: number): Instant | null {
  if (t > session_s) return null;
  const line = timeline(record.events, session_s);
  const sample = record.samples.findLast((s) => s.t <= t);
  const buffer_s = sample?.buffer_s ?? null;
  const media_s = sample?.frame_media_s ?? null;
  if (!sample || media_s === null || line.startup_s === null || t < line.startup_s) return { t, buffer_s, shown: null };
  const stall = line.stalls.find((s) => s.start_s <= sample.t && sample.t < s.end_s);
  const frozen_s = stall ? sample.t - stall.start_s : 0;
  const frame = Math.round(media_s * fps);
  const shown = { frame, due: frame + Math.floor(frozen_s * fps + EPSILON), media_s, frozen_s, rung_kbps: shownRung(record, sample) };
  return { t, buffer_s, shown };
}

/** Of a session with a stream: by the instants at which frames were shown. Null after the session's end. */
export function atStreamInstant(session: StreamSession, fps: number, t: number): Instant | null {
  if (t > session.session_s) return null;
  const buffer_s = session.seconds[Math.max(0, Math.ceil(t) - 1)]?.buffer_s ?? null;
  const frame = session.frames.findLastIndex((f) => f.shown_s !== null && f.shown_s <= t);
  const shown_s = session.frames[frame]?.shown_s ?? null;
  if (shown_s === null) return { t, buffer_s, shown: null };
  const behind = Math.floor((t - shown_s) * fps + EPSILON);
  const shown = { frame, due: frame + behind, media_s: frame / fps, frozen_s: behind > 0 ? t - shown_s : 0, rung_kbps: null };
  return { t, buffer_s, shown };
}
