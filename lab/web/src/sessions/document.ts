/** What `tool/report.ts` puts into the page of sessions: one video over one link, carried in several ways. */
import type { Session } from "millrace-player/schema";
import type { Table } from "../chart.ts";
import type { Fact } from "../facts.ts";

export interface Sessions {
  readonly title: string;
  readonly variants: readonly Variant[];
  /** Link, machine and run. */
  readonly facts: readonly Fact[];
  /** What the emulated link counted, a column for each variant; null where nothing was counted. */
  readonly link: Table | null;
}

/** One way of carrying the video. */
export interface Variant {
  /** Differs from those of the other variants. */
  readonly label: string;
  readonly figures: Figures;
  /** Null when the run left no session: then there is nothing to draw. */
  readonly session: ShownSession | null;
  readonly screenshots: readonly Screenshot[];
}

/** Null is what was not measured. */
export interface Figures {
  readonly startup_s: number | null;
  readonly stalls: number | null;
  readonly rebuffer_ratio: number | null;
  readonly bitrate_kbps: number | null;
  readonly switches: number | null;
  readonly qoe_lin: number | null;
  readonly psnr_db: number | null;
  readonly dropped_frames: number | null;
}

/** What the page shows of a session. */
export type ShownSession = Pick<
  Session,
  "startup_s" | "stall_list" | "frozen_outside_stalls_s" | "session_s" | "seconds" | "abr" | "buffer_target_s" | "ladder_kbps" | "browser" | "error"
>;

export interface Screenshot {
  /** Seconds since the play request. */
  readonly t: number;
  readonly dataUrl: string;
}

/** Length of the longest session. */
export const longest_s = (variants: readonly Variant[]): number => Math.max(1, ...variants.map((v) => v.session?.session_s ?? 0));

/** How the sessions were played; they differ in the transport only. */
export function setUp(variants: readonly Variant[]): string {
  const session = variants.find((v) => v.session !== null)?.session;
  if (session === null || session === undefined) return "";
  return `${session.session_s} s each in ${session.browser}; dash.js, ABR ${session.abr}, buffer target ${session.buffer_target_s} s.`;
}

/** One sentence that says what the table says. */
export function summary(variants: readonly Variant[]): string {
  const rated = variants.flatMap((v) => (v.figures.bitrate_kbps === null ? [] : [{ label: v.label, kbps: v.figures.bitrate_kbps }]));
  const [best, ...others] = rated.sort((a, b) => b.kbps - a.kbps);
  if (best === undefined || others.length === 0) return "";
  const ratios = others.map((o) => `${(best.kbps / o.kbps).toFixed(2)} times that of ${o.label}`);
  return `Highest mean bitrate: ${best.label}, ${ratios.join(" and ")}.`;
}

/** What a reader must know of the sessions beyond their figures. */
export function problems(variants: readonly Variant[]): string[] {
  return variants.flatMap(({ label, session }) => {
    if (session === null) return [`${label}: there is no session, so nothing is drawn.`];
    const error = session.error === null ? [] : [`${label}: ${session.error}`];
    const frozen_s = session.frozen_outside_stalls_s;
    return frozen_s > 0 ? [...error, `${label}: the picture stood still for ${frozen_s} s that the player does not call stalls.`] : error;
  });
}
