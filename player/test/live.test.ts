/** The live origin, and the page playing from it in a real browser. Needs ffmpeg and Chromium, and nothing but loopback. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, type Browser } from "../src/cli/browser.ts";
import { boxes, needBox } from "../src/live/boxes.ts";
import { timescaleOf } from "../src/live/clip.ts";
import { parseJson, recordSchema, sessionSchema, type PlayerRecord } from "../src/schema.ts";
import { DIST, exec, makeMedia } from "./site.ts";

/** Of the test's clip; the live stream repeats it. */
const CLIP_S = 4;
const FRAMES = 5;

let dir = "";
let origin: ChildProcess;
/** Of the page, with a slash at its end. */
let base = "";
let zero_ms = NaN;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "millrace-live-test-"));
  await makeMedia(dir);
  origin = spawn("node", [join(DIST, "live.js"), "--dir", join(dir, "media"), "--listen", "127.0.0.1:0", "--chunk-frames", String(FRAMES)], { stdio: ["ignore", "pipe", "inherit"] });
  const line = await new Promise<string>((done, fail) => {
    origin.stdout?.setEncoding("utf8").once("data", done);
    origin.once("exit", (code) => fail(new Error(`the origin ended with ${code}`)));
  });
  base = new URL("/", (JSON.parse(line) as { page: string }).page).href;
  const [, zero = ""] = /availabilityStartTime="([^"]+)"/.exec(await (await fetch(`${base}live/manifest.mpd`)).text()) ?? [];
  zero_ms = Date.parse(zero);
}, 300_000);

afterAll(async () => {
  const ended = new Promise<number | null>((done) => origin.once("exit", (code) => done(code)));
  origin.kill("SIGTERM");
  expect(await ended).toBe(143);
  await rm(dir, { recursive: true });
});

const live_s = (): number => (Date.now() - zero_ms) / 1000;
const segment = (number: number): Promise<Response> => fetch(`${base}live/seg-3600-${number}.m4s`);

describe("the live origin", { timeout: 60_000 }, () => {
  it("announces a low-latency stream", async () => {
    const text = await (await fetch(`${base}live/manifest.mpd`)).text();
    for (const part of ['type="dynamic"', 'availabilityTimeComplete="false"', 'availabilityTimeOffset="0.', '<Latency target="2000"', '<UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-xsdate:2014" value="time"/>']) expect(text).toContain(part);
    const before = Date.now();
    const time = Date.parse(await (await fetch(`${base}live/time`)).text());
    expect(time).toBeGreaterThanOrEqual(before);
    expect(time).toBeLessThanOrEqual(Date.now());
  });

  it("sends a segment's first chunks before its last are there, and none early", async () => {
    // Should this machine be held up, another segment is tried: an origin that waits for whole segments passes with none.
    await expect
      .poll(
        async () => {
          const number = Math.floor(live_s()) + 1;
          const reader = (await segment(number)).body?.getReader();
          const first = await reader?.read();
          const began_s = live_s();
          for (let part = first; part && !part.done; part = await reader?.read()) continue;
          expect(began_s).toBeGreaterThanOrEqual(number);
          // Four of 24 frames are in the last chunk.
          expect(live_s()).toBeGreaterThanOrEqual(number + 1);
          return began_s < number + 1;
        },
        { timeout: 50_000 },
      )
      .toBe(true);
  });

  it("goes on after the clip's end without a break in time, in chunks of five frames", async () => {
    const timescale = timescaleOf(Buffer.from(await (await fetch(`${base}live/init-3600.mp4`)).arrayBuffer()));
    const last = Math.floor(live_s()) - 2;
    for (let number = last - 2 * CLIP_S; number <= last; number++) {
      const data = Buffer.from(await (await segment(number)).arrayBuffer());
      const moofs = boxes(data).filter((b) => b.type === "moof");
      expect(moofs).toHaveLength(Math.ceil(24 / FRAMES));
      const tfdt = moofs.map((b) => Number(data.readBigUInt64BE(needBox(data, ["traf", "tfdt"], b.content, b.end).content + 4)) / timescale);
      for (const [i, time] of tfdt.entries()) expect(time).toBeCloseTo(number + (i * FRAMES) / 24, 6);
    }
  });

  it("has neither what is not produced yet nor what is past, and nothing else", async () => {
    const now = Math.floor(live_s());
    for (const number of [now + 100, now - 100]) expect((await segment(number)).status).toBe(404);
    for (const path of ["live/seg-3601-1.m4s", "live/init-3600-1.mp4", "live/", "..%2fmedia.json", "media.json"]) expect((await fetch(base + path)).status).toBe(404);
    expect((await fetch(`${base}live/time`, { method: "POST" })).status).toBe(405);
  });

  it("refuses a command line that cannot be obeyed", async () => {
    for (const more of [["--listen", "localhost"], ["--latency-s", "0"], ["--chunk-frames", "2.5"]]) {
      await expect(exec("node", [join(DIST, "live.js"), "--dir", join(dir, "media"), ...more])).rejects.toMatchObject({ code: 64 });
    }
  });
});

