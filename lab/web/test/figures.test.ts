/** The built page of figures with made-up results, in a real browser. */
import { readFile } from "node:fs/promises";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Panel, Series } from "../src/chart.ts";
import { count, type Report } from "../src/figures/document.ts";
import { foreign, overflow_px, Pages, SCHEMES, seeEverything, WIDTHS_PX, type Opened, type Scheme } from "./browser.ts";

/** Written by `cargo test -p millrace-lab`, so that both sides mean the same. */
const DATA = new URL("made-up.json", import.meta.url);

let pages: Pages;
let address = "";
/** The same with two sets of results. */
let beside = "";
let report: Report;

const SETS = ["sim", "emu"] as const;

/** The report as if it had been made of two sets that differ by little. */
function twice(of: Report): Report {
  const both = (s: Series): Series[] => SETS.map((set, i) => ({ name: `${s.name} (${set})`, points: s.points.map((p) => p.map((v, k) => (v !== null && k < 2 ? v * (1 + 0.01 * i) : v))) }));
  const panel = (p: Panel): Panel => (p.kind === "table" ? p : { ...p, series: p.series.flatMap(both) });
  return { ...of, sets: SETS, figures: of.figures.map((f) => ({ ...f, plots: f.plots.map((plot) => plot.map(panel)) })) };
}

beforeAll(async () => {
  pages = await Pages.launch("figures");
  report = JSON.parse(await readFile(DATA, "utf8")) as Report;
  address = await pages.write("report.html", report);
  beside = await pages.write("beside.html", twice(report));
}, 60_000);

afterAll(() => pages.close());

const open = (width: number, scheme: Scheme, at = address): Promise<Opened> => pages.open(width, scheme, at);

describe.each(WIDTHS_PX)("at %i px", { timeout: 60_000 }, (width) => {
  it.each(SCHEMES)("draws every figure and asks no network, %s", async (scheme) => {
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
    expect(await overflow_px(page)).toBeLessThanOrEqual(0);
    expect(problems).toEqual([]);
    expect(foreign(requests)).toEqual([]);
    await page.close();
  });
});

interface Rect {
  readonly text: string;
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

const scatters = (page: Page): Locator => page.locator('.chart[aria-label^="Scatter"]');

/** The texts of a chart, those that name its marks first, and the place of its axes' lines. */
async function drawn(chart: Locator, names: readonly string[]): Promise<{ labels: Rect[]; others: Rect[]; plot: Rect }> {
  const all = await chart.locator("svg").evaluate((svg) => {
    const rect = (e: Element): Rect => {
      const { left, top, right, bottom } = e.getBoundingClientRect();
      return { text: e.textContent, left, top, right, bottom };
    };
    const axes = [...svg.querySelectorAll("path")].map(rect).filter((r) => r.right - r.left > 100 || r.bottom - r.top > 100);
    const [xs, ys] = [axes.flatMap((r) => [r.left, r.right]), axes.flatMap((r) => [r.top, r.bottom])];
    return { texts: [...svg.querySelectorAll("text")].map(rect), plot: { text: "", left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) } };
  });
  return { labels: all.texts.filter((t) => names.includes(t.text)), others: all.texts.filter((t) => !names.includes(t.text)), plot: all.plot };
}

describe.each(WIDTHS_PX)("labels of marks at %i px", { timeout: 60_000 }, (width) => {
  it.each(["one set", "two sets"])("lie neither on each other nor outside of the plot, %s", async (sets) => {
    const { page } = await open(width, "light", sets === "one set" ? address : beside);
    await seeEverything(page);
    const names = [...new Set(report.figures.flatMap((f) => f.plots.flat().flatMap((p) => (p.kind === "scatter" ? p.series.map((s) => s.name) : []))))];
    expect(await scatters(page).count()).toBeGreaterThan(1);
    for (const chart of await scatters(page).all()) {
      const { labels, others, plot } = await drawn(chart, names);
      expect(labels.length).toBeGreaterThanOrEqual(width > 1000 ? 8 : 4);
      const apart = (a: Rect, b: Rect): boolean => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
      const bad = labels.flatMap((a, i) => [...labels.slice(i + 1), ...others].filter((b) => !apart(a, b)).map((b) => `${a.text} on ${b.text}`));
      expect(bad).toEqual([]);
      const out = labels.filter((l) => l.left < plot.left - 1 || l.right > plot.right + 1 || l.top < plot.top - 1 || l.bottom > plot.bottom + 1);
      expect(out.map((l) => l.text)).toEqual([]);
    }
    await page.close();
  });
});

describe("two sets of results", { timeout: 60_000 }, () => {
  it("have a button each beside those of the algorithms, and are hidden together", async () => {
    const { page } = await open(1280, "light", beside);
    await seeEverything(page);
    const plot = page.locator("#made-lines .plot").first();
    const buttons = await plot.locator(".legend button").allInnerTexts();
    expect(buttons.slice(-2)).toEqual([...SETS]);
    expect(buttons).toHaveLength(14);
    const strokes = (dash: "[stroke-dasharray]" | ":not([stroke-dasharray])"): Promise<number> => plot.locator(`.chart svg path[stroke="#111fd5"][stroke-width="2"]${dash}[fill="none"]`).count();
    expect([await strokes("[stroke-dasharray]"), await strokes(":not([stroke-dasharray])")]).toEqual([1, 1]);
    await plot.getByRole("button", { name: "emu" }).click();
    await expect.poll(() => strokes("[stroke-dasharray]")).toBe(0);
    expect(await strokes(":not([stroke-dasharray])")).toBe(1);
    await plot.getByRole("button", { name: "vivace-latency" }).click();
    await expect.poll(() => strokes(":not([stroke-dasharray])")).toBe(0);
    await plot.getByRole("button", { name: "emu" }).click();
    expect(await strokes("[stroke-dasharray]")).toBe(0);
    await page.close();
  });

  it("leave an algorithm its colour in every legend of the page", async () => {
    const { page } = await open(1280, "light", beside);
    const keys = await page.locator('.legend [aria-label="Series"] button').evaluateAll((all) => all.map((b) => [b.textContent, b.querySelector("svg")?.getAttribute("style") ?? ""] as const));
    const names = new Set(keys.map(([name]) => name));
    expect(names.size).toBeGreaterThan(11);
    expect(new Set(keys.map((k) => k.join(" "))).size).toBe(names.size);
    await page.close();
  });
});

