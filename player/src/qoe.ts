/**
 * From what the page recorded to what the viewer saw. Pure: no clock, no I/O.
 *
 * Time `t` runs in seconds from the play request. Until the first `playing` the session is starting up; then it
 * plays, except between a `waiting` and the next `playing`, which is a stall. A stall that has not ended when
 * the session ends lasts to the end. A session that never played is a single stall over its whole time.
 */
import type { Appended, Live, PlayerEvent, PlayerRecord, PsnrTable, Quality, Sample, Second, Session } from "./schema.ts";

/** The picture may stand still this long between frames before it counts as frozen: two frames at 10/s, and the sampling step. */
const FROZEN_MIN_S = 0.5;

/** What a session that only stalls loses against one that never does (Pensieve, Table 1: QoE_lin). */
const STALL_WEIGHT_MBPS = 4.3;

/** After this time the decoder has caught up with what a stall held back. */
const SETTLED_S = 1;

export interface Stall {
  readonly start_s: number;
  readonly end_s: number;
  /** It had not ended when the session did. */
  readonly to_end: boolean;
}

export interface Timeline {
  /** First `playing`; null if there was none. */
  readonly startup_s: number | null;
  readonly stalls: readonly Stall[];
  /** Where the session ends: the presentation's end, or `duration_s`. */
  readonly session_s: number;
}

/** Start-up and stalls from the player's own events. */
export function timeline(events: readonly PlayerEvent[], duration_s: number): Timeline {
  const ended = events.find((e) => e.type === "ended" && e.t < duration_s);
  const session_s = ended?.t ?? duration_s;
  const stalls: Stall[] = [];
  let startup_s: number | null = null;
  let waiting_s: number | null = null;
  for (const event of events) {
    if (event.t >= session_s) continue;
    if (event.type === "playing") {
      if (startup_s === null) startup_s = event.t;
      else if (waiting_s !== null && event.t > waiting_s) stalls.push({ start_s: waiting_s, end_s: event.t, to_end: false });
      waiting_s = null;
    } else if (event.type === "waiting" && startup_s !== null) {
      waiting_s ??= event.t;
    }
  }
  if (startup_s === null) {
    if (session_s > 0) stalls.push({ start_s: 0, end_s: session_s, to_end: true });
  } else if (waiting_s !== null) {
    stalls.push({ start_s: waiting_s, end_s: session_s, to_end: true });
  }
  return { startup_s, stalls, session_s };
}

/** Rung of the data that lay in the buffer at media time `media_s` when it was presented at `t`; the last append wins, as in the source buffer. */
export function rungAt(appended: readonly Appended[], media_s: number, t: number): number | null {
  // A frame's time may be rounded to just before its segment's start.
  const at = media_s + 1e-3;
  for (let i = appended.length - 1; i >= 0; i--) {
    const a = appended[i];
    if (a && a.t <= t && a.start_s <= at && at < a.start_s + a.duration_s) return a.rung_kbps;
  }
  return null;
}

/**
 * Rung of a presented frame. Its height tells, where no two rungs share one: a segment that replaces another while
 * that is being decoded comes too late, so what lies in the buffer need not be what is seen.
 */
export function shownRung(record: Pick<PlayerRecord, "appended" | "ladder">, sample: Sample): number | null {
  if (sample.frame_media_s === null) return null;
  const heights = new Set(record.ladder.map((r) => r.height));
  if (heights.size === record.ladder.length && sample.frame_height !== null) {
    const rung = record.ladder.find((r) => r.height === sample.frame_height);
    if (rung) return rung.kbps;
  }
  return rungAt(record.appended, sample.frame_media_s, sample.t);
}

/** A stretch of the session in which one thing was on the screen. */
export interface Piece {
  readonly start_s: number;
  readonly end_s: number;
  readonly playing: boolean;
  /** Null before the first frame. */
  readonly rung_kbps: number | null;
  /** Media time of the frame shown. */
  readonly media_s: number | null;
  /** How long the picture has been frozen at the piece's middle; 0 while playing. */
  readonly frozen_s: number;
}

