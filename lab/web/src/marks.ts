/** What lines, bars and points are drawn with. */
import type { BarSeriesOption, CustomSeriesOption, LineSeriesOption, ScatterSeriesOption } from "echarts/charts";
import type { Series } from "./chart.ts";
import { HUES, SHAPES, type Mode, type Styles, type Symbol } from "./style.ts";

export type AnySeries = BarSeriesOption | CustomSeriesOption | LineSeriesOption | ScatterSeriesOption;

export interface Look {
  readonly mode: Mode;
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly back: string;
  /** Of the chart's place. */
  readonly width_px: number;
  /** Of a label beside a mark. */
  readonly textWidth_px: (text: string) => number;
  readonly styles: Styles;
}

export const colour = (look: Look, name: string): string => HUES[look.styles.of(name).hue][look.mode];

export const shape = (symbol: Symbol): string => `path://${SHAPES[symbol]}`;

interface Paint {
  readonly color: string;
  readonly borderColor: string;
  readonly borderWidth: number;
  readonly opacity: number;
}

/** Of a mark or a bar. What is full has an edge only where marks lie on each other. */
export function paint(look: Look, name: string, edge_px = 0): Paint {
  const stroke = colour(look, name);
  const { fill } = look.styles.of(name);
  if (fill === "full") return { color: stroke, borderColor: edge_px > 0 ? look.back : stroke, borderWidth: edge_px, opacity: 1 };
  return { color: fill === "hollow" ? look.back : `${stroke}66`, borderColor: stroke, borderWidth: 2, opacity: 1 };
}

export const drawn = (points: Series["points"]): (number | null)[][] => points.map((p) => [...p]);

export interface Coordinates {
  value(dimension: number): unknown;
  coord(point: readonly number[]): number[];
  size(of: number[]): number[];
}

/** A thin line from [x, low] to [x, high], or from [low, y] to [high, y]; `shift` moves it across, given the width of a category. */
export function whiskers(name: string, ends: readonly (readonly [number, number, number, number])[], stroke: string, shift: (category_px: number) => number = () => 0): CustomSeriesOption {
  const renderItem = (_: unknown, api: Coordinates): unknown => {
    const [x1 = 0, y1] = api.coord([Number(api.value(0)), Number(api.value(1))]);
    const [x2 = 0, y2] = api.coord([Number(api.value(2)), Number(api.value(3))]);
    const by = shift(api.size([1, 0])[0] ?? 0);
    return { type: "line", shape: { x1: x1 + by, y1, x2: x2 + by, y2 }, style: { stroke, lineWidth: 1.25, opacity: 0.75 } };
  };
  // The library's own type of `renderItem` can't be written without its internals.
  return { type: "custom", name, silent: true, z: 1, clip: true, tooltip: { show: false }, encode: { x: [0, 2], y: [1, 3] }, data: ends.map((e) => [...e]), renderItem: renderItem as unknown as NonNullable<CustomSeriesOption["renderItem"]> };
}
