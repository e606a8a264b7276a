/** The few live figures in the corner of the picture. */
import { qoe } from "../src/qoe.ts";
import type { PlayerRecord } from "../src/schema.ts";

const EVERY_MS = 1000;

const show = (x: number | null | undefined, digits: number, unit: string): string => (x == null ? "–" : `${x.toFixed(digits)} ${unit}`);

function rows(record: PlayerRecord): [string, string][] {
  const now_s = record.now_s ?? 0;
  const figures = qoe(record, now_s, null);
  const last = record.samples.at(-1);
  const second = figures.seconds.at(-1);
  return [
    ["Rung", show(second?.rung_kbps, 0, "kbit/s")],
    ["Buffer", show(last?.buffer_s, 1, "s")],
    ["Throughput", show(last?.throughput_kbps, 0, "kbit/s")],
    ["Start-up", show(figures.startup_s, 2, "s")],
    ["Stalls", figures.startup_s === null ? "–" : `${figures.stalls} (${figures.stall_s.toFixed(1)} s)`],
    ["Switches", String(figures.switches)],
  ];
}

/** Keeps `list` up to date. */
export function startOverlay(list: HTMLElement, message: HTMLElement, record: () => PlayerRecord): void {
  const draw = (): void => {
    const now = record();
    list.replaceChildren(
      ...rows(now).flatMap(([name, value]) => {
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
