/** Charts and tables of both pages, without a library. */
export interface Axis {
  readonly name: string;
  readonly unit: string;
  readonly log: boolean;
  readonly range: readonly [number, number] | null;
  /** Names instead of numbers: points hold their index. */
  readonly categories: readonly string[] | null;
}

interface Common {
  readonly title: string | null;
  readonly x: Axis;
  readonly y: Axis;
  readonly series: readonly Series[];
  readonly references: readonly { readonly name: string; readonly points: readonly (readonly [number, number])[] }[];
}

/** Points are [x, median, low, high]. */
export interface Lines extends Common {
  readonly kind: "lines" | "bars";
}

/** Points are [value, share]. */
export interface Cdf extends Common {
  readonly kind: "cdf";
}

/** Points are [time, value]. */
export interface Time extends Common {
  readonly kind: "series";
  /** A value holds until the next point; without it, points are joined by straight lines. */
  readonly step?: boolean;
}

export type Corner = "low-low" | "low-high" | "high-low" | "high-high";

/** Points are [x, y, x low, x high, y low, y high]. */
export interface Scatter extends Common {
  readonly kind: "scatter";
  readonly ideal: Corner | null;
  readonly front: boolean;
}

export interface Table {
  readonly kind: "table";
  readonly title: string | null;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export interface Series {
  readonly name: string;
  readonly points: readonly (readonly (number | null)[])[];
}

export type Chart = Lines | Cdf | Time | Scatter;
export type Panel = Chart | Table;

/** The names of a plot's series, in the order of their first panel. */
export function seriesNames(panels: readonly Panel[]): string[] {
  return [...new Set(panels.flatMap((p) => (p.kind === "table" ? [] : p.series.map((s) => s.name))))];
}

/**
 * Plots that stand side by side under one legend: neighbours of one panel each, of the same series. What runs over time
 * has the whole width.
 */
export function grouped(plots: readonly (readonly Panel[])[]): (readonly Panel[])[] {
  const out: { key: string | null; panels: Panel[] }[] = [];
  for (const panels of plots) {
    const [only, ...others] = panels;
    const alone = only !== undefined && others.length === 0 && only.kind !== "table" && only.kind !== "series";
    const key = alone ? seriesNames(panels).join("\n") : null;
    const last = out.at(-1);
    if (key !== null && last?.key === key) last.panels.push(...panels);
    else out.push({ key, panels: [...panels] });
  }
  return out.map((group) => group.panels);
}
