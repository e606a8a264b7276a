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
export const ABR = Object.keys(ABR_RULES) as Abr[];
export const CMCD = ["query", "header", "off"] as const;
export type Cmcd = (typeof CMCD)[number];

/** Share of the server's estimate (CMSD `etp`) in each throughput sample: as much as the player's own. */
const ETP_WEIGHT = 0.5;

const ON_OFF = ["on", "off"] as const;
/** Sessions side by side. */
export const MAX_SESSIONS = 4;

/** Of one session. A name with `.2` to `.4` behind it is of that session; without, of all that have none of their own. */
const SESSION_NAMES = ["mpd", "abr", "buffer_s", "cmcd", "cmsd", "fast_switch", "live", "latency_s"] as const;
const PAGE_NAMES = ["sessions", "autoplay", "chart", "controls", "proxy"] as const;
type SessionName = (typeof SESSION_NAMES)[number];

export interface Options {
  readonly mpd: string;
  readonly abr: Abr;
  readonly buffer_s: number;
  readonly cmcd: Cmcd;
  /** Obeys what the server says of the path (CMSD), where it says anything. */
  readonly cmsd: boolean;
  /** Replace what is buffered after a switch up: dash.js's default. */
  readonly fastSwitch: boolean;
  /** A live stream, at low latency. */
  readonly live: boolean;
  /** How far behind the live edge to play; null: as the manifest says. */
  readonly latency_s: number | null;
}

export interface PageOptions {
  /** One to `MAX_SESSIONS`. */
  readonly sessions: readonly Options[];
  /** Off: plays when asked to. */
  readonly autoplay: boolean;
  /** A chart of each session. */
  readonly chart: boolean;
  /** The form, and controls in the picture; off where a program measures. */
  readonly controls: boolean;
  /** Origin of the server's admin listener, which is polled for the algorithm; empty: the page's own; null: not polled. */
  readonly proxy: string | null;
}

function oneOf<T extends string>(name: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((a) => a === value);
  if (found === undefined) throw new Error(`${name}=${value}: allowed are ${allowed.join(", ")}`);
  return found;
}

function inRange(name: string, value: string, least: number, most: number, more = ""): number {
  const number = Number(value);
  if (value.trim() === "" || !(number >= least && number <= most)) throw new Error(`${name}=${value}: allowed is ${least} to ${most}${more}`);
  return number;
}

/** The origin of `value`, which must be nothing more than that; empty for the page's own. */
function originOf(name: string, value: string): string {
  if (value === "self") return "";
  const url = URL.canParse(value) ? new URL(value) : null;
  // A URL has a path; the origin alone is written with and without one.
  if (!url || !/^https?:$/.test(url.protocol) || (url.href !== `${url.origin}/`)) throw new Error(`${name}=${value}: allowed is self, or an origin such as http://198.18.3.1:9465`);
  return url.origin;
}

const ownName = (name: SessionName, session: number): string => (session === 1 ? name : `${name}.${session}`);
/** The manifest where none is named. */
export const defaultMpd = (live: boolean): string => (live ? "/live/manifest.mpd" : "/media/manifest.mpd");

function parseSession(query: URLSearchParams, session: number): Options {
  const own = (name: SessionName): string | null => query.get(ownName(name, session));
  const value = (name: SessionName): string | null => own(name) ?? query.get(name);
  const live = oneOf("live", value("live") ?? "off", ON_OFF) === "on";
  const latency = own("latency_s") ?? (live ? query.get("latency_s") : null);
  // Written without a value, it is the manifest's again.
  const latency_s = latency === null || (session > 1 && latency === "") ? null : inRange("latency_s", latency, 0.5, 30, ", with live=on");
  if (latency_s !== null && !live) throw new Error(`latency_s=${latency ?? ""}: allowed with live=on only`);
  return {
    mpd: value("mpd") ?? defaultMpd(live),
    abr: oneOf("abr", value("abr") ?? "throughput", ABR),
    buffer_s: inRange("buffer_s", value("buffer_s") ?? "15", 1, 120),
    cmcd: oneOf("cmcd", value("cmcd") ?? "query", CMCD),
    cmsd: oneOf("cmsd", value("cmsd") ?? "on", ON_OFF) === "on",
    fastSwitch: oneOf("fast_switch", value("fast_switch") ?? "on", ON_OFF) === "on",
    live,
    latency_s,
  };
}

