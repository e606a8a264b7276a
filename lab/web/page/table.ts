/** A table that scrolls where it is too wide. */
import type { Table } from "../src/chart.ts";
import { element } from "./dom.ts";

export function tableOf(table: Table): HTMLElement {
  const head = element("tr", {}, ...table.columns.map((c) => element("th", { scope: "col" }, c)));
  const body = table.rows.map((row) => element("tr", {}, ...row.map((cell, i) => (i === 0 ? element("th", { scope: "row" }, cell) : element("td", {}, cell)))));
  // Beside the part that scrolls, where it would be cut off.
  const caption = table.title === null ? [] : [element("figcaption", {}, table.title)];
  const scroll = element("div", { class: "scroll" }, element("table", { class: "plain" }, element("thead", {}, head), element("tbody", {}, ...body)));
  return element("figure", { class: "table" }, ...caption, scroll);
}
