/** The few live figures in the corner of the picture. */
import { qoe, type Qoe } from "../src/qoe.ts";
import type { PlayerRecord, Second } from "../src/schema.ts";
import type { Heard } from "./proxy.ts";

const EVERY_MS = 1000;

const show = (x: number | null | undefined, digits: number, unit: string): string => (x == null ? "–" : `${x.toFixed(digits)} ${unit}`);

function rows(record: PlayerRecord, figures: Qoe): [string, string][] {
  const last = record.samples.at(-1);
  const second = figures.seconds.at(-1);
  return [
    ["Rung", show(second?.rung_kbps, 0, "kbit/s")],
    ...(record.live_target_s === null ? [] : liveRows(record)),
    ["Buffer", show(last?.buffer_s, 1, "s")],
    ["Throughput", show(last?.throughput_kbps, 0, "kbit/s")],
    ["Start-up", show(figures.startup_s, 2, "s")],
    ["Stalls", figures.startup_s === null ? "–" : `${figures.stalls} (${figures.stall_s.toFixed(1)} s)`],
    ["Switches", String(figures.switches)],
  ];
}

function liveRows(record: PlayerRecord): [string, string][] {
  const last = record.samples.at(-1);
  return [
    ["Latency", `${show(last?.latency_s, 2, "s")} of ${show(record.live_target_s, 2, "s")}`],
    ["Speed", show(last?.playback_rate, 2, "x")],
  ];
}

/** What the proxy says. */
function proxyRows(heard: Heard): [string, string][] {
  const { carried, algorithm, changed_ms } = heard;
  const why = { asking: "asking", answered: "no flow of this session", failed: "no answer" }[heard.state];
  const since = changed_ms === null ? "" : `, for ${((performance.now() - changed_ms) / 1000).toFixed(0)} s`;
  return [
    ["Algorithm", carried === null ? why : carried.algorithm === null ? "bypassed" : `${algorithm}${since}`],
    ["Proxy rate", show(carried?.rate_mbps, 1, "Mbit/s")],
    ["Proxy RTT", show(carried?.rtt_ms, 1, "ms")],
  ];
}

export interface Shown {
  readonly record: () => PlayerRecord;
  /** Null: no proxy is asked. */
  readonly heard: () => Heard | null;
  /** Sees the session's seconds. */
  readonly chart: (seconds: readonly Second[]) => void;
}

/** Keeps `list` up to date. */
export function startOverlay(list: HTMLElement, message: HTMLElement, { record, heard, chart }: Shown): void {
  const draw = (): void => {
    const now = record();
    const figures = qoe(now, now.now_s ?? 0, null);
    chart(figures.seconds);
    const proxy = heard();
    list.replaceChildren(
      ...[...rows(now, figures), ...(proxy ? proxyRows(proxy) : [])].flatMap(([name, value]) => {
        const dt = document.createElement("dt");
        const dd = document.createElement("dd");
        dt.textContent = name;
        dd.textContent = value;
        return [dt, dd];
      }),
    );
    message.hidden = now.error === null;
    message.textContent = now.error;
  };
  draw();
  setInterval(draw, EVERY_MS);
}
