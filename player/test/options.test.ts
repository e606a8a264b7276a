import { expect, it } from "vitest";
import { parseOptions, playerSettings } from "../page/options.ts";

it("has the lab's defaults", () => {
  expect(parseOptions("")).toEqual({ mpd: "/media/manifest.mpd", abr: "throughput", buffer_s: 15, cmcd: "query", fastSwitch: true, autoplay: true, chart: true });
});

it("turns on exactly the rules of the strategy", () => {
  const active = (search: string): string[] => {
    const { streaming } = playerSettings(parseOptions(search)) as { streaming: { abr: { rules: Record<string, { active: boolean }> } } };
    return Object.entries(streaming.abr.rules).filter(([, r]) => r.active).map(([name]) => name);
  };
  expect(active("")).toEqual(["throughputRule"]);
  expect(active("?abr=bola")).toEqual(["bolaRule"]);
});

it.each(["?abr=none", "?buffer_s=0", "?buffer_s=x", "?cmcd=maybe", "?fast_switch=1", "?autoplay=later", "?chart=2", "?abrr=bola"])("refuses %s", (search) => {
  expect(() => parseOptions(search)).toThrow(/allowed/);
});
