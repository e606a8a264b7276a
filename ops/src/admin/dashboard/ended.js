// @ts-check
/** The table of the flows that ended last. */
import { bytes, duration, element, make } from "./figures.js";
import { matches, sortable } from "./sort.js";

/** @typedef {import("./api.js").EndedFlow} EndedFlow */

/** What an outcome means, and what to look at. @type {Record<string, string>} */
const MEANINGS = {
  denied: "the destination is not in the allow-list",
  refused: "the destination refused the connection",
  unreachable: "there is no route to the destination",
  dial_timeout: "the destination did not answer",
  name_not_resolved: "the destination's name has no address",
  overloaded: "a queue of a proxy was full",
  server_full: "the server has as many flows as it may",
  client_limit: "the client has as many flows as it may",
  local_resources: "this host has no port, descriptor or memory left",
  tunnel_unavailable: "there is no connection to a server",
  tunnel_lost: "the tunnel connection ended",
  protocol: "a message was malformed",
  handshake_timeout: "the client did not say where to go",
  idle_timeout: "nothing moved for too long",
  memory: "the memory cap was reached",
  tcp_reset: "the TCP peer of this end reset it",
  tcp_timeout: "the TCP peer of this end has disappeared",
  peer_reset: "the other end of the tunnel reset it",
  internal: "the log has the reason",
};

/** @type {import("./sort.js").Column<EndedFlow>[]} */
const COLUMNS = [
  { title: "Flow", key: (flow) => flow.destination },
  { title: "Outcome", key: (flow) => flow.outcome },
  { title: "Algorithm", key: (flow) => flow.algorithm },
  { title: "To the client", key: (flow) => flow.bytes_down },
  { title: "To the origin", key: (flow) => flow.bytes_up },
  { title: "Duration", key: (flow) => flow.duration_s },
  { title: "Ended", key: (flow) => -flow.ended_s_ago },
];

/** @param {EndedFlow} flow */
function row(flow) {
  const complete = flow.outcome === "complete";
  const kind = flow.protocol === "udp" ? `${flow.class}, UDP` : flow.class;
  const outcome = [make("span", `value ${complete ? "good" : "bad"}`, flow.outcome.replaceAll("_", " "))];
  if (!complete) outcome.push(make("span", "dim", MEANINGS[flow.outcome] ?? ""));
  const texts = [flow.algorithm ?? (flow.bypassed ? "bypassed" : "–"), bytes(flow.bytes_down), bytes(flow.bytes_up), duration(flow.duration_s), `${duration(flow.ended_s_ago)} ago`];
  const cells = [outcome, ...texts.map((text) => [make("span", "value", text)])].map((content, index) => {
    const cell = make("td", "", content);
    cell.dataset["title"] = COLUMNS[index + 1]?.title ?? "";
    return cell;
  });
  const name = make("td", "", [make("div", "name", flow.destination), make("div", "", [make("span", "kind", kind), " ", make("span", "dim", `from ${flow.client}`)])]);
  return make("tr", "", [name, ...cells]);
}

/** The flows that ended last. */
export class EndedTable {
  #table = element("ended", HTMLTableElement);
  #body = this.#table.createTBody();
  /** @type {readonly EndedFlow[]} */
  #flows = [];
  #filter = "";
  #sorted = sortable(this.#table, COLUMNS, () => this.#draw());

  /** @param {string} filter */
  set filter(filter) {
    this.#filter = filter;
    this.#draw();
  }

  /** @param {readonly EndedFlow[]} flows */
  show(flows) {
    this.#flows = flows;
    this.#draw();
  }

  #draw() {
    const wanted = this.#flows.filter((flow) => matches(this.#filter, [flow.destination, flow.client, flow.class, flow.protocol, flow.algorithm, flow.outcome, flow.outcome.replaceAll("_", " "), flow.connection]));
    this.#table.hidden = wanted.length === 0;
    const none = element("none-ended", HTMLElement);
    none.hidden = wanted.length > 0;
    none.textContent = this.#flows.length === 0 ? "No flow has ended yet." : `None of ${this.#flows.length} ended flows matches the filter.`;
    this.#body.replaceChildren(...this.#sorted(wanted).map(row));
  }
}
