/** The last two minutes as a chart: rung and throughput by the left scale, the buffer and a live stream's latency by the right one. */
import { LineChart, type LineSeriesOption } from "echarts/charts";
import { GridComponent, LegendComponent, type GridComponentOption, type LegendComponentOption } from "echarts/components";
import { init, use, type ComposeOption } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import type { Second } from "../src/schema.ts";

use([LineChart, GridComponent, LegendComponent, SVGRenderer]);

type Option = ComposeOption<LineSeriesOption | GridComponentOption | LegendComponentOption>;

const WINDOW_S = 120;
const HEIGHT_PX = 150;
const TEXT = "#ccc";
const GRID = "rgb(255 255 255 / 12%)";
/** Indices of the vertical axes. */
const MBPS = 0;
const SECONDS = 1;

type Value = (second: Second) => number | null;

interface Line {
  readonly name: string;
  readonly axis: typeof MBPS | typeof SECONDS;
  readonly value: Value;
  readonly style: NonNullable<LineSeriesOption["lineStyle"]>;
  readonly step?: "end";
}

const mbps = (kbps: number | null): number | null => (kbps === null ? null : kbps / 1000);

const LINES: readonly Line[] = [
  { name: "Rung", axis: MBPS, value: (s) => mbps(s.rung_kbps), style: { color: "#4da3ff", width: 2 }, step: "end" },
  { name: "Throughput", axis: MBPS, value: (s) => mbps(s.throughput_kbps), style: { color: "#9ad06b", width: 1 } },
  { name: "Buffer", axis: SECONDS, value: (s) => s.buffer_s, style: { color: "#ffb454", width: 1, type: [4, 3] } },
];
const LATENCY: Line = { name: "Latency", axis: SECONDS, value: (s) => s.latency_s, style: { color: "#e07be0", width: 1 } };

/** The rungs fill at least half of the scale: a throughput far above them need not be read off. */
function highestRate(seconds: readonly Second[]): number {
  const rung = Math.max(0.5, ...seconds.map((s) => mbps(s.rung_kbps) ?? 0));
  const rate = Math.max(1, rung, ...seconds.map((s) => mbps(s.throughput_kbps) ?? 0));
  return Math.ceil(Math.min(rate, 2 * rung) * 1.1);
}

function option(session: readonly Second[], live: boolean): Option {
  const seconds = session.slice(-WINDOW_S);
  const label = { color: TEXT, fontSize: 11, hideOverlap: true };
  const grid = { lineStyle: { color: GRID } };
  const axis = { type: "value", min: 0, splitNumber: 3, axisLabel: label, nameLocation: "middle", nameGap: 30, nameTextStyle: { color: TEXT, fontSize: 11 } } as const;
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif" },
    grid: { left: 8, right: 8, top: 24, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "all" },
    legend: { left: "center", top: 2, textStyle: { color: TEXT, fontSize: 12 }, itemHeight: 10, selectedMode: false },
    xAxis: { type: "value", min: "dataMin", max: "dataMax", axisLabel: label, axisTick: grid, splitLine: grid },
    yAxis: [
      { ...axis, name: "Mbit/s", max: highestRate(seconds), axisLabel: { ...label, showMaxLabel: false }, splitLine: grid },
      { ...axis, name: live ? "seconds" : "buffer, s", max: (of: { max: number }) => Math.ceil(Math.max(1, of.max) * 1.1), axisLabel: { ...label, showMaxLabel: false }, splitLine: { show: false } },
    ],
    series: [...LINES, ...(live ? [LATENCY] : [])].map(({ name, axis, value, style, step }): LineSeriesOption => ({
      type: "line", name, yAxisIndex: axis, symbol: "none", silent: true, lineStyle: style, itemStyle: { color: String(style.color) }, clip: true,
      data: seconds.map((s) => [s.t, value(s)]), ...(step === undefined ? {} : { step }),
    })),
  };
}

/** Draws into `box` what the answer is called with. */
export function openChart(box: HTMLElement, live: boolean): (seconds: readonly Second[]) => void {
  const chart = init(box, null, { renderer: "svg", height: HEIGHT_PX });
  chart.setOption(option([], live));
  new ResizeObserver(() => chart.resize({ width: box.clientWidth, height: HEIGHT_PX })).observe(box);
  return (seconds) => chart.setOption(option(seconds, live));
}
