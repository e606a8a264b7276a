// compose-dashboard.mjs PROMETHEUS DASHBOARD: each query of the dashboard must find something, within
// 20 s: rates need two scrapes.
import { readFileSync } from "node:fs";

const [prometheus, file] = process.argv.slice(2);
const dashboard = JSON.parse(readFileSync(file, "utf8"));
const queries = dashboard.panels.flatMap((panel) => panel.targets.map((target) => ({ title: panel.title, expr: target.expr })));
const limit = Date.now() + 20_000;

async function results(expr) {
  const query = expr.replaceAll("$__rate_interval", "1m").replaceAll("$instance", ".*");
  const response = await fetch(`${prometheus}/api/v1/query?${new URLSearchParams({ query })}`, { signal: AbortSignal.timeout(5_000) });
  const answer = await response.json();
  if (answer.status !== "success") throw new Error(`${expr}: ${answer.error}`);
  return answer.data.result.length;
}

for (const { title, expr } of queries) {
  while ((await results(expr)) === 0) {
    if (Date.now() > limit) throw new Error(`"${title}" finds nothing: ${expr}`);
    await new Promise((done) => setTimeout(done, 500));
  }
}
console.error(`compose-dashboard.mjs: ${queries.length} queries find something`);
