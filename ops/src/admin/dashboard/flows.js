// @ts-check
/** The table of active flows. A row stays the same elements while its flow lives, so that what has the focus keeps it. */
import { KEPT_MS, curve } from "./curve.js";
import { duration, element, make, shown } from "./figures.js";
import { matches, sortable } from "./sort.js";

/**
 * @typedef {import("./api.js").Flow} Flow
 * @typedef {import("./api.js").Flows} Flows
 * @typedef {import("./curve.js").Point} Point
 * @typedef {import("./curve.js").History & { flow: Flow, algorithm: string | null, row: FlowRow }} Seen
 */

/** More rows than a page shows well; those with the highest rates are shown. */
const MAX_ROWS = 200;
/** Flows whose curves are kept while they have no row. */
const MAX_KEPT = 1000;

/** @param {Seen} seen */
const lossOf = ({ points }) => points.at(-1)?.loss ?? null;

/** @type {import("./sort.js").Column<Seen>[]} */
const COLUMNS = [
  { title: "Flow", key: ({ flow }) => flow.destination },
  { title: "Algorithm", key: ({ flow }) => flow.algorithm },
  { title: "Rate, Mbit/s", key: ({ flow }) => flow.rate_mbps },
  { title: "Round trip, ms", key: ({ flow }) => flow.rtt_ms },
  { title: "Loss, %", key: lossOf },
  { title: "Player's buffer, s", key: ({ flow }) => flow.player?.buffer_s ?? null },
];

/**
 * What has set the algorithm, if not the configuration, and how often it has changed.
 * @param {Flow} flow
 */
function choice(flow) {
  const said = [];
  if (flow.pinned) said.push("set by hand");
  else if (flow.managed) said.push("by rules");
  if (flow.switches && flow.since_switch_s !== null) {
    said.push(`${flow.switches} ${flow.switches === 1 ? "change" : "changes"}, last ${duration(flow.since_switch_s)} ago`);
  }
  return said.join(", ");
}

/** A cell with a value, a curve and a remark. */
class FigureCell {
  #value = make("span", "value");
  #curve = make("span", "");
  #remark = make("span", "dim");

