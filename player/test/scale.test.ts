import { expect, it } from "vitest";
import { commonScale, inWindow } from "../src/scale.ts";
import type { Second } from "../src/schema.ts";

const second = (t: number, values: Partial<Second>): Second => ({ t, rung_kbps: null, psnr_db: null, ssim: null, vmaf: null, buffer_s: null, throughput_kbps: null, stalled: false, stalled_s: 0, latency_s: null, ...values });

it("has all values of all sessions on it, throughputs far above the rungs too", () => {
  const slow = [second(0, { rung_kbps: 350, throughput_kbps: 900, buffer_s: 2 })];
  const fast = [second(1, { rung_kbps: 3600, throughput_kbps: 780_000, buffer_s: 14.2 })];
  const scale = commonScale([slow, fast]);
  expect(scale.min_mbps).toBeCloseTo(0.1, 9);
  expect(scale.max_mbps).toBeCloseTo(1000, 9);
  expect(scale.max_s).toBe(15);
  for (const { rung_kbps, throughput_kbps, buffer_s } of [...slow, ...fast]) {
    for (const kbps of [rung_kbps, throughput_kbps]) expect((kbps ?? 0) / 1000).toSatisfy((rate: number) => scale.min_mbps < rate && rate < scale.max_mbps);
    expect(buffer_s).toBeLessThanOrEqual(scale.max_s);
  }
});

it("keeps a power of ten off the edges, and is a whole scale without values", () => {
  const scale = commonScale([[second(0, { rung_kbps: 1000, throughput_kbps: 10_000 })]]);
  expect([scale.min_mbps, scale.max_mbps].map((rate) => Math.log10(rate)).map(Math.round)).toEqual([-1, 2]);
  for (const none of [[], [[]], [[second(0, { rung_kbps: 0, throughput_kbps: 0 })]]]) {
    const empty = commonScale(none);
    expect(empty.min_mbps).toBeGreaterThan(0);
    expect(empty.max_mbps).toBeGreaterThan(empty.min_mbps);
    expect(empty).toMatchObject({ from_s: 0, to_s: 10, max_s: 5 });
  }
});

it("shows the last two minutes of the longest session", () => {
  const long = Array.from({ length: 301 }, (_, t) => second(t, { throughput_kbps: t === 0 ? 9_000_000 : 5000 }));
  const scale = commonScale([long, [second(0, {})]]);
  expect(scale).toMatchObject({ from_s: 180, to_s: 300 });
  expect(scale.max_mbps).toBeCloseTo(100, 9);
  expect(inWindow(long, scale)).toHaveLength(121);
});
