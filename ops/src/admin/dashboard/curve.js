// @ts-check
/**
 * The last two minutes of a figure as a small curve.
 *
 * @typedef {{ at: number, rate: number | null, rtt: number | null, loss: number | null, buffer: number | null }} Point
 * @typedef {{ points: Point[], switches: { at: number, to: string }[] }} History
 */

export const KEPT_MS = 120_000;
/** Drawing units of a curve. */
const WIDTH = 130;
const HEIGHT = 30;

/**
 * @param {string} name
 * @param {Record<string, string>} attributes
 */
function drawing(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/**
 * Gaps stay gaps.
 * @param {History} history
 * @param {(point: Point) => number | null} figure
 * @param {number} now
 */
export function curve(history, figure, now) {
  const most = Math.max(1e-9, ...history.points.map((point) => figure(point) ?? 0));
  /** @param {number} at */
  const x = (at) => WIDTH * (1 - (now - at) / KEPT_MS);
  const svg = drawing("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `the last two minutes, up to ${most.toPrecision(3)}` });
  /** @type {string[][]} */
  const runs = [[]];
  for (const point of history.points) {
    const value = figure(point);
    if (value === null) runs.push([]);
    else runs.at(-1)?.push(`${x(point.at).toFixed(1)},${(HEIGHT - (HEIGHT - 2) * (value / most)).toFixed(1)}`);
  }
  for (const run of runs) {
    const [first, last] = [run[0], run.at(-1)];
    if (!first || !last) continue;
    svg.append(drawing("path", { class: "area", d: `M${first.split(",")[0]},${HEIGHT} L${run.join(" L")} L${last.split(",")[0]},${HEIGHT} Z` }));
    svg.append(drawing("polyline", { class: "line", points: run.join(" ") }));
  }
  for (const { at, to } of history.switches) {
    const line = drawing("line", { class: "switch", x1: x(at).toFixed(1), x2: x(at).toFixed(1), y1: "0", y2: String(HEIGHT) });
    const title = drawing("title", {});
    title.textContent = `from here on ${to}`;
    line.append(title);
    svg.append(line);
  }
  return svg;
}
