/** The scale that the charts of sessions side by side have in common. Pure: no clock, no I/O. */
import type { Second } from "./schema.ts";

/** Seconds of a session that a chart shows. */
export const WINDOW_S = 120;

export interface Scale {
  readonly from_s: number;
  readonly to_s: number;
  /** Rates are drawn by a logarithmic scale, so that throughputs far above the rungs stay on it: powers of ten. */
  readonly min_mbps: number;
  readonly max_mbps: number;
  readonly max_s: number;
}

/** The seconds that a chart shows of a session. */
export const inWindow = (seconds: readonly Second[], { from_s, to_s }: Scale): readonly Second[] => seconds.filter(({ t }) => t >= from_s && t <= to_s);

/** The smallest scale that has all values of the last `WINDOW_S` seconds of all sessions on it. */
export function commonScale(sessions: readonly (readonly Second[])[]): Scale {
  const to_s = Math.max(10, ...sessions.map((seconds) => seconds.at(-1)?.t ?? 0));
  const from_s = Math.max(0, to_s - WINDOW_S);
  const shown = sessions.flat().filter(({ t }) => t >= from_s);
  const rates = shown.flatMap(({ rung_kbps, throughput_kbps }) => [rung_kbps, throughput_kbps]).filter((kbps) => kbps !== null && kbps > 0) as number[];
  const times = shown.flatMap(({ buffer_s, latency_s }) => [buffer_s ?? 0, latency_s ?? 0]);
  // Without a value, as for a video of 1 Mbit/s.
  const [lowest, highest] = rates.length > 0 ? [Math.min(...rates) / 1000, Math.max(...rates) / 1000] : [1, 1];
  const min_mbps = 10 ** Math.floor(Math.log10(lowest) - 1e-9);
  return { from_s, to_s, min_mbps, max_mbps: Math.max(10 ** Math.ceil(Math.log10(highest) + 1e-9), min_mbps * 100), max_s: Math.max(5, 5 * Math.ceil(Math.max(0, ...times) / 5)) };
}
