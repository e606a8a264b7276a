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
}

function oneOf<T extends string>(name: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((a) => a === value);
  if (found === undefined) throw new Error(`${name}=${value}: allowed are ${allowed.join(", ")}`);
  return found;
}

/** Reads the query string of the page's address. */
export function parseOptions(search: string): Options {
  const query = new URLSearchParams(search);
  for (const key of query.keys()) oneOf("query parameter", key, ["mpd", "abr", "buffer_s", "cmcd", "fast_switch", "autoplay", "chart"]);
  const buffer_s = Number(query.get("buffer_s") ?? 15);
  if (!(buffer_s >= 1 && buffer_s <= 120)) throw new Error(`buffer_s=${query.get("buffer_s") ?? ""}: allowed is 1 to 120`);
  return {
    mpd: query.get("mpd") ?? "/media/manifest.mpd",
    abr: oneOf("abr", query.get("abr") ?? "throughput", ABR),
    buffer_s,
    cmcd: oneOf("cmcd", query.get("cmcd") ?? "query", CMCD),
    fastSwitch: oneOf("fast_switch", query.get("fast_switch") ?? "on", ON_OFF) === "on",
    autoplay: oneOf("autoplay", query.get("autoplay") ?? "on", ON_OFF) === "on",
    chart: oneOf("chart", query.get("chart") ?? "on", ON_OFF) === "on",
  };
}

/** Settings for dash.js. */
export function playerSettings(options: Options): object {
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
      // No request to a time server on the Internet.
      utcSynchronization: { enabled: false },
      abr: { rules: Object.fromEntries(ALL_RULES.map((rule) => [rule, { active: active.includes(rule) }])) },
      cmcd: { enabled: options.cmcd !== "off", mode: options.cmcd === "header" ? "header" : "query" },
    },
  };
}
