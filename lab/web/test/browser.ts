/** A built page with data, in a real browser. Needs Chromium and nothing else. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type Browser, type Page } from "playwright-core";
import { fill } from "../tool/fill.ts";

export const WIDTHS_PX = [1280, 390] as const;
export const SCHEMES = ["light", "dark"] as const;
export type Scheme = (typeof SCHEMES)[number];

export interface Opened {
  readonly page: Page;
  /** Errors of scripts, errors and warnings of the console. */
  readonly problems: readonly string[];
  readonly requests: readonly string[];
}

export class Pages {
  private constructor(
    private readonly built: URL,
    private readonly dir: string,
    private readonly browser: Browser,
  ) {}

  /** `name`: of the built page. */
  static async launch(name: "figures" | "sessions"): Promise<Pages> {
    const browser = await chromium.launch({ executablePath: process.env["MILLRACE_CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--no-proxy-server", "--disable-gpu"] });
    return new Pages(new URL(`../dist/${name}.html`, import.meta.url), await mkdtemp(join(tmpdir(), "millrace-page-test-")), browser);
  }

  async close(): Promise<void> {
    await this.browser.close();
    await rm(this.dir, { recursive: true });
  }

  /** Writes the page with this data; its address. */
  async write(name: string, data: unknown): Promise<string> {
    const file = join(this.dir, name);
    await writeFile(file, fill(await readFile(this.built, "utf8"), data));
    return `file://${file}`;
  }

  /** `address`: the page without data, unless given. */
  async open(width: number, colorScheme: Scheme, address = this.built.href): Promise<Opened> {
    const page = await this.browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    const problems: string[] = [];
    const requests: string[] = [];
    page.on("console", (m) => ["error", "warning"].includes(m.type()) && problems.push(m.text()));
    page.on("pageerror", (e) => problems.push(e.message));
    page.on("request", (r) => requests.push(r.url()));
    await page.goto(address);
    return { page, problems, requests };
  }
}

/** Charts are drawn when they come into view. */
export async function seeEverything(page: Page): Promise<void> {
  for (const chart of await page.locator(".chart").all()) {
    await chart.scrollIntoViewIfNeeded();
    await chart.locator("svg").waitFor();
  }
}

/** How far the page is wider than the window. */
export const overflow_px = (page: Page): Promise<number> => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);

/** Requests beyond the page's own file and what is inside it. */
export const foreign = (requests: readonly string[]): string[] => requests.filter((r) => !r.startsWith("data:")).slice(1);
