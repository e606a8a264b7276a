/** The whole way in a real browser: encode, serve, play, measure. Needs ffmpeg and Chromium, and nothing but loopback. */
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser } from "../src/cli/browser.ts";
import { mediaInfoSchema, parseJson, picturesSchema, psnrTableSchema, recordSchema, sessionSchema, type Session } from "../src/schema.ts";
import { DIST, exec, makeMedia, openSite, type Site } from "./site.ts";

const SESSION_S = 8;

let dir = "";
/** Segments from this number on never arrive. */
let withheldFrom = Infinity;
let requests: string[] = [];
let site: Site;
let base = "";

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "millrace-browser-test-"));
  await makeMedia(dir);
  const quality = { version: 1, key: "k", ffmpeg: "f", rungs: [350, 620, 1570, 2540, 3600].map((kbps) => ({ kbps, ssim: [0.9, 0.9, 0.9, 0.9], vmaf: [80, 80, 80, 80] })) };
  await writeFile(join(dir, "quality.json"), JSON.stringify(quality));
  site = await openSite(dir, ({ url = "/" }) => {
    requests.push(url);
    const segment = /seg-\d+-(\d+)\.m4s(\?|$)/.exec(url)?.[1];
    return segment === undefined || Number(segment) < withheldFrom;
  });
  base = site.base;
}, 300_000);

afterAll(async () => {
  site.close();
  await rm(dir, { recursive: true });
});

/** Whether a curve of this colour of the theme is in a chart. */
const drawn = (colour: string): string =>
  `(() => { const colour = getComputedStyle(document.documentElement).getPropertyValue("${colour}").trim(); return [...document.querySelectorAll('.chart path[stroke="' + colour + '"]')].some((line) => line.getBoundingClientRect().width > 20) })()`;
/** Whether all curves are within their charts. */
const ON_SCALE = `[...document.querySelectorAll('.chart')].every((chart) => { const box = chart.getBoundingClientRect(); return [...chart.querySelectorAll('path[fill="none"]')].every((line) => { const of = line.getBoundingClientRect(); return of.top >= box.top && of.bottom <= box.bottom }) })`;

const args = (name: string, url: string): string[] => [
  join(DIST, "measure.js"), "--url", url, "--duration-s", String(SESSION_S), "--out", join(dir, name, "session.json"), "--screenshots", join(dir, name), "--psnr", join(dir, "media/psnr.json"), "--quality", join(dir, "quality.json"), "--record", join(dir, name, "record.json"),
];

async function measure(name: string, url: string): Promise<{ code: number; session: Session }> {
  requests = [];
  const code = await exec("node", args(name, url)).then(
    () => 0,
    (error: { code?: number }) => error.code ?? -1,
  );
  return { code, session: parseJson(sessionSchema, await readFile(join(dir, name, "session.json"), "utf8"), name) };
}

