/** The legend of a plot: its buttons show and hide series in all panels. */
import { seriesNames, type Chart } from "../src/chart.ts";
import { referenceDash } from "../src/option.ts";
import { FRONT } from "../src/scatter.ts";
import type { Named } from "../src/sets.ts";
import { DASH_ARRAY, HUES, SHAPES, type Style, type Styles } from "../src/style.ts";
import { element } from "./dom.ts";

/** What a swatch shows of a style. */
type Shown = Pick<Style, "hue"> & Partial<Style>;

/**
 * Algorithms, then the sets of results that they are of, then the lines that are no series; `null` where
 * one series stands alone.
 */
export function legend(charts: readonly Chart[], styles: Styles, sets: readonly string[], hide: (names: readonly string[]) => void): HTMLElement | null {
  const names = seriesNames(charts);
  const parts = names.map(styles.parts);
  const owners = [...new Set(parts.map((p) => p.owner))];
  const shown = sets.filter((set) => parts.some((p) => p.set === set));
  const dashed = [...new Map(charts.flatMap((c) => c.references.map((r, i) => [r.name, referenceDash(i)] as const)))];
  const hasFront = charts.some((c) => c.kind === "scatter" && c.front && c.ideal !== null);
  if (names.length < 2 && shown.length === 0 && dashed.length === 0) return null;

  const off = { owners: new Set<string>(), sets: new Set<string>() };
  const isOff = (of: Named): boolean => off.owners.has(of.owner) || (of.set !== null && off.sets.has(of.set));
  const button = (name: string, of: Set<string>, look: Shown): HTMLElement => {
    const made = element("button", { type: "button", "aria-pressed": "true", title: "Show or hide" }, swatch(look), name);
    made.addEventListener("click", () => {
      if (!of.delete(name)) of.add(name);
      made.setAttribute("aria-pressed", String(!of.has(name)));
      hide(names.filter((name) => isOff(styles.parts(name))));
    });
    return made;
  };
  const ofOwner = (owner: string): Shown => {
    const style = styles.of(owner);
    return shown.length === 0 ? style : { hue: style.hue, symbol: style.symbol, fill: style.fill };
  };
  const ofSet = (set: string): Shown => ({ hue: "ink", symbol: "circle", ...styles.ofSet(sets.indexOf(set)) });

  const series = element("div", { role: "group", "aria-label": "Series" }, ...owners.map((owner) => button(owner, off.owners, ofOwner(owner))));
  const results = element("div", { role: "group", "aria-label": "Results" }, ...shown.map((set) => button(set, off.sets, ofSet(set))));
  const others = element("div", {}, ...dashed.map(([name, dash]) => element("span", {}, swatch({ hue: "ink", dash }), name)));
  if (hasFront) others.append(element("span", {}, element("i", { class: "front" }), FRONT));
  return element("div", { class: "legend" }, ...[series, results, others].filter((group) => group.childElementCount > 0));
}

const SVG = "http://www.w3.org/2000/svg";

/** The mark of an algorithm. */
export const mark = (name: string, styles: Styles): SVGElement => {
  const { hue, symbol, fill } = styles.of(name);
  return swatch({ hue, symbol, fill });
};

/** A line, a mark or both; the colour follows the style sheet. */
function swatch({ hue, dash, symbol, fill }: Shown): SVGElement {
  const width = dash === undefined ? 12 : 28;
  const svg = drawn("svg", { viewBox: `0 0 ${width} 12`, width: String(width), height: "12", "aria-hidden": "true", style: `color:light-dark(${HUES[hue].light},${HUES[hue].dark})` });
  if (dash !== undefined) svg.append(drawn("path", { d: `M0 6h${width}`, stroke: "currentColor", "stroke-width": "2", "stroke-dasharray": DASH_ARRAY[dash] }));
  if (symbol === undefined) return svg;
  const place = `translate(${width / 2 - 5} 1)`;
  // What a fill lets through is the button, not the line.
  if (fill !== "full") svg.append(drawn("path", { d: SHAPES[symbol], transform: place, fill: "var(--panel)" }));
  svg.append(drawn("path", { d: SHAPES[symbol], transform: place, fill: fill === "hollow" ? "none" : "currentColor", "fill-opacity": fill === "pale" ? "0.4" : "1", ...(fill === "full" ? {} : { stroke: "currentColor", "stroke-width": "1.75" }) }));
  return svg;
}

function drawn(tag: "svg" | "path", attributes: Readonly<Record<string, string>>): SVGElement {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
