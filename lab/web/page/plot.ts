/** The panels of one plot, with a legend that serves all of them. */
import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { GridComponent, TooltipComponent } from "echarts/components";
import { connect, init, use, type ECharts } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import type { Chart, Corner, Panel, Table } from "../src/chart.ts";
import { withUnit } from "../src/format.ts";
import { description, option } from "../src/option.ts";
import type { Styles } from "../src/style.ts";
import { element } from "./dom.ts";
import { legend } from "./legend.ts";
import { DARK, look, PRINTING } from "./look.ts";
import { tableOf } from "./table.ts";

use([BarChart, CustomChart, LineChart, ScatterChart, GridComponent, TooltipComponent, SVGRenderer]);

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
  /** The same, with what has not been seen yet. */
  readonly drawAll: () => void;
}

export interface PlotsOptions {
  readonly styles: Styles;
  /** The labels of results side by side. */
  readonly sets: readonly string[];
  /** The pointer over one chart shows the values of all charts at that place. */
  readonly hasSharedPointer: boolean;
}

const GROUP = "page";

export function plots({ styles, sets, hasSharedPointer }: PlotsOptions): Plots {
  const all: (Drawn & { readonly hidden: Set<string> })[] = [];
  const open = (place: HTMLElement): ECharts => {
    const instance = init(place, null, { renderer: "svg" });
    if (hasSharedPointer) instance.group = GROUP;
    return instance;
  };
  if (hasSharedPointer) connect(GROUP);
  const draw = (d: (typeof all)[number]): void => {
    d.instance ??= open(d.place);
    d.instance.setOption(option(d.chart, d.hidden, look(d.place.clientWidth, styles)), { notMerge: true });
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
      const caption = element("figcaption", {}, panel.title ?? "");
      if (panel.kind === "scatter" && panel.ideal !== null) caption.append(" ", element("span", { class: "ideal" }, `${ARROW[panel.ideal]} better`));
      if (caption.textContent !== "") frame.append(caption);
      frame.append(place);
      const numbers = numbersOf(panel);
      if (numbers !== null) frame.append(numbers);
      return frame;
    });
    const hide = (names: readonly string[]): void => {
      hidden.clear();
      for (const name of names) hidden.add(name);
      for (const d of here) if (d.instance !== null) draw(d);
    };
    const size = panels.length === 1 ? "one" : panels.length === 4 && panels.every((p) => p.kind !== "series") ? "few four" : panels.length <= 6 && panels.every((p) => p.kind !== "series") ? "few" : "many";
    const key = legend(here.map((d) => d.chart), styles, sets, hide);
    return element("div", { class: `plot ${size}` }, ...(key === null ? [] : [key]), element("div", { class: "panels" }, ...cells));
  };

  return {
    add,
    redraw: () => all.forEach((d) => d.instance !== null && (d.instance.resize(), draw(d))),
    drawAll: () => all.forEach((d) => (d.instance?.resize(), draw(d))),
  };
}

/** Draws again after a change of colours or width; everything, at the width of the paper, before printing. */
export function follow(page: Plots): void {
  matchMedia(DARK).addEventListener("change", page.redraw);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add(PRINTING);
    page.drawAll();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove(PRINTING);
    page.redraw();
  });
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    page.redraw();
  }).observe(document.body);
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
