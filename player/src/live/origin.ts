/** A live origin: HTTP server that sends each segment chunk by chunk while it is "produced". */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { SEGMENT_S } from "../media/ladder.ts";
import { shifted, type Clip, type LiveRung } from "./clip.ts";
import { liveManifest, WINDOW_S, type LiveOptions } from "./manifest.ts";

const CONNECTIONS_MAX = 256;
/** Without a byte in either direction; the longest regular wait is for a segment's first chunk. */
const IDLE_MS = 20_000;
const HEAD_MS = 10_000;
/** Beyond the window, for a player whose clock or request is a little late. */
const SLACK_S = 2;

export interface LiveOrigin {
  readonly address: AddressInfo;
  close(): Promise<void>;
}

/** Paths of the page, such as `/index.html`, and what is there. */
export type Files = ReadonlyMap<string, { readonly type: string; readonly body: Buffer }>;

/** Serves `clip` without end below `/live/`, and `files`. Rejects when the address cannot be bound. */
export function openLiveOrigin(clip: Clip, options: LiveOptions, files: Files, at: { host: string; port: number }): Promise<LiveOrigin> {
  const manifest = Buffer.from(liveManifest(clip, options));
  const now_s = (): number => (Date.now() - options.zero_ms) / 1000;

  const send = (response: ServerResponse, type: string, body: Buffer | string): void => {
    response.writeHead(200, { "content-type": type, "cache-control": "no-store" }).end(body);
  };
  const refuse = (response: ServerResponse, status: number, text: string): void => {
    response.writeHead(status, { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store" }).end(`${text}\n`);
  };

  const sendSegment = (response: ServerResponse, rung: LiveRung, number: number): void => {
    const begin_s = number * SEGMENT_S;
    const now = now_s();
    // Asked for a little too early it waits: clocks differ by a few milliseconds.
    if (begin_s > now + SEGMENT_S || begin_s + SEGMENT_S < now - WINDOW_S - SLACK_S) {
      refuse(response, 404, `segment ${number}: there are ${Math.max(0, Math.ceil(now - WINDOW_S - SLACK_S) - 1)} to ${Math.floor(now) + 1} now`);
      return;
    }
    const loop = Math.floor(number / clip.clip_s);
    const chunks = rung.segments[number % clip.clip_s] ?? [];
    response.writeHead(200, { "content-type": "video/mp4", "cache-control": "no-store" });
    let timer: NodeJS.Timeout | undefined;
    response.once("close", () => clearTimeout(timer));
    const sendFrom = (index: number): void => {
      const chunk = chunks[index];
      if (!chunk) {
        response.end();
        return;
      }
      const wait_s = begin_s + chunk.due_s - now_s();
      if (wait_s > 0) {
        timer = setTimeout(() => sendFrom(index), Math.ceil(wait_s * 1000));
        return;
      }
      // What a slow reader leaves waits here: a segment at most.
      response.write(shifted(chunk, loop, clip, rung));
      sendFrom(index + 1);
    };
    sendFrom(0);
  };

  const server = createServer((request, response) => {
    response.setHeader("access-control-allow-origin", "*");
    if (request.method === "OPTIONS") {
      // CMCD in header fields, from a page of another origin.
      response.writeHead(204, { "access-control-allow-headers": "*", "access-control-max-age": "600" }).end();
      return;
    }
    if (request.method !== "GET") return refuse(response, 405, "GET only");
    const path = (request.url ?? "/").split("?")[0] ?? "/";
    const file = files.get(path === "/" ? "/index.html" : path);
    if (file) return send(response, file.type, file.body);
    if (path === "/live/manifest.mpd") return send(response, "application/dash+xml", manifest);
    if (path === "/live/time") return send(response, "text/plain", new Date().toISOString());
    const [, kind, kbps, number] = /^\/live\/(init|seg)-(\d{1,6})(?:-(\d{1,10}))?\.(?:mp4|m4s)$/.exec(path) ?? [];
    const rung = clip.rungs.find((r) => String(r.kbps) === kbps);
    if (rung && kind === "init" && number === undefined) return send(response, "video/mp4", rung.init);
    if (rung && kind === "seg" && number !== undefined) return sendSegment(response, rung, Number(number));
    refuse(response, 404, "there are / and /live/manifest.mpd");
  });
  server.maxConnections = CONNECTIONS_MAX;
  server.headersTimeout = HEAD_MS;
  server.requestTimeout = HEAD_MS;
  server.setTimeout(IDLE_MS);
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new Error(`cannot listen on ${at.host}:${at.port}: ${cause.message}`)));
    server.listen(at.port, at.host, () => {
      const close = (): Promise<void> =>
        new Promise((done) => {
          server.close(() => done());
          server.closeAllConnections();
        });
      resolve({ address: server.address() as AddressInfo, close });
    });
  });
}
