/** The page: what was run, which claims hold, and a section for each figure. */
import "../style.css";
import "./style.css";
import { grouped, seriesNames } from "../../src/chart.ts";
import { count, viewers, type Figure, type Report, type Verdict } from "../../src/figures/document.ts";
import { styles, type Styles } from "../../src/style.ts";
import { pageData } from "../data.ts";
import { element } from "../dom.ts";
import { factsList } from "../facts.ts";
import { follow, plots, type Plots } from "../plot.ts";
import { badge, claimsTable } from "./claims.ts";
import { gallery } from "./gallery.ts";

const VERDICTS = ["holds", "fails", "undecided", "not measured"] as const satisfies readonly Verdict[];

function header(report: Report): HTMLElement {
  const warnings = report.warnings.map((w) => element("p", { class: "warning" }, w));
  return element("header", {}, element("h1", {}, report.title), ...warnings, factsList(report.facts));
}

/** Nothing where nothing is claimed. */
function tally(figures: readonly Figure[]): readonly HTMLElement[] {
  const counts = count(figures.flatMap((f) => f.claims));
  const total = VERDICTS.reduce((sum, v) => sum + counts[v], 0);
  const parts = VERDICTS.filter((v) => counts[v] > 0).map((v) => badge(v, `${counts[v]} ${v === "holds" && counts[v] !== 1 ? "hold" : v === "fails" && counts[v] !== 1 ? "fail" : v}`));
  return total === 0 ? [] : [element("p", { class: "tally" }, `Of ${total} ${total === 1 ? "claim" : "claims"} `, ...parts.flatMap((p) => [p, " "]))];
}

/** Claims and contents; nothing for a single scenario without claims, whose section follows at once. */
function overview(figures: readonly Figure[]): readonly HTMLElement[] {
  const counted = tally(figures);
  if (counted.length === 0 && figures.length < 2) return [];
  const heading = element("h2", {}, counted.length === 0 ? "Scenarios" : "Claims");
  return [element("section", { class: "summary" }, heading, ...counted, ...failures(figures), contents(figures))];
}

function contents(figures: readonly Figure[]): HTMLElement {
  const rows = figures.map((f) => {
    const counts = count(f.claims);
    const parts = VERDICTS.filter((v) => counts[v] > 0).map((v) => badge(v, String(counts[v])));
    return element("li", {}, element("a", { href: `#${f.id}` }, f.title), element("span", { class: "counts" }, ...parts));
  });
  return element("nav", { "aria-label": "Figures" }, element("ol", {}, ...rows));
}

/** Every claim that fails, with its reason, in one place. */
function failures(figures: readonly Figure[]): readonly HTMLElement[] {
  const rows = figures.flatMap((f) =>
    f.claims
      .filter((c) => c.verdict === "fails")
      .map((c) => element("li", {}, element("a", { href: `#${f.id}` }, f.title), `: ${c.text}. `, element("span", { class: "reason" }, c.reason ?? "No reason has been found yet."))),
  );
  return rows.length === 0 ? [] : [element("details", { class: "failures" }, element("summary", {}, "Failed claims, with reasons"), element("ul", {}, ...rows))];
}

function section(figure: Figure, draw: Plots, given: Styles): HTMLElement {
  const made = element("section", { id: figure.id, class: "figure" }, element("h2", {}, figure.title));
  const source = [figure.source, figure.id].filter((x) => x !== null).join(" · ");
  made.append(element("p", { class: "source" }, source));
  if (figure.about !== null) made.append(element("p", {}, figure.about));
  for (const panels of grouped(figure.plots)) made.append(draw.add(panels));
  if (figure.plots.length === 0) made.append(element("p", { class: "warning" }, "Nothing was measured that could be drawn."));
  if (figure.gallery !== null) made.append(gallery(figure.gallery, given));
  if (figure.notes.length > 0) made.append(element("ul", { class: "notes" }, ...figure.notes.map((n) => element("li", {}, n))));
  if (figure.claims.length > 0) made.append(claimsTable(figure.claims));
  if (figure.csv !== null) made.append(element("p", { class: "source" }, element("a", { href: figure.csv }, "Numbers as CSV")));
  return made;
}

function start(): void {
  const report = pageData<Report>();
  if (report === null) {
    document.body.append("This page has no figures: `millrace-lab report` puts them in.");
    return;
  }
  document.title = report.title;
  const given = styles(report.figures.flatMap((f) => [...f.plots.flatMap(seriesNames), ...viewers(f.gallery)]), report.sets);
  const draw = plots({ styles: given, sets: report.sets, hasSharedPointer: false });
  document.body.append(header(report), element("main", {}, ...overview(report.figures), ...report.figures.map((f) => section(f, draw, given))));
  follow(draw);
  // The fragment was looked for before there was anything.
  if (location.hash !== "") document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

start();
