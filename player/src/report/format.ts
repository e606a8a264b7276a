/** Text of figures and names. */

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

export const escape = (text: string): string => text.replace(/[&<>"']/g, (c) => ESCAPES[c] ?? c);

/** A figure with its digits, or a dash without a value. */
export const figure = (x: number | null | undefined, digits: number): string =>
  x == null ? "–" : x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

const UNITS: readonly (readonly [RegExp, string])[] = [
  [/_mbps$/, "Mbit/s"],
  [/_kbps$/, "kbit/s"],
  [/_ms$/, "ms"],
  [/_us$/, "µs"],
  [/_s$/, "s"],
  [/_bytes$/, "bytes"],
  [/_db$/, "dB"],
];

/** "link.rate_mbps", "12" -> "link: rate", "12 Mbit/s". */
export function fact(key: string, value: string): [string, string] {
  const spaced = (name: string): string => name.replaceAll("_", " ").replaceAll(".", ": ");
  const numeric = value !== "" && Number.isFinite(Number(value));
  if (numeric && /(^|[._])loss(_\w+)?$/.test(key) && Number(value) <= 1) return [spaced(key), `${figure(Number(value) * 100, 2)} %`];
  const unit = numeric ? UNITS.find(([suffix]) => suffix.test(key)) : undefined;
  const text = numeric && Math.abs(Number(value)) >= 10_000 ? figure(Number(value), 0) : value;
  return unit ? [spaced(key.replace(unit[0], "")), `${text} ${unit[1]}`] : [spaced(key), text];
}
