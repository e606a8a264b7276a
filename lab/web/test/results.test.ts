/** The tool: from a directory of sessions to the page. */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Session } from "millrace-player/schema";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { fill } from "../tool/fill.ts";
import { listVariants, readSessions } from "../tool/results.ts";
import { FIGURES, session } from "./session.ts";

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

describe("a directory of sessions", () => {
  it("becomes figures, sessions, pictures, facts and a table of the link", async () => {
    await write(
      { title: "Two", config: { link: { rate_mbps: 12, loss: 0.01 } }, variants: { one: { label: "The one", ...FIGURES, emulator: { dropped: 7 } }, two: { ...FIGURES, psnr_db: null, dropped_frames: 3 } } },
      { one: session({ screenshots: [{ t: 2, file: "a.jpg" }, { t: 3, file: "missing.jpg" }] }) },
    );
    const { title, variants, facts, link } = await readSessions(dir);
    expect(title).toBe("Two");
    expect(facts).toEqual([{ name: "link: rate", value: "12\u202fMbit/s" }, { name: "link: loss", value: "1.00\u202f%" }]);
    expect(link).toEqual({ kind: "table", title: null, columns: ["", "The one", "two"], rows: [["dropped", "7", "–"]] });
    const [one, two] = variants;
    expect(one?.screenshots).toEqual([{ t: 2, dataUrl: "data:image/jpeg;base64,cGljdHVyZQ==" }]);
    expect(one?.figures).toEqual({ ...FIGURES, dropped_frames: 40 });
    expect(one?.session?.seconds).toHaveLength(4);
    expect(two).toEqual({ label: "two", figures: { ...FIGURES, psnr_db: null, dropped_frames: 3 }, session: null, screenshots: [] });
  });

  it("is refused with screenshots or variants outside of it", async () => {
    await write({ variants: { one: FIGURES } }, { one: session({ screenshots: [{ t: 1, file: "../../secret.jpg" }] }) });
    await expect(readSessions(dir)).rejects.toThrow("lies outside of");
    expect(() => listVariants(JSON.stringify({ variants: { "../x": FIGURES } }), "f")).toThrow("cannot be the name");
  });

  it("is refused with the wrong field of a session", async () => {
    await write({ variants: { one: FIGURES } }, { one: session({ rebuffer_ratio: 2 }) });
    await expect(readSessions(dir)).rejects.toThrow(/session\.json: .*rebuffer_ratio/s);
  });

  it("tells variants with the same label apart", async () => {
    await write({ variants: { a: { label: "TCP", ...FIGURES }, b: { label: "TCP", ...FIGURES } } }, {});
    expect((await readSessions(dir)).variants.map((v) => v.label)).toEqual(["TCP (a)", "TCP (b)"]);
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
});

describe("the page", () => {
  it("takes data that can't end its script, and has one place for it", () => {
    const page = '<script>"millrace-report-data"</script>';
    expect(fill(page, { a: "</script>$&" })).toBe('<script>{"a":"\\u003c/script>$&"}</script>');
    expect(() => fill("<script></script>", {})).toThrow("no place for its data");
    expect(() => fill(page + page, {})).toThrow("no place for its data");
  });
});

describe("the built tool", () => {
  const tool = (...args: string[]): Promise<{ stdout: string }> => promisify(execFile)(process.execPath, [fileURLToPath(new URL("../dist/report.js", import.meta.url)), ...args]);

  it("writes the page, and says where", async () => {
    await write({ title: "Written", variants: { one: FIGURES } }, { one: session() });
    const out = join(dir, "report.html");
    expect((await tool("--in", dir, "--out", out)).stdout).toBe(`${out}\n`);
    expect(await readFile(out, "utf8")).toContain('"title":"Written"');
  });

  it("says what it needs", async () => {
    await expect(tool("--in", dir)).rejects.toMatchObject({ code: 64, stderr: "report: --out is missing\nusage: report --in DIR --out report.html\n" });
    await expect(tool("--in", dir, "--out", join(dir, "report.html"))).rejects.toMatchObject({ code: 70, stderr: expect.stringContaining("results.json: cannot be read") as string });
  });
});
