import { describe, expect, it } from "vitest";
import { droppedUndisturbed, frozenOutsideStalls, pieces, qoe, rungAt, shownRung, timeline } from "../src/qoe.ts";
import { LADDER, makeRecord, TABLE } from "./helpers.ts";
import type { Quality } from "../src/schema.ts";

describe("timeline", () => {
  it("takes start-up from the first playing and ignores waiting before it", () => {
    const line = timeline([{ t: 0.2, type: "waiting" }, { t: 1.5, type: "playing" }], 10);
    expect(line).toEqual({ startup_s: 1.5, stalls: [], session_s: 10 });
  });

  it("joins several waitings into one stall", () => {
    const line = timeline([{ t: 1, type: "playing" }, { t: 3, type: "waiting" }, { t: 3.5, type: "waiting" }, { t: 5, type: "playing" }], 10);
    expect(line.stalls).toEqual([{ start_s: 3, end_s: 5, to_end: false }]);
  });

  it("lets an open stall last to the end", () => {
    const line = timeline([{ t: 1, type: "playing" }, { t: 6, type: "waiting" }], 10);
    expect(line.stalls).toEqual([{ start_s: 6, end_s: 10, to_end: true }]);
  });

  it("cuts a stall that ends after the session", () => {
    const line = timeline([{ t: 1, type: "playing" }, { t: 6, type: "waiting" }, { t: 12, type: "playing" }], 10);
    expect(line.stalls).toEqual([{ start_s: 6, end_s: 10, to_end: true }]);
  });

  it("has one stall when nothing ever played", () => {
    expect(timeline([{ t: 0.2, type: "waiting" }], 10)).toEqual({ startup_s: null, stalls: [{ start_s: 0, end_s: 10, to_end: true }], session_s: 10 });
  });

  it("ends with the presentation", () => {
    expect(timeline([{ t: 1, type: "playing" }, { t: 8, type: "ended" }, { t: 8.1, type: "waiting" }], 10)).toEqual({ startup_s: 1, stalls: [], session_s: 8 });
  });
});

describe("dropped frames", () => {
  const samples = (dropped: readonly number[]) => dropped.map((dropped_frames, t) => ({ t, frame_media_s: t, frame_height: 360, buffer_s: 1, throughput_kbps: null, dropped_frames, latency_s: null, playback_rate: 1 }));
  const line = { startup_s: 1, stalls: [{ start_s: 5, end_s: 6, to_end: false }], session_s: 10 };

  it("are this machine's where nothing disturbed the player", () => {
    // From 3 s to 4 s, and from 8 s to 9 s.
    expect(droppedUndisturbed(samples([0, 0, 0, 0, 2, 2, 2, 2, 2, 3]), line)).toBe(3);
  });

  it("are the network's at start-up, in a stall and for a second after either", () => {
    expect(droppedUndisturbed(samples([0, 1, 2, 2, 2, 3, 4, 5, 5, 5]), line)).toBe(0);
  });

  it("go on where the browser restarts its count", () => {
    // dash.js has given up a request at 7 s, and reset its buffers.
    expect(droppedUndisturbed(samples([0, 0, 0, 0, 2, 2, 2, 2, 0, 1]), line)).toBe(3);
  });

  it("are not counted where nothing played", () => {
    expect(droppedUndisturbed(samples([0, 1, 2]), { startup_s: null, stalls: [], session_s: 3 })).toBe(0);
  });
});

describe("shown rung", () => {
  const late = [
    { t: 1, start_s: 0, duration_s: 1, rung_kbps: 350 },
    { t: 2, start_s: 0, duration_s: 1, rung_kbps: 3600 },
  ];

  it("is the last append before the frame was shown", () => {
    expect(rungAt(late, 0.5, 1.5)).toBe(350);
    expect(rungAt(late, 0.5, 2.5)).toBe(3600);
    expect(rungAt(late, 1.5, 2.5)).toBeNull();
  });

  it("believes the frame's height over the buffer: a replacement that came while decoding is not seen", () => {
    const sample = { t: 2.5, frame_media_s: 0.5, frame_height: 360, buffer_s: 1, throughput_kbps: null, dropped_frames: 0, latency_s: null, playback_rate: 1 };
    expect(shownRung({ ladder: LADDER, appended: late }, sample)).toBe(350);
  });

  it("falls back to the buffer where rungs share a height", () => {
    const ladder = LADDER.map((r) => ({ ...r, height: 360 }));
    const sample = { t: 2.5, frame_media_s: 0.5, frame_height: 360, buffer_s: 1, throughput_kbps: null, dropped_frames: 0, latency_s: null, playback_rate: 1 };
    expect(shownRung({ ladder, appended: late }, sample)).toBe(3600);
  });
});

