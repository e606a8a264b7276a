// @ts-check
/**
 * The live dashboard: asks /flows once a second and shows each flow with the last two minutes of its
 * figures. Flows are kept for as long as the answers have them.
 *
 * @typedef {{ id: number, client: string, destination: string, class: string, protocol: string, bypassed: boolean,
 *   connection: string | null, algorithm: string | null, pinned: boolean, managed: boolean, switches: number | null,
 *   since_switch_s: number | null, rtt_ms: number | null, rate_mbps: number, loss: number | null,
 *   controller: { recent_loss: number } | null, player: { buffer_s: number | null, bitrate_kbps: number | null, starved: boolean, age_s: number } | null,
 *   age_s: number, state: string }} Flow
 * @typedef {{ at: number, rate: number | null, rtt: number | null, loss: number | null, buffer: number | null }} Point
 * @typedef {{ points: Point[], switches: { at: number, to: string }[], algorithm: string | null, row: HTMLTableRowElement }} Seen
 */

const EVERY_MS = 1000;
const KEPT_MS = 120_000;
/** More rows than a page shows well; the largest flows are shown. */
const MOST_ROWS = 200;
/** Drawing units of a curve. */
const WIDTH = 130;
const HEIGHT = 30;

/** @type {Map<string, Seen>} */
const seen = new Map();

/**
 * A number of 64 bits may not be exact here.
 * @param {Flow} flow
 */
const keyOf = (flow) => `${flow.id} ${flow.client} ${flow.destination}`;

/** @param {string} id */
function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}

/** The token of admin.token_file, for as long as the page is open; null where none is asked for. */
let token = /** @type {string | null} */ (null);

/**
 * @param {string} path
 * @returns {Promise<Response>}
 */
async function ask(path) {
  /** @type {HeadersInit} */
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  const answer = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.timeout(5 * EVERY_MS) });
  if (answer.status === 401) {
    token = prompt("The admin listener asks for its token (admin.token_file):") ?? token;
  }
  return answer;
}

/**
 * @param {number | null} value
 * @param {number} digits
 */
const shown = (value, digits) => (value === null ? "–" : value.toFixed(digits));

/** @param {number} seconds */
function age(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/**
 * An empty element of the page, or of a drawing.
 * @param {string} name
 * @param {Record<string, string>} attributes
 */
function drawing(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/**
 * The curve of one figure; gaps stay gaps.
 * @param {Seen} flow
 * @param {(point: Point) => number | null} figure
 * @param {number} now
 */
function curve(flow, figure, now) {
  const most = Math.max(1e-9, ...flow.points.map((point) => figure(point) ?? 0));
  /** @param {number} at */
  const x = (at) => WIDTH * (1 - (now - at) / KEPT_MS);
  const svg = drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `up to ${most.toPrecision(3)}` });
  /** @type {string[][]} */
  const runs = [[]];
  for (const point of flow.points) {
    const value = figure(point);
    if (value === null) runs.push([]);
    else runs.at(-1)?.push(`${x(point.at).toFixed(1)},${(HEIGHT - (HEIGHT - 2) * (value / most)).toFixed(1)}`);
  }
  for (const run of runs) {
    const [first, last] = [run[0], run.at(-1)];
    if (!first || !last) continue;
    svg.append(drawing("path", { class: "area", d: `M${first.split(",")[0]},${HEIGHT} L${run.join(" L")} L${last.split(",")[0]},${HEIGHT} Z` }));
    svg.append(drawing("polyline", { class: "line", points: run.join(" ") }));
  }
  for (const { at, to } of flow.switches) {
    const line = drawing("line", { class: "switch", x1: x(at).toFixed(1), x2: x(at).toFixed(1), y1: "0", y2: String(HEIGHT) });
    const title = drawing("title", {});
    title.textContent = `from here on ${to}`;
    line.append(title);
    svg.append(line);
  }
  return svg;
}

/**
 * @param {string} title
 * @param {string} text
 * @param {Element | null} below
 */
function cell(title, text, below) {
  const td = document.createElement("td");
  td.dataset["title"] = title;
  const value = document.createElement("span");
  value.className = "value";
  value.textContent = text;
  td.append(value);
  if (below) td.append(below);
  return td;
}

/**
 * @param {string} className
 * @param {string} text
 */
function span(className, text) {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}

/**
 * What has set the algorithm, if not the configuration, and how often it has changed.
 * @param {Flow} flow
 */
function choice(flow) {
  const said = [];
  if (flow.pinned) said.push("set by hand");
  else if (flow.managed) said.push("by rules");
  if (flow.switches && flow.since_switch_s !== null) {
    said.push(`${flow.switches} ${flow.switches === 1 ? "change" : "changes"}, last ${age(flow.since_switch_s)} ago`);
  }
  return said.length > 0 ? span("dim", said.join(", ")) : null;
}

/**
 * @param {Flow} flow
 * @param {Seen} kept
 * @param {number} now
 */
