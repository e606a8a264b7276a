/** A panel as an ECharts option. */
import type { BarSeriesOption, CustomSeriesOption, LineSeriesOption, ScatterSeriesOption } from "echarts/charts";
import type { GridComponentOption, TooltipComponentOption } from "echarts/components";
import type { ComposeOption } from "echarts/core";
import type { Axis, Chart, Series } from "./chart.ts";
import { axisName, figure, tick, withUnit } from "./format.ts";
import { colour, drawn, paint, shape, whiskers, type AnySeries, type Look } from "./marks.ts";
import { scatter } from "./scatter.ts";
import { dashPattern } from "./style.ts";

export type Option = ComposeOption<BarSeriesOption | CustomSeriesOption | LineSeriesOption | ScatterSeriesOption | GridComponentOption | TooltipComponentOption>;

/** Points are drawn as symbols up to this many; more would hide the line. */
const SYMBOLS_AT_MOST = 40;

/** A line over time with more points than these is thinner. */
const DENSE_POINTS = 200;

/** Width of a letter of an axis' labels, about. */
const LETTER_PX = 6;

function lines(chart: Chart, look: Look, s: Series): AnySeries[] {
  const style = look.styles.of(s.name);
  const stroke = colour(look, s.name);
  const few = s.points.length <= SYMBOLS_AT_MOST && chart.kind === "lines";
  const line: LineSeriesOption = {
    type: "line",
    name: s.name,
    data: drawn(s.points.map((p) => [p[0] ?? null, p[1] ?? null])),
    showSymbol: few,
    symbol: shape(style.symbol),
    symbolSize: style.fill === "full" ? 8 : 10,
    lineStyle: { width: chart.kind === "series" && s.points.length > DENSE_POINTS ? 1.5 : 2, type: dashPattern(style.dash), color: stroke },
    itemStyle: paint(look, s.name),
    emphasis: { focus: "series" },
    ...(chart.kind === "cdf" || (chart.kind === "series" && chart.step === true) ? { step: "end" as const } : {}),
    // A name holds for the time that ends at its point.
    ...(chart.kind === "series" && chart.y.categories !== null ? { step: "start" as const } : {}),
  };
  const ends = s.points.flatMap(([x, , low, high]) => (chart.kind === "lines" && x != null && low != null && high != null && low < high ? [[x, low, x, high] as const] : []));
  return ends.length === 0 ? [line] : [line, whiskers(s.name, ends, stroke)];
}

const BAR_AT_MOST_PX = 48;
/** Of a bar's width. */
const BAR_GAP = 0.1;
/** Of a category's width. */
const CATEGORY_GAP = 0.3;

/** A bar has no symbol: of those that share a hue the kernel's, and what is beside a solid one, are pale, with an edge in their dash. */
function barStyle(chart: Chart, look: Look, name: string): NonNullable<BarSeriesOption["itemStyle"]> {
  const own = look.styles.of(name);
  const plain = paint(look, name);
  const others = chart.series.filter((s) => s.name !== name).map((s) => look.styles.of(s.name));
  const isPale = others.some((s) => s.hue === own.hue && (s.dash === "solid" || (own.symbol === "down" && s.symbol !== "down")));
  if (!isPale || own.fill !== "full" || own.dash === "solid") return plain;
  return { ...plain, color: `${plain.borderColor}66`, borderWidth: 1.5, borderType: dashPattern(own.dash, 0.5) };
}

function bars(chart: Chart, look: Look, visible: readonly Series[]): AnySeries[] {
  // Series with a bar each stand on their own category; grouped bars would leave gaps there.
  const own = visible.flatMap((s) => s.points.map((p) => p[0]));
  const alone = visible.every((s) => s.points.length <= 1) && new Set(own).size === own.length;
  const side_by_side = alone ? 1 : visible.length;
  return visible.flatMap((s, i) => {
    const categories = chart.x.categories ?? [];
    const bar: BarSeriesOption = {
      type: "bar",
      name: s.name,
      barMaxWidth: BAR_AT_MOST_PX,
      barGap: alone ? "-100%" : `${BAR_GAP * 100}%`,
      barCategoryGap: `${CATEGORY_GAP * 100}%`,
      itemStyle: barStyle(chart, look, s.name),
      data: categories.map((_, i) => s.points.find((p) => p[0] === i)?.[1] ?? null),
    };
    const ends = s.points.flatMap(([x, , low, high]) => (x != null && low != null && high != null && low < high ? [[x, low, x, high] as const] : []));
    // As the library places bars: what the gap leaves of a category, shared among them and their gaps.
    const shift = (category_px: number): number => {
      const bar_px = Math.min(BAR_AT_MOST_PX, (category_px * (1 - CATEGORY_GAP)) / (side_by_side + (side_by_side - 1) * BAR_GAP));
      return alone ? 0 : (i - (side_by_side - 1) / 2) * bar_px * (1 + BAR_GAP);
    };
    return ends.length > 0 ? [bar, { ...whiskers(s.name, ends, look.text, shift), z: 5 }] : [bar];
  });
}

