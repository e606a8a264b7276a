import { expect, it } from "vitest";
import { parseOptions, playerSettings, toQuery, type Options } from "../page/options.ts";

const DEFAULTS: Options = { mpd: "/media/manifest.mpd", abr: "throughput", buffer_s: 15, cmcd: "query", cmsd: true, fastSwitch: true, live: false, latency_s: null };
const first = (search: string): Options => parseOptions(search).sessions[0] ?? DEFAULTS;

it("has the lab's defaults", () => {
  expect(parseOptions("")).toEqual({ sessions: [DEFAULTS], autoplay: true, chart: true, controls: true, proxy: null });
});

it("turns on exactly the rules of the strategy", () => {
  const active = (search: string): string[] => {
    const { streaming } = playerSettings(first(search), "name") as { streaming: { abr: { rules: Record<string, { active: boolean }> } } };
    return Object.entries(streaming.abr.rules).filter(([, r]) => r.active).map(([name]) => name);
  };
  expect(active("")).toEqual(["throughputRule"]);
  expect(active("?abr=bola")).toEqual(["bolaRule"]);
});

it("takes a proxy with and without the slash, and tells players apart", () => {
  expect(parseOptions("?proxy=self").proxy).toBe("");
  for (const end of ["", "/"]) expect(parseOptions(`?proxy=http://198.18.3.1:9465${end}`).proxy).toBe("http://198.18.3.1:9465");
  expect(playerSettings(first(""), "name")).toMatchObject({ streaming: { cmcd: { sid: "name" } } });
  expect(parseOptions("?proxy=self&cmcd.2=off").proxy).toBe("");
});

it("obeys CMSD unless told not to", () => {
  const cmsd = (search: string): unknown => (playerSettings(first(search), "name") as { streaming: { cmsd: unknown } }).streaming.cmsd;
  expect(cmsd("")).toEqual({ enabled: true, abr: { applyMb: true, etpWeightRatio: 0.5 } });
  expect(cmsd("?cmsd=off")).toEqual({ enabled: false, abr: { applyMb: false, etpWeightRatio: 0 } });
});

it("gives a session what has its number, and otherwise what has none", () => {
  const { sessions } = parseOptions("?abr=bola&buffer_s=8&abr.3=dynamic&mpd.2=/other.mpd&live.2=on&latency_s.2=3");
  expect(sessions).toEqual([
    { ...DEFAULTS, abr: "bola", buffer_s: 8 },
    { ...DEFAULTS, abr: "bola", buffer_s: 8, mpd: "/other.mpd", live: true, latency_s: 3 },
    { ...DEFAULTS, abr: "dynamic", buffer_s: 8 },
  ]);
  expect(parseOptions("?sessions=2").sessions).toEqual([DEFAULTS, DEFAULTS]);
});

it.each([
  "",
  "?abr=bola&buffer_s=8.5&cmcd=header&cmsd=off&fast_switch=off&autoplay=off&chart=off&controls=off",
  "?sessions=4",
  "?sessions=3&abr.2=bola",
  "?live=on&latency_s=2&sessions=3&live.2=off&latency_s.3=5",
  "?live=on&latency_s=2&latency_s.2=",
  "?live.2=on",
  "?mpd=/a.mpd&mpd.2=/b.mpd&proxy=self",
  "?mpd=http://198.18.0.1:8080/a%20b.mpd%3Fx%3D1%262&proxy=http://198.18.3.1:9465",
])("writes what it read from %s", (search) => {
  const options = parseOptions(search);
  expect(parseOptions(toQuery(options))).toEqual(options);
});

it("writes no defaults", () => {
  expect(toQuery(parseOptions("?abr=throughput&mpd=/media/manifest.mpd"))).toBe("");
  expect(toQuery(parseOptions("?live=on&mpd=/live/manifest.mpd&mpd.2=/b.mpd"))).toBe("?live=on&mpd.2=/b.mpd");
});

it.each(["?abr=none", "?buffer_s=0", "?buffer_s=x", "?buffer_s=", "?cmcd=maybe", "?cmsd=1", "?fast_switch=1", "?autoplay=later", "?chart=2", "?controls=no", "?abrr=bola", "?proxy=198.18.3.1:9465", "?proxy=", "?proxy=http://a/flows", "?proxy=http://u@a", "?proxy=ftp://a", "?proxy=http://a&cmcd=off", "?live=yes", "?latency_s=2", "?latency_s.2=2", "?live=on&latency_s=0.1", "?live=on&latency_s=x", "?sessions=5", "?sessions=0", "?sessions=1.5", "?sessions=1&abr.2=bola", "?abr.1=bola", "?abr.5=bola", "?chart.2=off"])("refuses %s", (search) => {
  expect(() => parseOptions(search)).toThrow(/allowed/);
});
