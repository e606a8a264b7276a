/** The page of sessions: what each viewer got, what was on the screen second by second, and what the link did. */
import "../style.css";
import "./style.css";
import { sessionCharts } from "../../src/sessions/charts.ts";
import { problems, setUp, summary, type Sessions, type Variant } from "../../src/sessions/document.ts";
import { strips } from "../../src/sessions/strips.ts";
import { styles } from "../../src/style.ts";
import { pageData } from "../data.ts";
import { element } from "../dom.ts";
import { factsList } from "../facts.ts";
import { follow, plots } from "../plot.ts";
import { tableOf } from "../table.ts";
import { outcomes } from "./outcomes.ts";
import { stripRows } from "./strips.ts";

const CREDIT = "Video: Big Buck Bunny © 2008 Blender Foundation, www.bigbuckbunny.org, licensed under Creative Commons Attribution 3.0.";

function section(heading: string, ...content: readonly Node[]): HTMLElement {
  return element("section", {}, element("h2", {}, heading), ...content);
}

function noted(variants: readonly Variant[]): HTMLElement[] {
  const list = problems(variants);
  return list.length === 0 ? [] : [section("Noted", element("ul", { class: "warning" }, ...list.map((p) => element("li", {}, p))))];
}

/** A row for each instant, a column for each variant. */
function screenshots(variants: readonly Variant[]): HTMLElement[] {
  const rows = Math.max(0, ...variants.map((v) => v.screenshots.length));
  if (rows === 0) return [];
  const cells = Array.from({ length: rows }, (_, row) =>
    variants.map((v) => {
      const shot = v.screenshots[row];
      if (shot === undefined) return element("figure", { class: "none" });
      const at = `${shot.t.toFixed(0)} s`;
      return element("figure", {}, element("img", { src: shot.dataUrl, alt: `${v.label} after ${at}`, width: "1920", height: "1080" }), element("figcaption", {}, `${v.label}, ${at}`));
    }),
  );
  return [section("Screenshots", element("div", { class: "shots", style: `--columns:${variants.length}` }, ...cells.flat()))];
}

function start(): void {
  const sessions = pageData<Sessions>();
  if (sessions === null) {
    document.body.append("This page has no sessions: `npm run report` puts them in.");
    return;
  }
  document.title = sessions.title;
  const { variants } = sessions;
  const given = styles(variants.map((v) => v.label), []);
  const draw = plots({ styles: given, sets: [], hasSharedPointer: true });
  const charts = sessionCharts(variants).map(({ heading, chart }) => section(heading, draw.add([chart])));
  document.body.append(
    element("header", {}, element("h1", {}, sessions.title), element("p", {}, setUp(variants))),
    element(
      "main",
      {},
      section("What the viewer got", outcomes(variants, given), element("p", {}, summary(variants))),
      ...noted(variants),
      section("What was on the screen", ...stripRows(strips(variants))),
      ...charts,
      ...screenshots(variants),
      ...(sessions.facts.length === 0 ? [] : [section("Link and run", factsList(sessions.facts))]),
      ...(sessions.link === null ? [] : [section("What the link did", tableOf(sessions.link))]),
    ),
    element("footer", {}, element("p", {}, CREDIT)),
  );
  follow(draw);
}

start();
