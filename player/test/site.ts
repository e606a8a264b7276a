/** A short presentation, and the page with it on loopback. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";

export const exec = promisify(execFile);
export const DIST = new URL("../dist/", import.meta.url).pathname;
const TYPES: Record<string, string> = { html: "text/html", js: "text/javascript", css: "text/css", mpd: "application/dash+xml", mp4: "video/mp4", m4s: "video/iso.segment" };

/** Encodes a pattern of four seconds; the presentation is in `dir/media`. */
export async function makeMedia(dir: string): Promise<void> {
  await exec("ffmpeg", ["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=24:duration=4", "-c:v", "libx264", "-preset", "ultrafast", join(dir, "source.mp4")]);
  await exec("node", [join(DIST, "media.js"), "--out", join(dir, "media"), "--media", join(dir, "source.mp4")]);
}

export interface Site {
  readonly port: number;
  /** Of the page. */
  readonly base: string;
  close(): void;
}

/** Serves the page at `/` and `dir/media` at `/media/`. What `answers` refuses stays open and never gets a byte. */
export async function openSite(dir: string, answers: (request: IncomingMessage) => boolean = () => true): Promise<Site> {
  const server: Server = createServer((request, response) => {
    if (!answers(request)) return;
    const path = new URL(request.url ?? "/", "http://x").pathname;
    const file = path.startsWith("/media/") ? join(dir, path) : join(DIST, "page", path === "/" ? "index.html" : path);
    readFile(file).then(
      (body) => response.writeHead(200, { "content-type": TYPES[file.split(".").pop() ?? ""] ?? "application/octet-stream" }).end(body),
      () => response.writeHead(404).end(),
    );
  });
  // As nginx does; the default of 5 s ends the flow of a page that a slow machine delays.
  server.keepAliveTimeout = 75_000;
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  return {
    port,
    base: `http://127.0.0.1:${port}/`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
