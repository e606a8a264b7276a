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

/** A segment that had arrived may take so long until it is in the buffer. */
const TAKEN_IN_S = 0.5;

/** When what had arrived at `t` has been shown: while it plays and nothing arrives, the buffer falls by a second a second. */
function shownAt(samples, t) {
  const ends = samples.filter((s) => s.t > t - 0.2 && s.t < t + TAKEN_IN_S && s.buffer_s > KEPT_MAX_S).map((s) => s.t + s.buffer_s);
  if (ends.length === 0) throw new Error(`no sample with a buffer near ${t} s`);
  return Math.max(...ends);
}

for (const directory of process.argv.slice(2)) {
  const read = (file) => JSON.parse(readFileSync(`${directory}/${file}`, "utf8"));
  const [record, session] = [read("record.json"), read("session.json")];
  const stall = session.stall_list.find((s) => s.end_s > OUTAGE.from_s);
  const next = record.downloads.find((d) => d.end_s > OUTAGE.to_s);
  const kept_s = record.samples.findLast((s) => s.t < OUTAGE.to_s)?.buffer_s;
  if (!stall || !next || kept_s === undefined) throw new Error(`${directory}: no stall, download or sample near the outage`);
  if (kept_s > KEPT_MAX_S) throw new Error(`${directory}: ${kept_s} s in the buffer at the end of the outage; it should be empty by then`);
  const wanted = { start_s: shownAt(record.samples, OUTAGE.from_s) - kept_s, end_s: next.end_s };
  for (const end of ["start_s", "end_s"]) {
    const off_s = stall[end] - wanted[end];
    const verdict = Math.abs(off_s) <= TOLERANCE_S ? "agrees" : "DIFFERS";
    failed ||= verdict === "DIFFERS";
    console.error(`${directory}: ${end} ${stall[end].toFixed(3)}, by arithmetic ${wanted[end].toFixed(3)}: ${verdict}`);
  }
}
process.exit(failed ? 1 : 0);
