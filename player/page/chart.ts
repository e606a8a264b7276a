/** The last two minutes as a chart: rung and throughput by the left scale, the buffer and a live stream's latency by the right one. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Second } from "../src/schema.ts";

const WINDOW_S = 120;
const HEIGHT_PX = 150;
const TEXT = "#ccc";
const GRID = { stroke: "rgb(255 255 255 / 12%)", width: 1 };

const fromZero = (_: uPlot, __: number, high: number): uPlot.Range.MinMax => [0, Math.max(1, high) * 1.1];
/** The rungs fill at least half of it: a throughput far above them need not be read off. */
const rates = (plot: uPlot, _: number, high: number): uPlot.Range.MinMax => {
  const top = Math.max(0.5, ...Array.from(plot.data[1] ?? [], (rung) => rung ?? 0));
  return [0, Math.min(Math.max(1, high), 2 * top) * 1.1];
};
const axis = (label: string, scale: string, side: uPlot.Axis.Side): uPlot.Axis => ({
  label, scale, side, stroke: TEXT, grid: side === 1 ? { show: false } : GRID, ticks: GRID, size: 46, labelSize: 18, font: "11px system-ui", labelFont: "11px system-ui",
});

function options(width: number, live: boolean): uPlot.Options {
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  return {
    width,
    height: HEIGHT_PX,
    cursor: { show: false },
    scales: { x: { time: false }, mbps: { range: rates }, s: { range: fromZero } },
    axes: [{ stroke: TEXT, grid: GRID, ticks: GRID, size: 28, font: "11px system-ui" }, axis("Mbit/s", "mbps", 3), axis(live ? "seconds" : "buffer, s", "s", 1)],
    series: [
      { label: "s" },
      { label: "Rung", scale: "mbps", stroke: "#4da3ff", width: 2, ...(stepped ? { paths: stepped } : {}), points: { show: false } },
      { label: "Throughput", scale: "mbps", stroke: "#9ad06b", width: 1, points: { show: false } },
      { label: "Buffer", scale: "s", stroke: "#ffb454", width: 1, dash: [4, 3], points: { show: false } },
      ...(live ? [{ label: "Latency", scale: "s", stroke: "#e07be0", width: 1, points: { show: false } }] : []),
    ],
  };
}

/** What the chart shows of a session's seconds. */
function columns(seconds: readonly Second[], live: boolean): uPlot.AlignedData {
  const last = seconds.slice(-WINDOW_S);
  const mbps = (kbps: number | null): number | null => (kbps === null ? null : kbps / 1000);
  return [last.map((s) => s.t), last.map((s) => mbps(s.rung_kbps)), last.map((s) => mbps(s.throughput_kbps)), last.map((s) => s.buffer_s), ...(live ? [last.map((s) => s.latency_s)] : [])];
}

/** Draws into `box` what the answer is called with. */
export function openChart(box: HTMLElement, live: boolean): (seconds: readonly Second[]) => void {
  const plot = new uPlot(options(box.clientWidth, live), columns([], live), box);
  new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT_PX })).observe(box);
  return (seconds) => plot.setData(columns(seconds, live));
}
