/** The built page of sessions, in a real browser. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Locator, Page } from "playwright-core";
import { sessionCharts } from "../src/sessions/charts.ts";
import type { Sessions, Variant } from "../src/sessions/document.ts";
import { foreign, overflow_px, Pages, SCHEMES, seeEverything, WIDTHS_PX } from "./browser.ts";
import { deadSession, FIGURES, session } from "./session.ts";

/** One pixel. */
const PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const figures = { ...FIGURES, dropped_frames: 40 };
const stall = { start_s: 2.5, end_s: 3.5, to_end: false };
const stalled = session().seconds.map((s, t) => (t === 2 ? { ...s, rung_kbps: 350, psnr_db: 30 } : s));

const VARIANTS: readonly Variant[] = [
  { label: "The one", figures, session: session(), screenshots: [{ t: 2, dataUrl: PICTURE }] },
  { label: "two", figures: { ...figures, bitrate_kbps: 900, stalls: 1 }, session: session({ stall_list: [stall], seconds: stalled, frozen_outside_stalls_s: 0.5 }), screenshots: [] },
  { label: "<b>&</b><script>x()</script>", figures: { ...figures, bitrate_kbps: null }, session: null, screenshots: [] },
  { label: "dead", figures: { ...figures, startup_s: null, bitrate_kbps: null, psnr_db: null }, session: deadSession(), screenshots: [] },
];

const SESSIONS: Sessions = {
  title: "<i>Four</i> & one link",
  variants: VARIANTS,
  facts: [{ name: "link: rate", value: "12 Mbit/s" }, { name: "command", value: "target/release/millrace-lab demo ".repeat(4) }],
  link: { kind: "table", title: null, columns: ["", ...VARIANTS.map((v) => v.label)], rows: [["dropped", "7", "–", "–", "0"]] },
};

let pages: Pages;
let address = "";

beforeAll(async () => {
  pages = await Pages.launch("sessions");
  address = await pages.write("report.html", SESSIONS);
}, 60_000);

afterAll(() => pages.close());

/** The section under a heading that begins so. */
const section = (page: Page, heading: string): Locator => page.locator("section", { has: page.getByRole("heading", { name: heading }) });

describe.each(WIDTHS_PX)("at %i px", { timeout: 60_000 }, (width) => {
  it.each(SCHEMES)("shows figures, charts, pictures, link and credit, and asks no network, %s", async (scheme) => {
    const { page, problems, requests } = await pages.open(width, scheme, address);
    await seeEverything(page);
    const text = await page.locator("body").innerText();
    for (const part of ["<i>Four</i> & one link", "12.50\u202f%", "3,600\u202fkbit/s", "12 Mbit/s", "4.00 times that of two", "4 s each in Chromium", "What the link did", "Creative Commons Attribution 3.0"]) {
      expect(text).toContain(part);
    }
    expect(await page.locator(".chart svg").count()).toBe(5);
    const empty = await page.locator(".chart").evaluateAll((all) => all.filter((c) => c.querySelectorAll('svg path[stroke-width="2"]').length === 0).map((c) => c.getAttribute("aria-label")));
    expect(empty).toEqual([]);
    expect(await page.locator(".shots img").evaluateAll((all) => all.map((img) => (img as HTMLImageElement).naturalWidth))).toEqual([1]);
    expect(await overflow_px(page)).toBeLessThanOrEqual(0);
    expect(problems).toEqual([]);
    expect(foreign(requests)).toEqual([]);
    await page.close();
  });
});