/** Cuts the session at samples, at state changes and at whole seconds, so that each piece has one state and one second. */
export function pieces(record: Pick<PlayerRecord, "samples" | "appended" | "ladder">, line: Timeline): Piece[] {
  const end = line.session_s;
  const cuts = new Set<number>([0, end]);
  for (let s = 1; s < end; s++) cuts.add(s);
  for (const sample of record.samples) if (sample.t < end) cuts.add(sample.t);
  for (const stall of line.stalls) cuts.add(stall.start_s).add(Math.min(stall.end_s, end));
  if (line.startup_s !== null) cuts.add(line.startup_s);
  const times = [...cuts].sort((a, b) => a - b);

  const out: Piece[] = [];
  let next = 0;
  let sample: Sample | undefined;
  for (let i = 0; i + 1 < times.length; i++) {
    const start_s = times[i] ?? 0;
    const end_s = times[i + 1] ?? 0;
    for (let s = record.samples[next]; s && s.t <= start_s; s = record.samples[++next]) sample = s;
    const middle = (start_s + end_s) / 2;
    const stall = line.stalls.find((s) => s.start_s <= middle && middle < s.end_s);
    const started = line.startup_s !== null && middle >= line.startup_s;
    // A start-up shorter than the sampling step: the first frame is known from the following sample.
    const shown = sample?.frame_media_s != null || !started ? sample : record.samples[next];
    const media_s = started ? (shown?.frame_media_s ?? null) : null;
    out.push({
      start_s,
      end_s,
      playing: started && !stall,
      media_s,
      rung_kbps: started && shown ? shownRung(record, shown) : null,
      frozen_s: started && stall ? middle - stall.start_s : 0,
    });
  }
  return out;
}

/**
 * Luma PSNR of a piece: the table's value of the second shown, or, frozen, that of its last frame against the
 * source that would have been on the screen. Null where nothing was shown.
 */
export function piecePsnr(piece: Piece, table: PsnrTable): number | null {
  if (piece.media_s === null || piece.rung_kbps === null) return null;
  const rung = table.rungs.find((r) => r.kbps === piece.rung_kbps);
  if (!rung) throw new Error(`the PSNR table has no rung of ${piece.rung_kbps} kbit/s`);
  const second = Math.floor(piece.media_s + 1e-3);
  const row = second % table.clip_s;
  if (piece.playing) return rung.psnr_db[row] ?? null;
  const lags = rung.freeze_db[row] ?? [];
  const lag = Math.floor(piece.media_s + piece.frozen_s) - second;
  if (lag < 1) return rung.psnr_db[row] ?? null;
  // Longer than the table: by then the picture has nothing to do with the source, and its last value says so.
  return lags[Math.min(lag, lags.length) - 1] ?? null;
}

/**
 * SSIM or VMAF of a piece: that of the second shown. Null where nothing was shown and where the picture was frozen,
 * for there is no table of frozen pictures.
 */
export function pieceQuality(piece: Piece, quality: Quality, of: "ssim" | "vmaf"): number | null {
  if (!piece.playing || piece.media_s === null || piece.rung_kbps === null) return null;
  const rung = quality.rungs.find((r) => r.kbps === piece.rung_kbps);
  if (!rung) throw new Error(`quality.json has no rung of ${piece.rung_kbps} kbit/s`);
  return rung[of][Math.floor(piece.media_s + 1e-3) % rung[of].length] ?? null;
}

/** Mean of `value` over the pieces' time; null without pieces. */
export function timeMean(list: readonly Piece[], value: (piece: Piece) => number | null): number | null {
  let sum = 0;
  let time = 0;
  for (const piece of list) {
    const v = value(piece);
    if (v === null) continue;
    sum += v * (piece.end_s - piece.start_s);
    time += piece.end_s - piece.start_s;
  }
  return time > 0 ? sum / time : null;
}

/** Changes of the shown rung, each by how much. */
export function switchesOf(list: readonly Piece[]): number[] {
  const shown = list.flatMap((piece) => (piece.playing && piece.rung_kbps !== null ? [piece.rung_kbps] : []));
  return shown.flatMap((rung, i) => {
    const before = shown[i - 1] ?? rung;
    return rung === before ? [] : [Math.abs(rung - before)];
  });
}