/** Of the dashed lines of a chart, by their number. */
export const referenceDash = (index: number): "dashed" | "dotted" => (index % 2 === 0 ? "dashed" : "dotted");

function references(chart: Chart, look: Look): LineSeriesOption[] {
  return chart.references.map((r, i) => ({
    type: "line",
    name: r.name,
    data: r.points.map((p) => [...p]),
    step: "end",
    z: 6,
    showSymbol: false,
    lineStyle: { type: dashPattern(referenceDash(i)), width: 1.5, color: look.text, opacity: 0.7 },
    itemStyle: { color: look.text },
  }));
}

function axis(a: Axis, look: Look, vertical: boolean): Record<string, unknown> {
  const common = {
    name: axisName(a.name, a.unit),
    nameLocation: "middle",
    nameGap: vertical ? 44 : 28,
    nameTextStyle: { color: look.muted, fontSize: 12 },
    axisLine: { show: true, lineStyle: { color: look.muted } },
    axisTick: { lineStyle: { color: look.muted } },
    splitLine: { lineStyle: { color: look.line }, show: a.categories === null },
  };
  const label = { color: look.muted, fontSize: 11, hideOverlap: true };
  if (a.categories !== null) {
    const letters = Math.max(0, ...a.categories.map((c) => c.length));
    if (vertical) return { ...common, nameGap: letters * LETTER_PX + 14, type: "category", data: [...a.categories], axisLabel: { ...label, interval: 0, hideOverlap: false } };
    const long = a.categories.length * (letters * LETTER_PX + 8) > look.width_px - 90;
    return { ...common, nameGap: long ? 64 : common.nameGap, type: "category", data: [...a.categories], axisLabel: { ...label, interval: 0, hideOverlap: false, rotate: long ? 40 : 0 } };
  }
  const range = a.range === null ? {} : { min: a.range[0], max: a.range[1] };
  return { ...common, ...range, type: a.log ? "log" : "value", axisLabel: { ...label, formatter: (v: number) => tick(v, a.unit) }, minorSplitLine: { show: a.log, lineStyle: { color: look.line, opacity: 0.5 } }, minorTick: { show: a.log, splitNumber: 10 } };
}

const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

interface Hovered {
  readonly seriesName?: string;
  readonly seriesType?: string;
  readonly value?: unknown;
  readonly dataIndex?: number;
  readonly axisValue?: unknown;
}

/** The text of a tooltip: a row for each series under the pointer. */
export function tooltip(chart: Chart, hovered: Hovered | readonly Hovered[], look: Look): string {
  const all = (Array.isArray(hovered) ? hovered : [hovered]).filter((h: Hovered) => h.seriesType !== "custom") as readonly Hovered[];
  const rows = all.map((h) => {
    const series = chart.series.find((s) => s.name === h.seriesName);
    const value = Array.isArray(h.value) ? (h.value as (number | null)[]) : [];
    const { color, borderColor } = series === undefined ? { color: look.text, borderColor: look.text } : paint(look, series.name);
    const key = `<span class="dot" style="background:${color};border-color:${borderColor}"></span>${escape(h.seriesName ?? "")}`;
    if (chart.kind === "scatter") {
      return `<tr><th colspan="2">${key}</th></tr><tr><td>${escape(chart.x.name)}</td><td>${spread(value[0], value[2], value[3], chart.x.unit)}</td></tr><tr><td>${escape(chart.y.name)}</td><td>${spread(value[1], value[4], value[5], chart.y.unit)}</td></tr>`;
    }
    const point = chart.kind === "bars" ? series?.points.find((p) => p[0] === h.dataIndex) : series?.points[h.dataIndex ?? -1];
    const shown = point ?? value;
    if (chart.kind === "bars" && point === undefined) return "";
    return `<tr><th>${key}</th><td>${chart.kind === "lines" || chart.kind === "bars" ? spread(shown[1], shown[2], shown[3], chart.y.unit) : height(chart, shown[1])}</td></tr>`;
  });
  if (chart.kind === "scatter") return `<table class="tip">${rows.join("")}</table>`;
  const first = all[0];
  const at = Array.isArray(first?.value) ? (first.value as number[])[0] : undefined;
  const place = chart.x.categories === null ? withUnit(at, chart.x.unit) : (chart.x.categories[chart.kind === "bars" ? (first?.dataIndex ?? 0) : (at ?? 0)] ?? "");
  return `<table class="tip"><tr><th colspan="2">${escape(chart.x.name)}: ${escape(place)}</th></tr>${rows.join("")}</table>`;
}

