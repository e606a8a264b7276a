/** What was on the screen, second by second. */
import { longest_s, type ShownSession, type Variant } from "./document.ts";

export interface Block {
  readonly kind: "rung" | "startup" | "stall";
  readonly from_s: number;
  readonly to_s: number;
  /** Of a rung: its place on the ladder, from 0 for the lowest rung to 1. */
  readonly share: number;
  readonly text: string;
}

export interface Strips {
  /** All rungs announced or shown, lowest first. */
  readonly ladder_kbps: readonly number[];
  readonly length_s: number;
  /** By variant; null without a session. */
  readonly rows: readonly { readonly label: string; readonly blocks: readonly Block[] | null }[];
}

export function strips(variants: readonly Variant[]): Strips {
  const sessions = variants.flatMap((v) => v.session ?? []);
  const ladder_kbps = [...new Set(sessions.flatMap((s) => [...s.ladder_kbps, ...s.seconds.flatMap((x) => x.rung_kbps ?? [])]))].sort((a, b) => a - b);
  const rows = variants.map((v) => ({ label: v.label, blocks: v.session === null ? null : blocks(v.session, ladder_kbps) }));
  return { ladder_kbps, length_s: longest_s(variants), rows };
}

/** The place of a rung on the ladder, from 0 to 1. */
export const share = (ladder_kbps: readonly number[], index: number): number => index / Math.max(1, ladder_kbps.length - 1);

/** Rungs first: start-up and stalls lie on them. */
function blocks(session: ShownSession, ladder_kbps: readonly number[]): Block[] {
  const { seconds, startup_s, stall_list, session_s } = session;
  const made: Block[] = [];
  for (let i = 0; i < seconds.length; ) {
    const rung = seconds[i]?.rung_kbps ?? null;
    let end = i + 1;
    while (end < seconds.length && (seconds[end]?.rung_kbps ?? null) === rung) end++;
    if (rung !== null) made.push({ kind: "rung", from_s: i, to_s: Math.min(end, session_s), share: share(ladder_kbps, ladder_kbps.indexOf(rung)), text: `${rung} kbit/s from ${i} to ${end} s` });
    i = end;
  }
  if (startup_s !== null) made.push({ kind: "startup", from_s: 0, to_s: startup_s, share: 0, text: `start-up, ${startup_s} s` });
  for (const s of stall_list) made.push({ kind: "stall", from_s: s.start_s, to_s: s.end_s, share: 0, text: `stall of ${(s.end_s - s.start_s).toFixed(2)} s at ${s.start_s} s` });
  return made;
}
