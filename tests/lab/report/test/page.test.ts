/** The built page with made-up results, in a real browser. Needs Chromium and nothing else. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type Browser, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { count, type Report } from "../src/data.ts";

const PAGE = new URL("../dist/index.html", import.meta.url);
/** Written by `cargo test -p millrace-lab`, so that both sides mean the same. */
const DATA = new URL("made-up.json", import.meta.url);
const WIDTHS_PX = [1280, 390] as const;
const PLACE = '"millrace-report-data"';

let dir = "";
let browser: Browser;
let address = "";
let report: Report;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "millrace-page-test-"));
  const json = await readFile(DATA, "utf8");
  report = JSON.parse(json) as Report;
  const parts = (await readFile(PAGE, "utf8")).split(PLACE);
  expect(parts).toHaveLength(2);
  await writeFile(join(dir, "report.html"), parts.join(json.replaceAll("<", "\\u003c")));
  address = `file://${join(dir, "report.html")}`;
  browser = await chromium.launch({ executablePath: process.env["MILLRACE_CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--no-proxy-server", "--disable-gpu"] });
}, 60_000);

afterAll(async () => {
  await browser.close();
  await rm(dir, { recursive: true });
});

interface Opened {
  readonly page: Page;
  readonly problems: string[];
  readonly requests: string[];
}

async function open(width: number, colorScheme: "light" | "dark"): Promise<Opened> {
  const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
  const problems: string[] = [];
  const requests: string[] = [];
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && problems.push(m.text()));
  page.on("pageerror", (e) => problems.push(e.message));
  page.on("request", (r) => requests.push(r.url()));
  await page.goto(address);
  return { page, problems, requests };
}

/** Charts are drawn when they come into view. */
async function seeEverything(page: Page): Promise<void> {
  for (const chart of await page.locator(".chart").all()) {
    await chart.scrollIntoViewIfNeeded();
    await chart.locator("svg").waitFor();
  }
}

describe.each(WIDTHS_PX)("at %i px", { timeout: 60_000 }, (width) => {
  it.each(["light", "dark"] as const)("draws every figure and asks no network, %s", async (scheme) => {
    const { page, problems, requests } = await open(width, scheme);
    await seeEverything(page);
    for (const figure of report.figures) {
      const section = page.locator(`section[id="${figure.id}"]`);
      const panels = figure.plots.flat();
      const charts = panels.filter((p) => p.kind !== "table");
      expect(await section.locator(".chart svg").count()).toBe(charts.length);
      expect(await section.locator("table.plain").count()).toBe(panels.length - charts.length);
      for (const claim of figure.claims) expect(await section.locator("table.claims").innerText()).toContain(claim.text);
    }
    // An empty chart has its axes, but no line in a series' colour.
    const empty = await page.locator(".chart").evaluateAll((all) => all.filter((c) => c.querySelectorAll("svg path").length < 4).map((c) => c.getAttribute("aria-label")));
    expect(empty).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
    expect(problems).toEqual([]);
    expect(requests.filter((r) => !r.startsWith("file:") && !r.startsWith("data:"))).toEqual([]);
    expect(requests.filter((r) => r.startsWith("file:"))).toHaveLength(1);
    await page.close();
  });
});

describe("the page", { timeout: 60_000 }, () => {
  it("hides a series in all panels with the keyboard, and shows it again", async () => {
    const { page } = await open(1280, "light");
    await seeEverything(page);
    const plot = page.locator("#made-series .plot").first();
    const blue = (): Promise<number> => plot.locator('svg path[stroke="#111fd5"]').count();
    const before = await blue();
    expect(before).toBe(4);
    const button = plot.getByRole("button", { name: "Flow 1" });
    await button.focus();
    await page.keyboard.press("Enter");
    expect(await button.getAttribute("aria-pressed")).toBe("false");
    await expect.poll(blue).toBe(0);
    await page.keyboard.press("Enter");
    await expect.poll(blue).toBe(before);
    await page.close();
  });

  it("tells values with their units where the pointer is", async () => {
    const { page } = await open(1280, "light");
    const chart = page.locator("#made-lines .chart").first();
    await chart.scrollIntoViewIfNeeded();
    await chart.locator("svg").waitFor();
    const box = await chart.boundingBox();
    if (box === null) throw new Error("the chart has no place");
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    const tip = page.locator("#made-lines table.tip");
    await tip.waitFor();
    const text = await tip.innerText();
    expect(text).toMatch(/Random loss: 3\s%/);
    expect(text).toMatch(/vivace-latency\s+90\sMbit\/s \(86\.4 to 92\.7\)/);
    await page.close();
  });

  it("counts the claims, and says why one falls short", async () => {
    const { page } = await open(1280, "light");
    const counts = count(report.figures.flatMap((f) => f.claims));
    const tally = await page.locator(".tally").innerText();
    for (const n of Object.values(counts)) expect(tally).toContain(String(n));
    expect(await page.locator("#made-lines tr.short .reason").innerText()).toBe("Why: Made up: <b>nothing</b> was measured.");
    expect(await page.locator("#made-lines tr.short b").innerText()).toBe("Why:");
    await page.close();
  });

  it("describes each chart in words", async () => {
    const { page } = await open(1280, "light");
    const labels = await page.locator(".chart").evaluateAll((all) => all.map((c) => c.getAttribute("aria-label")));
    expect(labels.every((l) => l !== null && l.length > 30)).toBe(true);
    expect(labels.find((l) => l?.includes("Random loss"))).toContain("cubic: from");
    await page.close();
  });

  it("follows a change of colours and of width", async () => {
    const { page } = await open(1280, "light");
    const chart = page.locator("#made-lines .chart").first();
    await chart.scrollIntoViewIfNeeded();
    await chart.locator("svg").waitFor();
    const lines = (colour: string): Promise<number> => chart.locator(`svg path[stroke="${colour}"]`).count();
    expect(await lines("#111fd5")).toBeGreaterThan(0);
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(() => lines("#b4d4fd")).toBeGreaterThan(0);
    await page.setViewportSize({ width: 390, height: 900 });
    await expect.poll(async () => Number(await chart.locator("svg").getAttribute("width"))).toBeLessThan(390);
    await page.close();
  });

  it("says so when it holds no figures", async () => {
    const page = await browser.newPage();
    await page.goto(PAGE.href);
    expect(await page.locator("body").innerText()).toContain("has no figures");
    await page.close();
  });
});
