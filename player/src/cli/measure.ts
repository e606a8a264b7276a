/** Plays a presentation in a real browser in real time and writes what the viewer saw. */
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { qoe } from "../qoe.ts";
import { parseJson, psnrTableSchema, qualitySchema, recordSchema, sessionSchema, type PlayerRecord, type PsnrTable, type Quality, type Session } from "../schema.ts";
import { openBrowser, type Browser } from "./browser.ts";
import { EXIT, run, UsageError } from "./exit.ts";

const USAGE = "usage: measure --url URL --duration-s N --out session.json --psnr psnr.json [--quality quality.json] [--screenshots DIR] [--query 'abr=bola&buffer_s=15'] [--record FILE] [--wait]";
const LOAD_TIMEOUT_MS = 30_000;
/** A question to the page; a page that cannot answer in this time is broken. */
const ASK_TIMEOUT_MS = 10_000;
/** Long enough for several sessions that start at once on a slow machine. */
const TOLD_TIMEOUT_MS = 300_000;
const POLL_MS = 250;
/** Screenshots at these parts of the session. */
const SCREENSHOT_AT = [0.1, 0.35, 0.65, 0.95];
const DURATION_MAX_S = 3600;

interface Arguments {
  readonly url: URL;
  readonly duration_s: number;
  readonly out: string;
  readonly screenshots: string | null;
  readonly psnr: string;
  /** SSIM and VMAF, where they have been measured. */
  readonly quality: string | null;
  /** File for all that the page recorded, to check the figures. */
  readonly record: string | null;
  /** Load the page, say `ready`, and play on SIGUSR2. */
  readonly wait: boolean;
}

function parseArguments(): Arguments {
  const { values } = parseArgs({
    options: { url: { type: "string" }, "duration-s": { type: "string" }, out: { type: "string" }, screenshots: { type: "string" }, psnr: { type: "string" }, quality: { type: "string" }, query: { type: "string" }, record: { type: "string" }, wait: { type: "boolean", default: false } },
  });
  const need = (name: "url" | "duration-s" | "out" | "psnr"): string => {
    const value = values[name];
    if (!value) throw new UsageError(`--${name} is missing`);
    return value;
  };
  const duration_s = Number(need("duration-s"));
  if (!(duration_s >= 1 && duration_s <= DURATION_MAX_S)) throw new UsageError(`--duration-s ${need("duration-s")}: 1 to ${DURATION_MAX_S} are allowed`);
  let url: URL;
  try {
    url = new URL(need("url"));
  } catch {
    throw new UsageError(`--url ${need("url")}: not an address such as http://198.18.0.1/`);
  }
  for (const [key, value] of new URLSearchParams(values.query ?? "")) url.searchParams.set(key, value);
  // Drawing it would take time from the decoder.
  if (!url.searchParams.has("chart")) url.searchParams.set("chart", "off");
  // The form would take a share of the window from the picture.
  if (!url.searchParams.has("controls")) url.searchParams.set("controls", "off");
  if (values.wait) url.searchParams.set("autoplay", "off");
  return { url, duration_s, wait: values.wait, out: resolve(need("out")), screenshots: values.screenshots ? resolve(values.screenshots) : null, psnr: need("psnr"), quality: values.quality ?? null, record: values.record ?? null };
}

/** Rejects when `work` takes longer than `ms`. */
function within<T>(ms: number, what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms / 1000} s`)), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

interface Observed {
  readonly record: PlayerRecord;
  readonly screenshots: Session["screenshots"];
}

/** A session in which no page appeared. */
const emptyRecord = (duration_s: number, error: string): PlayerRecord => ({
  version: 1, now_s: duration_s, abr: "unknown", buffer_target_s: 0, cmcd: "unknown", live_target_s: null, ladder: [], events: [], samples: [], appended: [], downloads: [], truncated: false, error,
});

type Ask = { now_s: number | null } | { refused: string };
/** Part of the page; serialised into it, so it can use nothing from here. */
const askNow = "(() => { const m = window.__millrace; return m?.refused !== undefined ? { refused: m.refused } : { now_s: m?.record?.().now_s ?? null } })()";
const askToPlay = "window.__millrace.play()";
const askRecord = "window.__millrace.record()";

/** Says that all is loaded and waits to be told to play. */
function told(): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no play request (SIGUSR2) within ${TOLD_TIMEOUT_MS / 1000} s`)), TOLD_TIMEOUT_MS);
    process.once("SIGUSR2", () => {
      clearTimeout(timer);
      resolve();
    });
    process.stdout.write("ready\n");
  });
}