describe("figures", () => {
  it("gives nulls and a stall as long as the session when nothing played", () => {
    const figures = qoe(makeRecord([{ t: 0, type: "play_request" }], [], 10), 10, TABLE);
    expect(figures).toMatchObject({ startup_s: null, stalls: 1, stall_s: 10, rebuffer_ratio: 1, bitrate_kbps: null, switches: 0, psnr_db: null, played_s: 0, qoe_lin: -4.3, qoe_lin_without_switches: -4.3 });
    expect(figures.seconds).toHaveLength(10);
    expect(figures.seconds.every((s) => s.stalled && s.rung_kbps === null && s.psnr_db === null)).toBe(true);
  });

  it("weighs the bitrate by time played and counts switches of what is shown", () => {
    const record = makeRecord(
      [{ t: 1, type: "playing" }],
      [
        { from: 1, to: 4, media_s: 0, height: 360 },
        { from: 4, to: 9, media_s: 3, height: 1080 },
        { from: 9, to: 11, media_s: 8, height: 360 },
      ],
      10,
    );
    const figures = qoe(record, 10, TABLE);
    expect(figures.startup_s).toBe(1);
    expect(figures.switches).toBe(2);
    const bitrate_mbps = (figures.bitrate_kbps ?? NaN) / 1000;
    expect(figures.qoe_lin_without_switches).toBeCloseTo(bitrate_mbps, 3);
    expect(figures.qoe_lin).toBeCloseTo(bitrate_mbps - (2 * 3.25) / 9, 3);
    expect(figures.bitrate_kbps).toBeCloseTo((3 * 350 + 5 * 3600 + 350) / 9, 0);
    expect(figures.seconds.map((s) => s.rung_kbps)).toEqual([null, 350, 350, 350, 3600, 3600, 3600, 3600, 3600, 350]);
    expect(figures.played_s).toBe(9);
    expect(figures.dropped_frames).toBe(100);
  });

  it("leaves a stall out of the bitrate and does not count a switch across the same rung", () => {
    const record = makeRecord(
      [{ t: 1, type: "playing" }, { t: 3, type: "waiting" }, { t: 5, type: "playing" }],
      [
        { from: 1, to: 3, media_s: 0, height: 360 },
        { from: 3, to: 5, media_s: 2, height: 360, still: true },
        { from: 5, to: 11, media_s: 2, height: 360 },
      ],
      10,
    );
    const figures = qoe(record, 10, TABLE);
    expect(figures).toMatchObject({ stalls: 1, stall_s: 2, rebuffer_ratio: 0.2, bitrate_kbps: 350, switches: 0, played_s: 7, qoe_lin: 0.35 - 4.3 * 0.2 });
    expect(figures.seconds.map((s) => s.stalled)).toEqual([false, false, false, true, true, false, false, false, false, false]);
  });

  it("counts a stall to the end in the ratio", () => {
    const record = makeRecord(
      [{ t: 1, type: "playing" }, { t: 6, type: "waiting" }],
      [
        { from: 1, to: 6, media_s: 0, height: 360 },
        { from: 6, to: 11, media_s: 4.96, height: 360, still: true },
      ],
      10,
    );
    expect(qoe(record, 10, TABLE)).toMatchObject({ stalls: 1, rebuffer_ratio: 0.4, played_s: 5 });
  });

  it("knows the figures of a session in progress and of one cut inside a second", () => {
    const record = makeRecord([{ t: 0.5, type: "playing" }], [{ from: 0.5, to: 5, media_s: 0, height: 1080 }], 2.5);
    const figures = qoe(record, 2.5, null);
    expect(figures).toMatchObject({ session_s: 2.5, bitrate_kbps: 3600, psnr_db: null });
    expect(figures.seconds).toHaveLength(3);
  });
});

describe("SSIM and VMAF", () => {
  /** Rung 350: 0.8 and 50; rung 3600: 0.9 + second / 100 and 90 + second. */
  const QUALITY: Quality = {
    version: 1, key: "k", ffmpeg: "f",
    rungs: [
      { kbps: 350, ssim: [0.8, 0.8, 0.8, 0.8], vmaf: [50, 50, 50, 50] },
      { kbps: 3600, ssim: [0.9, 0.91, 0.92, 0.93], vmaf: [90, 91, 92, 93] },
    ],
  };
  const record = makeRecord(
    [{ t: 0, type: "playing" }, { t: 2, type: "waiting" }, { t: 4, type: "playing" }],
    [
      { from: 0, to: 2, media_s: 0, height: 1080 },
      { from: 2, to: 4, media_s: 1.998, height: 1080, still: true },
      { from: 4, to: 7, media_s: 2, height: 350 + 10 },
    ],
    5,
  );

  it("are means of what played: a frozen picture does not count", () => {
    const figures = qoe(record, 5, TABLE, QUALITY);
    expect(figures.seconds.map((s) => s.ssim)).toEqual([0.9, 0.91, null, null, 0.8]);
    expect(figures.seconds.map((s) => s.vmaf)).toEqual([90, 91, null, null, 50]);
    expect(figures).toMatchObject({ ssim: 0.87, vmaf: 77 });
  });

  it("are null without measurements, and refused for another ladder", () => {
    expect(qoe(record, 5, TABLE)).toMatchObject({ ssim: null, vmaf: null });
    expect(() => qoe(record, 5, TABLE, { ...QUALITY, rungs: QUALITY.rungs.slice(1) })).toThrow("no rung of 350");
  });
});

