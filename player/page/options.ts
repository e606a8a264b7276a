/** What the query string may choose. A value that is not allowed is refused, never replaced by a default. */

/** dash.js rules that are on for each strategy; all others are off. */
const ABR_RULES = {
  // The request's own throughput only, as the Iris paper's player.
  throughput: ["throughputRule"],
  bola: ["bolaRule"],
  // dash.js's default mix.
  dynamic: ["throughputRule", "bolaRule", "insufficientBufferRule", "switchHistoryRule", "abandonRequestsRule"],
  l2a: ["l2ARule"],
  lolp: ["loLPRule"],
} as const;
const ALL_RULES = ["throughputRule", "bolaRule", "insufficientBufferRule", "switchHistoryRule", "droppedFramesRule", "abandonRequestsRule", "l2ARule", "loLPRule"] as const;

export type Abr = keyof typeof ABR_RULES;
const ABR = Object.keys(ABR_RULES) as Abr[];
const CMCD = ["query", "header", "off"] as const;
export type Cmcd = (typeof CMCD)[number];

const ON_OFF = ["on", "off"] as const;

export interface Options {
  readonly mpd: string;
  readonly abr: Abr;
  readonly buffer_s: number;
  readonly cmcd: Cmcd;
  /** Replace what is buffered after a switch up: dash.js's default. */
  readonly fastSwitch: boolean;
  /** Off: plays when asked to. */
  readonly autoplay: boolean;
  /** A chart of the session below the picture. */
  readonly chart: boolean;
  /** A live stream, at low latency. */
  readonly live: boolean;
  /** How far behind the live edge to play; null: as the manifest says. */
  readonly latency_s: number | null;
  /** Origin of the server's admin listener, which is polled for the algorithm; empty: the page's own; null: not polled. */
  readonly proxy: string | null;
}

function oneOf<T extends string>(name: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((a) => a === value);
  if (found === undefined) throw new Error(`${name}=${value}: allowed are ${allowed.join(", ")}`);
  return found;
}

/** The origin of `value`, which must be nothing more than that; empty for the page's own. */
function originOf(name: string, value: string): string {
  if (value === "self") return "";
  const url = URL.canParse(value) ? new URL(value) : null;
  // A URL has a path; the origin alone is written with and without one.
  if (!url || !/^https?:$/.test(url.protocol) || (url.href !== `${url.origin}/`)) throw new Error(`${name}=${value}: allowed is self, or an origin such as http://198.18.3.1:9465`);
  return url.origin;
}

/** Reads the query string of the page's address. */
export function parseOptions(search: string): Options {
  const query = new URLSearchParams(search);
  for (const key of query.keys()) oneOf("query parameter", key, ["mpd", "abr", "buffer_s", "cmcd", "fast_switch", "autoplay", "chart", "proxy", "live", "latency_s"]);
  const buffer_s = Number(query.get("buffer_s") ?? 15);
  if (!(buffer_s >= 1 && buffer_s <= 120)) throw new Error(`buffer_s=${query.get("buffer_s") ?? ""}: allowed is 1 to 120`);
  const cmcd = oneOf("cmcd", query.get("cmcd") ?? "query", CMCD);
  const proxy = query.get("proxy");
  if (proxy !== null && cmcd === "off") throw new Error("proxy with cmcd=off: allowed are cmcd=query and cmcd=header, by which the proxy knows the session");
  const live = oneOf("live", query.get("live") ?? "off", ON_OFF) === "on";
  const latency = query.get("latency_s");
  if (latency !== null && !(live && Number(latency) >= 0.5 && Number(latency) <= 30)) throw new Error(`latency_s=${latency}: allowed is 0.5 to 30, with live=on`);
  return {
    mpd: query.get("mpd") ?? (live ? "/live/manifest.mpd" : "/media/manifest.mpd"),
    abr: oneOf("abr", query.get("abr") ?? "throughput", ABR),
    buffer_s,
    cmcd,
    fastSwitch: oneOf("fast_switch", query.get("fast_switch") ?? "on", ON_OFF) === "on",
    autoplay: oneOf("autoplay", query.get("autoplay") ?? "on", ON_OFF) === "on",
    chart: oneOf("chart", query.get("chart") ?? "on", ON_OFF) === "on",
    live,
    latency_s: latency === null ? null : Number(latency),
    proxy: proxy === null ? null : originOf("proxy", proxy),
  };
}

/** Of a live stream. Target and rates that are not set here are the manifest's (`ServiceDescription`). */
const liveSettings = (options: Options): object => ({
  ...(options.latency_s === null ? {} : { delay: { liveDelay: options.latency_s } }),
  liveCatchup: { enabled: true, mode: options.abr === "lolp" ? "liveCatchupModeLoLP" : "liveCatchupModeDefault" },
});

/** Settings for dash.js; `session` names the playback session in CMCD (`sid`). */
export function playerSettings(options: Options, session: string): object {
  const active: readonly string[] = ABR_RULES[options.abr];
  return {
    streaming: {
      buffer: {
        fastSwitchEnabled: options.fastSwitch,
        bufferTimeDefault: options.buffer_s,
        bufferTimeAtTopQuality: options.buffer_s,
        bufferTimeAtTopQualityLongForm: options.buffer_s,
      },
      // Each session starts without memory of another.
      lastBitrateCachingInfo: { enabled: false },
      lastMediaSettingsCachingInfo: { enabled: false },
      // Of a live stream the manifest's time server; never one on the Internet.
      utcSynchronization: { enabled: options.live, useManifestDateHeaderTimeSource: false },
      ...(options.live ? liveSettings(options) : {}),
      abr: {
        rules: Object.fromEntries(ALL_RULES.map((rule) => [rule, { active: active.includes(rule) }])),
        // A segment under production comes as slowly as it is produced: what counts is the time from a chunk's first byte to its last.
        throughput: { lowLatencyDownloadTimeCalculationMode: "lowLatencyDownloadTimeCalculationModeMoofParsing" },
      },
      cmcd: { enabled: options.cmcd !== "off", mode: options.cmcd === "header" ? "header" : "query", sid: session },
    },
  };
}
