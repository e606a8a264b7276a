// @ts-check
/** The live page of a proxy: asks /flows and /status once a second. */
import { TokenNeeded, askForToken, json } from "./api.js";
import { ChangeDialog } from "./change.js";
import { EndedTable } from "./ended.js";
import { bytes, define, duration, element } from "./figures.js";
import { FlowTable } from "./flows.js";

/**
 * @typedef {import("./api.js").Flows} Flows
 * @typedef {import("./api.js").Status} Status
 */

const INTERVAL_MS = 1000;

const change = new ChangeDialog();
const flowTable = new FlowTable((flow) => change.open(flow));
const endedTable = new EndedTable();
const filter = element("filter", HTMLInputElement);
filter.addEventListener("input", () => {
  flowTable.filter = filter.value;
  endedTable.filter = filter.value;
});

/**
 * @param {string} text
 * @param {boolean} good
 */
function health(text, good) {
  const place = element("health", HTMLElement);
  if (place.textContent !== text) place.textContent = text;
  place.className = `state ${good ? "good" : "bad"}`;
}

/** @param {Status} status */
function showIdentity({ role, host, version, uptime_s, healthy, problem }) {
  document.title = `Millrace ${role}${host ? ` on ${host}` : ""}`;
  element("role", HTMLElement).textContent = role;
  define(element("identity", HTMLElement), [
    ["Host", host ?? "–"],
    ["Version", version],
    ["Running for", duration(uptime_s)],
  ]);
  health(healthy ? "carries flows" : (problem ?? "unhealthy"), healthy);
}

/**
 * @param {Status} status
 * @param {Flows} flows
 */
function showTotals({ role, totals }, { active, rate_mbps }) {
  const failed = Object.entries(totals.flows_failed).toSorted(([, a], [, b]) => b - a);
  const failures = failed.reduce((sum, [, count]) => sum + count, 0);
  /** @type {[string, string, string][]} */
  const bypassed = role === "client" ? [["Bypassed the tunnel", String(totals.flows_bypassed), totals.flows_bypassed > 0 ? "warn" : ""]] : [];
  define(element("totals", HTMLElement), [
    ["Active flows", String(active)],
    ["Rate", `${rate_mbps.toFixed(1)} Mbit/s`],
    ["Tunnel connections", String(totals.connections)],
    ["Flows since start", String(totals.flows_opened)],
    ["Completed", String(totals.flows_complete)],
    ["Failed", String(failures), failures > 0 ? "bad" : ""],
    ...bypassed,
    ["To clients", bytes(totals.bytes_down)],
    ["To origins", bytes(totals.bytes_up)],
    ["Memory", `${bytes(totals.memory_used_bytes)} of ${bytes(totals.memory_cap_bytes)}`],
  ]);
  const reasons = element("failures", HTMLElement);
  reasons.hidden = failures === 0;
  reasons.textContent = `Failed: ${failed.map(([reason, count]) => `${count} ${reason.replaceAll("_", " ")}`).join(", ")}.`;
}

/** @param {string | null} text */
function problem(text) {
  const place = element("problem", HTMLElement);
  place.hidden = text === null;
  place.textContent = text ?? "";
}

async function turn() {
  try {
    /** @type {[Flows, Status]} */
    const [flows, status] = [await json(flowTable.query), await json("status")];
    element("content", HTMLElement).hidden = false;
    showIdentity(status);
    showTotals(status, flows);
    flowTable.show(flows);
    endedTable.show(status.ended_flows);
    change.algorithms = status.algorithms;
    problem(null);
  } catch (error) {
    if (error instanceof TokenNeeded) {
      health("needs the token", false);
      problem(null);
      await askForToken();
      return;
    }
    problem(`The proxy does not answer (${error instanceof Error ? error.message : String(error)}). What is shown is the last answer; the page asks again every second.`);
    health("no answer", false);
  }
}

// One request at a time, however slow the answers; none while the page is hidden.
for (;;) {
  if (!document.hidden) await turn();
  await new Promise((done) => setTimeout(done, INTERVAL_MS));
}
