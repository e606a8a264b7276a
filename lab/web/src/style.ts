/**
 * Colour and symbol of each series: the same for the same algorithm everywhere. Among several sets of
 * results the dash and the fill tell the set, otherwise the dash belongs to the algorithm, too.
 */
import { parted, type Named } from "./sets.ts";

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
export type Fill = "full" | "hollow" | "pale";

/** In a box of 10 by 10, for SVG. */
export const SHAPES = {
  circle: "M0 5a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
  rect: "M.5.5h9v9h-9z",
  triangle: "M5 0l5 10h-10z",
  diamond: "M5 -.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
  plus: "M3.2 0h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2v-3.6h3.2z",
  down: "M0 0h10l-5 10z",
  star: "M5 -.8l1.7 3.7l4 .4l-3 2.8l.9 4.1l-3.6 -2.1l-3.6 2.1l.9 -4.1l-3 -2.8l4 -.4z",
} as const;
export type Symbol = keyof typeof SHAPES;

/** What an algorithm has of its own. */
interface Own {
  readonly hue: HueName;
  readonly dash: Dash;
  readonly symbol: Symbol;
}

export interface Style extends Own {
  readonly fill: Fill;
}

/** What a set of results has. */
export type SetStyle = Pick<Style, "dash" | "fill">;

export interface Styles {
  readonly of: (name: string) => Style;
  readonly ofSet: (index: number) => SetStyle;
  readonly parts: (name: string) => Named;
}

/** Of algorithms that share a figure no two share a hue; members of a family that do differ in their dash and symbol. */
const KNOWN: Readonly<Record<string, Own>> = {
  "vivace-latency": { hue: "blue", dash: "solid", symbol: "circle" },
  "vivace-loss": { hue: "sky", dash: "dashed", symbol: "rect" },
  "vivace-lte": { hue: "navy", dash: "dash-dot", symbol: "triangle" },
  "vivace-weighted": { hue: "navy", dash: "dotted", symbol: "diamond" },
  allegro: { hue: "orange", dash: "solid", symbol: "rect" },
  "allegro-latency": { hue: "red", dash: "dotted", symbol: "rect" },
  bbr: { hue: "teal", dash: "solid", symbol: "triangle" },
  bbr2: { hue: "teal", dash: "dotted", symbol: "rect" },
  bbr3: { hue: "violet", dash: "dash-dot", symbol: "triangle" },
  copa: { hue: "olive", dash: "dashed", symbol: "diamond" },
  cubic: { hue: "ink", dash: "solid", symbol: "diamond" },
  reno: { hue: "grey", dash: "dashed", symbol: "circle" },
  illinois: { hue: "grey", dash: "dotted", symbol: "rect" },
  hybla: { hue: "navy", dash: "dashed", symbol: "plus" },
  westwood: { hue: "grey", dash: "dash-dot", symbol: "diamond" },
  vegas: { hue: "olive", dash: "dotted", symbol: "circle" },
  "iris-min": { hue: "magenta", dash: "solid", symbol: "star" },
  "iris-mid": { hue: "red", dash: "dashed", symbol: "triangle" },
  "proteus-p": { hue: "brown", dash: "solid", symbol: "plus" },
  "proteus-s": { hue: "brown", dash: "dashed", symbol: "triangle" },
  "proteus-h": { hue: "brown", dash: "dotted", symbol: "diamond" },
};

/** The order in which names that are not known get theirs. */
const ORDER = ["blue", "orange", "teal", "magenta", "olive", "violet", "ink", "sky", "red", "brown", "grey", "navy"] as const satisfies readonly HueName[];
const DASHES = ["solid", "dashed", "dotted", "dash-dot"] as const satisfies readonly Dash[];
const SYMBOLS = Object.keys(SHAPES) as readonly Symbol[];

/** Dotted before dashed: dashes are of what a series should reach. */
const SETS = [
  { dash: "solid", fill: "full" },
  { dash: "dotted", fill: "hollow" },
  { dash: "dash-dot", fill: "pale" },
  { dash: "dashed", fill: "full" },
] as const satisfies readonly SetStyle[];

const DASH_PX = { solid: "solid", dashed: [7, 4], dotted: [3, 2.5], "dash-dot": [10, 3, 2, 3] } as const;

/** For ECharts. */
export const dashPattern = (dash: Dash, scale = 1): "solid" | number[] => {
  const pattern = DASH_PX[dash];
  return pattern === "solid" ? pattern : pattern.map((px) => px * scale);
};

/** Gives every algorithm of a report its style once; an unknown algorithm gets the next free style. */
export function styles(names: readonly string[], sets: readonly string[]): Styles {
  const parts = (name: string): Named => parted(name, sets);
  const owners = [...new Set(names.map((name) => parts(name).owner))];
  const given = new Map<string, Own>();
  for (const owner of owners) {
    const own = known(owner);
    if (own !== undefined) given.set(owner, own);
  }
  const unused = others([...given.values()]);
  for (const owner of owners) {
    if (given.has(owner)) continue;
    const next = unused.next();
    if (next.done !== true) given.set(owner, next.value);
  }
  const ofSet = (index: number): SetStyle => SETS[index % SETS.length] ?? SETS[0];
  const of = (name: string): Style => {
    const { owner, set } = parts(name);
    const own = given.get(owner) ?? { hue: "ink", dash: "solid", symbol: "circle" };
    return { ...own, ...(set === null ? { fill: "full" } : ofSet(sets.indexOf(set))) };
  };
  return { of, ofSet, parts };
}

const KERNEL = "kernel:";

/**
 * The kernel's own of an algorithm has its colour. Flows are told apart among themselves: they have a
 * panel of their own for each algorithm.
 */
function known(name: string): Own | undefined {
  const flow = /^Flow (\d+)/.exec(name)?.[1];
  if (flow === undefined) {
    const own = KNOWN[name.replace(KERNEL, "")];
    return own !== undefined && name.startsWith(KERNEL) ? { ...own, dash: "dash-dot", symbol: "down" } : own;
  }
  const index = Number(flow) - 1;
  return made(ORDER[index % ORDER.length] ?? "ink", Math.floor(index / ORDER.length));
}

const made = (hue: HueName, turn: number): Own => ({
  hue,
  dash: DASHES[(ORDER.indexOf(hue) + turn) % DASHES.length] ?? "solid",
  symbol: SYMBOLS[(ORDER.indexOf(hue) + turn) % SYMBOLS.length] ?? "circle",
});

/** Free hues, then every hue again with the next symbol. */
function* others(taken: readonly Own[]): Generator<Own> {
  const hues = new Set(taken.map((s) => s.hue));
  const same = (a: Own, b: Own): boolean => a.hue === b.hue && a.symbol === b.symbol;
  const first = ORDER.filter((hue) => !hues.has(hue)).map((hue) => made(hue, 0));
  yield* first;
  for (let turn = 0; turn < SYMBOLS.length; turn++) {
    for (const own of ORDER.map((hue) => made(hue, turn))) {
      if (![...taken, ...first].some((s) => same(s, own))) yield own;
    }
  }
}

/** For SVG. */
export const DASH_ARRAY: Readonly<Record<Dash, string>> = { solid: "none", dashed: "7 4", dotted: "3 2.5", "dash-dot": "10 3 2 3" };
