/** Numbers as people read them. */

const NARROW_SPACE = "\u202f";
const UNITS_BY_THOUSAND: Readonly<Record<string, readonly string[]>> = { bytes: ["B", "kB", "MB", "GB"] };

/** Three significant digits; four and more before the point stay whole. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && size < 0.001) return value.toExponential(1).replace("e", "·10^");
  const digits = size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits }).replace("-", "−");
}

/** With so many digits after the point. */
export function fixed(value: number | null | undefined, digits: number): string {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
}

/** A figure's text and its unit, never on two lines; a dash has no unit. */
export const joined = (text: string, unit: string): string => (unit === "" || text === "–" ? text : `${text}${NARROW_SPACE}${unit}`);

/** With its unit: "1.5 kB", "3 %", "98.1 Mbit/s". */
export function withUnit(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return "–";
  const steps = UNITS_BY_THOUSAND[unit];
  if (steps === undefined) return joined(figure(value), unit);
  let step = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1000 && step < steps.length - 1) {
    scaled /= 1000;
    step++;
  }
  return joined(figure(scaled), steps[step] ?? unit);
}

/** A tick of an axis: the unit stands in the axis' name, unless it changes along the axis. */
export function tick(value: number, unit: string): string {
  if (unit in UNITS_BY_THOUSAND) return withUnit(value, unit);
  return value.toLocaleString("en", { maximumSignificantDigits: 6 }).replace("-", "−");
}

/** "Goodput, Mbit/s". */
export function axisName(name: string, unit: string): string {
  return unit === "" || unit in UNITS_BY_THOUSAND ? name : `${name}, ${unit}`;
}
