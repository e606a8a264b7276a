/** The last two minutes of a session as a chart: rung and throughput above, the buffer and a live stream's latency below. */
import { LineChart, type LineSeriesOption } from "echarts/charts";
import { GridComponent, LegendComponent, MarkAreaComponent, type GridComponentOption, type LegendComponentOption, type MarkAreaComponentOption } from "echarts/components";
import { init, use, type ComposeOption } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import { inWindow, type Scale } from "../src/scale.ts";
import type { Second } from "../src/schema.ts";

use([LineChart, GridComponent, LegendComponent, MarkAreaComponent, SVGRenderer]);

type Option = ComposeOption<LineSeriesOption | GridComponentOption | LegendComponentOption | MarkAreaComponentOption>;

const HEIGHT_PX = 280;
/** Indices of the grids and their axes. */
const RATES = 0;
const TIMES = 1;

interface Line {
  readonly name: string;
  readonly grid: typeof RATES | typeof TIMES;
  readonly value: (second: Second) => number | null;
  /** Custom property of theme.css. */
  readonly colour: string;
  readonly width: number;
  readonly step?: "end";
  readonly dashes?: readonly [number, number];
}

/** A logarithmic scale has no 0. */
const mbps = (kbps: number | null): number | null => (kbps === null || kbps <= 0 ? null : kbps / 1000);

const LINES: readonly Line[] = [
  { name: "Rung", grid: RATES, value: (s) => mbps(s.rung_kbps), colour: "--accent", width: 2, step: "end" },
  { name: "Throughput", grid: RATES, value: (s) => mbps(s.throughput_kbps), colour: "--rate", width: 1.5 },
  { name: "Buffer", grid: TIMES, value: (s) => s.buffer_s, colour: "--buffer", width: 1.5, dashes: [5, 3] },
];
const LATENCY: Line = { name: "Latency", grid: TIMES, value: (s) => s.latency_s, colour: "--latency", width: 1.5 };

/** Begin and end of each run of stalled seconds. */
function stalls(seconds: readonly Second[]): [number, number][] {
  const runs: [number, number][] = [];
  for (const { t, stalled } of seconds) {
    const last = runs.at(-1);
    if (stalled && last?.[1] === t) last[1] = t + 1;
    else if (stalled) runs.push([t, t + 1]);
  }
  return runs;
}

const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function option(session: readonly Second[], live: boolean, scale: Scale): Option {
  const seconds = inWindow(session, scale);
  const label = { color: colour("--dim"), fontSize: 11, hideOverlap: true };
  const lines = { lineStyle: { color: colour("--line") } };
  const x = { type: "value", min: scale.from_s, max: scale.to_s, axisLine: lines, axisTick: { show: false }, splitLine: { show: false } } as const;
  const y = { nameLocation: "middle", nameGap: 38, nameTextStyle: { color: colour("--dim"), fontSize: 11 }, axisLabel: label, axisLine: { show: false }, axisTick: { show: false }, splitLine: lines } as const;
  const sides = { left: 64, right: 12, outerBoundsMode: "none" } as const;
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif" },
    grid: [{ ...sides, top: 32, height: 110 }, { ...sides, top: 166, bottom: 38 }],
    legend: { left: "center", top: 2, textStyle: { color: colour("--text"), fontSize: 12 }, itemHeight: 10, selectedMode: false },
    xAxis: [
      { ...x, gridIndex: RATES, axisLabel: { show: false } },
      { ...x, gridIndex: TIMES, axisLabel: label, name: "seconds since the play request", nameLocation: "middle", nameGap: 22, nameTextStyle: { color: colour("--dim"), fontSize: 11 } },
    ],
    yAxis: [
      { ...y, type: "log", gridIndex: RATES, name: "Mbit/s", min: scale.min_mbps, max: scale.max_mbps },
      { ...y, type: "value", gridIndex: TIMES, name: "s", min: 0, max: scale.max_s, splitNumber: 3 },
    ],
    series: [...LINES, ...(live ? [LATENCY] : [])].map((line): LineSeriesOption => ({
      type: "line", name: line.name, xAxisIndex: line.grid, yAxisIndex: line.grid, symbol: "none", silent: true, clip: true,
      lineStyle: { color: colour(line.colour), width: line.width, ...(line.dashes ? { type: [...line.dashes] } : {}) }, itemStyle: { color: colour(line.colour) },
      data: seconds.map((s) => [s.t, line.value(s)]), ...(line.step === undefined ? {} : { step: line.step }),
      ...(line.step === undefined ? {} : { markArea: { silent: true, itemStyle: { color: colour("--bad"), opacity: 0.25 }, data: stalls(seconds).map(([from, to]) => [{ xAxis: from }, { xAxis: to }]) } }),
    })),
  };
}

/** Draws into `box` what the answer is called with. */
export function openChart(box: HTMLElement, live: boolean): (seconds: readonly Second[], scale: Scale) => void {
  const chart = init(box, null, { renderer: "svg", height: HEIGHT_PX });
  new ResizeObserver(() => chart.resize({ width: box.clientWidth, height: HEIGHT_PX })).observe(box);
  return (seconds, scale) => chart.setOption(option(seconds, live, scale), { notMerge: true });
}
