import { element } from "../../ops/src/admin/dashboard/figures.js";
import { commonScale } from "../src/scale.ts";
import type { PlayerRecord } from "../src/schema.ts";
import { openForm } from "./form.ts";
import { parseOptions, type PageOptions } from "./options.ts";
import { Session } from "./session.ts";

const DRAW_INTERVAL_MS = 1000;

declare global {
  interface Window {
    /** For programs: what the first session, or each, has recorded so far, or why nothing ever will be; with `autoplay=off`, the play request. */
    __millrace?: { readonly record?: () => PlayerRecord; readonly records?: () => PlayerRecord[]; readonly play?: () => void; readonly refused?: string };
  }
}

function start(): void {
  let page: PageOptions;
  try {
    page = parseOptions(location.search);
  } catch (error) {
    const refused = String(error);
    element("refused-why", HTMLElement).textContent = refused.replace(/^Error: /, "");
    element("refused", HTMLElement).hidden = false;
    window.__millrace = { refused };
    return;
  }
  const box = element("sessions", HTMLElement);
  document.body.classList.toggle("bare", !page.controls);
  document.body.classList.toggle("several", page.sessions.length > 1);
  if (page.controls) openForm(page);
  const sessions = page.sessions.map((options, index) => new Session(element("session-template", HTMLTemplateElement), box, index + 1, options, page));
  const play = (): void => {
    for (const session of sessions) session.play();
  };
  const [first] = sessions;
  if (!first) throw new Error("there is at least one session");
  window.__millrace = { record: () => first.record(), records: () => sessions.map((session) => session.record()), play };
  const all = element("all", HTMLButtonElement);
  all.hidden = sessions.length === 1;
  const draw = (): void => {
    for (const session of sessions) session.draw();
    const scale = commonScale(sessions.map(({ seconds }) => seconds));
    for (const session of sessions) session.drawChart(scale);
    all.textContent = sessions.every(({ isPaused }) => isPaused) ? "Play all" : "Pause all";
  };
  all.addEventListener("click", () => {
    const paused = sessions.every(({ isPaused }) => isPaused);
    for (const session of sessions) paused ? session.play() : session.pause();
    draw();
  });
  draw();
  setInterval(draw, DRAW_INTERVAL_MS);
  // Before the play request: the chart's code would take a share of the link from the video.
  void (page.chart ? addCharts(sessions) : Promise.resolve()).then(() => {
    if (page.autoplay) play();
  });
}

/** The video plays without a chart that can't be loaded. */
async function addCharts(sessions: readonly Session[]): Promise<void> {
  try {
    const { openChart } = await import("./chart.ts");
    for (const session of sessions) session.addChart(openChart);
  } catch (error) {
    console.error("the chart can't be loaded:", error);
  }
}

start();
