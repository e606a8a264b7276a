// http3-browser.mjs PROFILE URL [FLAG...]: opens URL in a new Chromium with a copy of the profile in PROFILE (which `--keep`
// changes instead) and writes what the page measured, as JSON. The page is that of tests/interop/go/origin.go.
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "../../player/node_modules/playwright-core/index.mjs";

const EXECUTABLE = process.env["MILLRACE_CHROMIUM"] ?? "/usr/bin/chromium";
const TIMEOUT_MS = 60_000;

const [kept, url, ...flags] = process.argv.slice(2);
const keep = flags.includes("--keep");
const directory = keep ? null : await mkdtemp(join(tmpdir(), "millrace-http3-"));
const profile = directory === null ? kept : join(directory, "profile");
if (directory !== null) await cp(kept, profile, { recursive: true });

let context;
try {
  context = await chromium.launchPersistentContext(profile, {
    executablePath: EXECUTABLE,
    headless: true,
    timeout: TIMEOUT_MS,
    args: ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-proxy-server", "--no-first-run", "--disable-component-update", "--disable-sync", ...flags.filter((flag) => flag !== "--keep")],
  });
  const page = context.pages()[0] ?? (await context.newPage());
  // The network service is up before the measurement begins; nothing listens there.
  await page.goto("data:text/html,");
  await page.evaluate("fetch('http://127.0.0.1:8099/').catch(() => undefined)");
  await page.goto(url, { timeout: TIMEOUT_MS });
  await page.waitForFunction("window.result", undefined, { timeout: TIMEOUT_MS });
  console.log(JSON.stringify({ version: context.browser()?.version() ?? "unknown", ...(await page.evaluate("window.result")) }));
} finally {
  await context?.close();
  if (directory !== null) await rm(directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
}
