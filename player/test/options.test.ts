import { expect, it } from "vitest";
import { parseOptions, playerSettings } from "../page/options.ts";

it("has the lab's defaults", () => {
  expect(parseOptions("")).toEqual({ mpd: "/media/manifest.mpd", abr: "throughput", buffer_s: 15, cmcd: "query", fastSwitch: true, autoplay: true, chart: true, live: false, latency_s: null, proxy: null });
});

it("turns on exactly the rules of the strategy", () => {
  const active = (search: string): string[] => {
    const { streaming } = playerSettings(parseOptions(search), "name") as { streaming: { abr: { rules: Record<string, { active: boolean }> } } };
    return Object.entries(streaming.abr.rules).filter(([, r]) => r.active).map(([name]) => name);
  };
  expect(active("")).toEqual(["throughputRule"]);
  expect(active("?abr=bola")).toEqual(["bolaRule"]);
});

it("takes a proxy with and without the slash, and tells players apart", () => {
  expect(parseOptions("?proxy=self").proxy).toBe("");
  for (const end of ["", "/"]) expect(parseOptions(`?proxy=http://198.18.3.1:9465${end}`).proxy).toBe("http://198.18.3.1:9465");
  expect(playerSettings(parseOptions(""), "name")).toMatchObject({ streaming: { cmcd: { sid: "name" } } });
});

it.each(["?abr=none", "?buffer_s=0", "?buffer_s=x", "?cmcd=maybe", "?fast_switch=1", "?autoplay=later", "?chart=2", "?abrr=bola", "?proxy=198.18.3.1:9465", "?proxy=", "?proxy=http://a/flows", "?proxy=http://u@a", "?proxy=ftp://a", "?proxy=http://a&cmcd=off", "?live=yes", "?latency_s=2", "?live=on&latency_s=0.1", "?live=on&latency_s=x"])("refuses %s", (search) => {
  expect(() => parseOptions(search)).toThrow(/allowed/);
});