describe("in a browser", { timeout: 120_000 }, () => {
  it("media.json and psnr.json describe what was encoded", async () => {
    const info = parseJson(mediaInfoSchema, await readFile(join(dir, "media/media.json"), "utf8"), "media.json");
    const table = parseJson(psnrTableSchema, await readFile(join(dir, "media/psnr.json"), "utf8"), "psnr.json");
    expect(info.presentation_s).toBeGreaterThanOrEqual(90);
    expect(table.rungs.map((r) => r.kbps)).toEqual([350, 620, 1570, 2540, 3600]);
    const mean = table.rungs.map((r) => r.psnr_db.reduce((a, b) => a + b, 0) / r.psnr_db.length);
    expect(mean).toEqual([...mean].sort((a, b) => a - b));
    for (const r of table.rungs) expect(r.freeze_db.flat().every((db) => db < Math.min(...r.psnr_db))).toBe(true);
  });

  it("plays an unhindered presentation at the top rung without a stall", async () => {
    const { code, session } = await measure("good", base);
    expect(code).toBe(0);
    expect(session.error).toBeNull();
    expect(session.startup_s).not.toBeNull();
    expect(session.startup_s).toBeLessThan(4);
    expect(session.bitrate_kbps).toBeGreaterThan(2000);
    expect(session.ladder_kbps).toEqual([350, 620, 1570, 2540, 3600]);
    expect(session.seconds).toHaveLength(SESSION_S);
    expect(session.seconds.at(-1)).toMatchObject({ rung_kbps: 3600, stalled: false });
    expect(session.psnr_db).toBeGreaterThan(20);
    expect(session).toMatchObject({ ssim: 0.9, vmaf: 80 });
    expect(session.screenshots).toHaveLength(4);
    expect(requests.some((r) => r.includes(".m4s?CMCD="))).toBe(true);
  });

  it("draws again what was on the screen, as good as the rung was measured", async () => {
    await exec("node", [join(DIST, "pictures.js"), "--media-dir", join(dir, "media"), "--media", join(dir, "source.mp4"), "--at", "0", "--at", String(SESSION_S - 1), join(dir, "good")]);
    const { pictures } = parseJson(picturesSchema, await readFile(join(dir, "good/pictures.json"), "utf8"), "pictures.json");
    const table = parseJson(psnrTableSchema, await readFile(join(dir, "media/psnr.json"), "utf8"), "psnr.json");
    expect(pictures[0]).toMatchObject({ t: 0, files: null, psnr_db: null });
    const last = pictures[1];
    expect(last).toMatchObject({ rung_kbps: 3600, frozen_s: 0 });
    // Another frame than the right one would be as far off as a frozen picture.
    const rung = table.rungs.find((r) => r.kbps === 3600);
    expect(last?.psnr_db).toBeGreaterThan((Math.min(...(rung?.psnr_db ?? [])) + Math.max(...(rung?.freeze_db.flat() ?? []))) / 2);
    for (const file of Object.values(last?.files ?? {})) expect((await readFile(join(dir, "good", file))).toString("latin1", 8, 12)).toBe("WEBP");
  });

  it("sees the stall when segments stop coming, to the end", async () => {
    withheldFrom = 4;
    const { code, session } = await measure("stalled", base);
    withheldFrom = Infinity;
    expect(code).toBe(0);
    const last = session.stall_list.at(-1);
    expect(last).toMatchObject({ to_end: true, end_s: SESSION_S });
    // Three seconds of media, played once.
    expect(session.played_s).toBeGreaterThan(2.4);
    expect(session.played_s).toBeLessThan(3.3);
    // All the rest of the session, however long this machine took to start.
    const rest = (SESSION_S - (last?.start_s ?? SESSION_S)) / SESSION_S;
    expect(rest).toBeGreaterThan(0.1);
    expect(session.rebuffer_ratio).toBeGreaterThan(rest - 0.01);
    expect(session.seconds.at(-1)).toMatchObject({ stalled: true, stalled_s: 1 });
    const frozen = session.seconds.at(-1)?.psnr_db ?? Infinity;
    expect(frozen).toBeLessThan(session.seconds[2]?.psnr_db ?? 0);
  });

  it("is honest about a session in which nothing played", async () => {
    withheldFrom = 0;
    const { code, session } = await measure("dead", base);
    withheldFrom = Infinity;
    expect(code).toBe(3);
    expect(session).toMatchObject({ startup_s: null, bitrate_kbps: null, psnr_db: null, ssim: null, vmaf: null, rebuffer_ratio: 1, stalls: 1 });
  });

  it("exposes its log to the page", async () => {
    const browser = await openBrowser();
    try {
      const { page } = browser;
      await page.goto(`${base}?autoplay=off`);
      expect(await page.evaluate("window.__millrace.record().now_s")).toBeNull();
      await page.click("button.play");
      await page.waitForFunction("window.__millrace.record().samples.length > 20");
      // Rung and buffer are drawn; a throughput need not be known yet.
      for (const colour of ["--accent", "--buffer"]) await page.waitForFunction(drawn(colour));
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("button.save")]);
      expect(download.suggestedFilename()).toBe("millrace-session.json");
      const record = parseJson(recordSchema, await readFile(await download.path(), "utf8"), "the log");
      expect(record.events[0]).toMatchObject({ type: "play_request", t: 0 });
      expect(record.downloads.length).toBeGreaterThan(0);
    } finally {
      await browser.close();
    }
  });

  it("plays sessions side by side on one scale, with a form that loads others", async () => {
    const browser = await openBrowser();
    try {
      const { page } = browser;
      const problems: string[] = [];
      page.on("pageerror", (error) => problems.push(error.message));
      await page.goto(`${base}?abr.2=bola&buffer_s.2=4`);
      await page.waitForFunction("window.__millrace.records().every((record) => record.samples.at(-1)?.frame_media_s > 1)");
      const records = await page.evaluate<{ abr: string; buffer_target_s: number }[]>("window.__millrace.records()");
      expect(records.map(({ abr, buffer_target_s }) => [abr, buffer_target_s])).toEqual([["throughput", 15], ["bola", 4]]);
      // The same labels on both, throughput included, whose curve stays within its chart.
      await page.waitForFunction(drawn("--rate"));
      const labels = await page.evaluate<string[]>("[...document.querySelectorAll('.chart')].map((chart) => [...chart.querySelectorAll('text')].map((text) => text.textContent).join())");
      expect(labels[0]).toContain("Mbit/s");
      expect(labels[1]).toBe(labels[0]);
      expect(await page.evaluate(ON_SCALE)).toBe(true);

      // The picture has nothing over it; figures are beside or below it.
      const overlaps = await page.evaluate("[...document.querySelectorAll('.session')].some((s) => { const [v, f] = ['video', '.figures'].map((q) => s.querySelector(q).getBoundingClientRect()); return v.left < f.right && f.left < v.right && v.top < f.bottom && f.top < v.bottom })");
      expect(overlaps).toBe(false);
      await page.getByRole("button", { name: "Pause all" }).click();
      await page.waitForFunction("[...document.querySelectorAll('video')].every((video) => video.paused && video.controls)");

      await page.getByLabel("Rung").first().selectOption({ index: 1 });
      const events = await page.evaluate<{ type: string; rung_kbps?: number }[]>("window.__millrace.record().events");
      expect(events.find(({ type }) => type === "rung_selected")).toMatchObject({ rung_kbps: 350 });

      await page.getByRole("button", { name: "Remove" }).first().click();
      await page.getByLabel("Preset").selectOption("another address");
      await page.getByLabel("Manifest").fill("/media/none.mpd");
      await page.getByLabel("Buffer, s").fill("6");
      await page.getByRole("button", { name: "Load" }).click();
      await page.waitForURL("**/?mpd=/media/none.mpd&abr=bola&buffer_s=6");
      await page.getByText("The manifest could not be loaded.").waitFor();
      await page.getByLabel("Preset").selectOption({ index: 0 });
      await page.getByRole("button", { name: "Load" }).click();
      await page.waitForFunction("window.__millrace?.record().samples.at(-1)?.frame_media_s > 0.5");
      expect(problems).toEqual([]);
    } finally {
      await browser.close();
    }
  });

  it("says what is wrong with its address", async () => {
    const browser = await openBrowser();
    try {
      const { page } = browser;
      await page.goto(`${base}?abr=none`);
      await page.getByText("abr=none: allowed are throughput").waitFor();
      await page.getByRole("link", { name: "Open the page without it" }).click();
      await page.getByRole("button", { name: "Play", exact: true }).waitFor();
    } finally {
      await browser.close();
    }
  });

  it("refuses an address that the page refuses", async () => {
    await expect(exec("node", [...args("bad", base), "--query", "abr=none"])).rejects.toMatchObject({ code: 64 });
  });

  it("leaves neither processes nor a profile after SIGTERM", async () => {
    const temporary = await mkdtemp(join(dir, "tmp-"));
    const child = spawn("node", args("ended", base), { env: { ...process.env, TMPDIR: temporary }, stdio: "ignore" });
    const ended = new Promise<number | null>((done) => child.once("exit", (code) => done(code)));
    const users = (): Promise<string[]> => exec("pgrep", ["-f", temporary]).then((r) => r.stdout.trim().split("\n"), () => []);
    while ((await users()).length === 0) await new Promise((done) => setTimeout(done, 100));
    child.kill("SIGTERM");
    expect(await ended).toBe(143);
    expect(await users()).toEqual([]);
    const { stdout } = await exec("find", [temporary, "-name", "millrace-player-*"]);
    expect(stdout).toBe("");
  });
});
