import { MediaPlayer } from "dashjs";
import type { PlayerRecord, Second } from "../src/schema.ts";
import { Collector } from "./collector.ts";
import { parseOptions, playerSettings } from "./options.ts";
import { startOverlay } from "./overlay.ts";
import { sessionName, watchProxy, type Heard } from "./proxy.ts";

declare global {
  interface Window {
    /** For the measuring program: what has been recorded so far, or why nothing ever will be; with `autoplay=off`, the play request. */
    __millrace?: { readonly record?: () => PlayerRecord; readonly play?: () => void; readonly refused?: string };
  }
}

function element<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return found;
}

function start(): void {
  const video = element("video", HTMLVideoElement);
  const message = element("message", HTMLElement);
  let options;
  try {
    options = parseOptions(location.search);
  } catch (error) {
    message.textContent = String(error);
    message.hidden = false;
    window.__millrace = { refused: String(error) };
    return;
  }
  const player = MediaPlayer().create();
  const session = sessionName();
  player.updateSettings(playerSettings(options, session));
  const collector = new Collector(player, video, options);
  const record = (): PlayerRecord => collector.record();
  const button = element("play", HTMLButtonElement);
  const { mpd, proxy } = options;
  let heard = (): Heard | null => null;
  let asked = false;
  const play = (): void => {
    if (asked) return;
    asked = true;
    button.hidden = true;
    collector.start();
    if (proxy !== null) heard = watchProxy(proxy, session, (name) => collector.algorithm(name));
    player.initialize(video, mpd, true);
    // dash.js would ask one on the Internet where the manifest names none; the manifest is not there yet.
    player.clearDefaultUTCTimingSources();
  };
  window.__millrace = { record, play };
  button.hidden = options.autoplay;
  button.addEventListener("click", play);
  element("save", HTMLButtonElement).addEventListener("click", () => save(record()));
  let chart: DrawChart = () => {};
  startOverlay(element("overlay", HTMLElement), message, { record, heard: () => heard(), chart: (seconds) => chart(seconds) });
  const { autoplay, live } = options;
  if (!options.chart) {
    if (autoplay) play();
    return;
  }
  // Before the play request: the chart's code would take a share of the link from the video.
  void loadChart(element("chart", HTMLElement), live).then((loaded) => {
    chart = loaded;
    if (autoplay) play();
  });
}

type DrawChart = (seconds: readonly Second[]) => void;

/** The video plays without a chart that can't be loaded. */
async function loadChart(box: HTMLElement, live: boolean): Promise<DrawChart> {
  try {
    const { openChart } = await import("./chart.ts");
    box.hidden = false;
    return openChart(box, live);
  } catch (error) {
    console.error("the chart can't be loaded:", error);
    return () => {};
  }
}

/** Hands the log over as a file. */
function save(record: PlayerRecord): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(record)], { type: "application/json" }));
  link.download = "millrace-session.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

start();