/** How many sessions the query string is about. */
function sessionCount(query: URLSearchParams): number {
  const numbers = Array.from({ length: MAX_SESSIONS }, (_, index) => index + 1);
  const allowed = [...PAGE_NAMES, ...numbers.flatMap((session) => SESSION_NAMES.map((name) => ownName(name, session)))];
  for (const key of query.keys()) oneOf("query parameter", key, allowed);
  const named = numbers.findLast((session) => SESSION_NAMES.some((name) => query.has(ownName(name, session)))) ?? 1;
  const text = query.get("sessions");
  if (text === null) return named;
  const count = inRange("sessions", text, 1, MAX_SESSIONS);
  if (!Number.isInteger(count) || count < named) throw new Error(`sessions=${text}: allowed are whole numbers, from the highest number behind a name on`);
  return count;
}

/** Reads the query string of the page's address. */
export function parseOptions(search: string): PageOptions {
  const query = new URLSearchParams(search);
  const sessions = Array.from({ length: sessionCount(query) }, (_, index) => parseSession(query, index + 1));
  const proxy = query.get("proxy");
  if (proxy !== null && sessions.every(({ cmcd }) => cmcd === "off")) throw new Error("proxy with cmcd=off: allowed are cmcd=query and cmcd=header, by which the proxy knows the session");
  const isOn = (name: (typeof PAGE_NAMES)[number]): boolean => oneOf(name, query.get(name) ?? "on", ON_OFF) === "on";
  return { sessions, autoplay: isOn("autoplay"), chart: isOn("chart"), controls: isOn("controls"), proxy: proxy === null ? null : originOf("proxy", proxy) };
}

const onOff = (value: boolean): string => (value ? "on" : "off");
const textOf: Record<SessionName, (options: Options) => string> = {
  mpd: ({ mpd }) => mpd,
  abr: ({ abr }) => abr,
  buffer_s: ({ buffer_s }) => String(buffer_s),
  cmcd: ({ cmcd }) => cmcd,
  cmsd: ({ cmsd }) => onOff(cmsd),
  fast_switch: ({ fastSwitch }) => onOff(fastSwitch),
  live: ({ live }) => onOff(live),
  latency_s: ({ latency_s }) => (latency_s === null ? "" : String(latency_s)),
};

/** The query string that `parseOptions` reads as these options, without what is the default. */
export function toQuery({ sessions, autoplay, chart, controls, proxy }: PageOptions): string {
  const query = new URLSearchParams();
  const [first] = sessions;
  if (!first) throw new Error("there is at least one session");
  const plain = parseSession(new URLSearchParams(), 1);
  for (const name of SESSION_NAMES) {
    const usual = name === "mpd" ? defaultMpd(first.live) : textOf[name](plain);
    if (textOf[name](first) !== usual) query.set(name, textOf[name](first));
  }
  for (const [index, session] of sessions.entries()) {
    if (index === 0) continue;
    for (const name of SESSION_NAMES) {
      // The default manifest is another one with `live`; the latency of a session that is not live is not inherited.
      const differs = name === "latency_s" ? session.live && session.latency_s !== first.latency_s : textOf[name](session) !== textOf[name](first) || (name === "mpd" && session.live !== first.live);
      if (differs) query.set(ownName(name, index + 1), textOf[name](session));
    }
  }
  if (sessionCount(query) < sessions.length) query.set("sessions", String(sessions.length));
  for (const [name, value] of Object.entries({ autoplay, chart, controls })) if (!value) query.set(name, "off");
  if (proxy !== null) query.set("proxy", proxy === "" ? "self" : proxy);
  return query.size > 0 ? `?${query.toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}` : "";
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
      cmsd: { enabled: options.cmsd, abr: { applyMb: options.cmsd, etpWeightRatio: options.cmsd ? ETP_WEIGHT : 0 } },
    },
  };
}
