// outage.mjs DIRECTORY...: a stall must be where the outage of qoe-outage puts it. It begins when what the
// player had at 12.0 s has been shown, and ends when the first segment after 15.0 s is whole; both are
// known without the player's events, from its buffer and from the network. Within 100 ms. A browser
// keeps the last few frames back until it has those that follow: what lies in its buffer while it waits.
import { readFileSync } from "node:fs";

const OUTAGE = { from_s: 12, to_s: 15 };
const TOLERANCE_S = 0.1;
/** Three frames. */
const KEPT_MAX_S = 0.13;
let failed = false;

/** The buffer between two samples: while it plays and nothing arrives, it falls by a second a second. */
function bufferAt(samples, t) {
  const before = samples.findLast((s) => s.t <= t);
  if (!before) throw new Error(`no sample before ${t} s`);
  return before.buffer_s - (t - before.t);
}

for (const directory of process.argv.slice(2)) {
  const read = (file) => JSON.parse(readFileSync(`${directory}/${file}`, "utf8"));
  const [record, session] = [read("record.json"), read("session.json")];
  const stall = session.stall_list.find((s) => s.end_s > OUTAGE.from_s);
  const next = record.downloads.find((d) => d.end_s > OUTAGE.to_s);
  const kept_s = record.samples.findLast((s) => s.t < OUTAGE.to_s)?.buffer_s;
  if (!stall || !next || kept_s === undefined) throw new Error(`${directory}: no stall, download or sample near the outage`);
  if (kept_s > KEPT_MAX_S) throw new Error(`${directory}: ${kept_s} s in the buffer at the end of the outage; it should be empty by then`);
  const wanted = { start_s: OUTAGE.from_s + bufferAt(record.samples, OUTAGE.from_s) - kept_s, end_s: next.end_s };
  for (const end of ["start_s", "end_s"]) {
    const off_s = stall[end] - wanted[end];
    const verdict = Math.abs(off_s) <= TOLERANCE_S ? "agrees" : "DIFFERS";
    failed ||= verdict === "DIFFERS";
    console.error(`${directory}: ${end} ${stall[end].toFixed(3)}, by arithmetic ${wanted[end].toFixed(3)}: ${verdict}`);
  }
}
process.exit(failed ? 1 : 0);
