import type { PlayerEvent, PlayerRecord, PsnrTable, Sample } from "../src/schema.ts";

/** What was on the screen from `from` to `to`: media running from `media_s`, or standing there when `still`. */
export interface Stretch {
  readonly from: number;
  readonly to: number;
  readonly media_s: number;
  readonly height: number;
  readonly still?: boolean;
}

export const LADDER = [
  { kbps: 350, height: 360 },
  { kbps: 3600, height: 1080 },
];

/** A record as the page would have made it, sampled every 100 ms at 24 frames/s. */
export function makeRecord(events: PlayerEvent[], stretches: readonly Stretch[], end_s: number): PlayerRecord {
  const samples: Sample[] = [];
  for (let i = 0; i <= Math.round(end_s * 10); i++) {
    const t = i / 10;
    const s = stretches.find((x) => x.from <= t && t < x.to);
    samples.push({
      t,
      frame_media_s: s ? (s.still ? s.media_s : Math.floor((s.media_s + t - s.from) * 24 + 1e-6) / 24) : null,
      frame_height: s?.height ?? null,
      buffer_s: s?.still ? 0 : 5,
      throughput_kbps: 4000,
      dropped_frames: i,
      latency_s: null,
      playback_rate: 1,
    });
  }
  return { version: 1, now_s: end_s, abr: "throughput", buffer_target_s: 15, cmcd: "query", live_target_s: null, ladder: LADDER, events, samples, appended: [], downloads: [], truncated: false, error: null };
}

/** Rung 350: 30 dB + second; rung 3600: 40 dB + second; frozen: 20 dB less the lag. */
export const TABLE: PsnrTable = {
  version: 1,
  plane: "y",
  cap_db: 60,
  clip_s: 4,
  rungs: [
    { kbps: 350, psnr_db: [30, 31, 32, 33], freeze_db: Array.from({ length: 4 }, () => [19, 18, 17]) },
    { kbps: 3600, psnr_db: [40, 41, 42, 43], freeze_db: Array.from({ length: 4 }, () => [19, 18, 17]) },
  ],
};