describe("the page, live", { timeout: 300_000 }, () => {
  it("plays closer to the live edge than whole segments could", async () => {
    const browser: Browser = await openBrowser();
    try {
      const { page } = browser;
      await page.goto(`${base}?live=on&latency_s=0.8`);
      const read = async (): Promise<PlayerRecord> => recordSchema.parse(await page.evaluate("window.__millrace.record()"));
      // For a second of play each frame is shown so early that the end of a segment that begins with it would not be there.
      const close = ({ samples }: PlayerRecord): boolean => {
        const second = samples.slice(-10);
        const moved_s = (second.at(-1)?.frame_media_s ?? 0) - (second[0]?.frame_media_s ?? 0);
        return second.length === 10 && moved_s > 0.5 && second.every((s) => s.latency_s !== null && s.latency_s < 1.05);
      };
      await expect.poll(async () => close(await read()), { timeout: 120_000, interval: 200 }).toBe(true);
      // As long on the way as it took to produce; a page that has just started may have had only what was there.
      const comesAsProduced = async (): Promise<boolean> => (await read()).downloads.some((d) => d.bytes > 10_000 && d.end_s - d.first_byte_s > 0.4);
      await expect.poll(comesAsProduced, { timeout: 60_000, interval: 200 }).toBe(true);
      const record = await read();
      expect(record.live_target_s).toBe(0.8);
      expect(record.error).toBeNull();
      // The page's own figure against a reckoning without dash.js, which has none while it waits for the playhead.
      const off_s = async (): Promise<number> => {
        const [recorded, reckoned] = await page.evaluate<[number | null, number]>(`[window.__millrace.record().samples.at(-1).latency_s, (Date.now() - ${zero_ms}) / 1000 - document.querySelector("video").currentTime]`);
        return Math.abs((recorded ?? NaN) - reckoned);
      };
      await expect.poll(off_s).toBeLessThan(0.3);
      const shown = page.locator('.figures dt:text-is("Latency") + dd');
      await expect.poll(() => shown.innerText()).toMatch(/^\d+\.\d\d s of 0\.80 s$/);
    } finally {
      await browser.close();
    }
  });

  it("is measured: latency near the manifest's target, rates within its range", async () => {
    const out = join(dir, "session.json");
    await exec("node", [join(DIST, "measure.js"), "--url", `${base}?live=on`, "--duration-s", "8", "--out", out, "--psnr", join(dir, "media/psnr.json")]);
    const session = parseJson(sessionSchema, await readFile(out, "utf8"), out);
    expect(session.error).toBeNull();
    expect(session.live?.target_s).toBe(2);
    // Three times the target, for a machine that is held up.
    expect(session.live?.latency_mean_s).toBeLessThan(6);
    expect(session.live?.rate_min).toBeGreaterThanOrEqual(0.96);
    expect(session.live?.rate_max).toBeLessThanOrEqual(1.04);
    expect(session.seconds.some((s) => s.latency_s !== null)).toBe(true);
    expect(session.psnr_db).toBeGreaterThan(20);
  });
});