async function observe(browser: Browser, args: Arguments): Promise<Observed> {
  const { page } = browser;
  const screenshots: Session["screenshots"] = [];
  let record: PlayerRecord | null = null;
  const read = async (): Promise<PlayerRecord> => {
    const parsed = recordSchema.safeParse(await within(ASK_TIMEOUT_MS, "reading the page's record", page.evaluate(askRecord)));
    if (!parsed.success) throw new Error(`the page's record does not fit: ${parsed.error.message}`);
    return parsed.data;
  };

  try {
    await page.goto(args.url.href, { waitUntil: "commit", timeout: LOAD_TIMEOUT_MS });
    await page.waitForFunction("window.__millrace", undefined, { timeout: LOAD_TIMEOUT_MS });
  } catch (cause) {
    return { record: emptyRecord(args.duration_s, `${args.url.href} did not load: ${firstLine(cause)}`), screenshots };
  }

  const due = args.screenshots === null ? [] : SCREENSHOT_AT.map((part) => Math.round(part * args.duration_s * 10) / 10);
  let zero_ms = Date.now();
  const first = (await within(ASK_TIMEOUT_MS, "asking the page", page.evaluate(askNow))) as Ask;
  if ("refused" in first) throw new UsageError(`the page refuses its address: ${first.refused}`);
  if (args.wait) {
    await told();
    await within(ASK_TIMEOUT_MS, "the play request", page.evaluate(askToPlay));
    zero_ms = Date.now();
  } else {
    zero_ms = Date.now() - (first.now_s ?? 0) * 1000;
  }
  const elapsed = (): number => (Date.now() - zero_ms) / 1000;
  let lastRead = 0;
  try {
    while (elapsed() < args.duration_s) {
      await sleep(Math.min(POLL_MS, Math.max(0, (args.duration_s - elapsed()) * 1000)));
      if (due[0] !== undefined && args.screenshots !== null && elapsed() >= due[0]) {
        due.shift();
        const t = elapsed();
        const file = join(args.screenshots, `at-${String(Math.round(t)).padStart(3, "0")}s.jpg`);
        await page.screenshot({ path: file, type: "jpeg", quality: 70, timeout: ASK_TIMEOUT_MS });
        screenshots.push({ t: Math.round(t * 10) / 10, file: relative(dirname(args.out), file) });
      }
      // A copy now and then: should the browser die, what came before is not lost.
      if (elapsed() - lastRead > 10) {
        record = await read();
        lastRead = elapsed();
        process.stderr.write(`${lastRead.toFixed(0)} of ${args.duration_s} s\n`);
      }
    }
    record = await read();
  } catch (cause) {
    if (record === null) throw cause;
    record = { ...record, error: record.error ?? `the browser failed after ${record.now_s ?? 0} s: ${firstLine(cause)}` };
  }
  return { record, screenshots };
}

const firstLine = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause)).split("\n")[0] ?? "";

/** quality.json, if it is of the same clip and ladder as the PSNR. */
async function readQuality(file: string, table: PsnrTable): Promise<Quality> {
  const quality = parseJson(qualitySchema, await readFile(file, "utf8"), file);
  const same = quality.rungs.length === table.rungs.length && table.rungs.every((r) => quality.rungs.some((q) => q.kbps === r.kbps && q.ssim.length === table.clip_s && q.vmaf.length === table.clip_s));
  if (!same) throw new Error(`${file} has other rungs or another clip than the PSNR table; make it again with npm run quality`);
  return quality;
}

function toSession(args: Arguments, observed: Observed, table: PsnrTable, quality: Quality | null, browser: string): Session {
  const { record, screenshots } = observed;
  const missing = record.ladder.map((r) => r.kbps).filter((kbps) => !table.rungs.some((r) => r.kbps === kbps));
  if (missing.length > 0) throw new Error(`${args.psnr} has no rung of ${missing.join(", ")} kbit/s, the presentation does; make both with the media tool`);
  return sessionSchema.parse({
    version: 1,
    ...qoe(record, args.duration_s, table, quality),
    events: record.events,
    downloads: record.downloads,
    screenshots,
    abr: record.abr,
    buffer_target_s: record.buffer_target_s,
    cmcd: record.cmcd,
    ladder_kbps: record.ladder.map((r) => r.kbps),
    url: args.url.href,
    browser: `Chromium ${browser}`,
    error: record.truncated ? "the session was too long to be recorded whole" : record.error,
  } satisfies Session);
}

async function main(): Promise<number> {
  const args = parseArguments();
  const table = parseJson(psnrTableSchema, await readFile(args.psnr, "utf8"), args.psnr);
  const quality = args.quality === null ? null : await readQuality(args.quality, table);
  await mkdir(dirname(args.out), { recursive: true });
  if (args.screenshots !== null) await mkdir(args.screenshots, { recursive: true });

  let opening: Promise<Browser> | null = null;
  const stop = (code: number) => (): void => {
    void (opening?.then((b) => b.close()) ?? Promise.resolve()).catch(() => undefined).finally(() => process.exit(code));
  };
  process.once("SIGINT", stop(EXIT.interrupted));
  process.once("SIGTERM", stop(EXIT.terminated));
  process.once("SIGHUP", stop(EXIT.terminated));
  opening = openBrowser();
  const browser = await opening;
  let session: Session;
  try {
    const observed = await within(LOAD_TIMEOUT_MS * 2 + (args.wait ? TOLD_TIMEOUT_MS : 0) + args.duration_s * 1000 + ASK_TIMEOUT_MS * 3, "the measurement", observe(browser, args));
    if (args.record !== null) await writeFile(args.record, JSON.stringify(observed.record));
    session = toSession(args, observed, table, quality, browser.version);
  } finally {
    await browser.close();
  }
  // Written beside and renamed: a file of this name is always whole.
  const part = join(dirname(args.out), `.${basename(args.out)}.${process.pid}`);
  await writeFile(part, `${JSON.stringify(session)}\n`);
  await rename(part, args.out);
  const { startup_s, stalls, rebuffer_ratio, bitrate_kbps, switches, qoe_lin, psnr_db, error } = session;
  process.stdout.write(`${JSON.stringify({ startup_s, stalls, rebuffer_ratio, bitrate_kbps, switches, qoe_lin, psnr_db, error })}\n`);
  return startup_s === null ? EXIT.nothingPlayed : EXIT.ok;
}

await run("measure", USAGE, main);
