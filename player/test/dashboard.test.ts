/** The proxies' live dashboard in a real browser: a player's flow through both real proxies, on loopback. Needs `make build`. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, get as httpGet, Agent, type Server } from "node:http";
import { createServer as createTcpServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openBrowser, type Browser } from "../src/cli/browser.ts";

const exec = promisify(execFile);
const PROGRAMS = new URL("../../target/release/", import.meta.url).pathname;
const HOST = "127.0.0.1";
const FITS = "document.documentElement.scrollWidth <= innerWidth";

let dir = "";
let origin: Server;
let browser: Browser;
const running: ChildProcess[] = [];
const ports = { tunnel: 0, serverAdmin: 0, clientAdmin: 0, door: 0, origin: 0 };

async function freePort(): Promise<number> {
  const server = createTcpServer();
  await new Promise<void>((done) => server.listen(0, HOST, done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

async function start(program: string, config: string, admin: number): Promise<ChildProcess> {
  const file = join(dir, `${program}.toml`);
  await writeFile(file, config);
  const child = spawn(join(PROGRAMS, program), ["run", "--config", file], { stdio: ["ignore", "ignore", "pipe"] });
  running.push(child);
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (data: string) => (said = (said + data).slice(-4000)));
  for (let i = 0; i < 100; i++) {
    if (await fetch(`http://${HOST}:${admin}/healthz`).then((r) => r.ok, () => false)) return child;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`${program} is not ready: ${said}`);
}

beforeAll(async () => {
  for (const program of ["millrace-server", "millrace-client"]) {
    if (!existsSync(join(PROGRAMS, program))) throw new Error(`${join(PROGRAMS, program)} is missing: run \`make build\` first`);
  }
  dir = await mkdtemp(join(tmpdir(), "millrace-dashboard-test-"));
  origin = createServer((request, response) => {
    const bytes = Number(/\d+/.exec(request.url ?? "")?.[0] ?? 0);
    response.writeHead(200, { "content-length": bytes }).end(Buffer.alloc(bytes));
  });
  await new Promise<void>((done) => origin.listen(0, HOST, done));
  ports.origin = (origin.address() as AddressInfo).port;
  for (const name of ["tunnel", "serverAdmin", "clientAdmin", "door"] as const) ports[name] = await freePort();
  await exec(join(PROGRAMS, "millrace-server"), ["certificates", "--server-name", "millrace-server", "--client", "edge", "--dir", dir]);
  await start(
    "millrace-server",
    `[tunnel]\nlisten = ["${HOST}:${ports.tunnel}"]\nclient_ca = "ca.pem"\ncertificate = "server.pem"\nprivate_key = "server.key"\ncongestion_control = "vivace-latency"\n` +
      `[[destinations.allow]]\nnetwork = "${HOST}/32"\nports = [${ports.origin}]\n[admin]\naddress = "${HOST}:${ports.serverAdmin}"\n`,
    ports.serverAdmin,
  );
  await start(
    "millrace-client",
    `[tunnel]\nservers = ["${HOST}:${ports.tunnel}"]\nserver_name = "millrace-server"\nca = "ca.pem"\ncertificate = "edge.pem"\nprivate_key = "edge.key"\n` +
      `[[listen]]\nmode = "fixed"\naddress = "${HOST}:${ports.door}"\ndestination = "${HOST}:${ports.origin}"\nclass = "dash"\n[admin]\naddress = "${HOST}:${ports.clientAdmin}"\n`,
    ports.clientAdmin,
  );
  browser = await openBrowser();
}, 120_000);

afterAll(async () => {
  await browser?.close();
  for (const child of running) child.kill("SIGKILL");
  origin?.closeAllConnections();
  origin?.close();
  if (dir) await rm(dir, { recursive: true });
});

/** One player: a connection kept alive, and what CMCD says of its buffer. */
class Player {
  private readonly agent = new Agent({ keepAlive: true, maxSockets: 1 });

  async ask(bytes: number, cmcd: string): Promise<void> {
    const url = `http://${HOST}:${ports.door}/${bytes}?CMCD=${encodeURIComponent(cmcd)}`;
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
    await page.goto(`http://${HOST}:${ports.serverAdmin}/`);
    await page.getByText("No flow at the moment.").waitFor();
    await page.getByText("carries flows").waitFor();

    const player = new Player();
    await player.ask(2_000_000, 'bl=12500,br=3600,mtp=25000,ot=v,sid="a",tb=3600');
    const row = page.locator("tbody tr");
    await row.waitFor();
    expect(await row.count()).toBe(1);
    const text = await row.innerText();
    expect(text).toContain(`${HOST}:${ports.origin}`);
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
    running[0]?.kill("SIGKILL");
    await page.getByText("The proxy does not answer").waitFor();
  }, 60_000);

  it("is there at the client as well", async () => {
    const { page } = browser;
    await page.goto(`http://${HOST}:${ports.clientAdmin}/`);
    await page.getByRole("heading", { name: "Millrace" }).waitFor();
    // The server was killed by the test before.
    await page.locator("#health.bad").waitFor({ timeout: 30_000 });
  }, 60_000);
});
