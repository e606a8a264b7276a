/** The proxies' live dashboard in a real browser: a player's flow through both real proxies, on loopback. Needs `make build`. */
import { createServer, get as httpGet, Agent, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, type Browser } from "../src/cli/browser.ts";
import { CLIENT_TOKEN, HOST, openTunnel, type Tunnel } from "./tunnel.ts";

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
  // A player's connection, and with it its flow, lasts as long as the player wants it; by default 5 s without a request.
  origin.keepAliveTimeout = 0;
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
  it("shows a player's flow while it lives, what the player says of itself, and the flow when it has ended", async () => {
    const { page } = browser;
    const problems: string[] = [];
    page.on("console", (message) => (message.type() === "error" ? problems.push(message.text()) : undefined));
    page.on("pageerror", (error) => problems.push(error.message));
    await page.goto(`http://${HOST}:${tunnel.serverAdmin}/`);
    await page.getByText("No flow at the moment.").waitFor();
    await page.getByText("carries flows").waitFor();
    await page.getByText("No flow has ended yet.").waitFor();
    const status = (await (await fetch(`http://${HOST}:${tunnel.serverAdmin}/status`)).json()) as { version: string; host: string };
    expect(await page.locator("header").innerText()).toMatch(/Millrace server/);
    for (const value of [status.version, status.host]) await page.locator("#identity").getByText(value, { exact: true }).waitFor();

    const player = new Player();
    await player.ask(2_000_000, 'bl=12500,br=3600,mtp=25000,ot=v,sid="a",tb=3600');
    const row = page.locator("#flows tbody tr");
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
    await expect.poll(drawn).toBe(4);
    const wide = await page.evaluate<boolean>(FITS);
    await page.setViewportSize({ width: 390, height: 800 });
    const narrow = await page.evaluate<boolean>(FITS);
    expect([wide, narrow]).toEqual([true, true]);
    expect(problems).toEqual([]);

    player.leave();
    await page.getByText("No flow at the moment.").waitFor();
    const ended = page.locator("#ended tbody tr");
    await ended.getByText("complete").waitFor();
    expect(await ended.innerText()).toMatch(/2\.00 MB|2\.01 MB/);
    await page.locator("#totals div", { hasText: "Completed" }).getByText("1", { exact: true }).waitFor();
  }, 60_000);

  it("sorts, filters and changes an algorithm after a confirmation", async () => {
    const { page } = browser;
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.goto(`http://${HOST}:${tunnel.serverAdmin}/`);
    const [large, small] = [new Player(), new Player()];
    await small.ask(1000, 'bl=2000,br=350,ot=v,sid="small"');
    await large.ask(4_000_000, 'bl=9000,br=3600,ot=v,sid="large"');
    const buffers = page.locator('#flows tbody td[data-title^="Player"] .value');
    const shown = (): Promise<string[]> => buffers.allInnerTexts();
    await expect.poll(shown).toEqual(["2.0", "9.0"]);
    const head = page.getByRole("columnheader", { name: "Player's buffer" });
    await head.getByRole("button").click();
    expect(await head.getAttribute("aria-sort")).toBe("descending");
    expect(await shown()).toEqual(["9.0", "2.0"]);
    await head.getByRole("button").press("Enter");
    expect(await head.getAttribute("aria-sort")).toBe("ascending");
    expect(await shown()).toEqual(["2.0", "9.0"]);

    const filter = page.getByLabel("Filter");
    await filter.fill("dash nowhere.example");
    await page.getByText("None of 2 flows matches the filter.").waitFor();
    await filter.fill(`VIVACE ${originPort}`);
    expect(await buffers.count()).toBe(2);
    await filter.fill("");

    type Flows = { flows: { algorithm: string; pinned: boolean }[] };
    const algorithms = async (): Promise<string[]> => ((await (await fetch(`http://${HOST}:${tunnel.serverAdmin}/flows`)).json()) as Flows).flows.map(({ algorithm, pinned }) => `${algorithm} ${pinned}`);
    const open = page.getByRole("button", { name: "Change the algorithm" }).first();
    const dialog = page.getByRole("dialog", { name: "Change the congestion control?" });
    await open.click();
    await dialog.getByLabel("Algorithm").selectOption("copa");
    await dialog.getByRole("button", { name: "Cancel" }).click();
    expect(new Set(await algorithms())).toEqual(new Set(["vivace-latency false"]));
    // What has the focus keeps it while the figures change.
    await expect.poll(() => page.evaluate("document.activeElement?.textContent")).toBe("Change");
    await open.click();
    // The listener's own words where it refuses.
    await dialog.getByLabel("Algorithm").selectOption("constant");
    await dialog.getByRole("button", { name: "Change to constant" }).click();
    await dialog.getByText("Not changed:").waitFor();
    await dialog.getByLabel("Algorithm").selectOption("copa");
    await dialog.getByRole("button", { name: "Change to copa" }).click();
    await page.locator("#flows").getByText("set by hand").first().waitFor();
    expect(await algorithms()).toContain("copa true");
    await open.click();
    await dialog.getByLabel("Algorithm").selectOption({ label: "release: configuration and rules choose again" });
    await dialog.getByRole("button", { name: "Release" }).click();
    await expect.poll(algorithms).not.toContain("copa true");
    large.leave();
    small.leave();
  }, 60_000);

  it("shows the largest of many flows, and looks for others at the proxy", async () => {
    const { page } = browser;
    await page.goto(`http://${HOST}:${tunnel.serverAdmin}/`);
    const players = Array.from({ length: 204 }, () => new Player());
    for (const [number, player] of players.entries()) await player.ask(1000, `bl=2000,ot=v,sid="${number}"`);
    const other = new Player();
    await other.ask(4_000_000, 'bl=9000,ot=v,sid="other"');
    const rows = page.locator("#flows tbody tr");
    await page.getByText("5 flows with lower rates are not shown.").waitFor();
    expect(await rows.count()).toBe(200);
    type Flows = { flows: { client: string; connection: string }[] };
    const { flows } = (await (await fetch(`http://${HOST}:${tunnel.serverAdmin}/flows`)).json()) as Flows;
    const filter = page.getByLabel("Filter");
    await filter.fill("nowhere.example");
    await page.getByText("None of 205 flows matches the filter.").waitFor();
    for (const { client } of [flows[0], flows.at(-1)].flatMap((flow) => flow ?? [])) {
      await filter.fill(client);
      await rows.getByText(`from ${client},`).waitFor();
      expect(await rows.count()).toBe(1);
    }
    await filter.fill("");
    await expect.poll(() => rows.count()).toBe(200);
    await rows.first().getByRole("button").click();
    const said = /Connection (\w+) carries (\d+) flows, all/;
    const about = page.getByRole("dialog").getByText(said);
    await about.waitFor();
    const [, connection, sharing] = said.exec(await about.innerText()) ?? [];
    expect(flows.filter((flow) => flow.connection === connection).length).toBe(Number(sharing));
    for (const player of [...players, other]) player.leave();
  }, 60_000);

  it("is there at the client as well, and shows nothing without the token; both say when the server is gone", async () => {
    const { page } = browser;
    await page.goto(`http://${HOST}:${tunnel.clientAdmin}/`);
    const field = page.getByLabel("Token");
    await field.fill("not the token of this listener");
    await field.press("Enter");
    await page.getByText("That is not the token.").waitFor();
    expect(await page.locator("#content").isVisible()).toBe(false);
    await field.fill(CLIENT_TOKEN);
    await field.press("Enter");
    await page.getByRole("heading", { name: "Millrace client" }).waitFor();
    await page.goto(`http://${HOST}:${tunnel.serverAdmin}/`);
    await page.getByText("carries flows").waitFor();
    tunnel.server.kill("SIGKILL");
    await page.getByText("The proxy does not answer").waitFor();
    await page.goto(`http://${HOST}:${tunnel.clientAdmin}/`);
    await field.fill(CLIENT_TOKEN);
    await field.press("Enter");
    await page.locator("#health.bad").getByText("no connection to a server").waitFor({ timeout: 30_000 });
  }, 60_000);
});
