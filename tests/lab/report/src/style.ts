/** Colour, dash and symbol of each series: the same for the same algorithm everywhere. */

export type Mode = "light" | "dark";

interface Hue {
  readonly light: string;
  readonly dark: string;
}

/**
 * Found by search: in either mode the nearest two are 0.098 apart in OKLab, and stay so under simulated
 * protanopia, deuteranopia and tritanopia; each has a contrast of 3:1 or more with its background.
 */
export const HUES = {
  blue: { light: "#111fd5", dark: "#b4d4fd" },
  orange: { light: "#a46804", dark: "#fec79e" },
  teal: { light: "#0fa5a4", dark: "#0ea476" },
  magenta: { light: "#7c0857", dark: "#f783bc" },
  olive: { light: "#515403", dark: "#aebe07" },
  violet: { light: "#a580f3", dark: "#6645f9" },
  brown: { light: "#4a2f03", dark: "#e26405" },
  sky: { light: "#3f68de", dark: "#3fb7ff" },
  navy: { light: "#340194", dark: "#8c77d5" },
  red: { light: "#d37f57", dark: "#b83b01" },
  grey: { light: "#746d68", dark: "#666362" },
  ink: { light: "#1b1f24", dark: "#eef1f4" },
} as const satisfies Record<string, Hue>;

export type HueName = keyof typeof HUES;
export type Dash = "solid" | "dashed" | "dotted" | "dash-dot";
export type Symbol = "circle" | "rect" | "triangle" | "diamond";

export interface Style {
  readonly hue: HueName;
  readonly dash: Dash;
  readonly symbol: Symbol;
}

/** Of algorithms that share a figure no two share a hue; members of a family that do differ in their dash. */
const KNOWN: Readonly<Record<string, Style>> = {
  "vivace-latency": { hue: "blue", dash: "solid", symbol: "circle" },
  "vivace-loss": { hue: "sky", dash: "dashed", symbol: "rect" },
  "vivace-lte": { hue: "navy", dash: "dash-dot", symbol: "triangle" },
  "vivace-weighted": { hue: "navy", dash: "dotted", symbol: "diamond" },
  allegro: { hue: "orange", dash: "solid", symbol: "rect" },
  "allegro-latency": { hue: "red", dash: "dotted", symbol: "rect" },
  bbr: { hue: "teal", dash: "solid", symbol: "triangle" },
  bbr2: { hue: "teal", dash: "dotted", symbol: "triangle" },
  bbr3: { hue: "violet", dash: "dash-dot", symbol: "triangle" },
  copa: { hue: "olive", dash: "dashed", symbol: "diamond" },
  cubic: { hue: "ink", dash: "solid", symbol: "diamond" },
  reno: { hue: "grey", dash: "dashed", symbol: "circle" },
  illinois: { hue: "grey", dash: "dotted", symbol: "rect" },
  westwood: { hue: "grey", dash: "dash-dot", symbol: "diamond" },
  vegas: { hue: "olive", dash: "dotted", symbol: "circle" },
  "iris-min": { hue: "magenta", dash: "solid", symbol: "diamond" },
  "iris-mid": { hue: "red", dash: "dashed", symbol: "triangle" },
  "proteus-p": { hue: "brown", dash: "solid", symbol: "circle" },
  "proteus-s": { hue: "brown", dash: "dashed", symbol: "triangle" },
  "proteus-h": { hue: "brown", dash: "dotted", symbol: "diamond" },
};

/** The order in which names that are not known get theirs. */
const ORDER = ["blue", "orange", "teal", "magenta", "olive", "violet", "ink", "sky", "red", "brown", "grey", "navy"] as const satisfies readonly HueName[];
const DASHES = ["solid", "dashed", "dotted", "dash-dot"] as const satisfies readonly Dash[];
const SYMBOLS = ["circle", "rect", "triangle", "diamond"] as const satisfies readonly Symbol[];

const DASH_PX = { solid: "solid", dashed: [7, 4], dotted: [2, 3], "dash-dot": [10, 3, 2, 3] } as const;

/** For ECharts. */
export const dashPattern = (dash: Dash): "solid" | number[] => {
  const pattern = DASH_PX[dash];
  return pattern === "solid" ? pattern : [...pattern];
};

/** Gives every name of a report its style once; what is not known gets the next one that nobody has. */
export function styles(names: readonly string[]): (name: string) => Style {
  const given = new Map<string, Style>();
  for (const name of names) {
    const style = known(name);
    if (style !== undefined) given.set(name, style);
  }
  const unused = others([...given.values()]);
  for (const name of names) {
    if (given.has(name)) continue;
    const next = unused.next();
    if (next.done !== true) given.set(name, next.value);
  }
  return (name) => given.get(name) ?? { hue: "ink", dash: "solid", symbol: "circle" };
}

/** Flows are told apart among themselves: they have a panel of their own for each algorithm. */
function known(name: string): Style | undefined {
  const flow = /^Flow (\d+)/.exec(name)?.[1];
  if (flow === undefined) return KNOWN[name.replace(/^kernel:/, "")];
  const index = Number(flow) - 1;
  return made(ORDER[index % ORDER.length] ?? "ink", Math.floor(index / ORDER.length));
}

const made = (hue: HueName, turn: number): Style => ({
  hue,
  dash: DASHES[(ORDER.indexOf(hue) + turn) % DASHES.length] ?? "solid",
  symbol: SYMBOLS[(ORDER.indexOf(hue) + turn + Math.floor(turn / DASHES.length)) % SYMBOLS.length] ?? "circle",
});

/** Hues that nobody has, then every hue again with the next dash and symbol. */
function* others(taken: readonly Style[]): Generator<Style> {
  const hues = new Set(taken.map((s) => s.hue));
  const same = (a: Style, b: Style): boolean => a.hue === b.hue && a.dash === b.dash && a.symbol === b.symbol;
  const first = ORDER.filter((hue) => !hues.has(hue)).map((hue) => made(hue, 0));
  yield* first;
  for (let turn = 0; turn < DASHES.length * SYMBOLS.length; turn++) {
    for (const style of ORDER.map((hue) => made(hue, turn))) {
      if (![...taken, ...first].some((s) => same(s, style))) yield style;
    }
  }
}

/** For SVG. */
export const DASH_ARRAY: Readonly<Record<Dash, string>> = { solid: "none", dashed: "7 4", dotted: "2 3", "dash-dot": "10 3 2 3" };
