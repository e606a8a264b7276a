import { describe, expect, it } from "vitest";
import { grouped, type Chart, type Panel } from "../src/chart.ts";
import { fact, flatten, measurement } from "../src/facts.ts";
import { axisName, figure, fixed, joined, tick, withUnit } from "../src/format.ts";
import { front } from "../src/front.ts";
import type { Look } from "../src/marks.ts";
import { description, option, tooltip } from "../src/option.ts";
import { FRONT } from "../src/scatter.ts";
import { parted } from "../src/sets.ts";
import { HUES, styles, type Styles } from "../src/style.ts";

const AXIS = { name: "Loss", unit: "%", log: false, range: null, categories: null };
const CHART: Chart = {
  kind: "lines",
  title: null,
  x: AXIS,
  y: { ...AXIS, name: "Goodput", unit: "Mbit/s" },
  series: [
    { name: "cubic", points: [[0, 90, 80, 95], [1, 4, 4, 4], [2, null]] },
    { name: "<b>", points: [[0, 1, 1, 1]] },
  ],
  references: [{ name: "goal", points: [[0, 90], [2, 90]] }],
};
const LOOK: Look = { mode: "light", text: "#000", muted: "#666", line: "#ddd", back: "#fff", width_px: 800, textWidth_px: (text) => text.length * 6, styles: styles(["cubic", "<b>"], []) };

describe("numbers", () => {
  it("are short and have their unit", () => {
    expect([figure(98.123), figure(1234.5), figure(0.0123), figure(0), figure(null), figure(-2)]).toEqual(["98.1", "1,235", "0.012", "0", "–", "−2"]);
    expect([withUnit(1500, "bytes"), withUnit(3, "%"), withUnit(2.5, ""), withUnit(undefined, "ms")]).toEqual(["1.5\u202fkB", "3\u202f%", "2.5", "–"]);
    expect(axisName("Buffer", "bytes")).toBe("Buffer");
    expect(axisName("Loss", "%")).toBe("Loss, %");
    expect(tick(75_000, "bytes")).toBe("75\u202fkB");
  });

  it("have as many digits as asked for, and no unit without a value", () => {
    expect([fixed(1234.5, 0), fixed(1, 2), fixed(-0.5, 1), fixed(null, 1)]).toEqual(["1,235", "1.00", "−0.5", "–"]);
    expect([joined("12", "ms"), joined("–", "ms"), joined("12", "")]).toEqual(["12\u202fms", "–", "12"]);
  });
});

describe("facts", () => {
  it("are the scalars of nested values, with units", () => {
    expect(flatten({ link: { rate_mbps: 12, none: null, list: [1, 2] } })).toEqual([["link.rate_mbps", "12"], ["link.list", "1, 2"]]);
    expect(flatten({ command: ["lab", "demo"], discarded: [] })).toEqual([["command", "lab demo"]]);
    expect(fact("link.rate_mbps", "12")).toEqual({ name: "link: rate", value: "12\u202fMbit/s" });
    expect(fact("loss_reverse", "0.005")).toEqual({ name: "loss reverse", value: "0.50\u202f%" });
    expect(fact("kernel", "6.10")).toEqual({ name: "kernel", value: "6.10" });
    expect(["2.4999", "4777", "15000"].map((value) => fact("wait_ms", value).value)).toEqual(["2.4999\u202fms", "4777\u202fms", "15,000\u202fms"]);
    expect(["2.4999", "4777", "SCHED_FIFO"].map((value) => measurement("wait_ms", value).value)).toEqual(["2.5\u202fms", "4,777\u202fms", "SCHED_FIFO"]);
  });
});