  /** @param {string} title */
  constructor(title) {
    this.cell = make("td", "", [this.#value, this.#curve, this.#remark]);
    this.cell.dataset["title"] = title;
  }

  /**
   * @param {string} value
   * @param {Element | null} drawn
   * @param {string} [remark]
   * @param {boolean} [bad]
   */
  show(value, drawn, remark = "", bad = false) {
    this.#value.textContent = value;
    this.#curve.replaceChildren(...(drawn ? [drawn] : []));
    this.#remark.textContent = remark;
    this.#remark.className = bad ? "bad" : "dim";
  }
}

class FlowRow {
  #name = make("div", "name");
  #kind = make("span", "kind");
  #about = make("span", "dim");
  #algorithm = make("span", "value");
  #choice = make("span", "dim");
  #change = /** @type {HTMLButtonElement} */ (make("button", "small", "Change"));
  #figures = COLUMNS.slice(2).map(({ title }) => new FigureCell(title));

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#change.type = "button";
    this.#change.addEventListener("click", onChange);
    const algorithm = make("td", "", [this.#algorithm, this.#choice, make("div", "", [this.#change])]);
    algorithm.dataset["title"] = COLUMNS[1]?.title ?? "";
    const flow = make("td", "", [this.#name, make("div", "", [this.#kind, " ", this.#about])]);
    this.row = make("tr", "", [flow, algorithm, ...this.#figures.map(({ cell }) => cell)]);
  }

  /**
   * @param {Seen} seen
   * @param {number} now
   */
  show(seen, now) {
    const { flow } = seen;
    const { player } = flow;
    this.#name.textContent = flow.destination;
    this.#kind.textContent = flow.protocol === "udp" ? `${flow.class}, UDP` : flow.class;
    this.#about.textContent = `from ${flow.client}, ${duration(flow.age_s)}, ${flow.state.replaceAll("_", " ")}`;
    this.#algorithm.textContent = flow.algorithm ?? (flow.bypassed ? "bypassed" : "–");
    this.#choice.textContent = choice(flow);
    this.#change.hidden = flow.connection === null;
    this.#change.setAttribute("aria-label", `Change the algorithm of the flow to ${flow.destination} from ${flow.client}`);
    const [rate, rtt, loss, buffer] = this.#figures;
    const lost = lossOf(seen);
    rate?.show(shown(flow.rate_mbps, 2), curve(seen, (p) => p.rate, now));
    rtt?.show(shown(flow.rtt_ms, 1), flow.rtt_ms === null ? null : curve(seen, (p) => p.rtt, now));
    loss?.show(lost === null ? "–" : (100 * lost).toFixed(2), lost === null ? null : curve(seen, (p) => p.loss, now));
    const wanted = player?.bitrate_kbps ? `${(player.bitrate_kbps / 1000).toFixed(2)} Mbit/s wanted` : "";
    buffer?.show(shown(player?.buffer_s, 1), player ? curve(seen, (p) => p.buffer, now) : null, player?.starved ? `ran empty${wanted && `, ${wanted}`}` : wanted, player?.starved);
  }
}

/**
 * A number of 64 bits may not be exact here.
 * @param {Flow} flow
 */
const keyOf = (flow) => `${flow.id} ${flow.client} ${flow.destination}`;

/** The active flows. */
export class FlowTable {
  /**
   * The oldest first. Numbers of flows don't tell that: they begin with the number of the connection.
   * @type {Map<string, Seen>}
   */
  #seen = new Map();
  #table = element("flows", HTMLTableElement);
  #body = this.#table.createTBody();
  #filter = "";
  /** Flows of the proxy. */
  #active = 0;
  /** Flows that match, and for which there is no row. */
  #left = 0;
  /** The filter of the last request, and that of the last answer. */
  #asked = "";
  #answered = "";
  /** @type {Set<string>} keys of the flows in the last answer */
  #here = new Set();
  #sorted;
  #onChange;

  /** @param {(flow: Flow) => void} onChange the reader wants another algorithm for a flow */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#sorted = sortable(this.#table, COLUMNS, () => this.#draw(true));
  }

  /** @param {string} filter */
  set filter(filter) {
    this.#filter = filter;
    this.#draw(true);
  }

  /** What to ask the proxy for. It looks for the filter's words where it has more flows than the page shows. */
  get query() {
    this.#asked = this.#active > MAX_ROWS ? this.#filter : "";
    const query = new URLSearchParams({ order: "rate", limit: String(MAX_ROWS) });
    if (this.#asked !== "") query.set("filter", this.#asked);
    return `flows?${query}`;
  }

  /** @param {Flows} answer */
  show({ flows, matching, active }) {
    this.#active = active;
    this.#left = matching - flows.length;
    this.#answered = this.#asked;
    this.#here = new Set(flows.map(keyOf));
    const now = performance.now();
    for (const flow of flows.toSorted((a, b) => b.age_s - a.age_s)) this.#note(flow, now);
    this.#forget(now);
    this.#draw(false);
  }

  /**
   * Those that are not in the last answer have ended if it had all flows. Otherwise they keep their curves for as long as these
   * reach back.
   * @param {number} now
   */
  #forget(now) {
    const all = this.#here.size === this.#active;
    let left = this.#seen.size - MAX_KEPT;
    for (const [key, { points }] of this.#seen) {
      if (this.#here.has(key)) continue;
      if (all || left > 0 || (points.at(-1)?.at ?? 0) < now - KEPT_MS) this.#seen.delete(key);
      left--;
    }
  }

  /**
   * @param {Flow} flow
   * @param {number} now
   */
  #note(flow, now) {
    const key = keyOf(flow);
    const seen = this.#seen.get(key) ?? { flow, points: [], switches: [], algorithm: flow.algorithm, row: new FlowRow(() => this.#change(key)) };
    this.#seen.set(key, seen);
    seen.flow = flow;
    if (seen.algorithm !== flow.algorithm) {
      seen.algorithm = flow.algorithm;
      seen.switches.push({ at: now, to: flow.algorithm ?? "none" });
    }
    const loss = flow.controller?.recent_loss ?? flow.loss;
    seen.points.push({ at: now, rate: flow.rate_mbps, rtt: flow.rtt_ms, loss, buffer: flow.player?.buffer_s ?? null });
    const from = now - KEPT_MS;
    seen.points = seen.points.filter((point) => point.at >= from);
    seen.switches = seen.switches.filter((change) => change.at >= from);
  }

  /** @param {string} key */
  #change(key) {
    const seen = this.#seen.get(key);
    if (seen) this.#onChange(seen.flow);
  }

  /** @param {boolean} chosen the reader has just chosen order or filter: rows may move under the pointer */
  #draw(chosen) {
    const now = performance.now();
    const here = [...this.#seen.values()].filter(({ flow }) => this.#here.has(keyOf(flow)));
    const wanted = here.filter(({ flow }) => matches(this.#filter, [flow.destination, flow.client, flow.class, flow.protocol, flow.algorithm, flow.state, flow.connection]));
    const sorted = this.#sorted(wanted);
    for (const seen of sorted) seen.row.show(seen, now);
    this.#place(sorted.map(({ row }) => row.row), chosen);
    this.#table.hidden = sorted.length === 0;
    const none = element("none", HTMLElement);
    none.hidden = sorted.length > 0;
    // Of a large proxy's flows only those that matched the filter before may be here.
    const isComplete = this.#active <= MAX_ROWS || this.#answered === this.#filter;
    none.textContent = this.#active === 0 ? "No flow at the moment." : isComplete ? `None of ${this.#active} flows matches the filter.` : "Looking for flows that match the filter.";
    const more = element("more", HTMLElement);
    more.hidden = this.#left === 0 || !isComplete;
    more.textContent = `${this.#left} flows with lower rates are not shown.`;
  }

  /**
   * @param {readonly HTMLElement[]} rows
   * @param {boolean} chosen
   */
  #place(rows, chosen) {
    const before = [...this.#body.children];
    const same = before.length === rows.length && rows.every((row) => row.parentElement === this.#body);
    // Nothing moves away from under a pointer or the focus.
    const used = this.#body.matches(":hover") || this.#body.contains(document.activeElement);
    if (same && (used ? !chosen : rows.every((row, index) => row === before[index]))) return;
    const focused = document.activeElement;
    this.#body.replaceChildren(...rows);
    if (focused instanceof HTMLElement && this.#body.contains(focused)) focused.focus();
  }
}
