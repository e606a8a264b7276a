/** A strip of what was on the screen for each variant, second by second. */
import { share, type Block, type Strips } from "../../src/sessions/strips.ts";
import { element } from "../dom.ts";

const TICKS = 6;

export function stripRows({ rows, ladder_kbps, length_s }: Strips): HTMLElement[] {
  const percent = (s: number): string => `${((s / length_s) * 100).toFixed(3)}%`;
  const draw = ({ kind, from_s, to_s, share, text }: Block): HTMLElement =>
    element("i", { class: kind, style: `left:${percent(from_s)};width:${percent(to_s - from_s)};--share:${share}`, title: text });
  const drawn = rows.map(({ label, blocks }) => {
    const strip = blocks === null ? [element("p", {}, "not measured")] : blocks.map(draw);
    return element("div", { class: "strip-row" }, element("span", {}, label), element("div", { class: "strip" }, ...strip));
  });
  const ticks = Array.from({ length: TICKS + 1 }, (_, i) => element("span", {}, `${Math.round((i * length_s) / TICKS)} s`));
  const axis = element("div", { class: "strip-row axis" }, element("span"), element("div", { class: "ticks" }, ...ticks));
  return [element("div", { class: "strips" }, ...drawn, axis), key(ladder_kbps)];
}

function key(ladder_kbps: readonly number[]): HTMLElement {
  const rungs = ladder_kbps.map((kbps, i) => element("span", {}, element("i", { class: "rung", style: `--share:${share(ladder_kbps, i)}` }), String(kbps)));
  const others = [["stall", "stall"], ["startup", "start-up"]].map(([kind = "", text = ""]) => element("span", {}, element("i", { class: kind }), text));
  return element("p", { class: "key" }, "kbit/s shown: ", ...rungs, ...others);
}