/** A value of the vertical axis, in words where it has names. */
const height = (chart: Chart, value: number | null | undefined): string => (chart.y.categories === null ? withUnit(value, chart.y.unit) : escape(chart.y.categories[value ?? -1] ?? "–"));

function spread(value: number | null | undefined, low: number | null | undefined, high: number | null | undefined, unit: string): string {
  const middle = withUnit(value, unit);
  return low == null || high == null || low === high ? middle : `${middle} <small>(${figure(low)} to ${figure(high)})</small>`;
}

/** The whole option, without the series in `hidden`. */
export function option(chart: Chart, hidden: ReadonlySet<string>, look: Look): Option {
  const visible = chart.series.filter((s) => !hidden.has(s.name));
  const series: AnySeries[] = chart.kind === "bars" ? bars(chart, look, visible) : chart.kind === "scatter" ? scatter(chart, look, visible) : visible.flatMap((s) => lines(chart, look, s));
  const byItem = chart.kind === "scatter" || chart.kind === "cdf";
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, sans-serif", color: look.text },
    grid: { left: 12, right: 18, top: 14, bottom: 14, outerBoundsMode: "same", outerBoundsContain: "all" },
    tooltip: {
      trigger: byItem ? "item" : "axis",
      confine: true,
      backgroundColor: look.back,
      borderColor: look.line,
      textStyle: { color: look.text, fontSize: 12 },
      formatter: (hovered) => tooltip(chart, hovered as Hovered | Hovered[], look),
    },
    xAxis: axis(chart.x, look, false),
    yAxis: axis(chart.y, look, true),
    series: [...series, ...references(chart, look)],
  } as Option;
}

/** A description of the chart for screen readers. */
export function description(chart: Chart): string {
  const kinds = { lines: "Line chart", bars: "Bar chart", cdf: "Cumulative distribution", series: "Time series", scatter: "Scatter plot" } as const;
  const what = chart.kind === "cdf" ? chart.x.name : `${axisName(chart.y.name, chart.y.unit)} against ${axisName(chart.x.name, chart.x.unit)}`;
  const each = chart.series.slice(0, 12).map((s) => {
    const last = s.points.at(-1);
    if (chart.kind === "cdf") return `${s.name}: median ${withUnit(s.points[Math.floor((s.points.length - 1) / 2)]?.[0], chart.x.unit)}`;
    if (chart.kind === "scatter") return `${s.name}: ${withUnit(last?.[0], chart.x.unit)}, ${withUnit(last?.[1], chart.y.unit)}`;
    if (chart.kind === "series" && chart.y.categories !== null) {
      const names = s.points.map((p) => chart.y.categories?.[p[1] ?? -1] ?? "–");
      return `${s.name}: ${names.filter((name, i) => name !== names[i - 1]).join(", then ")}`;
    }
    if (chart.kind === "series") {
      const values = s.points.flatMap((p) => p[1] ?? []);
      return `${s.name}: mean ${withUnit(values.length === 0 ? null : values.reduce((a, b) => a + b, 0) / values.length, chart.y.unit)}`;
    }
    return s.points.length < 2 ? `${s.name}: ${withUnit(last?.[1], chart.y.unit)}` : `${s.name}: from ${withUnit(s.points[0]?.[1], chart.y.unit)} to ${withUnit(last?.[1], chart.y.unit)}`;
  });
  return `${kinds[chart.kind]}${chart.title === null ? "" : ` (${chart.title})`}: ${what}. ${each.join("; ")}.`;
}
