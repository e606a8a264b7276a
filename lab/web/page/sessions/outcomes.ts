/** What each viewer got, in figures. */
import { fixed, joined } from "../../src/format.ts";
import type { Figures, Variant } from "../../src/sessions/document.ts";
import type { Styles } from "../../src/style.ts";
import { element } from "../dom.ts";
import { mark } from "../legend.ts";

const COLUMNS: readonly { readonly head: string; readonly text: (f: Figures) => string }[] = [
  { head: "Start-up", text: (f) => joined(fixed(f.startup_s, 2), "s") },
  { head: "Stalls", text: (f) => fixed(f.stalls, 0) },
  { head: "Rebuffer ratio", text: (f) => joined(fixed(f.rebuffer_ratio === null ? null : f.rebuffer_ratio * 100, 2), "%") },
  { head: "Mean bitrate", text: (f) => joined(fixed(f.bitrate_kbps, 0), "kbit/s") },
  { head: "Switches", text: (f) => fixed(f.switches, 0) },
  { head: "QoE", text: (f) => joined(fixed(f.qoe_lin, 2), "Mbit/s") },
  { head: "PSNR", text: (f) => joined(fixed(f.psnr_db, 2), "dB") },
  { head: "Dropped frames", text: (f) => fixed(f.dropped_frames, 0) },
];

export function outcomes(variants: readonly Variant[], styles: Styles): HTMLElement {
  const heads = COLUMNS.map((c) => element("th", { scope: "col" }, c.head));
  const rows = variants.map((v) => {
    const cells = COLUMNS.map((c) => element("td", { "data-head": c.head }, c.text(v.figures)));
    return element("tr", {}, element("th", { scope: "row" }, mark(v.label, styles), v.label), ...cells);
  });
  return element("table", { class: "outcomes" }, element("thead", {}, element("tr", {}, element("td"), ...heads)), element("tbody", {}, ...rows));
}