function draw(flow, kept, now) {
  const who = document.createElement("td");
  const name = document.createElement("div");
  name.className = "name";
  name.textContent = flow.destination;
  const about = document.createElement("div");
  const kind = flow.protocol === "udp" ? `${flow.class}, UDP` : flow.class;
  about.append(span("kind", kind), " ", span("dim", `from ${flow.client}, ${age(flow.age_s)}, ${flow.state.replaceAll("_", " ")}`));
  who.append(name, about);

  const last = kept.points.at(-1);
  const player = flow.player;
  const wants = player?.bitrate_kbps ? `${(player.bitrate_kbps / 1000).toFixed(2)} Mbit/s wanted` : "";
  const buffer = player ? cell("Player's buffer, s", shown(player.buffer_s, 1), curve(kept, (p) => p.buffer, now)) : cell("Player's buffer, s", "–", null);
  if (wants) buffer.append(span("dim", wants));
  if (player?.starved) buffer.append(" ", span("state bad", "ran empty"));
  kept.row.replaceChildren(
    who,
    cell("Algorithm", flow.algorithm ?? (flow.bypassed ? "bypassed" : "–"), choice(flow)),
    cell("Rate, Mbit/s", shown(flow.rate_mbps, 2), curve(kept, (p) => p.rate, now)),
    cell("Round trip, ms", shown(flow.rtt_ms, 1), flow.rtt_ms === null ? null : curve(kept, (p) => p.rtt, now)),
    cell("Loss, %", last?.loss == null ? "–" : (100 * last.loss).toFixed(2), last?.loss == null ? null : curve(kept, (p) => p.loss, now)),
    buffer,
  );
}

/**
 * @param {Flow} flow
 * @param {number} now
 */
function note(flow, now) {
  const kept = seen.get(keyOf(flow)) ?? { points: [], switches: [], algorithm: flow.algorithm, row: document.createElement("tr") };
  seen.set(keyOf(flow), kept);
  if (kept.algorithm !== flow.algorithm) {
    kept.algorithm = flow.algorithm;
    kept.switches.push({ at: now, to: flow.algorithm ?? "none" });
  }
  const loss = flow.controller?.recent_loss ?? flow.loss;
  kept.points.push({ at: now, rate: flow.rate_mbps, rtt: flow.rtt_ms, loss, buffer: flow.player?.buffer_s ?? null });
  const from = now - KEPT_MS;
  kept.points = kept.points.filter((point) => point.at >= from);
  kept.switches = kept.switches.filter((change) => change.at >= from);
  return kept;
}

/** @param {Flow[]} flows */
function show(flows) {
  const now = performance.now();
  const here = new Set(flows.map(keyOf));
  for (const key of seen.keys()) if (!here.has(key)) seen.delete(key);
  for (const flow of flows) note(flow, now);

  element("flows").textContent = String(flows.length);
  element("rate").textContent = `${flows.reduce((sum, flow) => sum + flow.rate_mbps, 0).toFixed(1)} Mbit/s`;
  element("connections").textContent = String(new Set(flows.map((flow) => flow.connection).filter(Boolean)).size);
  element("none").hidden = flows.length > 0;
  element("table").hidden = flows.length === 0;

  // The largest are chosen, and stay in the order in which they came.
  const largest = flows.toSorted((a, b) => b.rate_mbps - a.rate_mbps).slice(0, MOST_ROWS);
  const rows = largest.toSorted((a, b) => a.id - b.id).flatMap((flow) => {
    const kept = seen.get(keyOf(flow));
    if (!kept) return [];
    draw(flow, kept, now);
    return [kept.row];
  });
  element("rows").replaceChildren(...rows);
  const more = element("more");
  more.hidden = flows.length <= MOST_ROWS;
  more.textContent = `${flows.length - MOST_ROWS} flows with less are not shown.`;
}

/** @param {string | null} text */
function problem(text) {
  const place = element("problem");
  place.hidden = text === null;
  place.textContent = text ?? "";
}

async function health() {
  const answer = await ask("healthz");
  const text = (await answer.text()).trim();
  const place = element("health");
  place.textContent = answer.ok ? "carries flows" : text;
  place.className = `state ${answer.ok ? "good" : "bad"}`;
}

async function turn() {
  try {
    const answer = await ask("flows");
    if (!answer.ok) throw new Error(`/flows answers ${answer.status}`);
    /** @type {{ flows: Flow[] }} */
    const { flows } = await answer.json();
    show(flows);
    await health();
    problem(null);
  } catch (error) {
    problem(`The proxy does not answer (${error instanceof Error ? error.message : String(error)}); asking again.`);
    const place = element("health");
    place.textContent = "no answer";
    place.className = "state bad";
  }
}

// One request at a time, however slow the answers; none while the page is hidden.
for (;;) {
  if (!document.hidden) await turn();
  await new Promise((done) => setTimeout(done, EVERY_MS));
}
