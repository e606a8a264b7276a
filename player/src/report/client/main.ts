/** Draws the charts of the report. */
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import type { ChartData } from "../chart-data.ts";

type Second = ChartData["variants"][number]["seconds"][number];
type Values = (number | null)[];

const HEIGHT_PX = 220;
/** Lines that lie on each other stay visible through each other's gaps. */
const DASHES = [[], [9, 5], [4, 3], [14, 4, 3, 4]];

const stepped = uPlot.paths.stepped?.({ align: 1 });

interface Chart {
  readonly id: string;
  readonly values: (seconds: readonly Second[]) => Values;
  readonly stepped: boolean;
  readonly fromZero: boolean;
}

const CHARTS: readonly Chart[] = [
  { id: "bitrate", values: (s) => s.map((x) => (x.stalled ? null : x.rung_kbps)), stepped: true, fromZero: true },
  { id: "buffer", values: (s) => s.map((x) => x.buffer_s), stepped: false, fromZero: true },
  { id: "stalls", values: (s) => s.map(((sum) => (x: Second) => (sum += x.stalled_s))(0)), stepped: false, fromZero: true },
  { id: "throughput", values: (s) => s.map((x) => x.throughput_kbps), stepped: false, fromZero: true },
  { id: "psnr", values: (s) => s.map((x) => x.psnr_db), stepped: true, fromZero: false },
];

const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function draw(chart: Chart, data: ChartData): uPlot | null {
  const place = document.getElementById(`chart-${chart.id}`);
  if (!place) return null;
  place.replaceChildren();
  const length = Math.max(1, ...data.variants.map((v) => v.seconds.length));
  const times = Array.from({ length: length + 1 }, (_, t) => t);
  const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const digits = chart.id === "psnr" || chart.id === "buffer" || chart.id === "stalls" ? 1 : 0;
  const path = chart.stepped && stepped ? { paths: stepped } : {};
  const options: uPlot.Options = {
    width: place.clientWidth,
    height: HEIGHT_PX,
    cursor: { sync: { key: "millrace" }, drag: { x: false, y: false } },
    legend: { markers: { width: 0, fill: (_, i) => (i === 0 ? "transparent" : css(`--c${(i - 1) % 4}`)) } },
    scales: {
      x: { time: false, range: [0, length] },
      y: { range: (_, min, max) => uPlot.rangeNum(chart.fromZero ? 0 : (min ?? 0), Math.max(max ?? 1, 1), { min: { pad: chart.fromZero ? 0 : 0.1, soft: 0, mode: chart.fromZero ? 1 : 3 }, max: { pad: 0.1 } }) },
    },
    axes: [
      { ...axis, size: 28, values: (_, ticks) => ticks.map((t) => `${t} s`) },
      { ...axis, size: 64, values: (_, ticks) => ticks.map((v) => v.toLocaleString("en")) },
    ],
    series: [
      { label: "Second", value: (_, v) => (v == null ? "–" : `${v} s`) },
      ...data.variants.map((v, i): uPlot.Series => ({
        label: v.label,
        stroke: css(`--c${i % 4}`),
        width: 2.5,
        dash: DASHES[i % DASHES.length] ?? [],
        points: { show: false },
        spanGaps: false,
        value: (_, x) => (x == null ? "–" : x.toLocaleString("en", { maximumFractionDigits: digits })),
        ...path,
      })),
    ],
  };
  const padded = data.variants.map((v) => {
    const values = chart.values(v.seconds);
    // A step holds for its second, the last one too; the other values are those at the second's end.
    return times.map((t) => (chart.stepped ? (values[t] ?? (t === values.length ? values[t - 1] : null)) : values[t - 1]) ?? null);
  });
  return new uPlot(options, [times, ...padded] as uPlot.AlignedData, place);
}

function start(): void {
  const data = JSON.parse(document.getElementById("data")?.textContent ?? '{"variants":[]}') as ChartData;
  let plots: uPlot[] = [];
  const drawAll = (): void => {
    for (const plot of plots) plot.destroy();
    plots = CHARTS.flatMap((chart) => draw(chart, data) ?? []);
  };
  drawAll();
  // Canvases do not follow the style sheet.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  new ResizeObserver(() => {
    for (const plot of plots) plot.setSize({ width: plot.root.parentElement?.clientWidth ?? 300, height: HEIGHT_PX });
  }).observe(document.body);
}

start();
