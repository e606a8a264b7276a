import { expect, it } from "vitest";
import { explainError, explainProxy } from "../src/messages.ts";

it("says what an error means and what to check, with dash.js's own words", () => {
  expect(explainError("dash.js 25: http://a/m.mpd is not available")).toMatch(/^The manifest could not be loaded.*CORS.*m\.mpd is not available\)$/);
  expect(explainError("dash.js 27: segment")).toMatch(/^A segment could not be loaded/);
  expect(explainError("dash.js 999: odd")).toBe("The player stopped: dash.js 999: odd.");
});

it("says why the proxy shows no flow of the session and what to do", () => {
  expect(explainProxy("no_flow", "", "http://a")).toMatch(/open this page, or the manifest, at the client's address.*class dash.*several servers/);
  expect(explainProxy("failed", "http://198.18.3.1:9465", "http://a:1")).toMatch(/198\.18\.3\.1:9465 is down.*cors_allow_origins lists http:\/\/a:1/);
  expect(explainProxy("failed", "", "http://a")).not.toContain("cors_allow_origins");
  expect(explainProxy("bypassed", "", "http://a")).toContain("fail_mode");
  expect([explainProxy("carried", "", "http://a"), explainProxy("asking", "", "http://a")]).toEqual([null, null]);
});
