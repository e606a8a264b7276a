import type { Second, Session } from "millrace-player/schema";

const LENGTH_S = 4;

/** A second that played the upper rung. */
function second(t: number): Second {
  return { t, rung_kbps: 3600, psnr_db: 40 + t, ssim: null, vmaf: null, buffer_s: 5, throughput_kbps: 4000, stalled: false, stalled_s: 0, latency_s: null };
}

/** A session of four seconds: one of start-up, then the upper rung. */
export function session(differences: Partial<Session> = {}): Session {
  const startup: Second = { ...second(0), rung_kbps: null, psnr_db: null, buffer_s: null };
  return {
    version: 1,
    startup_s: 1,
    stalls: 0,
    stall_s: 0,
    stall_list: [],
    rebuffer_ratio: 0,
    bitrate_kbps: 3600,
    switches: 0,
    qoe_lin: 3.06,
    qoe_lin_without_switches: 3.06,
    psnr_db: 42,
    ssim: null,
    vmaf: null,
    dropped_frames: 40,
    dropped_undisturbed: 0,
    frozen_outside_stalls_s: 0,
    played_s: LENGTH_S - 1,
    session_s: LENGTH_S,
    live: null,
    seconds: [startup, ...[1, 2, 3].map(second)],
    events: [],
    downloads: [],
    screenshots: [],
    abr: "throughput",
    buffer_target_s: 15,
    cmcd: "query",
    ladder_kbps: [350, 3600],
    url: "http://198.18.0.1/",
    browser: "Chromium",
    error: null,
    ...differences,
  };
}

/** One that never played. */
export function deadSession(): Session {
  const seconds = Array.from({ length: LENGTH_S }, (_, t): Second => ({ ...second(t), rung_kbps: null, psnr_db: null, buffer_s: null, throughput_kbps: null, stalled: true, stalled_s: 1 }));
  return session({ startup_s: null, stalls: 1, stall_s: LENGTH_S, stall_list: [{ start_s: 0, end_s: LENGTH_S, to_end: true }], rebuffer_ratio: 1, bitrate_kbps: null, psnr_db: null, dropped_frames: 0, played_s: 0, seconds, error: "it did not load" });
}

/** A row of results.json. */
export const FIGURES = { startup_s: 1, stalls: 0, rebuffer_ratio: 0.125, bitrate_kbps: 3600, switches: 0, qoe_lin: 3.06, psnr_db: 40 };
