/** The report: one file that shows everything and asks no network for anything. */
import type { ChartData } from "./chart-data.ts";
import { escape, fact, figure } from "./format.ts";
import { flatten, type Results, type Variant } from "./results.ts";

const CREDIT = "Video: Big Buck Bunny © 2008 Blender Foundation, www.bigbuckbunny.org, licensed under Creative Commons Attribution 3.0.";

const COLUMNS: readonly { readonly head: string; readonly text: (v: Variant) => string }[] = [
  { head: "Start-up", text: (v) => unit(figure(v.figures.startup_s, 2), "s") },
  { head: "Stalls", text: (v) => figure(v.figures.stalls, 0) },
  { head: "Rebuffer ratio", text: (v) => unit(figure(v.figures.rebuffer_ratio == null ? null : v.figures.rebuffer_ratio * 100, 2), "%") },
  { head: "Mean bitrate", text: (v) => unit(figure(v.figures.bitrate_kbps, 0), "kbit/s") },
  { head: "Switches", text: (v) => figure(v.figures.switches, 0) },
  { head: "PSNR", text: (v) => unit(figure(v.figures.psnr_db, 2), "dB") },
  { head: "Dropped frames", text: (v) => figure(v.session?.dropped_frames ?? v.figures.dropped_frames, 0) },
];

const unit = (value: string, name: string): string => (value === "–" ? value : `${value}\u00a0${name}`);

