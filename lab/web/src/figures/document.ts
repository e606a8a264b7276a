/** What `millrace-lab report` puts into the page; `lab/src/report/document.rs` is the other side. */
import type { Panel } from "../chart.ts";
import type { Fact } from "../facts.ts";

export interface Report {
  readonly title: string;
  readonly facts: readonly Fact[];
  /** What a reader must know before believing a figure. */
  readonly warnings: readonly string[];
  /** The labels of results side by side, as in `cubic (sim)` at the end of a series' name; none of one result. */
  readonly sets: readonly string[];
  readonly figures: readonly Figure[];
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

export type Verdict = "holds" | "fails" | "undecided" | "not measured";

export interface Claim {
  readonly text: string;
  readonly source: string | null;
  readonly metric: string;
  readonly bound: string;
  readonly verdict: Verdict;
  readonly measured: number | null;
  /** 95 % bootstrap interval; in results of earlier versions least and greatest over the repeats. */
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
  /** 95 % bootstrap interval. */
  readonly interval?: readonly [number, number];
  readonly holds: boolean;
}

/** Number of claims by verdict. */
export function count(claims: readonly Claim[]): Record<Verdict, number> {
  const counts = { holds: 0, fails: 0, undecided: 0, "not measured": 0 };
  for (const claim of claims) counts[claim.verdict]++;
  return counts;
}

/** Names of the viewers with pictures. */
export function viewers(gallery: Gallery | null): string[] {
  return [...new Set(gallery?.views.flatMap((v) => v.seen.map((s) => s.name)) ?? [])];
}
