// compose-live.mjs URL: opens the live page of both proxies in Chromium, gives them the token of the environment variable
// TOKEN, and ends well once each shows its role, a flow that has ended, and none of it before the token; otherwise with
// an error, after 20 s at most.
import { createRequire } from "node:module";
const { chromium } = createRequire(new URL("../../player/package.json", import.meta.url))("playwright-core");

const [url] = process.argv.slice(2);
const token = process.env.TOKEN;
const browser = await chromium.launch({
  executablePath: process.env.MILLRACE_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-proxy-server"],
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(20_000);
  for (const role of ["client", "server"]) {
    await page.goto(url);
    await page.getByRole("link", { name: role }).click();
    const field = page.getByLabel("Token");
    await field.waitFor();
    if (await page.locator("#content").isVisible()) throw new Error(`the ${role} shows its flows without the token`);
    await field.fill(token);
    await field.press("Enter");
    await page.getByRole("heading", { name: `Millrace ${role}` }).waitFor();
    await page.getByText("carries flows").waitFor();
    await page.locator("#ended tbody tr", { hasText: "complete" }).first().waitFor();
  }
  console.error("compose-live.mjs: both live pages show flows that ended");
} finally {
  await browser.close();
}
