/** Both real proxies on loopback. Needs `make build`. */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exec } from "./site.ts";

const PROGRAMS = new URL("../../target/release/", import.meta.url).pathname;
export const HOST = "127.0.0.1";
/** Of the client's admin listener; the server's asks for none. */
export const CLIENT_TOKEN = "0123456789abcdef0123456789abcdef";

export interface Tunnel {
  /** Port of the client's listener for flows to the origin. */
  readonly listener: number;
  readonly serverAdmin: number;
  readonly clientAdmin: number;
  readonly server: ChildProcess;
  close(): Promise<void>;
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, HOST, done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

async function start(program: string, dir: string, config: string, admin: number): Promise<ChildProcess> {
  const file = join(dir, `${program}.toml`);
  await writeFile(file, config);
  const child = spawn(join(PROGRAMS, program), ["run", "--config", file], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (data: string) => (said = (said + data).slice(-4000)));
  for (let i = 0; i < 100; i++) {
    if (await fetch(`http://${HOST}:${admin}/healthz`).then((r) => r.ok, () => false)) return child;
    await new Promise((done) => setTimeout(done, 100));
  }
  child.kill("SIGKILL");
  throw new Error(`${program} is not ready: ${said}`);
}

/** Starts them in front of the origin at port `origin` of loopback. Pages fetched through the listener may read the server's flows. */
export async function openTunnel(origin: number, algorithm: string): Promise<Tunnel> {
  for (const program of ["millrace-server", "millrace-client"]) {
    if (!existsSync(join(PROGRAMS, program))) throw new Error(`${join(PROGRAMS, program)} is missing: run \`make build\` first`);
  }
  const dir = await mkdtemp(join(tmpdir(), "millrace-tunnel-test-"));
  const running: ChildProcess[] = [];
  const close = async (): Promise<void> => {
    for (const child of running) child.kill("SIGKILL");
    await rm(dir, { recursive: true });
  };
  try {
    const [tunnel, serverAdmin, clientAdmin, listener] = [await freePort(), await freePort(), await freePort(), await freePort()];
    await exec(join(PROGRAMS, "millrace-server"), ["certificates", "--server-name", "millrace-server", "--client", "edge", "--dir", dir]);
    const server = await start(
      "millrace-server",
      dir,
      `[tunnel]\nlisten = ["${HOST}:${tunnel}"]\nclient_ca = "ca.pem"\ncertificate = "server.pem"\nprivate_key = "server.key"\ncongestion_control = "${algorithm}"\n` +
        `[[destinations.allow]]\nnetwork = "${HOST}/32"\nports = [${origin}]\n[admin]\naddress = "${HOST}:${serverAdmin}"\ncors_allow_origins = ["http://${HOST}:${listener}"]\n`,
      serverAdmin,
    );
    running.push(server);
    await writeFile(join(dir, "admin.token"), `${CLIENT_TOKEN}\n`, { mode: 0o600 });
    const client = await start(
      "millrace-client",
      dir,
      `[tunnel]\nservers = ["${HOST}:${tunnel}"]\nserver_name = "millrace-server"\nca = "ca.pem"\ncertificate = "edge.pem"\nprivate_key = "edge.key"\n` +
        `[[listen]]\nmode = "static"\naddress = "${HOST}:${listener}"\ndestination = "${HOST}:${origin}"\nclass = "dash"\n[admin]\naddress = "${HOST}:${clientAdmin}"\ntoken_file = "admin.token"\n`,
      clientAdmin,
    );
    running.push(client);
    return { listener, serverAdmin, clientAdmin, server, close };
  } catch (error) {
    await close();
    throw error;
  }
}
