/** Reads a directory of sessions: results.json and one sub-directory per variant. */
import { readFile } from "node:fs/promises";
import { dirname, join, resolve, sep } from "node:path";
import { parseJson, sessionSchema, type Session } from "millrace-player/schema";
import { z } from "zod";
import type { Table } from "../src/chart.ts";
import { fact, flatten, measurement } from "../src/facts.ts";
import type { Figures, Screenshot, Sessions, ShownSession, Variant } from "../src/sessions/document.ts";

const number = z.number().nullish();

/** One way of carrying the video. Fields beyond these are not shown. */
const variantSchema = z.looseObject({
  name: z.string().optional(),
  label: z.string().optional(),
  startup_s: number,
  stalls: number,
  rebuffer_ratio: number,
  bitrate_kbps: number,
  switches: number,
  qoe_lin: number,
  psnr_db: number,
  dropped_frames: number,
  emulator: z.record(z.string(), z.unknown()).nullish(),
});
type VariantFields = z.infer<typeof variantSchema>;

const resultsSchema = z.looseObject({
  title: z.string().optional(),
  variants: z.union([z.array(variantSchema), z.record(z.string(), variantSchema)]),
});

const SCREENSHOT_MAX_BYTES = 4 * 1024 * 1024;

/** Reads all of `dir`. */
export async function readSessions(dir: string): Promise<Sessions> {
  const file = join(dir, "results.json");
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw new Error(`${file}: cannot be read: ${String(cause)}`);
  });
  const { title, variants, rest } = listVariants(text, file);
  const labels = labelsOf(variants);
  return {
    title: title ?? "The same video over the same link",
    facts: flatten(rest).map(([key, value]) => fact(key.replace(/^config\./, ""), value)),
    variants: await Promise.all(variants.map(([name, fields], i) => readVariant(dir, name, fields, labels[i] ?? name))),
    link: linkTable(variants.map(([, fields]) => fields), labels),
  };
}

/** `variants` as a list, whichever way the file has it. */
export function listVariants(text: string, file: string): { title: string | null; variants: [string, VariantFields][]; rest: Record<string, unknown> } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Error(`${file}: not JSON: ${String(cause)}`);
  }
  // A bare map of variants is accepted as well.
  const wrapped = typeof value === "object" && value !== null && !("variants" in value) ? { variants: value } : value;
  const { title, variants, ...rest } = parseJson(resultsSchema, JSON.stringify(wrapped), file);
  const list: [string, VariantFields][] = Array.isArray(variants)
    ? variants.map((v, i) => {
        if (v.name === undefined) throw new Error(`${file}: variants[${i}] has no name`);
        return [v.name, v];
      })
    : Object.entries(variants);
  for (const [name] of list) {
    if (!/^[\w.+-]+$/.test(name) || name.startsWith(".")) throw new Error(`${file}: variant "${name}" cannot be the name of a directory`);
  }
  if (list.length === 0) throw new Error(`${file}: no variants`);
  return { title: title ?? null, variants: list, rest };
}

/** Charts tell variants apart by their labels. */
function labelsOf(variants: readonly [string, VariantFields][]): string[] {
  const labels = variants.map(([name, fields]) => fields.label ?? name);
  return labels.map((label, i) => (labels.filter((other) => other === label).length > 1 ? `${label} (${variants[i]?.[0] ?? i})` : label));
}

async function readVariant(dir: string, name: string, fields: VariantFields, label: string): Promise<Variant> {
  const file = join(dir, name, "session.json");
  const bytes = await readIfThere(file);
  const session = bytes && parseJson(sessionSchema, bytes.toString("utf8"), file);
  return { label, figures: figuresOf(fields, session), session: session && shown(session), screenshots: session ? await readScreenshots(session, file, dir) : [] };
}

function figuresOf(fields: VariantFields, session: Session | null): Figures {
  const { startup_s = null, stalls = null, rebuffer_ratio = null, bitrate_kbps = null, switches = null, qoe_lin = null, psnr_db = null, dropped_frames = null } = fields;
  return { startup_s, stalls, rebuffer_ratio, bitrate_kbps, switches, qoe_lin, psnr_db, dropped_frames: session?.dropped_frames ?? dropped_frames };
}

const shown = ({ startup_s, stall_list, frozen_outside_stalls_s, session_s, seconds, abr, buffer_target_s, ladder_kbps, browser, error }: Session): ShownSession => ({
  startup_s, stall_list, frozen_outside_stalls_s, session_s, seconds, abr, buffer_target_s, ladder_kbps, browser, error,
});

async function readIfThere(file: string): Promise<Buffer | null> {
  try {
    return await readFile(file);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return null;
    throw cause;
  }
}

async function readScreenshots(session: Session, file: string, dir: string): Promise<Screenshot[]> {
  const screenshots: Screenshot[] = [];
  for (const shot of session.screenshots) {
    const path = resolve(dirname(file), shot.file);
    if (!path.startsWith(resolve(dir) + sep)) throw new Error(`${file}: screenshot ${shot.file} lies outside of ${dir}`);
    const bytes = await readIfThere(path);
    if (!bytes || bytes.length > SCREENSHOT_MAX_BYTES) continue;
    const type = path.endsWith(".png") ? "png" : "jpeg";
    screenshots.push({ t: shot.t, dataUrl: `data:image/${type};base64,${bytes.toString("base64")}` });
  }
  return screenshots;
}

/** What the emulator counted, a column for each variant. */
function linkTable(variants: readonly VariantFields[], labels: readonly string[]): Table | null {
  const columns = variants.map((v) => new Map(flatten(v.emulator)));
  const keys = [...new Set(columns.flatMap((c) => [...c.keys()]))];
  if (keys.length === 0) return null;
  const rows = keys.map((key) => {
    const facts = columns.map((c) => (c.has(key) ? measurement(key, c.get(key) ?? "") : null));
    return [facts.find((f) => f !== null)?.name ?? key, ...facts.map((f) => f?.value ?? "–")];
  });
  return { kind: "table", title: null, columns: ["", ...labels], rows };
}