function table(variants: readonly Variant[]): string {
  const head = COLUMNS.map((c) => `<th scope="col">${c.head}</th>`).join("");
  const rows = variants.map((v, i) => {
    const cells = COLUMNS.map((c) => `<td data-head="${c.head}">${c.text(v)}</td>`).join("");
    return `<tr><th scope="row"><span class="key c${i}"></span>${escape(v.label)}</th>${cells}</tr>`;
  });
  return `<table class="figures"><thead><tr><td></td>${head}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
}

/** One sentence that says what the table says. */
export function summary(variants: readonly Variant[]): string {
  const rated = variants.flatMap((v) => (v.figures.bitrate_kbps == null ? [] : [{ label: v.label, kbps: v.figures.bitrate_kbps }]));
  const [best, ...others] = rated.sort((a, b) => b.kbps - a.kbps);
  if (!best || others.length === 0) return "";
  const ratios = others.map((o) => `${(best.kbps / o.kbps).toFixed(2)} times that of ${escape(o.label)}`);
  return `<p>Highest mean bitrate: ${escape(best.label)}, ${ratios.join(" and ")}.</p>`;
}

/** A second-by-second strip of what was on the screen. */
function strip(v: Variant, ladder: readonly number[], length_s: number): string {
  if (!v.session) return `<div class="strip-row"><span>${escape(v.label)}</span><div class="strip"><p>not measured</p></div></div>`;
  const percent = (s: number): string => `${((s / length_s) * 100).toFixed(3)}%`;
  const block = (kind: string, from: number, to: number, title: string): string =>
    `<i class="${kind}" style="left:${percent(from)};width:${percent(to - from)}" title="${escape(title)}"></i>`;
  const blocks: string[] = [];
  const { seconds, startup_s, stall_list, session_s } = v.session;
  for (let i = 0; i < seconds.length; ) {
    const rung = seconds[i]?.rung_kbps ?? null;
    let end = i + 1;
    while (end < seconds.length && (seconds[end]?.rung_kbps ?? null) === rung) end++;
    if (rung !== null) blocks.push(block(`rung r${ladder.indexOf(rung)}`, i, Math.min(end, session_s), `${rung} kbit/s from ${i} to ${end} s`));
    i = end;
  }
  if (startup_s !== null) blocks.push(block("startup", 0, startup_s, `start-up, ${startup_s} s`));
  for (const s of stall_list) blocks.push(block("stall", s.start_s, s.end_s, `stall of ${(s.end_s - s.start_s).toFixed(2)} s at ${s.start_s} s`));
  return `<div class="strip-row"><span>${escape(v.label)}</span><div class="strip">${blocks.join("")}</div></div>`;
}

function strips(variants: readonly Variant[]): string {
  const sessions = variants.flatMap((v) => (v.session ? [v.session] : []));
  const ladder = [...new Set(sessions.flatMap((s) => [...s.ladder_kbps, ...s.seconds.flatMap((x) => x.rung_kbps ?? [])]))].sort((a, b) => a - b);
  const length_s = Math.max(1, ...sessions.map((s) => s.session_s));
  const ticks = Array.from({ length: 7 }, (_, i) => `<span>${Math.round((i * length_s) / 6)} s</span>`).join("");
  const legend = [...ladder.map((kbps, i) => `<span><i class="rung r${i}"></i>${kbps}</span>`), '<span><i class="stall"></i>stall</span>', '<span><i class="startup"></i>start-up</span>'].join("");
  return `<div class="strips">${variants.map((v) => strip(v, ladder, length_s)).join("")}
<div class="strip-row axis"><span></span><div class="ticks">${ticks}</div></div></div>
<p class="legend">kbit/s shown: ${legend}</p>`;
}

function screenshots(variants: readonly Variant[]): string {
  const rows = Math.max(0, ...variants.map((v) => v.images.length));
  if (rows === 0) return "";
  const cells: string[] = [];
  for (let row = 0; row < rows; row++) {
    for (const v of variants) {
      const image = v.images[row];
      if (!image) cells.push('<figure class="none"></figure>');
      else cells.push(`<figure><img src="${image.dataUrl}" alt="${escape(v.label)} after ${image.t.toFixed(0)} s"><figcaption>${escape(v.label)}, ${image.t.toFixed(0)} s</figcaption></figure>`);
    }
  }
  return `<section><h2>Screenshots</h2><div class="shots" style="--columns:${variants.length}">${cells.join("")}</div></section>`;
}

function facts(results: Results): string {
  const list = results.facts.map(([key, value]) => fact(key.replace(/^config\./, ""), value)).map(([key, value]) => `<div><dt>${escape(key)}</dt><dd>${escape(value)}</dd></div>`);
  return list.length === 0 ? "" : `<section><h2>Link and run</h2><dl class="facts">${list.join("")}</dl></section>`;
}

function emulator(variants: readonly Variant[]): string {
  const columns = variants.map((v) => new Map(flatten(v.figures.emulator)));
  const keys = [...new Set(columns.flatMap((c) => [...c.keys()]))];
  if (keys.length === 0) return "";
  const head = variants.map((v) => `<th scope="col">${escape(v.label)}</th>`).join("");
  const rows = keys.map((key) => {
    const cells = columns.map((c) => `<td>${escape(c.has(key) ? fact(key, c.get(key) ?? "")[1] : "–")}</td>`).join("");
    return `<tr><th scope="row">${escape(fact(key, columns.find((c) => c.has(key))?.get(key) ?? "")[0])}</th>${cells}</tr>`;
  });
  return `<section><h2>What the link did</h2><div class="scroll"><table class="plain"><thead><tr><td></td>${head}</tr></thead><tbody>${rows.join("")}</tbody></table></div></section>`;
}

function problems(variants: readonly Variant[]): string {
  const list = variants.flatMap((v) => {
    if (!v.session) return [`${v.label}: there is no session, so nothing is drawn.`];
    const out: string[] = [];
    if (v.session.error !== null) out.push(`${v.label}: ${v.session.error}`);
    if (v.session.frozen_outside_stalls_s > 0) out.push(`${v.label}: the picture stood still for ${v.session.frozen_outside_stalls_s} s that the player does not call stalls.`);
    return out;
  });
  return list.length === 0 ? "" : `<section class="problems"><h2>Noted</h2><ul>${list.map((p) => `<li>${escape(p)}</li>`).join("")}</ul></section>`;
}

const CHARTS = [
  ["bitrate", "Bitrate shown", "kbit/s"],
  ["buffer", "Buffer", "s"],
  ["stalls", "Time stalled so far", "s"],
  ["throughput", "Throughput as the player estimates it", "kbit/s"],
  ["psnr", "PSNR of the picture, frozen seconds included", "dB"],
] as const;

/** The whole document. `script` and `style` are put inside it. */
export function renderReport(results: Results, script: string, style: string): string {
  const { variants } = results;
  const drawn = variants.map((v) => ({ label: v.label, seconds: v.session?.seconds ?? [] }));
  const data: ChartData = { variants: drawn };
  const first = variants.find((v) => v.session)?.session;
  const title = results.title ?? "The same video over the same link";
  const how = first ? `${first.session_s} s each in ${escape(first.browser)}; dash.js, ABR ${escape(first.abr)}, buffer target ${first.buffer_target_s} s.` : "";
  const charts = CHARTS.map(([id, name, of]) => `<section><h2>${name}, ${of}</h2><div class="chart" id="chart-${id}"></div></section>`).join("\n");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>${escape(title)}</title>
<style>${style}</style>
</head>
<body>
<header><h1>${escape(title)}</h1><p>${how}</p></header>
<main>
<section><h2>What the viewer got</h2>${table(variants)}${summary(variants)}</section>
${problems(variants)}
<section><h2>What was on the screen</h2>${strips(variants)}</section>
${charts}
${screenshots(variants)}
${facts(results)}
${emulator(variants)}
</main>
<footer><p>${CREDIT}</p></footer>
<script type="application/json" id="data">${JSON.stringify(data).replaceAll("<", "\\u003c")}</script>
<script>${script.replaceAll("</script", "<\\/script")}</script>
</body>
</html>
`;
}