describe("what viewers saw", { timeout: 60_000 }, () => {
  const gallery = (page: Page): Locator => page.locator("section[id='made-players'] .gallery");

  it("stands side by side at the second that the reader chooses", async () => {
    const { page } = await open(1280, "light");
    const cards = gallery(page).locator(".card");
    const views = report.figures.find((f) => f.id === "made-players")?.gallery?.views ?? [];
    const first = views[0];
    const names = first?.seen.map((s) => s.name) ?? [];
    expect(names.length).toBeGreaterThan(2);
    expect(await cards.count()).toBe(1 + names.length);
    const slider = gallery(page).locator("input[type=range]");
    await slider.focus();
    await page.keyboard.press("Home");
    expect(await gallery(page).locator("output").innerText()).toBe("5 s");
    expect(await cards.locator(".badge").allInnerTexts()).toEqual(["nothing yet"]);
    expect(await cards.locator("img").count()).toBe(2 * names.length);
    await page.keyboard.press("End");
    expect(await gallery(page).locator("output").innerText()).toBe("10 s");
    expect(await cards.locator(".badge").allInnerTexts()).toEqual(["frozen for 1.25 s"]);
    expect(await cards.locator("img").count()).toBe(2 * (1 + names.length));
    expect(await cards.nth(1).innerText()).toContain("36.5\u202fdB");
    // The browser can show every image.
    expect(await cards.locator("img").evaluateAll((all) => all.every((img) => (img as HTMLImageElement).naturalWidth > 0))).toBe(true);
    await page.close();
  });

  it("has the source in its place, and another link, when asked", async () => {
    const { page } = await open(1280, "light");
    const part = gallery(page).locator(".card").nth(1).locator("img.part");
    const source = gallery(page).locator(".card").nth(0).locator("img.part");
    expect(await part.getAttribute("src")).not.toBe(await source.getAttribute("src"));
    await gallery(page).locator("button").click();
    expect(await part.getAttribute("src")).toBe(await source.getAttribute("src"));
    await gallery(page).locator("select").selectOption({ label: "trace fast-5mbps" });
    expect(await gallery(page).locator(".card").count()).toBeGreaterThan(3);
    expect(await gallery(page).locator("button").getAttribute("aria-pressed")).toBe("true");
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

  it("counts the claims, and says why one fails", async () => {
    const { page } = await open(1280, "light");
    const counts = count(report.figures.flatMap((f) => f.claims));
    const tally = await page.locator(".tally").innerText();
    for (const n of Object.values(counts)) expect(tally).toContain(String(n));
    expect(await page.locator("#made-lines tr.fails .reason").innerText()).toBe("Why: Made up: <b>nothing</b> was measured.");
    expect(await page.locator("#made-lines tr.fails b").innerText()).toBe("Why:");
    await page.close();
  });

  it("prints whole charts in light colours on A4, also those that were not seen", async () => {
    const { page } = await open(1280, "dark");
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    await page.emulateMedia({ media: "print" });
    // 186 mm: A4 within its margins.
    await page.setViewportSize({ width: 703, height: 1000 });
    const charts = await page.locator(".chart").evaluateAll((all) =>
      all.map((c) => {
        const svg = c.querySelector("svg");
        const right = (e: Element): number => e.getBoundingClientRect().right;
        return svg === null ? "not drawn" : right(svg) > right(c) + 1 || right(svg) > 704 ? `${c.getAttribute("aria-label")} ends at ${right(svg)}` : "";
      }),
    );
    expect(charts.length).toBeGreaterThan(10);
    expect(charts.filter((c) => c !== "")).toEqual([]);
    expect(await overflow_px(page)).toBeLessThanOrEqual(0);
    const text = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).color);
    expect(await text()).toBe("rgb(27, 31, 36)");
    await page.emulateMedia({ media: "screen" });
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    expect(await text()).toBe("rgb(238, 241, 244)");
    await page.close();
  });

  it("says nothing of claims where there are none, and needs no contents for one scenario", async () => {
    const figures = report.figures.map((f) => ({ ...f, claims: [] }));
    for (const [count, headings] of [
      [figures.length, ["Scenarios"]],
      [1, []],
    ] as const) {
      const { page } = await open(1280, "light", await pages.write(`none-${count}.html`, { ...report, title: "My own link", figures: figures.slice(0, count) }));
      expect(await page.locator("h1").innerText()).toBe("My own link");
      expect(await page.locator(".summary h2").allInnerTexts()).toEqual(headings);
      expect(await page.locator("body").innerText()).not.toContain("0 claims");
      await page.close();
    }
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
    const { page } = await pages.open(1280, "light");
    expect(await page.locator("body").innerText()).toContain("has no figures");
    await page.close();
  });
});
