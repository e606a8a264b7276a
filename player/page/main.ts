import { MediaPlayer } from "dashjs";
import type { PlayerRecord } from "../src/schema.ts";
import { Collector } from "./collector.ts";
import { parseOptions, playerSettings } from "./options.ts";
import { startOverlay } from "./overlay.ts";

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
  player.updateSettings(playerSettings(options));
  const collector = new Collector(player, video, options);
  const button = element("play", HTMLButtonElement);
  const { mpd } = options;
  const play = (): void => {
    button.hidden = true;
    collector.start();
    player.initialize(video, mpd, true);
  };
  window.__millrace = { record: () => collector.record(), play };
  button.hidden = options.autoplay;
  button.addEventListener("click", play, { once: true });
  if (options.autoplay) play();
  startOverlay(element("overlay", HTMLElement), message, () => collector.record());
}

start();
