/** One session of the page: its panel, its player and what it records. */
import { MediaPlayer, type MediaPlayerClass } from "dashjs";
import { define, shown } from "../../ops/src/admin/dashboard/figures.js";
import { explainError, explainProxy, PROXY_WORDS } from "../src/messages.ts";
import { qoe, type Qoe } from "../src/qoe.ts";
import type { Scale } from "../src/scale.ts";
import type { PlayerRecord, Second } from "../src/schema.ts";
import { Collector } from "./collector.ts";
import { playerSettings, type Options, type PageOptions } from "./options.ts";
import { sessionName, stateOf, watchProxy, type Heard } from "./proxy.ts";

/** How long there may be no flow before the panel explains it: the first request has to get through. */
const NO_FLOW_MS = 4000;
/** Sessions side by side share the browser's connections, and a flow names the session of its last request alone. */
const SHARED_FLOW_MS = 10_000;
/** Of the select with the rungs: the strategy chooses. */
const AUTOMATIC = "";

export type DrawChart = (seconds: readonly Second[], scale: Scale) => void;
type Row = readonly [string, string, string?];

/** A throughput can be far above all rungs. */
const rate = (kbps: number | null | undefined): string => (kbps != null && kbps >= 10_000 ? shown(kbps / 1000, 1, "Mbit/s") : shown(kbps, 0, "kbit/s"));

function playerRows(record: PlayerRecord, figures: Qoe): Row[] {
  const last = record.samples.at(-1);
  const second = figures.seconds.at(-1);
  const live: Row[] = [
    ["Latency", `${shown(last?.latency_s, 2, "s")} of ${shown(record.live_target_s, 2, "s")}`],
    ["Speed", shown(last?.playback_rate, 2, "x")],
  ];
  return [
    ["Rung", shown(second?.rung_kbps, 0, "kbit/s")],
    ...(record.live_target_s === null ? [] : live),
    ["Buffer", shown(last?.buffer_s, 1, "s")],
    ["Throughput", rate(last?.throughput_kbps)],
    ["Mean bitrate", shown(figures.bitrate_kbps, 0, "kbit/s")],
    ["Start-up", shown(figures.startup_s, 2, "s")],
    ["Stalls", figures.startup_s === null ? "–" : `${figures.stalls} (${figures.stall_s.toFixed(1)} s)`, figures.startup_s !== null && figures.stalls > 0 ? "bad" : ""],
    ["Switches", String(figures.switches)],
    ["Dropped frames", String(last?.dropped_frames ?? 0)],
  ];
}

/** What the proxy says. */
function proxyRows(heard: Heard): Row[] {
  const { carried, algorithm, changed_ms } = heard;
  const state = stateOf(heard);
  const since = changed_ms === null ? "" : `, for ${((performance.now() - changed_ms) / 1000).toFixed(0)} s`;
  return [
    ["Algorithm", state === "carried" ? `${algorithm ?? ""}${since}` : PROXY_WORDS[state]],
    ["Proxy rate", shown(carried?.rate_mbps, 1, "Mbit/s")],
    ["Proxy RTT", shown(carried?.rtt_ms, 1, "ms")],
  ];
}

/** Shows `text`, or hides without one. Unchanged text is not set again, so that it is not read out again. */
function say(place: HTMLElement, text: string | null): void {
  place.hidden = text === null;
  if (place.textContent !== (text ?? "")) place.textContent = text ?? "";
}

export class Session {
  readonly #panel: HTMLElement;
  readonly #video: HTMLVideoElement;
  readonly #player: MediaPlayerClass;
  readonly #collector: Collector;
  readonly #options: Options;
  readonly #proxy: string | null;
  /** How long what the proxy said stays true without a flow that names the session. */
  readonly #hold_ms: number;
  readonly #name = sessionName();
  #heard: (() => Heard) | null = null;
  #noFlowSince_ms: number | null = null;
  #asked = false;
  #seconds: readonly Second[] = [];
  #drawChart: DrawChart | null = null;

