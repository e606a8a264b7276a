/** Points with their names, and those that none beats joined. */
import type { LineSeriesOption } from "echarts/charts";
import type { Corner, Scatter, Series } from "./chart.ts";
import { front, type Place } from "./front.ts";
import { labels, type Labelled } from "./labels.ts";
import { colour, drawn, paint, shape, whiskers, type AnySeries, type Look } from "./marks.ts";
import { dashPattern } from "./style.ts";

/** Joins the points that no other point beats in both directions. */
export const FRONT = "Pareto front";

const MARK_PX = 12;
const RING_PX = 22;

export function scatter(chart: Scatter, look: Look, visible: readonly Series[]): AnySeries[] {
  const out: AnySeries[] = [];
  const ends = visible.flatMap((s) =>
    s.points.flatMap(([x, y, xl, xh, yl, yh]) => {
      if (x == null || y == null) return [];
      const across = xl != null && xh != null && xl < xh ? [{ name: s.name, end: [xl, y, xh, y] as const }] : [];
      return [...across, ...(yl != null && yh != null && yl < yh ? [{ name: s.name, end: [x, yl, x, yh] as const }] : [])];
    }),
  );
  for (const s of visible) {
    const own = ends.filter((e) => e.name === s.name).map((e) => e.end);
    if (own.length > 0) out.push(whiskers(s.name, own, colour(look, s.name)));
    const { symbol, fill } = look.styles.of(s.name);
    // An algorithm's marks of two sets may lie on each other: the hollow mark is visible around the full mark.
    out.push({
      type: "scatter",
      name: s.name,
      z: fill === "full" ? 3 : 2,
      symbol: shape(symbol),
      symbolSize: fill === "full" ? MARK_PX : MARK_PX + 2,
      itemStyle: { ...paint(look, s.name, 1), ...(fill === "hollow" ? { color: "transparent" } : {}) },
      data: drawn(s.points),
    });
  }
  const places = visible.flatMap((s) => s.points.flatMap(([x, y]) => (x != null && y != null ? [{ name: s.name, x, y }] : [])));
  const best = chart.front && chart.ideal !== null ? fronts(places, chart.ideal, look) : [];
  const ringed = new Set(best.flatMap((f) => f.places));
  const marked = places.map((p): Labelled => ({ text: look.styles.parts(p.name).owner, x: p.x, y: p.y, radius_px: (ringed.has(p) ? RING_PX : MARK_PX) / 2 }));
  const single = visible.every((s) => s.points.length === 1);
  return [...out, ...best.map((f) => f.drawn), ...(single && marked.length > 0 ? [labels(marked, ends.map((e) => e.end), look)] : [])];
}

/** The Pareto front of each set of results, in its dash. */
function fronts(places: readonly Place[], ideal: Corner, look: Look): { readonly places: readonly Place[]; readonly drawn: LineSeriesOption }[] {
  const sets = [...new Set(places.map((p) => look.styles.parts(p.name).set))];
  return sets.flatMap((set) => {
    const all = places.filter((p) => look.styles.parts(p.name).set === set);
    const [first] = all;
    if (first === undefined || all.length < 2) return [];
    const best = front(all, ideal);
    const dash = set === null ? "solid" : look.styles.of(first.name).dash;
    const drawn: LineSeriesOption = {
      type: "line",
      name: FRONT,
      silent: true,
      z: 0,
      symbol: "circle",
      symbolSize: RING_PX,
      itemStyle: { color: "transparent", borderColor: look.muted, borderWidth: 1.5 },
      lineStyle: { color: look.muted, width: 5, opacity: 0.4, type: dashPattern(dash, 2.5) },
      tooltip: { show: false },
      data: best.map((p) => [p.x, p.y]),
    };
    return [{ places: best, drawn }];
  });
}
