import type { Fact } from "../src/facts.ts";
import { element } from "./dom.ts";

/** From so many letters on a fact takes a whole row. */
const LONG_FACT = 80;

export function factsList(facts: readonly Fact[]): HTMLElement {
  const rows = facts.map((f) => element("div", f.value.length > LONG_FACT ? { class: "long" } : {}, element("dt", {}, f.name), element("dd", {}, f.value)));
  return element("dl", { class: "facts" }, ...rows);
}
