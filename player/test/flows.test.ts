import { expect, it } from "vitest";
import { findSession } from "../src/flows.ts";

const flow = (session: string | null, age_s: number, algorithm: string | null, rate_mbps: number): object => ({ id: 1, algorithm, rate_mbps, rtt_ms: 20, player: { session, age_s, starved: false } });

it("takes the flow with the latest request, and the rate of all of the session", () => {
  const flows = [flow("a", 5, "cubic", 1), flow("b", 0, "copa", 50), flow("a", 0.5, "vivace-latency", 8), flow("a", 2, "bbr2", 3), { algorithm: "copa", rate_mbps: 9, rtt_ms: null, player: null }];
  expect(findSession({ flows }, "a")).toEqual({ algorithm: "vivace-latency", rtt_ms: 20, rate_mbps: 12 });
});

it("finds nothing of another's", () => {
  expect(findSession({ flows: [flow("b", 0, "copa", 50), flow(null, 0, "copa", 50)] }, "a")).toBeNull();
  expect(findSession({ flows: [flow("a", 0, null, 1)] }, "a")).toMatchObject({ algorithm: null });
});

it("refuses what is no answer of a proxy", () => {
  expect(() => findSession({ flow: [] }, "a")).toThrow();
  expect(() => findSession({ flows: [{ algorithm: 1 }] }, "a")).toThrow();
});
