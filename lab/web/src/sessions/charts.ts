/** The charts of sessions: a value for each second. */
import type { Axis, Series, Time } from "../chart.ts";
import type { ShownSession, Variant } from "./document.ts";

type Second = ShownSession["seconds"][number];
type Points = Series["points"];

export interface SessionChart {
  readonly heading: string;
  readonly chart: Time;
}

interface Plan {
  readonly heading: string;
  readonly axis: string;
  readonly unit: string;
  readonly points: (seconds: readonly Second[]) => Points;
  /** What `points` says holds until the next point. */
  readonly step: boolean;
  readonly fromZero: boolean;
}

const PLANS: readonly Plan[] = [
  { heading: "Bitrate shown", axis: "Bitrate", unit: "kbit/s", points: (s) => held(s.map((x) => (x.stalled ? null : x.rung_kbps))), step: true, fromZero: true },
  { heading: "Buffer", axis: "Buffer", unit: "s", points: (s) => atEnd(s.map((x) => x.buffer_s)), step: false, fromZero: true },
  { heading: "Time stalled so far", axis: "Stalled", unit: "s", points: (s) => atEnd(added(s.map((x) => x.stalled_s))), step: false, fromZero: true },
  { heading: "Throughput as the player estimates it", axis: "Throughput", unit: "kbit/s", points: (s) => atEnd(s.map((x) => x.throughput_kbps)), step: false, fromZero: true },
  { heading: "PSNR of the picture, frozen seconds included", axis: "PSNR", unit: "dB", points: (s) => held(s.map((x) => x.psnr_db)), step: true, fromZero: false },
];

export function sessionCharts(variants: readonly Variant[]): SessionChart[] {
  const length_s = Math.max(1, ...variants.map((v) => v.session?.seconds.length ?? 0));
  const time: Axis = { name: "Time", unit: "s", log: false, range: [0, length_s], categories: null };
  return PLANS.map(({ heading, axis, unit, points, step, fromZero }) => {
    const series = variants.map((v) => ({ name: v.label, points: points(v.session?.seconds ?? []) }));
    const y: Axis = { name: axis, unit, log: false, range: fromZero ? null : around(series), categories: null };
    return { heading: `${heading}, ${unit}`, chart: { kind: "series", title: null, step, x: time, y, series, references: [] } };
  });
}

/** Values of a second's end. */
const atEnd = (values: readonly (number | null)[]): Points => values.map((value, t) => [t + 1, value]);

/** A second's end that is still of this second. */
const JUST_BEFORE_S = 0.001;

/** Values that hold for their second, the last before a gap too. */
function held(values: readonly (number | null)[]): Points {
  return values.flatMap((value, t) => {
    const isLast = value !== null && (values[t + 1] ?? null) === null;
    return isLast ? [[t, value], [t + 1 - JUST_BEFORE_S, value]] : [[t, value]];
  });
}

function added(values: readonly number[]): number[] {
  let sum = 0;
  return values.map((value) => (sum += value));
}

/** Ends of an axis are multiples of this. */
const ROUND_TO = 5;

/** A range that need not begin at zero, with a tenth of its height around the values. */
function around(series: readonly Series[]): readonly [number, number] | null {
  const values = series.flatMap((s) => s.points.flatMap((p) => p[1] ?? []));
  if (values.length === 0) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = Math.max(1, (high - low) / 10);
  return [Math.max(0, Math.floor((low - margin) / ROUND_TO) * ROUND_TO), Math.ceil((high + margin) / ROUND_TO) * ROUND_TO];
}