/**
 * QoE_lin in Mbit/s: mean bitrate while playing - 4.3 x (time stalled / session) - sum of rung changes / time played
 * (Yin et al., SIGCOMM 2015, Equation 5, divided by the time; weights of Pensieve, SIGCOMM 2017, Table 1).
 */
export function qoeLin(session: { readonly bitrate_kbps: number | null; readonly rebuffer_ratio: number; readonly played_s: number }, switches_kbps: readonly number[]): number {
  const changed_kbps = switches_kbps.reduce((sum, kbps) => sum + kbps, 0);
  const perSecond = session.played_s > 0 ? changed_kbps / session.played_s : 0;
  return ((session.bitrate_kbps ?? 0) - perSecond) / 1000 - STALL_WEIGHT_MBPS * session.rebuffer_ratio;
}

/** Time in which the same frame stayed although the player said that it played. */
export function frozenOutsideStalls(list: readonly Piece[]): number {
  let total = 0;
  let still = 0;
  let last: number | null = null;
  const close = (): void => {
    if (still >= FROZEN_MIN_S) total += still;
    still = 0;
  };
  for (const piece of list) {
    if (!piece.playing || piece.media_s === null) {
      close();
      last = null;
      continue;
    }
    if (piece.media_s !== last) close();
    still += piece.end_s - piece.start_s;
    last = piece.media_s;
  }
  close();
  return total;
}

/** Frames dropped in the session, where the time between two samples counts. */
function droppedFrames(samples: readonly Sample[], line: Timeline, counts: (from_s: number, to_s: number) => boolean): number {
  let dropped = 0;
  let before = { t: 0, dropped_frames: 0 };
  for (const sample of samples) {
    if (sample.t > line.session_s) break;
    // The browser's counter restarts when dash.js resets its buffers, as after a request that it gave up.
    const restarted = sample.dropped_frames < before.dropped_frames;
    if (counts(before.t, sample.t)) dropped += sample.dropped_frames - (restarted ? 0 : before.dropped_frames);
    before = sample;
  }
  return dropped;
}

/** Frames dropped while playing undisturbed. What is dropped where a stall or the start-up ends is the network's doing: the decoder catches up. */
export function droppedUndisturbed(samples: readonly Sample[], line: Timeline): number {
  const undisturbed = (from_s: number, to_s: number): boolean =>
    line.startup_s !== null && from_s >= line.startup_s + SETTLED_S && line.stalls.every((s) => to_s < s.start_s || from_s >= s.end_s + SETTLED_S);
  return droppedFrames(samples, line, undisturbed);
}

/** What the frames are like that a session may show: without one, what is read from it is null. */
export interface Tables {
  readonly psnr: PsnrTable | null;
  readonly quality: Quality | null;
}

/** Means over the time of some pieces: PSNR with frozen pictures, SSIM and VMAF without. */
function means(list: readonly Piece[], { psnr, quality }: Tables): Pick<Second, "psnr_db" | "ssim" | "vmaf"> {
  return {
    psnr_db: round(psnr && timeMean(list, (p) => piecePsnr(p, psnr)), 3),
    ssim: round(quality && timeMean(list, (p) => pieceQuality(p, quality, "ssim")), 4),
    vmaf: round(quality && timeMean(list, (p) => pieceQuality(p, quality, "vmaf")), 2),
  };
}

function seconds(record: PlayerRecord, line: Timeline, list: readonly Piece[], tables: Tables): Second[] {
  const out: Second[] = [];
  let nextPiece = 0;
  let nextSample = 0;
  let sample: Sample | undefined;
  for (let t = 0; t < line.session_s; t++) {
    const first = nextPiece;
    // No piece reaches over a whole second.
    while ((list[nextPiece]?.start_s ?? Infinity) < t + 1) nextPiece++;
    const inside = list.slice(first, nextPiece);
    for (let s = record.samples[nextSample]; s && s.t < t + 1; s = record.samples[++nextSample]) sample = s;
    const byRung = new Map<number, number>();
    for (const p of inside) if (p.rung_kbps !== null) byRung.set(p.rung_kbps, (byRung.get(p.rung_kbps) ?? 0) + p.end_s - p.start_s);
    const longest = [...byRung].sort((a, b) => b[1] - a[1])[0];
    const stalled_s = line.stalls.reduce((sum, s) => sum + Math.max(0, Math.min(s.end_s, t + 1) - Math.max(s.start_s, t)), 0);
    out.push({
      t,
      rung_kbps: longest?.[0] ?? null,
      ...means(inside, tables),
      buffer_s: round(sample?.buffer_s ?? null, 3),
      throughput_kbps: round(sample?.throughput_kbps ?? null, 1),
      stalled: stalled_s >= Math.min(1, line.session_s - t) / 2,
      stalled_s: round(stalled_s, 3),
      latency_s: round(sample?.latency_s ?? null, 3),
    });
  }
  return out;
}

