/** The names of a scatter plot's marks, where they find room. */
import type { CustomSeriesOption } from "echarts/charts";
import type { Coordinates, Look } from "./marks.ts";
import { place, type Segment } from "./place.ts";

export interface Labelled {
  readonly text: string;
  /** In the axes' units. */
  readonly x: number;
  readonly y: number;
  readonly radius_px: number;
}

export const LABEL_FONT = { fontSize: 11, fontFamily: "system-ui, sans-serif" } as const;
const HEIGHT_PX = 14;

interface Drawing {
  readonly coordSys: { readonly x: number; readonly y: number; readonly width: number; readonly height: number };
}

/** One item that draws all of them: where one goes depends on the others. */
export function labels(marks: readonly Labelled[], whiskers: readonly (readonly [number, number, number, number])[], look: Look): CustomSeriesOption {
  const renderItem = ({ coordSys }: Drawing, api: Pick<Coordinates, "coord">): unknown => {
    const point = (x: number, y: number): { x: number; y: number } => {
      const [px = 0, py = 0] = api.coord([x, y]);
      return { x: px, y: py };
    };
    const plot = { left: coordSys.x, top: coordSys.y, right: coordSys.x + coordSys.width, bottom: coordSys.y + coordSys.height };
    const lines = whiskers.map(([x1, y1, x2, y2]): Segment => [point(x1, y1), point(x2, y2)]);
    const placed = place(marks.map((m) => ({ ...point(m.x, m.y), radius: m.radius_px, width: look.textWidth_px(m.text) })), HEIGHT_PX, plot, lines);
    const children = placed.flatMap((p, i) => {
      if (p === null) return [];
      const text = { type: "text", style: { ...LABEL_FONT, text: marks[i]?.text, x: p.box.left, y: (p.box.top + p.box.bottom) / 2, verticalAlign: "middle", fill: look.text, stroke: look.back, lineWidth: 2 } };
      if (p.leader === null) return [text];
      const [from, to] = p.leader;
      return [{ type: "line", shape: { x1: from.x, y1: from.y, x2: to.x, y2: to.y }, style: { stroke: look.muted, lineWidth: 1 } }, text];
    });
    return { type: "group", children };
  };
  const [first] = marks;
  // The library's own type of `renderItem` can't be written without its internals.
  return { type: "custom", silent: true, z: 4, tooltip: { show: false }, data: first === undefined ? [] : [[first.x, first.y]], renderItem: renderItem as unknown as NonNullable<CustomSeriesOption["renderItem"]> };
}
