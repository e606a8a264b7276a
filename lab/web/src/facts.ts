/** Facts of a run: what was run, with what, when and where. */
import { figure, fixed, joined } from "./format.ts";

export interface Fact {
  readonly name: string;
  readonly value: string;
}

const UNITS: readonly (readonly [RegExp, string])[] = [
  [/_mbps$/, "Mbit/s"],
  [/_kbps$/, "kbit/s"],
  [/_ms$/, "ms"],
  [/_us$/, "µs"],
  [/_s$/, "s"],
  [/_bytes$/, "bytes"],
  [/_mb$/, "MB"],
  [/_db$/, "dB"],
];

/** A list that is a command line. */
const COMMAND = /(^|\.)command$/;

/** Name and value of every scalar in `value`, of a list of scalars as one; nested names are joined by a full stop. */
export function flatten(value: unknown, prefix = ""): [string, string][] {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value) && value.length === 0) return [];
  if (Array.isArray(value)) return value.every((v) => typeof v !== "object") ? [[prefix, value.join(COMMAND.test(prefix) ? " " : ", ")]] : value.flatMap((v, i) => flatten(v, `${prefix}.${i}`));
  if (typeof value === "object") return Object.entries(value).flatMap(([k, v]) => flatten(v, prefix === "" ? k : `${prefix}.${k}`));
  return [[prefix, String(value)]];
}

/** "link.rate_mbps", "12" -> "link: rate", "12 Mbit/s". The value keeps its digits. */
export const fact = (key: string, value: string): Fact => named(key, value, (n) => (Math.abs(n) >= 10_000 ? fixed(n, 0) : value));

/** The same of what was measured: a fraction has three significant digits. */
export const measurement = (key: string, value: string): Fact => named(key, value, (n) => (Number.isInteger(n) ? fixed(n, 0) : figure(n)));

function named(key: string, value: string, digits: (value: number) => string): Fact {
  const spaced = (name: string): string => name.replaceAll("_", " ").replaceAll(".", ": ");
  if (value === "" || !Number.isFinite(Number(value))) return { name: spaced(key), value };
  const number = Number(value);
  if (/(^|[._])loss(_\w+)?$/.test(key) && number <= 1) return { name: spaced(key), value: joined(fixed(number * 100, 2), "%") };
  const [suffix, unit] = UNITS.find(([ending]) => ending.test(key)) ?? ["", ""];
  return { name: spaced(key.replace(suffix, "")), value: joined(digits(number), unit) };
}
