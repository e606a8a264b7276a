/** What charts take from the page: its colours, the width of a place, the width of texts. */
import { LABEL_FONT } from "../src/labels.ts";
import type { Look } from "../src/marks.ts";
import type { Styles } from "../src/style.ts";

export const DARK = "(prefers-color-scheme: dark)";

/** Class of the document while it is laid out for paper: see style.css. */
export const PRINTING = "printing";

export function look(width_px: number, styles: Styles): Look {
  const css = getComputedStyle(document.documentElement);
  const of = (name: string): string => css.getPropertyValue(name).trim();
  const isDark = matchMedia(DARK).matches && !document.documentElement.classList.contains(PRINTING);
  return { mode: isDark ? "dark" : "light", text: of("--text"), muted: of("--muted"), line: of("--line"), back: of("--back"), width_px, textWidth_px, styles };
}

let context: CanvasRenderingContext2D | null = null;

/** Measures texts as labels of marks are set. */
function textWidth_px(text: string): number {
  context ??= document.createElement("canvas").getContext("2d");
  if (context === null) throw new Error("texts can't be measured: no canvas");
  context.font = `${LABEL_FONT.fontSize}px ${LABEL_FONT.fontFamily}`;
  return Math.ceil(context.measureText(text).width);
}
