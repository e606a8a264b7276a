/** The few live figures in the corner of the picture. */
import { qoe, type Qoe } from "../src/qoe.ts";
import type { PlayerRecord, Second } from "../src/schema.ts";

const EVERY_MS = 1000;

const show = (x: number | null | undefined, digits: number, unit: string): string => (x == null ? "–" : `${x.toFixed(digits)} ${unit}`);

function rows(record: PlayerRecord, figures: Qoe): [string, string][] {
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

/** Keeps `list` up to date; `chart`, if there is one, sees the session's seconds. */
export function startOverlay(list: HTMLElement, message: HTMLElement, record: () => PlayerRecord, chart?: (seconds: readonly Second[]) => void): void {
  const draw = (): void => {
    const now = record();
    const figures = qoe(now, now.now_s ?? 0, null);
    chart?.(figures.seconds);
    list.replaceChildren(
      ...rows(now, figures).flatMap(([name, value]) => {
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
