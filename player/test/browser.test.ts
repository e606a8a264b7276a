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
      await page.click("#play");
      await page.waitForFunction("window.__millrace.record().samples.length > 20");
      // Rung and buffer are drawn; a throughput need not be known yet.
      await page.waitForFunction(`["#4da3ff", "#ffb454"].every((colour) => [...document.querySelectorAll('#chart path[stroke="' + colour + '"]')].some((line) => line.getBoundingClientRect().width > 100))`);
      const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
      expect(download.suggestedFilename()).toBe("millrace-session.json");
      const record = parseJson(recordSchema, await readFile(await download.path(), "utf8"), "the log");
      expect(record.events[0]).toMatchObject({ type: "play_request", t: 0 });
      expect(record.downloads.length).toBeGreaterThan(0);
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
