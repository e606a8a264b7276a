// @ts-check
/**
 * The admin API, and the token that it may ask for.
 *
 * @typedef {{ id: number, client: string, destination: string, class: string, protocol: string, bypassed: boolean,
 *   connection: string | null, algorithm: string | null, pinned: boolean, managed: boolean, switches: number | null,
 *   since_switch_s: number | null, rtt_ms: number | null, rate_mbps: number, loss: number | null, bytes_up: number, bytes_down: number,
 *   controller: { recent_loss: number } | null, player: { buffer_s: number | null, bitrate_kbps: number | null, starved: boolean, age_s: number } | null,
 *   age_s: number, state: string }} Flow
 * @typedef {{ flows: Flow[], matching: number, active: number, rate_mbps: number }} Flows
 * @typedef {{ id: number, client: string, destination: string, class: string, protocol: string, bypassed: boolean, connection: string | null,
 *   algorithm: string | null, bytes_up: number, bytes_down: number, duration_s: number, outcome: string, ended_s_ago: number }} EndedFlow
 * @typedef {{ flows_opened: number, flows_bypassed: number, flows_complete: number, flows_failed: Record<string, number>,
 *   bytes_up: number, bytes_down: number, connections: number, memory_used_bytes: number, memory_cap_bytes: number }} Totals
 * @typedef {{ role: string, version: string, host: string | null, uptime_s: number, healthy: boolean, problem: string | null,
 *   totals: Totals, ended_flows: EndedFlow[], algorithms: string[] }} Status
 */
import { element } from "./figures.js";

const TIMEOUT_MS = 5000;

/** The token of admin.token_file, for as long as the page is open; null where none is asked for. */
let token = /** @type {string | null} */ (null);

/** The listener wants a token that is not known, or another one. */
export class TokenNeeded extends Error {}

/**
 * @param {string} path
 * @param {string} [method]
 * @returns {Promise<Response>}
 */
export async function ask(path, method = "GET") {
  /** @type {HeadersInit} */
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { method, cache: "no-store", headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (answer.status === 401) throw new TokenNeeded();
  return answer;
}

/**
 * @template T
 * @param {string} path
 * @returns {Promise<T>}
 */
export async function json(path) {
  const answer = await ask(path);
  if (!answer.ok) throw new Error(`/${path} answers ${answer.status}`);
  return answer.json();
}

/**
 * Asks the reader for the token; comes back when there is one to try.
 * @returns {Promise<void>}
 */
export function askForToken() {
  const form = element("token", HTMLFormElement);
  const input = element("token-value", HTMLInputElement);
  element("token-wrong", HTMLElement).hidden = token === null;
  form.hidden = false;
  input.focus();
  return new Promise((done) => {
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        token = input.value.trim();
        form.hidden = true;
        done();
      },
      { once: true },
    );
  });
}