describe("styles", () => {
  const alone = (...names: string[]): Styles => styles(names, []);

  it("are the same for an algorithm whatever else there is", () => {
    expect(alone("x", "y", "cubic").of("cubic")).toEqual(alone("cubic").of("cubic"));
    const { of } = alone("kernel:cubic", "cubic");
    expect(of("kernel:cubic").hue).toBe(of("cubic").hue);
    expect([of("kernel:cubic").dash, of("kernel:cubic").symbol]).not.toEqual([of("cubic").dash, of("cubic").symbol]);
  });

  it("number flows in the same way in every report", () => {
    expect(alone("cubic", "Flow 1", "Flow 2: bbr").of("Flow 2: bbr")).toEqual(alone("Flow 2: bbr").of("Flow 2: bbr"));
    const flows = Array.from({ length: 30 }, (_, i) => `Flow ${i + 1}`);
    expect(new Set(flows.map((n) => JSON.stringify(alone(...flows).of(n)))).size).toBe(30);
  });

  it("give unknown names free styles, and differ for 40 names without their dash", () => {
    const names = ["cubic", "bbr", ...Array.from({ length: 38 }, (_, i) => `own ${i}`)];
    const { of } = alone(...names);
    const hues = names.slice(2, 12).map((n) => of(n).hue);
    expect(new Set([...hues, of("cubic").hue, of("bbr").hue]).size).toBe(12);
    expect(new Set(names.map((n) => `${of(n).hue} ${of(n).symbol}`)).size).toBe(40);
  });

  it("keep colour and symbol of an algorithm in every set of results, which have a dash and a fill each", () => {
    const owners = ["cubic", "bbr", "own"];
    const sets = ["sim", "emu", "a (b)"];
    const { of } = styles(sets.flatMap((set) => owners.map((owner) => `${owner} (${set})`)), sets);
    for (const owner of owners) {
      const all = sets.map((set) => of(`${owner} (${set})`));
      expect(new Set(all.map((s) => `${s.hue} ${s.symbol}`)).size).toBe(1);
      expect(new Set(all.map((s) => s.dash)).size).toBe(3);
      expect(new Set(all.map((s) => s.fill)).size).toBe(3);
    }
    expect(new Set(owners.map((owner) => of(`${owner} (emu)`).hue)).size).toBe(3);
    expect(new Set(owners.map((owner) => of(`${owner} (emu)`).dash)).size).toBe(1);
  });

  it("take what stands in parentheses for a set's label only where there is such a set", () => {
    expect(parted("cubic (sim)", ["sim"])).toEqual({ owner: "cubic", set: "sim" });
    expect(parted("cubic (sim)", ["emu"])).toEqual({ owner: "cubic (sim)", set: null });
    expect(parted("Flow 1: bbr (sim)", ["im", "sim"])).toEqual({ owner: "Flow 1: bbr", set: "sim" });
  });

  it("tell the algorithms of one figure by their symbols alone", () => {
    const names = ["cubic", "bbr", "vivace-latency", "vivace-loss", "iris-min", "proteus-p"];
    expect(new Set(names.map((n) => alone(...names).of(n).symbol)).size).toBe(names.length);
  });
});

/** sRGB to OKLab (Ottosson, 2020), after a simulated loss of one kind of cones (Machado et al., 2009). */
const CONES = {
  normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protanopia: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deuteranopia: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
  tritanopia: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.3039],
} as const;

