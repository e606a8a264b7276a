// outage-stream.mjs DIRECTORY...: a stall must be where the outage of qoe-rtsp puts it. It begins when what
// the player had at 12.0 s has been shown, and ends when a second of media more than that is there; both by
// when frames arrived and the stream's 24 frames a second alone. Within 100 ms.
import { readFileSync } from "node:fs";

const OUTAGE_FROM_S = 12;
const BUFFER_S = 1;
const FPS = 24;
const TOLERANCE_S = 0.1;
/** What is under way when the outage begins, or comes through it. */
const DRAWN_OUT_S = 0.25;
let failed = false;

for (const directory of process.argv.slice(2)) {
  const session = JSON.parse(readFileSync(`${directory}/session.json`, "utf8"));
  const arrived = session.frames.map((frame) => frame.whole_s ?? Infinity);
  const [stall] = session.stalls;
  if (!stall || session.stalls.length !== 1) throw new Error(`${directory}: ${session.stalls.length} stalls, expected one`);
  const begun_s = Math.max(...arrived.slice(0, BUFFER_S * FPS + 1));
  // A packet in the middle of the outage may have been the last of a frame.
  const next = arrived.findIndex((at, frame) => at > begun_s + frame / FPS);
  const wanted = { start_s: begun_s + next / FPS, end_s: Math.max(...arrived.slice(next, next + BUFFER_S * FPS + 1)) };
  const drawn_s = wanted.start_s - (OUTAGE_FROM_S + BUFFER_S);
  if (Math.abs(drawn_s) > DRAWN_OUT_S) throw new Error(`${directory}: the stream ran dry at ${wanted.start_s} s, which is not the outage's doing`);
  for (const end of ["start_s", "end_s"]) {
    const verdict = Math.abs(stall[end] - wanted[end]) <= TOLERANCE_S ? "agrees" : "DIFFERS";
    failed ||= verdict === "DIFFERS";
    console.error(`${directory}: ${end} ${stall[end].toFixed(3)}, by arithmetic ${wanted[end].toFixed(3)}: ${verdict}`);
  }
}
process.exit(failed ? 1 : 0);
