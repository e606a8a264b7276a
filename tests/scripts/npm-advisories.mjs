// What `npm audit --json` wrote: exit code 0 with nothing, 1 with vulnerabilities, 2 when it is no report.
import { readFileSync } from 'node:fs';

let report = {};
try {
  report = JSON.parse(readFileSync(process.argv[2], 'utf8'));
} catch {
  // No report: told below.
}
const counts = report.metadata?.vulnerabilities;
if (counts === undefined) {
  console.log(report.message ?? report.error?.summary ?? 'npm audit has written no report');
  process.exit(2);
}
for (const [name, entry] of Object.entries(report.vulnerabilities ?? {})) {
  console.log(`${name} ${entry.range}: ${entry.severity}`);
}
process.exit(counts.total > 0 ? 1 : 0);