  /** `number` counts from 1. The panel is added to `to`. */
  constructor(template: HTMLTemplateElement, to: HTMLElement, number: number, options: Options, page: PageOptions) {
    const panel = template.content.cloneNode(true) as DocumentFragment;
    this.#panel = panel.querySelector("section") as HTMLElement;
    to.append(panel);
    this.#options = options;
    // The proxy knows a session by CMCD.
    this.#proxy = options.cmcd === "off" ? null : page.proxy;
    this.#hold_ms = page.sessions.length > 1 ? SHARED_FLOW_MS : 0;
    this.#video = this.#part("video", HTMLVideoElement);
    this.#video.controls = page.controls;
    this.#panel.setAttribute("aria-label", `Session ${number}`);
    this.#part("h2", HTMLElement).textContent = `${page.sessions.length > 1 ? `${number}: ` : ""}${options.abr}, buffer of ${options.buffer_s} s${options.live ? ", live" : ""}`;
    this.#part(".address", HTMLElement).textContent = options.mpd;
    this.#player = MediaPlayer().create();
    this.#player.updateSettings(playerSettings(options, this.#name));
    this.#collector = new Collector(this.#player, this.#video, options);
    this.#part(".play", HTMLButtonElement).hidden = page.autoplay;
    this.#part(".play", HTMLButtonElement).addEventListener("click", () => this.play());
    this.#part(".save", HTMLButtonElement).addEventListener("click", () => save(this.record(), number));
    const rungs = this.#part(".rungs", HTMLSelectElement);
    rungs.addEventListener("change", () => this.#selectRung(rungs.value));
    this.#player.on(MediaPlayer.events.STREAM_INITIALIZED, () => this.#offerRungs(rungs), undefined, {});
  }

  /** The play request. */
  play(): void {
    if (this.#asked) {
      void this.#video.play();
      return;
    }
    this.#asked = true;
    this.#part(".play", HTMLButtonElement).hidden = true;
    this.#collector.start();
    if (this.#proxy !== null) this.#heard = watchProxy(this.#proxy, this.#name, this.#hold_ms, (algorithm) => this.#collector.algorithm(algorithm));
    this.#player.initialize(this.#video, this.#options.mpd, true);
    // dash.js would ask one on the Internet where the manifest names none; the manifest is not there yet.
    this.#player.clearDefaultUTCTimingSources();
  }

  pause(): void {
    this.#video.pause();
  }

  get isPaused(): boolean {
    return !this.#asked || this.#video.paused;
  }

  get seconds(): readonly Second[] {
    return this.#seconds;
  }

  record(): PlayerRecord {
    return this.#collector.record();
  }

  /** Brings figures and messages up to date. */
  draw(): void {
    const record = this.record();
    const figures = qoe(record, record.now_s ?? 0, null);
    this.#seconds = figures.seconds;
    const heard = this.#heard?.() ?? null;
    define(this.#part(".figures", HTMLElement), [...playerRows(record, figures), ...(heard ? proxyRows(heard) : [])]);
    say(this.#part(".error", HTMLElement), record.error === null ? null : explainError(record.error));
    say(this.#part(".note", HTMLElement), heard && this.#proxy !== null ? this.#proxyNote(heard, this.#proxy) : null);
  }

  #proxyNote(heard: Heard, proxy: string): string | null {
    const state = stateOf(heard);
    if (state !== "no_flow") this.#noFlowSince_ms = null;
    else this.#noFlowSince_ms ??= performance.now();
    if (this.#noFlowSince_ms !== null && performance.now() - this.#noFlowSince_ms < NO_FLOW_MS) return null;
    return explainProxy(state, proxy, location.origin);
  }

  /** Shows a chart from now on; `open` draws into the element that it is given. */
  addChart(open: (box: HTMLElement, live: boolean) => DrawChart): void {
    const box = this.#part(".chart", HTMLElement);
    box.hidden = false;
    this.#drawChart = open(box, this.#options.live);
  }

  drawChart(scale: Scale): void {
    this.#drawChart?.(this.#seconds, scale);
  }

  #offerRungs(select: HTMLSelectElement): void {
    const rungs = this.#player.getRepresentationsByType("video");
    select.replaceChildren(new Option("automatic", AUTOMATIC), ...rungs.map((r) => new Option(`${Math.round(r.bandwidth / 1000)} kbit/s, ${r.height} lines`, r.id)));
    select.disabled = rungs.length === 0;
  }

  #selectRung(id: string): void {
    const rung = this.#player.getRepresentationsByType("video").find((r) => r.id === id);
    this.#player.updateSettings({ streaming: { abr: { autoSwitchBitrate: { video: !rung } } } });
    if (rung) this.#player.setRepresentationForTypeById("video", rung.id);
    this.#collector.rungSelected(rung ? Math.round(rung.bandwidth / 1000) : null);
  }

  #part<T extends HTMLElement>(selector: string, type: new () => T): T {
    const found = this.#panel.querySelector(selector);
    if (!(found instanceof type)) throw new Error(`a session's panel has no ${type.name} ${selector}`);
    return found;
  }
}

/** Hands the log over as a file. */
function save(record: PlayerRecord, number: number): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(record)], { type: "application/json" }));
  link.download = number === 1 ? "millrace-session.json" : `millrace-session-${number}.json`;
  link.click();
  URL.revokeObjectURL(link.href);
}