/** The value that `part` of them do not exceed (nearest rank); null of none. */
export function percentile(values: readonly number[], part: number): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] ?? null;
}

/** Latency and playback rates of a live session. Samples are a tenth of a second apart, so that each counts the same. */
export function live(record: Pick<PlayerRecord, "samples">, line: Timeline, target_s: number): Live {
  const { startup_s, session_s, stalls } = line;
  const started = record.samples.filter((s) => startup_s !== null && s.t >= startup_s && s.t <= session_s);
  const latency = started.flatMap((s) => s.latency_s ?? []);
  const rates = started.filter((s) => stalls.every((x) => s.t < x.start_s || s.t >= x.end_s)).map((s) => s.playback_rate);
  const mean = latency.length > 0 ? latency.reduce((a, b) => a + b, 0) / latency.length : null;
  return {
    target_s,
    latency_mean_s: round(mean, 3),
    latency_p95_s: round(percentile(latency, 0.95), 3),
    rate_min: round(percentile(rates, 0), 3),
    rate_max: round(percentile(rates, 1), 3),
  };
}

function round(x: number, digits: number): number;
function round(x: number | null, digits: number): number | null;
function round(x: number | null, digits: number): number | null {
  return x === null ? null : Math.round(x * 10 ** digits) / 10 ** digits;
}

/** The figures of a session; what only the measuring program knows is added by it. */
export type Qoe = Omit<Session, "version" | "events" | "downloads" | "screenshots" | "url" | "browser" | "error" | "abr" | "buffer_target_s" | "cmcd" | "ladder_kbps">;

/** All figures of a record that was observed for `duration_s`. Without a table PSNR is null, without `quality` SSIM and VMAF. */
export function qoe(record: PlayerRecord, duration_s: number, psnr: PsnrTable | null, quality: Quality | null = null): Qoe {
  const tables = { psnr, quality };
  const line = timeline(record.events, duration_s);
  const list = pieces(record, line);
  const stall_s = line.stalls.reduce((sum, s) => sum + s.end_s - s.start_s, 0);
  const playing = list.filter((p) => p.playing);
  const rebuffer_ratio = line.session_s > 0 ? round(Math.min(1, stall_s / line.session_s), 5) : 0;
  const bitrate_kbps = round(timeMean(playing, (p) => p.rung_kbps), 1);
  const played_s = round(playing.reduce((sum, p) => sum + p.end_s - p.start_s, 0), 3);
  const switches = switchesOf(list);
  const lin = (counted: readonly number[]): number => round(qoeLin({ bitrate_kbps, rebuffer_ratio, played_s }, counted), 4);
  return {
    startup_s: round(line.startup_s, 3),
    stalls: line.stalls.length,
    stall_s: round(stall_s, 3),
    stall_list: line.stalls.map((s) => ({ start_s: round(s.start_s, 3), end_s: round(s.end_s, 3), to_end: s.to_end })),
    rebuffer_ratio,
    bitrate_kbps,
    switches: switches.length,
    qoe_lin: lin(switches),
    qoe_lin_without_switches: lin([]),
    ...means(list, tables),
    dropped_frames: droppedFrames(record.samples, line, () => true),
    dropped_undisturbed: droppedUndisturbed(record.samples, line),
    frozen_outside_stalls_s: round(frozenOutsideStalls(list), 3),
    played_s,
    session_s: round(line.session_s, 3),
    live: record.live_target_s === null ? null : live(record, line, record.live_target_s),
    seconds: seconds(record, line, list, tables),
  };
}
