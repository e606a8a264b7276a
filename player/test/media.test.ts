import { describe, expect, it } from "vitest";
import { groupMse, psnrDb, ssimFrames, vmafFrames } from "../src/media/compare.ts";
import { checkRate, finishManifest } from "../src/media/encode.ts";
import { aimAgain, PEAK_FACTOR } from "../src/media/streams.ts";
import { LADDER } from "../src/media/ladder.ts";

const representation = (id: number, width: number): string => `<Representation id="${id}" mimeType="video/mp4" codecs="avc1.64001e" bandwidth="346836" width="${width}" height="1">`;
const mpd = (widths: number[]): string => `<AdaptationSet id="0" bitstreamSwitching="true">${widths.map((w, i) => representation(i, w)).join("")}`;

describe("manifest", () => {
  it("announces the ladder and a segment of initialisation for each rung", () => {
    const out = finishManifest(mpd(LADDER.map((r) => r.width)));
    expect([...out.matchAll(/bandwidth="(\d+)"/g)].map((m) => m[1])).toEqual(["350000", "620000", "1570000", "2540000", "3600000"]);
    expect(out).not.toContain("bitstreamSwitching");
  });

  it("refuses a manifest in another order or with rungs missing", () => {
    expect(() => finishManifest(mpd(LADDER.map((r) => r.width).reverse()))).toThrow("width");
    expect(() => finishManifest(mpd(LADDER.slice(1).map((r) => r.width)))).toThrow("width");
    expect(() => finishManifest(mpd(LADDER.slice(0, 4).map((r) => r.width)))).toThrow("4 representations instead of 5");
  });
});

describe("rates", () => {
  const rung = { kbps: 1000, width: 2, height: 2 };
  it("allows five per cent", () => {
    expect(checkRate(rung, 951, true)).toBeNull();
    expect(checkRate(rung, 1049, true)).toBeNull();
  });
  it("refuses more, and lets simple content of a user's file stay below", () => {
    expect(() => checkRate(rung, 949, true)).toThrow("-5.1 %");
    expect(() => checkRate(rung, 1051, false)).toThrow("5.1 %");
    expect(checkRate(rung, 500, false)).toContain("-50.0 %");
  });
});

describe("PSNR of mean squared errors", () => {
  it("caps identical frames and follows the definition", () => {
    expect(psnrDb(0)).toBe(60);
    expect(psnrDb(1e-9)).toBe(60);
    expect(psnrDb(255 * 255)).toBe(0);
    expect(psnrDb(100)).toBeCloseTo(28.131, 3);
  });

  it("averages errors, not decibels, inside a group, and refuses a short log", () => {
    const log = [1, 3, 5, 7].map((mse, n) => `n:${n + 1} mse_avg:9.00 mse_y:${mse}.00 mse_u:9.00 mse_v:9.00 psnr_avg:9\n`).join("");
    expect(groupMse(log, 2, 2, "log")).toEqual([2, 6]);
    expect(() => groupMse(log, 2, 3, "log")).toThrow("4 frames compared instead of 6");
  });
});

describe("SSIM and VMAF", () => {
  it("are read frame by frame", () => {
    expect(ssimFrames("n:1 Y:0.990000 U:0.98 V:0.97 All:0.98 (20.0)\nn:2 Y:1.000000 U:1 V:1 All:1 (inf)\n")).toEqual([0.99, 1]);
    expect(vmafFrames('{"frames":[{"frameNum":0,"metrics":{"vmaf":91.5}},{"frameNum":1,"metrics":{"vmaf":100}}]}')).toEqual([91.5, 100]);
  });
});

describe("aimAgain", () => {
  it("asks for more in the proportion in which it came out short", () => {
    expect(aimAgain(50, 49)).toBe(51_020);
  });

  it("asks for no more than the peaks may have", () => {
    expect(aimAgain(50, 20)).toBe(50_000 * PEAK_FACTOR);
  });
});
