/** What a proxy's `/flows` says of one playback session. Pure: no clock, no I/O. */
import { z } from "zod";

/** Of `/flows`, what is used here; docs/operate/operations.md has all of it. */
const flowsSchema = z.object({
  flows: z.array(
    z.object({
      /** Null for bypassed flows. */
      algorithm: z.string().nullable(),
      rate_mbps: z.number(),
      rtt_ms: z.number().nullable(),
      player: z.object({ session: z.string().nullish(), age_s: z.number() }).nullish(),
    }),
  ),
});

/** What carries the session. */
export interface Carried {
  /** Congestion control of the connection that carried the last request; null for bypassed flows. */
  readonly algorithm: string | null;
  /** All of the session's flows together, both directions. */
  readonly rate_mbps: number;
  /** Smoothed round trip of that connection; null before its first sample. */
  readonly rtt_ms: number | null;
}

/** Finds `session` in the answer to `/flows`: a player's TCP connections are flows each, and the one with the latest request counts. Null without such a flow. */
export function findSession(answer: unknown, session: string): Carried | null {
  const flows = flowsSchema.parse(answer).flows.filter((flow) => flow.player?.session === session);
  const [latest] = flows.sort((a, b) => (a.player?.age_s ?? 0) - (b.player?.age_s ?? 0));
  if (!latest) return null;
  return { algorithm: latest.algorithm, rtt_ms: latest.rtt_ms, rate_mbps: flows.reduce((sum, flow) => sum + flow.rate_mbps, 0) };
}