function linear(hex: string): number[] {
  return [1, 3, 5].map((i) => Number.parseInt(hex.slice(i, i + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
}

const times = (m: readonly number[], v: readonly number[]): number[] => [0, 3, 6].map((row) => (m[row] ?? 0) * (v[0] ?? 0) + (m[row + 1] ?? 0) * (v[1] ?? 0) + (m[row + 2] ?? 0) * (v[2] ?? 0));

function oklab(rgb: readonly number[]): number[] {
  const lms = times([0.4122214708, 0.5363325363, 0.0514459929, 0.2119034982, 0.6806995451, 0.1073969566, 0.0883024619, 0.2817188376, 0.6299787005], rgb).map(Math.cbrt);
  return times([0.2104542553, 0.793617785, -0.0040720468, 1.9779984951, -2.428592205, 0.4505937099, 0.0259040371, 0.7827717662, -0.808675766], lms);
}

const luminance = (rgb: readonly number[]): number => times([0.2126, 0.7152, 0.0722, 0, 0, 0, 0, 0, 0], rgb)[0] ?? 0;

describe.each([["light", "#ffffff"], ["dark", "#14171b"]] as const)("colours, %s", (mode, back) => {
  const all = Object.values(HUES).map((h) => linear(h[mode]));

  it.each(Object.entries(CONES))("can be told apart with %s vision", (_, cones) => {
    const seen = all.map((rgb) => oklab(times(cones, rgb).map((v) => Math.min(1, Math.max(0, v)))));
    const distances = seen.flatMap((a, i) => seen.slice(0, i).map((b) => Math.hypot(...a.map((v, k) => v - (b[k] ?? 0)))));
    expect(Math.min(...distances)).toBeGreaterThan(0.095);
  });

  it("stand out from the background (WCAG 1.4.11: 3 to 1)", () => {
    const behind = luminance(linear(back)) + 0.05;
    const contrasts = all.map((rgb) => luminance(rgb) + 0.05).map((l) => Math.max(l, behind) / Math.min(l, behind));
    // The search stopped at 3; eight bits a channel may round it down.
    expect(Math.min(...contrasts)).toBeGreaterThan(2.95);
  });
});

describe("the Pareto front", () => {
  it("keeps what nothing beats, from left to right", () => {
    const places = [["a", 1, 5], ["b", 3, 1], ["c", 3, 6], ["d", 2, 3], ["e", 2, 4]].map(([name, x, y]) => ({ name: String(name), x: Number(x), y: Number(y) }));
    expect(front(places, "low-low").map((p) => p.name)).toEqual(["a", "d", "b"]);
    expect(front(places, "low-high").map((p) => p.name)).toEqual(["a", "c"]);
    expect(front(places, "high-high").map((p) => p.name)).toEqual(["c"]);
  });
});

describe("a chart's option", () => {
  const names = (hidden: string[]): unknown[] => (option(CHART, new Set(hidden), LOOK).series as { name: string; type: string }[]).map((s) => `${s.type} ${s.name}`);

  it("has whiskers where repeats differ, and no hidden series", () => {
    expect(names([])).toEqual(["line cubic", "custom cubic", "line <b>", "line goal"]);
    expect(names(["cubic"])).toEqual(["line <b>", "line goal"]);
  });

  it("puts the whiskers of bars that stand side by side on their bars", () => {
    const bars: Chart = { ...CHART, kind: "bars", x: { ...AXIS, categories: ["a", "b"] }, series: ["cubic", "<b>"].map((name) => ({ name, points: [[0, 5, 4, 6], [1, 3, 2, 4]] })) };
    const api = { value: (i: number): number => [0, 4, 0, 6][i] ?? 0, coord: ([x = 0, y = 0]: number[]): number[] => [x, y], size: (): number[] => [100] };
    const made = option(bars, new Set(), LOOK).series as { type: string; renderItem: (p: unknown, a: typeof api) => { shape: { x1: number } } }[];
    const shifts = made.filter((s) => s.type === "custom").map((s) => s.renderItem({}, api).shape.x1);
    // 70 of 100 px are two bars and a tenth of one between them.
    expect(shifts.map((s) => s.toFixed(2))).toEqual(["-18.33", "18.33"]);
  });

  it("lets bars overlap only where each has a category of its own", () => {
    const gap = (at: number[]): unknown => {
      const bars: Chart = { ...CHART, kind: "bars", x: { ...AXIS, categories: ["a", "b"] }, series: at.map((x, i) => ({ name: ["cubic", "<b>"][i] ?? "", points: [[x, 5]] })) };
      return (option(bars, new Set(), LOOK).series as { barGap: string }[])[0]?.barGap;
    };
    expect([gap([0, 1]), gap([0, 0])]).toEqual(["-100%", "10%"]);
  });

  it("draws names over time as steps, and says them", () => {
    const inUse: Chart = { ...CHART, kind: "series", y: { ...AXIS, name: "Algorithm", unit: "", categories: ["bbr", "<i>"] }, series: [{ name: "Flow 1", points: [[0.1, 0], [3, 0], [8, 1]] }], references: [] };
    const made = option(inUse, new Set(), LOOK) as unknown as { series: { step: string }[]; yAxis: { type: string; data: string[] } };
    expect([made.series[0]?.step, made.yAxis.type, ...made.yAxis.data]).toEqual(["start", "category", "bbr", "<i>"]);
    expect(description(inUse)).toContain("Flow 1: bbr, then <i>");
    expect(tooltip(inUse, [{ seriesName: "Flow 1", seriesType: "line", dataIndex: 2, value: [8, 1] }], LOOK)).toContain("&#60;i&#62;");
  });

  it("turns labels that would not fit", () => {
    const bars: Chart = { ...CHART, kind: "bars", x: { ...AXIS, categories: ["vivace-latency", "vivace-loss", "cubic"] } };
    const rotation = (width_px: number): unknown => (option(bars, new Set(), { ...LOOK, width_px }).xAxis as { axisLabel: { rotate: number } }).axisLabel.rotate;
    expect([rotation(800), rotation(300)]).toEqual([0, 40]);
  });

  it("tells value and range of what is under the pointer, without markup from names", () => {
    const text = tooltip(CHART, [{ seriesName: "cubic", seriesType: "line", dataIndex: 0, value: [0, 90] }, { seriesName: "<b>", seriesType: "line", dataIndex: 0, value: [0, 1] }], LOOK);
    expect(text).toContain("90\u202fMbit/s <small>(80 to 95)</small>");
    expect(text).toContain("Loss: 0\u202f%");
    expect(text).not.toContain("<b>");
  });

  it("fills marks and draws lines by the set, in the algorithm's colour", () => {
    const two: Chart = { ...CHART, series: ["cubic (sim)", "cubic (emu)"].map((name) => ({ name, points: [[0, 1], [1, 2]] })), references: [] };
    const look: Look = { ...LOOK, styles: styles(["cubic (sim)", "cubic (emu)"], ["sim", "emu"]) };
    const made = option(two, new Set(), look).series as { lineStyle: { color: string; type: unknown }; itemStyle: { color: string; borderColor: string } }[];
    const ink = HUES.ink.light;
    expect(made.map((s) => [s.lineStyle.color, s.lineStyle.type])).toEqual([[ink, "solid"], [ink, [3, 2.5]]]);
    expect(made.map((s) => [s.itemStyle.color, s.itemStyle.borderColor])).toEqual([[ink, ink], ["#fff", ink]]);
  });

  it("has a Pareto front for each set", () => {
    const points = { "a (sim)": [1, 5], "b (sim)": [2, 6], "a (emu)": [3, 3], "b (emu)": [4, 4] };
    const both: Chart = { ...CHART, kind: "scatter", ideal: "low-high", front: true, series: Object.entries(points).map(([name, point]) => ({ name, points: [point] })), references: [] };
    const look: Look = { ...LOOK, styles: styles(Object.keys(points), ["sim", "emu"]) };
    const made = option(both, new Set(), look).series as { name?: string; data: number[][]; lineStyle: { type: unknown } }[];
    const fronts = made.filter((s) => s.name === FRONT);
    expect(fronts.map((s) => s.data)).toEqual([[[1, 5], [2, 6]], [[3, 3], [4, 4]]]);
    expect(fronts.map((s) => s.lineStyle.type)).toEqual(["solid", [7.5, 6.25]]);
  });

  it("is described in words", () => {
    expect(description(CHART)).toBe("Line chart: Goodput, Mbit/s against Loss, %. cubic: from 90\u202fMbit/s to –; <b>: 1\u202fMbit/s.");
  });
});

describe("plots under one legend", () => {
  it("are neighbours with the same series; tables and time series stand alone", () => {
    const cdf: Panel = { ...CHART, kind: "cdf" };
    const time: Panel = { ...CHART, kind: "series" };
    const other: Panel = { ...CHART, series: [] };
    const table: Panel = { kind: "table", title: null, columns: [], rows: [] };
    expect(grouped([[CHART], [cdf], [time], [time], [cdf], [other], [table], [CHART, CHART]]).map((g) => g.length)).toEqual([2, 1, 1, 1, 1, 1, 2]);
  });
});
