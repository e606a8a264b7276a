/** What `millrace-lab report` puts into the page; `lab/src/report/document.rs` is the other side. */
export interface Report {
  readonly title: string;
  readonly facts: readonly Fact[];
  /** What a reader must know before believing a figure. */
  readonly warnings: readonly string[];
  /** The labels of results side by side, as in `cubic (sim)` at the end of a series' name; none of one result. */
  readonly sets: readonly string[];
  readonly figures: readonly Figure[];
}

export interface Fact {
  readonly name: string;
  readonly value: string;
}

export interface Figure {
  readonly id: string;
  readonly title: string;
  /** The paper's figure. */
  readonly source: string | null;
  readonly about: string | null;
  /** What was excluded, averaged or not measured. */
  readonly notes: readonly string[];
  readonly claims: readonly Claim[];
  /** Plots; one has several panels when it is split by a key. */
  readonly plots: readonly (readonly Panel[])[];
  /** What was on the players' screens; null without players or drawn frames. */
  readonly gallery: Gallery | null;
  /** The file with the plotted numbers, relative to the page. */
  readonly csv: string | null;
}

export interface Gallery {
  readonly credit: string | null;
  readonly notes: readonly string[];
  readonly views: readonly View[];
  /** Data URLs; the rest names them by their number. */
  readonly images: readonly string[];
}

/** All viewers at the same instant of their sessions. */
export interface View {
  /** What was swept but for the algorithm. */
  readonly place: string;
  /** Seconds since the play request. */
  readonly t: number;
  /** The source's picture that was due for the first of them. */
  readonly source: number | null;
  readonly seen: readonly Seen[];
}

export interface Seen {
  readonly name: string;
  readonly rung_kbps: number | null;
  /** Null before the first frame. */
  readonly media_s: number | null;
  /** How long the picture had been frozen; 0 while it played. */
  readonly frozen_s: number;
  readonly psnr_db: number | null;
  readonly buffer_s: number | null;
  readonly whole: number | null;
  /** A part at full size, and the same of the source's frame that was due. */
  readonly part: number | null;
  readonly source_part: number | null;
}

export type Verdict = "holds" | "fails" | "not measured";

export interface Claim {
  readonly text: string;
  readonly source: string | null;
  readonly metric: string;
  readonly bound: string;
  readonly verdict: Verdict;
  readonly measured: number | null;
  /** Least and greatest over the repeats, where `measured` is a single figure. */
  readonly spread: readonly [number, number] | null;
  readonly unit: string;
  readonly at: string;
  readonly reason: string | null;
  readonly points: readonly ClaimPoint[];
}

export interface ClaimPoint {
  readonly at: string;
  readonly value: number | null;
  readonly reference: number | null;
  readonly measured: number | null;
  readonly holds: boolean;
}

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

/** Number of claims by verdict. */
export function count(claims: readonly Claim[]): Record<Verdict, number> {
  const counts = { holds: 0, fails: 0, "not measured": 0 };
  for (const claim of claims) counts[claim.verdict]++;
  return counts;
}

/** The names of a plot's series, in the order of their first panel. */
export function seriesNames(panels: readonly Panel[]): string[] {
  return [...new Set(panels.flatMap((p) => (p.kind === "table" ? [] : p.series.map((s) => s.name))))];
}

/** Names of the viewers with pictures. */
export function viewers(gallery: Gallery | null): string[] {
  return [...new Set(gallery?.views.flatMap((v) => v.seen.map((s) => s.name)) ?? [])];
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