describe("the page of sessions", { timeout: 60_000 }, () => {
  it("has a dash for what was null, and notes what is wrong", async () => {
    const { page } = await pages.open(1280, "light", address);
    const rows = page.locator(".outcomes tbody tr");
    expect(await rows.nth(3).locator('td[data-head="Start-up"]').innerText()).toBe("–");
    expect(await rows.nth(2).locator("th").innerText()).toBe("<b>&</b><script>x()</script>");
    expect(await section(page, "Noted").locator("li").allInnerTexts()).toEqual([
      "two: the picture stood still for 0.5 s that the player does not call stalls.",
      "<b>&</b><script>x()</script>: there is no session, so nothing is drawn.",
      "dead: it did not load",
    ]);
    await page.close();
  });

  it("shows rungs, stalls and start-up where they were", async () => {
    const { page } = await pages.open(1280, "light", address);
    const blocks = (row: number): Promise<string[]> => page.locator(".strip").nth(row).locator("i").evaluateAll((all) => all.map((e) => `${e.className} ${(e as HTMLElement).style.left} ${(e as HTMLElement).style.width}`));
    expect(await blocks(0)).toEqual(["rung 25% 75%", "startup 0% 25%"]);
    expect(await blocks(1)).toEqual(["rung 25% 25%", "rung 50% 25%", "rung 75% 25%", "startup 0% 25%", "stall 62.5% 25%"]);
    expect(await page.locator(".strip").nth(2).innerText()).toBe("not measured");
    expect(await blocks(3)).toEqual(["stall 0% 100%"]);
    const colours = await page.locator(".strip").nth(1).locator(".rung").evaluateAll((all) => all.map((e) => getComputedStyle(e).backgroundColor));
    expect(new Set(colours).size).toBe(2);
    expect(await page.locator(".key").innerText()).toContain("350");
    await page.close();
  });

  it("shows the values of all charts where the pointer is over one", async () => {
    const { page } = await pages.open(1280, "light", address);
    await seeEverything(page);
    const buffer = section(page, "Buffer").locator(".chart");
    await buffer.scrollIntoViewIfNeeded();
    const box = await buffer.boundingBox();
    if (box === null) throw new Error("the chart has no place");
    await page.mouse.move(box.x + box.width * 0.52, box.y + box.height / 2);
    const tip = (heading: string): Locator => section(page, heading).locator("table.tip");
    await tip("Buffer").waitFor();
    expect(await tip("Buffer").innerText()).toMatch(/Time: 2\s*s\s+The one\s+5\s*s/);
    await expect.poll(() => tip("Throughput").innerText()).toMatch(/The one\s+4,000\skbit\/s/);
    await page.close();
  });

  it("hides a variant in a chart, and follows a change of colours and of width", async () => {
    const { page } = await pages.open(1280, "light", address);
    const chart = section(page, "Bitrate shown").locator(".chart");
    await chart.locator("svg").waitFor();
    const lines = (colour: string): Promise<number> => chart.locator(`svg path[stroke="${colour}"]`).count();
    expect(await lines("#111fd5")).toBeGreaterThan(0);
    const button = section(page, "Bitrate shown").getByRole("button", { name: "The one" });
    await button.click();
    await expect.poll(() => lines("#111fd5")).toBe(0);
    await button.click();
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(() => lines("#b4d4fd")).toBeGreaterThan(0);
    await page.setViewportSize({ width: 390, height: 900 });
    await expect.poll(async () => Number(await chart.locator("svg").getAttribute("width"))).toBeLessThan(390);
    await page.close();
  });

  it("says so when it holds no sessions", async () => {
    const { page } = await pages.open(1280, "light");
    expect(await page.locator("body").innerText()).toContain("has no sessions");
    await page.close();
  });
});

describe("charts of sessions", () => {
  const points = (heading: string): unknown[] => sessionCharts(VARIANTS).find((c) => c.heading.startsWith(heading))?.chart.series.map((s) => s.points) ?? [];

  it("hold a rung for its second, the last before a gap too, and have no rung while it stalled", () => {
    const [whole] = points("Bitrate");
    expect(whole).toEqual([[0, null], [1, 3600], [2, 3600], [3, 3600], [3.999, 3600]]);
    const gap = sessionCharts([{ label: "gap", figures, screenshots: [], session: session({ seconds: session().seconds.map((s, t) => ({ ...s, stalled: t === 2 })) }) }]);
    expect(gap[0]?.chart.series[0]?.points).toEqual([[0, null], [1, 3600], [1.999, 3600], [2, null], [3, 3600], [3.999, 3600]]);
  });

  it("add up stalls at the end of each second, and are empty without a session", () => {
    expect(points("Time stalled")).toEqual([
      [[1, 0], [2, 0], [3, 0], [4, 0]],
      [[1, 0], [2, 0], [3, 0], [4, 0]],
      [],
      [[1, 1], [2, 2], [3, 3], [4, 4]],
    ]);
  });

  it("begin at zero but for PSNR, and span the longest session", () => {
    const charts = sessionCharts(VARIANTS).map(({ chart }) => chart);
    expect(charts.map((c) => c.y.range)).toEqual([null, null, null, null, [25, 45]]);
    expect(charts.every((c) => c.x.range?.[1] === 4)).toBe(true);
  });
});
