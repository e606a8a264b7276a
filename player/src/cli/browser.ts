/** A headless Chromium that is gone, profile included, when the program ends. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type Page } from "playwright-core";

const EXECUTABLE = process.env["MILLRACE_CHROMIUM"] ?? "/usr/bin/chromium";
const VIEWPORT = { width: 1280, height: 720 };
const LAUNCH_TIMEOUT_MS = 30_000;
const CLOSE_TIMEOUT_MS = 5_000;

const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-gpu",
  // The player speaks TCP: what carries it further is what is measured.
  "--disable-quic",
  // A proxy from the environment would be measured instead of the link.
  "--no-proxy-server",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--autoplay-policy=no-user-gesture-required",
];

export interface Browser {
  readonly page: Page;
  readonly version: string;
  /** Ends the browser and removes its profile. May be called more than once. */
  close(): Promise<void>;
}

/** Starts the browser with a profile of its own. */
export async function openBrowser(): Promise<Browser> {
  const profile = await mkdtemp(join(tmpdir(), "millrace-player-"));
  const remove = (): Promise<void> => rm(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  let context: BrowserContext;
  try {
    context = await chromium.launchPersistentContext(profile, {
      executablePath: EXECUTABLE,
      headless: true,
      args: FLAGS,
      viewport: VIEWPORT,
      timeout: LAUNCH_TIMEOUT_MS,
      // The measuring program has its own handlers, which also remove the profile.
      handleSIGINT: false,
      handleSIGTERM: false,
      handleSIGHUP: false,
    });
  } catch (cause) {
    await remove();
    throw new Error(`cannot start ${EXECUTABLE} (MILLRACE_CHROMIUM names another): ${String(cause)}`);
  }
  const page = context.pages()[0] ?? (await context.newPage());
  let closing: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    const late = new Promise<void>((resolve) => setTimeout(resolve, CLOSE_TIMEOUT_MS).unref());
    await Promise.race([context.close().catch(() => undefined), late]);
    await remove();
  };
  return { page, version: context.browser()?.version() ?? "unknown", close: () => (closing ??= close()) };
}
