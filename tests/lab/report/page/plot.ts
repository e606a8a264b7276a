/** The panels of one plot, with a legend that serves all of them. */
import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import { init, use, type ECharts } from "echarts/core";
import { LabelLayout } from "echarts/features";
import { SVGRenderer } from "echarts/renderers";
import { seriesNames, type Chart, type Corner, type Panel, type Table } from "../src/data.ts";
import { withUnit } from "../src/format.ts";
import { description, option, referenceDash, type Look } from "../src/option.ts";
import { DASH_ARRAY, HUES, type Dash, type Style } from "../src/style.ts";
import { element } from "./dom.ts";

use([BarChart, CustomChart, LineChart, ScatterChart, GridComponent, TooltipComponent, LabelLayout, SVGRenderer]);

const ARROW: Readonly<Record<Corner, string>> = { "low-low": "↙", "low-high": "↖", "high-low": "↘", "high-high": "↗" };

/** One chart in its place; drawn when it comes into view. */
interface Drawn {
  readonly chart: Chart;
  readonly place: HTMLElement;
  instance: ECharts | null;
}

export interface Plots {
  readonly add: (panels: readonly Panel[]) => HTMLElement;
  /** After a change of colours or width. */
  readonly redraw: () => void;
  /** Also what has not been seen yet, for printing. */
  readonly drawAll: () => void;
}

export function plots(look: (width_px: number) => Look, style: (name: string) => Style): Plots {
  const all: (Drawn & { readonly hidden: Set<string> })[] = [];
  const draw = (d: (typeof all)[number]): void => {
    d.instance ??= init(d.place, null, { renderer: "svg" });
    d.instance.setOption(option(d.chart, d.hidden, look(d.place.clientWidth)), { notMerge: true });
  };
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const d = all.find((x) => x.place === entry.target);
        if (!entry.isIntersecting || d === undefined) continue;
        seen.unobserve(d.place);
        draw(d);
      }
    },
    { rootMargin: "600px" },
  );

  const add = (panels: readonly Panel[]): HTMLElement => {
    const hidden = new Set<string>();
    const here: typeof all = [];
    const cells = panels.map((panel) => {
      if (panel.kind === "table") return tableOf(panel);
      const place = element("div", { class: "chart", role: "img", "aria-label": description(panel) });
      const d = { chart: panel, place, instance: null, hidden };
      all.push(d);
      here.push(d);
      seen.observe(place);
      const frame = element("figure", { class: "panel" });
      if (panel.title !== null) frame.append(element("figcaption", {}, panel.title));
      const around = element("div", { class: "around" }, place);
      if (panel.kind === "scatter" && panel.ideal !== null) around.append(element("span", { class: `ideal ${panel.ideal}`, "aria-hidden": "true" }, `${ARROW[panel.ideal]} better`));
      frame.append(around);
      const numbers = numbersOf(panel);
      if (numbers !== null) frame.append(numbers);
      return frame;
    });
    const names = seriesNames(panels);
    const toggle = (name: string): void => {
      if (!hidden.delete(name)) hidden.add(name);
      for (const d of here) if (d.instance !== null) draw(d);
    };
    const size = panels.length === 1 ? "one" : panels.length <= 6 && panels.every((p) => p.kind !== "series") ? "few" : "many";
    const dashed = [...new Map(here.flatMap((d) => d.chart.references.map((r, i) => [r.name, referenceDash(i)] as const)))];
    const key = names.length > 1 || dashed.length > 0 ? [legend(names, dashed, style, toggle)] : [];
    return element("div", { class: `plot ${size}` }, ...key, element("div", { class: "panels" }, ...cells));
  };

  return {
    add,
    redraw: () => all.forEach((d) => d.instance !== null && (d.instance.resize(), draw(d))),
    drawAll: () => all.forEach(draw),
  };
}

/** Buttons that show and hide a series in every panel, then the dashed lines. */
function legend(names: readonly string[], dashed: readonly (readonly [string, Dash])[], style: (name: string) => Style, toggle: (name: string) => void): HTMLElement {
  const buttons = names.map((name) => {
    const button = element("button", { type: "button", "aria-pressed": "true", title: "Show or hide" });
    button.append(swatch(style(name)), name);
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      toggle(name);
    });
    return button;
  });
  return element("div", { class: "legend", role: "group", "aria-label": "Series" }, ...buttons, ...dashed.map(([name, dash]) => element("span", {}, swatch({ hue: "ink", dash, symbol: null }), name)));
}

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = { circle: "M10 5a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", rect: "M10.5 1.5h7v7h-7z", triangle: "M14 .5l4.5 8.5h-9z", diamond: "M14 0l5 5l-5 5l-5 -5z" } as const;

/** The line and symbol of a series; its colour follows the style sheet. */
function swatch(style: Omit<Style, "symbol"> & { readonly symbol: Style["symbol"] | null }): SVGElement {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 28 10", width: "28", height: "10", "aria-hidden": "true", style: `color:light-dark(${HUES[style.hue].light},${HUES[style.hue].dark})` })) svg.setAttribute(name, value);
  const line = document.createElementNS(SVG, "path");
  for (const [name, value] of Object.entries({ d: "M0 5h28", stroke: "currentColor", "stroke-width": "2", "stroke-dasharray": DASH_ARRAY[style.dash] })) line.setAttribute(name, value);
  svg.append(line);
  if (style.symbol === null) return svg;
  const mark = document.createElementNS(SVG, "path");
  mark.setAttribute("d", SHAPES[style.symbol]);
  mark.setAttribute("fill", "currentColor");
  svg.append(mark);
  return svg;
}

function tableOf(table: Table): HTMLElement {
  const head = element("tr", {}, ...table.columns.map((c) => element("th", { scope: "col" }, c)));
  const body = table.rows.map((row) => element("tr", {}, ...row.map((cell, i) => (i === 0 ? element("th", { scope: "row" }, cell) : element("td", {}, cell)))));
  const caption = table.title === null ? [] : [element("caption", {}, table.title)];
  return element("div", { class: "scroll" }, element("table", { class: "plain" }, ...caption, element("thead", {}, head), element("tbody", {}, ...body)));
}

/** The plotted numbers as a table, made when it is opened; long series are in the CSV only. */
function numbersOf(chart: Chart): HTMLElement | null {
  if (chart.kind === "series" || chart.kind === "cdf") return null;
  const details = element("details", { class: "numbers" }, element("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(tableOf(numbers(chart))), { once: true });
  return details;
}

function numbers(chart: Chart): Table {
  const at = (x: number | null | undefined): string => (chart.x.categories === null ? withUnit(x, chart.x.unit) : (chart.x.categories[x ?? -1] ?? "–"));
  if (chart.kind === "scatter") {
    const rows = chart.series.flatMap((s) => s.points.map(([x, y]) => [s.name, withUnit(x, chart.x.unit), withUnit(y, chart.y.unit)]));
    return { kind: "table", title: null, columns: ["", chart.x.name, chart.y.name], rows };
  }
  const places = [...new Set(chart.series.flatMap((s) => s.points.map((p) => p[0])))].sort((a, b) => (a ?? 0) - (b ?? 0));
  const rows = places.map((x) => [at(x), ...chart.series.map((s) => withUnit(s.points.find((p) => p[0] === x)?.[1], chart.y.unit))]);
  return { kind: "table", title: null, columns: [chart.x.name, ...chart.series.map((s) => s.name)], rows };
}
