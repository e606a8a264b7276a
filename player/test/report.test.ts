import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { qoe } from "../src/qoe.ts";
import { fact } from "../src/report/format.ts";
import { renderReport } from "../src/report/html.ts";
import { flatten, listVariants, readResults } from "../src/report/results.ts";
import type { Session } from "../src/schema.ts";
import { makeRecord, TABLE } from "./helpers.ts";

const FIGURES = { startup_s: 1, stalls: 0, rebuffer_ratio: 0.125, bitrate_kbps: 3600, switches: 0, psnr_db: 40 };

function session(screenshots: Session["screenshots"]): Session {
  const record = makeRecord([{ t: 1, type: "playing" }], [{ from: 1, to: 5, media_s: 0, height: 1080 }], 4);
  return { version: 1, ...qoe(record, 4, TABLE), events: [], downloads: [], screenshots, abr: "throughput", buffer_target_s: 15, cmcd: "query", ladder_kbps: [350, 3600], url: "http://198.18.0.1/", browser: "Chromium", error: null };
}

let dir = "";
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "millrace-report-"));
});
afterEach(() => rm(dir, { recursive: true }));

async function write(results: unknown, sessions: Record<string, Session>): Promise<void> {
  await writeFile(join(dir, "results.json"), JSON.stringify(results));
  for (const [name, s] of Object.entries(sessions)) {
    await mkdir(join(dir, name));
    await writeFile(join(dir, name, "session.json"), JSON.stringify(s));
    await writeFile(join(dir, name, "a.jpg"), "picture");
  }
}

describe("report", () => {
  it("holds figures, charts, pictures, link and credit, and asks no network", async () => {
    await write(
      { config: { link: { rate_mbps: 12, loss: 0.01 } }, variants: { one: { label: "The one", ...FIGURES, emulator: { dropped: 7 } }, two: { ...FIGURES, bitrate_kbps: 900 } } },
      { one: session([{ t: 2, file: "a.jpg" }]) },
    );
    const html = renderReport(await readResults(dir), "/* script */", "/* style */");
    for (const text of ["The one", "12.50\u00a0%", "3,600\u00a0kbit/s", "12 Mbit/s", "1.00 %", "data:image/jpeg;base64,cGljdHVyZQ==", "Creative Commons Attribution 3.0", "4.00 times that of two", "two: there is no session", "What the link did"]) {
      expect(html).toContain(text);
    }
    expect(html).not.toMatch(/(src|href)="(?!data:)/);
  });

  it("shows what was null as a dash and a session that never played as one stall", async () => {
    const figures = qoe(makeRecord([], [], 4), 4, TABLE);
    await write({ variants: [{ name: "dead", ...FIGURES, startup_s: null, bitrate_kbps: null, psnr_db: null }] }, { dead: { ...session([]), ...figures, error: "it did not load" } });
    const html = renderReport(await readResults(dir), "", "");
    expect(html).toContain('<td data-head="Start-up">–</td>');
    expect(html).toContain('<i class="stall" style="left:0.000%;width:100.000%"');
    expect(html).toContain("dead: it did not load");
  });

  it("escapes what it did not write", async () => {
    await write({ title: "<b>&", variants: { one: { label: '"><script>x()</script>', ...FIGURES } } }, { one: session([]) });
    const html = renderReport(await readResults(dir), "", "");
    expect(html).not.toContain("<script>x()");
    expect(html).not.toContain("<b>&");
  });

  it("refuses screenshots and variants outside of its directory", async () => {
    await write({ variants: { one: FIGURES } }, { one: session([{ t: 1, file: "../../secret.jpg" }]) });
    await expect(readResults(dir)).rejects.toThrow("lies outside of");
    expect(() => listVariants(JSON.stringify({ variants: { "../x": FIGURES } }), "f")).toThrow("cannot be the name");
  });

  it("says which field of a session is wrong", async () => {
    await write({ variants: { one: FIGURES } }, { one: { ...session([]), rebuffer_ratio: 2 } });
    await expect(readResults(dir)).rejects.toThrow(/session\.json: .*rebuffer_ratio/s);
  });
});

describe("results.json", () => {
  it("may be a map, a list or bare", () => {
    for (const value of [{ variants: { a: FIGURES } }, { variants: [{ name: "a", ...FIGURES }] }, { a: FIGURES }]) {
      expect(listVariants(JSON.stringify(value), "f").variants.map(([name]) => name)).toEqual(["a"]);
    }
    expect(() => listVariants(JSON.stringify({ variants: [FIGURES] }), "f")).toThrow("variants[0] has no name");
    expect(() => listVariants("{", "f")).toThrow("f: not JSON");
  });

  it("is flattened into facts with units", () => {
    expect(flatten({ link: { rate_mbps: 12, none: null, list: [1, 2] } })).toEqual([["link.rate_mbps", "12"], ["link.list", "1, 2"]]);
    expect(fact("link.rate_mbps", "12")).toEqual(["link: rate", "12 Mbit/s"]);
    expect(fact("loss_reverse", "0.005")).toEqual(["loss reverse", "0.50 %"]);
    expect(fact("kernel", "6.1")).toEqual(["kernel", "6.1"]);
  });
});