describe("PSNR", () => {
  it("is the table's value of the rung and second shown, around the clip", () => {
    const record = makeRecord([{ t: 0, type: "playing" }], [{ from: 0, to: 7, media_s: 0, height: 1080 }], 6);
    expect(qoe(record, 6, TABLE).seconds.map((s) => s.psnr_db)).toEqual([40, 41, 42, 43, 40, 41]);
  });

  it("falls with every second of a freeze, and stays at the table's last value", () => {
    const record = makeRecord(
      [{ t: 0, type: "playing" }, { t: 2, type: "waiting" }],
      [
        { from: 0, to: 2, media_s: 0, height: 1080 },
        { from: 2, to: 10, media_s: 1.998, height: 1080, still: true },
      ],
      7,
    );
    const figures = qoe(record, 7, TABLE);
    expect(figures.seconds.map((s) => s.psnr_db)).toEqual([40, 41, 19, 18, 17, 17, 17]);
    expect(figures.psnr_db).toBeCloseTo((40 + 41 + 19 + 18 + 17 * 3) / 7, 2);
  });

  it("refuses a table of another ladder", () => {
    const record = makeRecord([{ t: 0, type: "playing" }], [{ from: 0, to: 7, media_s: 0, height: 1080 }], 6);
    const [low] = TABLE.rungs;
    if (!low) throw new Error("the table has a rung");
    expect(() => qoe(record, 6, { ...TABLE, rungs: [low] })).toThrow("no rung of 3600");
  });
});

describe("frozen outside of stalls", () => {
  it("finds a picture that stands although the player plays", () => {
    const record = makeRecord(
      [{ t: 0, type: "playing" }],
      [
        { from: 0, to: 2, media_s: 0, height: 360 },
        { from: 2, to: 4, media_s: 2, height: 360, still: true },
        { from: 4, to: 7, media_s: 2.1, height: 360 },
      ],
      6,
    );
    const line = timeline(record.events, 6);
    expect(frozenOutsideStalls(pieces(record, line))).toBeCloseTo(2, 1);
  });

  it("finds none in smooth play", () => {
    const record = makeRecord([{ t: 0, type: "playing" }], [{ from: 0, to: 7, media_s: 0, height: 360 }], 6);
    expect(frozenOutsideStalls(pieces(record, timeline(record.events, 6)))).toBe(0);
  });
});

describe("a live session", () => {
  const record = makeRecord(
    [{ t: 1, type: "playing" }, { t: 4, type: "waiting" }, { t: 6, type: "playing" }],
    [
      { from: 1, to: 4, media_s: 100, height: 1080 },
      { from: 4, to: 6, media_s: 103, height: 1080, still: true },
      { from: 6, to: 10, media_s: 103, height: 1080 },
    ],
    8,
  );
  // Two seconds behind; the stall adds two more, and stalled the rate means nothing.
  const samples = record.samples.map((s) => ({ ...s, latency_s: s.t < 1 ? null : 2 + Math.min(2, Math.max(0, s.t - 4)), playback_rate: s.t < 1 ? 1.5 : s.t >= 4 && s.t < 6 ? 0 : s.t < 6 ? 0.97 : 1.04 }));

  it("has its latency with the stalls, its rates without, and nothing of the start-up", () => {
    const figures = qoe({ ...record, live_target_s: 2, samples }, 8, null);
    expect(figures.live).toMatchObject({ target_s: 2, rate_min: 0.97, rate_max: 1.04, latency_p95_s: 4 });
    // 3 s at 2, 2 s at 3 in the mean, 2 s at 4; the sample at 8 s as well.
    expect(figures.live?.latency_mean_s).toBeCloseTo((3 * 2 + 2 * 3 + 2 * 4) / 7, 1);
    expect(figures.seconds.map((s) => s.latency_s)).toEqual([null, 2, 2, 2, 2.9, 3.9, 4, 4]);
  });

  it("is null if the manifest is not live, and has no figures if nothing played", () => {
    expect(qoe(record, 8, null).live).toBeNull();
    expect(qoe({ ...record, events: [], live_target_s: 2 }, 8, null).live).toEqual({ target_s: 2, latency_mean_s: null, latency_p95_s: null, rate_min: null, rate_max: null });
  });
});
