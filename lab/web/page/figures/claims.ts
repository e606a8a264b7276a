/** The claims of a figure and what was measured. */
import type { Claim, Verdict } from "../../src/figures/document.ts";
import { figure, withUnit } from "../../src/format.ts";
import { element } from "../dom.ts";

const CLASS: Readonly<Record<Verdict, string>> = { holds: "holds", fails: "fails", undecided: "undecided", "not measured": "none" };
const MARK: Readonly<Record<Verdict, string>> = { holds: "✓", fails: "✗", undecided: "?", "not measured": "–" };

export function badge(verdict: Verdict, text: string = verdict): HTMLElement {
  return element("span", { class: `badge ${CLASS[verdict]}` }, `${MARK[verdict]} ${text}`);
}

/** A time that never came is null in the results, and counts as infinitely long. */
function value(claim: Claim, of: number | null): string {
  return of === null && claim.verdict !== "not measured" ? "never" : withUnit(of, claim.unit);
}

function measured(claim: Claim): HTMLElement {
  const cell = element("td", { "data-head": "Measured" }, element("span", { class: "value" }, value(claim, claim.measured)));
  if (claim.spread !== null && claim.spread[0] !== claim.spread[1]) cell.append(" ", element("small", {}, `${figure(claim.spread[0])} to ${figure(claim.spread[1])}`));
  if (claim.at !== "") cell.append(element("small", { class: "at" }, claim.at));
  return cell;
}

/** Every comparison behind one claim, when there were several. */
function comparisons(claim: Claim): HTMLElement[] {
  if (claim.points.length < 2) return [];
  const rows = claim.points.map((p) =>
    element("li", {}, `${p.at}: ${value(claim, p.measured)}`, p.interval === undefined || p.interval[0] === p.interval[1] ? "" : ` [${figure(p.interval[0])} to ${figure(p.interval[1])}]`, p.reference === null ? "" : ` (${figure(p.value)} to ${figure(p.reference)})`, p.holds ? "" : " ✗"),
  );
  return [element("details", {}, element("summary", {}, `${claim.points.length} comparisons`), element("ul", {}, ...rows))];
}

export function claimsTable(claims: readonly Claim[]): HTMLElement {
  const heads = ["Claim", "Wanted", "Measured", ""].map((h) => element("th", { scope: "col" }, h));
  const rows = claims.map((claim) => {
    const text = element("td", { class: "text" }, claim.text);
    if (claim.source !== null) text.append(element("small", {}, claim.source));
    if (claim.reason !== null) text.append(element("p", { class: "reason" }, element("b", {}, claim.verdict === "fails" ? "Why:" : "Note:"), ` ${claim.reason}`));
    text.append(...comparisons(claim));
    const wanted = element("td", { "data-head": "Wanted" }, element("code", {}, claim.metric), ` ${claim.bound}`);
    return element("tr", { class: CLASS[claim.verdict] }, text, wanted, measured(claim), element("td", { class: "verdict" }, badge(claim.verdict)));
  });
  return element("table", { class: "claims" }, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
}
