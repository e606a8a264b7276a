/** The page plays through both real proxies and shows what carries it; then a server that says what no proxy would at the right time. Needs `make build`. */
import { createServer, type Server } from "node:http";
import { mkdtemp, rm } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openBrowser, type Browser } from "../src/cli/browser.ts";
import { recordSchema, type PlayerEvent } from "../src/schema.ts";
import { makeMedia, openSite, type Site } from "./site.ts";
import { HOST, openTunnel, type Tunnel } from "./tunnel.ts";

let dir = "";
let site: Site;
let tunnel: Tunnel;
let browser: Browser;
/** As the player names its session in its requests. */
let session = "";

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "millrace-proxy-test-"));
  await makeMedia(dir);
  site = await openSite(dir, ({ url = "" }) => {
    session = /sid="([^"]+)"/.exec(decodeURIComponent(url))?.[1] ?? session;
    return true;
  });
  tunnel = await openTunnel(site.port, "vivace-latency");
}, 300_000);

afterAll(async () => {
  await tunnel?.close();
  site?.close();
  await rm(dir, { recursive: true });
});

beforeEach(async () => {
  browser = await openBrowser();
}, 60_000);

afterEach(() => browser.close());

const algorithms = async (): Promise<PlayerEvent[]> => recordSchema.parse(await browser.page.evaluate("window.__millrace.record()")).events.filter((e) => e.type === "algorithm");
/** What the figures say under `name`. */
const said = (name: string): Promise<string> => browser.page.locator(`.figures dt:text-is("${name}") + dd`).innerText();

describe("through the tunnel", { timeout: 120_000 }, () => {
  it("shows and records the algorithm that carries the session", async () => {
    const problems: string[] = [];
    browser.page.on("console", (message) => (message.type() === "error" ? problems.push(message.text()) : undefined));
    await browser.page.goto(`http://${HOST}:${tunnel.listener}/?proxy=http://${HOST}:${tunnel.serverAdmin}`);
    await expect.poll(() => said("Algorithm")).toBe("vivace-latency");
    await expect.poll(() => said("Proxy rate")).toMatch(/^\d+\.\d Mbit\/s$/);
    await expect.poll(() => said("Proxy RTT")).toMatch(/^\d+\.\d ms$/);
    expect(await algorithms()).toMatchObject([{ algorithm: "vivace-latency" }]);
    expect(problems).toEqual([]);
  });

  it("is found by header fields as well, and plays on", async () => {
    const flows = async (): Promise<string> => (await fetch(`http://${HOST}:${tunnel.serverAdmin}/flows`)).text();
    await browser.page.goto(`http://${HOST}:${tunnel.listener}/?cmcd=header&proxy=http://${HOST}:${tunnel.serverAdmin}`);
    await expect.poll(() => said("Algorithm")).toBe("vivace-latency");
    expect(await flows()).toMatch(/"session":"[0-9a-f]{32}"/);
    await browser.page.waitForFunction("document.querySelector('video').currentTime > 1");
  });

  it("says that there is no answer where its origin is not listed, and plays on", async () => {
    await browser.page.goto(`${site.base}?proxy=http://${HOST}:${tunnel.serverAdmin}`);
    await expect.poll(() => said("Algorithm")).toBe("no answer");
    expect(await algorithms()).toEqual([]);
    await browser.page.getByText(`admin.cors_allow_origins lists ${site.base.slice(0, -1)}`).waitFor();
    await browser.page.waitForFunction("document.querySelector('video').currentTime > 1");
  });
});

describe("with a proxy that changes", { timeout: 120_000 }, () => {
  let proxy: Server;
  let address = "";
  let algorithm: string | null = "bbr2";
  let status = 200;
  let asked: number[] = [];
  let open = 0;
  let openAtOnce = 0;

  beforeAll(async () => {
    proxy = createServer((_, response) => {
      asked.push(performance.now());
      openAtOnce = Math.max(openAtOnce, ++open);
      response.on("close", () => open--);
      response.writeHead(status, { "access-control-allow-origin": "*", "content-type": "application/json" });
      const flow = (name: string | null, age_s: number): object => ({ algorithm: name, rate_mbps: 1, rtt_ms: 20, player: { session, age_s } });
      response.end(JSON.stringify({ flows: algorithm === null ? [] : [flow("stale", 9), flow(algorithm, 0), { ...flow("foreign", 0), player: { session: "x", age_s: 0 } }] }));
    });
    await new Promise<void>((done) => proxy.listen(0, HOST, done));
    address = `http://${HOST}:${(proxy.address() as AddressInfo).port}`;
  });

  afterAll(() => {
    proxy?.closeAllConnections();
    proxy?.close();
  });

  it("records each change once, says since when, and when there is no flow", async () => {
    await browser.page.goto(`${site.base}?proxy=${address}`);
    await expect.poll(() => said("Algorithm")).toBe("bbr2");
    algorithm = "copa";
    await expect.poll(() => said("Algorithm")).toMatch(/^copa, for \d+ s$/);
    expect(await said("Proxy rate")).toBe("2.0 Mbit/s");
    algorithm = null;
    await expect.poll(() => said("Algorithm")).toBe("no flow of this session");
    await browser.page.getByText("carries no flow whose player names this session").waitFor({ timeout: 30_000 });
    algorithm = "copa";
    await expect.poll(() => said("Algorithm")).toMatch(/^copa/);
    const seen = await algorithms();
    expect(seen.map((e) => e["algorithm"])).toEqual(["bbr2", "copa"]);
    expect(openAtOnce).toBe(1);
  });

  it("waits twice as long after each failure", async () => {
    status = 503;
    asked = [];
    await browser.page.goto(`${site.base}?proxy=${address}`);
    await expect.poll(() => asked.length, { timeout: 60_000 }).toBeGreaterThanOrEqual(4);
    expect(await said("Algorithm")).toBe("no answer");
    // Two, four and eight seconds; timers are never early, but clocks are rounded.
    const pauses = asked.slice(1, 4).map((at, i) => (at - (asked[i] ?? 0)) / 1000);
    for (const [i, pause] of pauses.entries()) expect(pause).toBeGreaterThan(2 ** (i + 1) - 0.1);
    status = 200;
    await expect.poll(() => said("Algorithm"), { timeout: 60_000 }).toMatch(/^copa/);
  });
});
