// Checks the demo's claims on the medians of all runs below a directory. Invalid sessions are excluded. Where a
// transport has no valid session, its invalid ones are checked against the same bounds, with a note.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

// The page notes every 0.1 s which rung is shown (SAMPLE_MS in player/page/collector.ts), so that the time of a change
// of rung is known to that step: two sessions that show the same segments differ by up to so much. For one change between
// the ends of the ladder in 60 s these are 5.5 kbit/s; one segment more at the first rung makes 50 kbit/s.
const SAMPLE_STEP_S = 0.1;

const dir = process.argv[2];
const runs = readdirSync(dir).map((run) => JSON.parse(readFileSync(join(dir, run, "results.json"), "utf8")).variants);

function counting(variant) {
  const sessions = runs.flatMap((run) => run[variant] ?? []);
  const valid = sessions.filter((session) => session.valid !== false);
  if (valid.length > 0) return valid;
  console.log(`no session of ${variant} is valid; its invalid sessions are used: ${sessions.map((s) => s.invalid_because?.join(", ")).join("; ")}`);
  return sessions;
}

/** Difference of the mean bitrates of two sessions below which both may have shown the same, in kbit/s. */
function resolution() {
  const switches = Math.max(median("millrace", "switches"), median("bbr", "switches"));
  const { ladder_kbps, played_s } = JSON.parse(readFileSync(join(dir, readdirSync(dir)[0], "millrace", "session.json"), "utf8"));
  return (switches * SAMPLE_STEP_S * (Math.max(...ladder_kbps) - Math.min(...ladder_kbps))) / played_s;
}

const sessions = Object.fromEntries(["millrace", "cubic", "bbr"].map((variant) => [variant, counting(variant)]));

function median(variant, figure) {
  const values = sessions[variant].map((session) => session[figure]).filter((value) => typeof value === "number");
  if (values.length === 0) throw new Error(`no session of ${variant} has ${figure}`);
  return values.sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];
}

try {
  const [millrace, cubic, bbr] = ["millrace", "cubic", "bbr"].map((variant) => median(variant, "bitrate_kbps"));
  const stalls = median("millrace", "stalls");
  const within = resolution();
  const claims = [
    [`mean bitrate ${millrace} is at least 3 times CUBIC's ${cubic} kbit/s`, millrace >= 3 * cubic],
    [`mean bitrate ${millrace} is not below BBR's ${bbr} kbit/s, within the ${within.toFixed(1)} kbit/s that the measure resolves`, millrace >= bbr - within],
    [`no stall: ${stalls}`, stalls === 0],
  ];
  for (const [text, holds] of claims) console.log(`${holds ? "holds" : "FAILS"}: ${text} (${runs.length} run(s))`);
  process.exitCode = claims.every(([, holds]) => holds) ? 0 : 1;
} catch (error) {
  console.log(`FAILS: ${error.message}`);
  process.exitCode = 1;
}
