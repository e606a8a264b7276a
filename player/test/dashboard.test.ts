/** The proxies' live dashboard in a real browser: a player's flow through both real proxies, on loopback. Needs `make build`. */
import { createServer, get as httpGet, Agent, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, type Browser } from "../src/cli/browser.ts";
import { HOST, openTunnel, type Tunnel } from "./tunnel.ts";

const FITS = "document.documentElement.scrollWidth <= innerWidth";

let origin: Server;
let originPort = 0;
let browser: Browser;
let tunnel: Tunnel;

beforeAll(async () => {
  origin = createServer((request, response) => {
    const bytes = Number(/\d+/.exec(request.url ?? "")?.[0] ?? 0);
    response.writeHead(200, { "content-length": bytes }).end(Buffer.alloc(bytes));
  });
  await new Promise<void>((done) => origin.listen(0, HOST, done));
  originPort = (origin.address() as AddressInfo).port;
  tunnel = await openTunnel(originPort, "vivace-latency");
  browser = await openBrowser();
}, 120_000);

afterAll(async () => {
  await browser?.close();
  await tunnel?.close();
  origin?.closeAllConnections();
  origin?.close();
});

/** One player: a connection kept alive, and what CMCD says of its buffer. */
class Player {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 1 });

  async ask(bytes: number, cmcd: string): Promise<void> {
    const url = `http://${HOST}:${tunnel.listener}/${bytes}?CMCD=${encodeURIComponent(cmcd)}`;
    await new Promise<void>((done, fail) => httpGet(url, { agent: this.agent }, (response) => response.resume().on("end", done)).on("error", fail));
  }

  leave(): void {
    this.agent.destroy();
  }
}

describe("the dashboard", () => {
  it("shows a player's flow while it lives, what the player says of itself, and when the proxy is gone", async () => {
    const { page } = browser;
    const problems: string[] = [];
    page.on("console", (message) => (message.type() === "error" ? problems.push(message.text()) : undefined));
    page.on("pageerror", (error) => problems.push(error.message));
    await page.goto(`http://${HOST}:${tunnel.serverAdmin}/`);
    await page.getByText("No flow at the moment.").waitFor();
    await page.getByText("carries flows").waitFor();

    const player = new Player();
    await player.ask(2_000_000, 'bl=12500,br=3600,mtp=25000,ot=v,sid="a",tb=3600');
    const row = page.locator("tbody tr");
    await row.waitFor();
    expect(await row.count()).toBe(1);
    const text = await row.innerText();
    expect(text).toContain(`${HOST}:${originPort}`);
    expect(text).toContain("vivace-latency");
    expect(text).toContain("dash");
    await row.getByText("12.5", { exact: true }).waitFor();
    await row.getByText("3.60 Mbit/s wanted").waitFor();

    await player.ask(1000, "bl=0,br=350,bs,ot=v");
    await row.getByText("ran empty").waitFor();
    // Rate, round trip, loss and buffer, each with more than one point by now.
    const drawn = async (): Promise<number> => (await page.locator("polyline").evaluateAll((lines) => lines.map((line) => line.getAttribute("points")?.split(" ").length ?? 0))).filter((points) => points >= 3).length;
    await expect.poll(drawn, { timeout: 10_000 }).toBe(4);
    const wide = await page.evaluate<boolean>(FITS);
    await page.setViewportSize({ width: 390, height: 800 });
    const narrow = await page.evaluate<boolean>(FITS);
    expect([wide, narrow]).toEqual([true, true]);
    expect(problems).toEqual([]);

    player.leave();
    await page.getByText("No flow at the moment.").waitFor();
    tunnel.server.kill("SIGKILL");
    await page.getByText("The proxy does not answer").waitFor();
  }, 60_000);

  it("is there at the client as well", async () => {
    const { page } = browser;
    await page.goto(`http://${HOST}:${tunnel.clientAdmin}/`);
    await page.getByRole("heading", { name: "Millrace" }).waitFor();
    // The server was killed by the test before.
    await page.locator("#health.bad").waitFor({ timeout: 30_000 });
  }, 60_000);
});
