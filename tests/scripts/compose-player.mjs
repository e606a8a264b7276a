// compose-player.mjs URL SECONDS ALGORITHM: opens the player's page in Chromium and ends well once the
// video has been playing for so long, its pictures decoded, and the page says that this congestion control
// carries it; with an error if it has not after 30 s.
import { createRequire } from "node:module";
const { chromium } = createRequire(new URL("../../player/package.json", import.meta.url))("playwright-core");

const [url, seconds, algorithm] = process.argv.slice(2);
const limit = Date.now() + 30_000;
const browser = await chromium.launch({
  executablePath: process.env.MILLRACE_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-proxy-server", "--autoplay-policy=no-user-gesture-required"],
});
try {
  const page = await browser.newPage();
  await page.goto(url, { timeout: 10_000 });
  const look = () =>
    page.evaluate(() => {
      const video = document.querySelector("video");
      const quality = video?.getVideoPlaybackQuality();
      return {
        at_s: video?.currentTime ?? 0,
        frames: (quality?.totalVideoFrames ?? 0) - (quality?.droppedVideoFrames ?? 0),
        height: video?.videoHeight ?? 0,
        algorithm: [...document.querySelectorAll(".figures dt")].find((name) => name.textContent === "Algorithm")?.nextElementSibling?.textContent ?? "",
        message: document.querySelector(".error")?.textContent ?? "",
      };
    });
  let seen = await look();
  const missing = () => seen.at_s < Number(seconds) || seen.frames === 0 || seen.algorithm !== algorithm;
  while (missing() && Date.now() < limit) {
    await new Promise((done) => setTimeout(done, 200));
    seen = await look();
  }
  const text = `played ${seen.at_s.toFixed(1)} s, ${seen.frames} frames shown, ${seen.height} lines, algorithm "${seen.algorithm}"`;
  if (missing()) throw new Error(`${url}: ${text} after 30 s; ${seen.message}`);
  console.error(`compose-player.mjs: ${text}`);
} finally {
  await browser.close();
}
