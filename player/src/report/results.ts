/** Reads a directory of results: results.json and one sub-directory per variant. */
import { readFile } from "node:fs/promises";
import { dirname, join, resolve, sep } from "node:path";
import { z } from "zod";
import { parseJson, sessionSchema, type Session } from "../schema.ts";

const number = z.number().nullish();

/** One way of carrying the video. Fields beyond these are shown as they are, under the emulator's if they are there. */
const variantSchema = z.looseObject({
  name: z.string().optional(),
  label: z.string().optional(),
  startup_s: number,
  stalls: number,
  rebuffer_ratio: number,
  bitrate_kbps: number,
  switches: number,
  psnr_db: number,
  dropped_frames: number,
  emulator: z.record(z.string(), z.unknown()).nullish(),
});
type VariantFields = z.infer<typeof variantSchema>;

const resultsSchema = z.looseObject({
  title: z.string().optional(),
  variants: z.union([z.array(variantSchema), z.record(z.string(), variantSchema)]),
});

export interface Image {
  readonly t: number;
  readonly dataUrl: string;
}

export interface Variant {
  readonly name: string;
  readonly label: string;
  readonly figures: VariantFields;
  /** Null when the run left no session: then there is nothing to draw. */
  readonly session: Session | null;
  readonly images: readonly Image[];
}

export interface Results {
  readonly title: string | null;
  readonly variants: readonly Variant[];
  /** Everything else of results.json, flattened: what the link, the machine and the run were. */
  readonly facts: readonly (readonly [string, string])[];
}

const SCREENSHOT_MAX_BYTES = 4 * 1024 * 1024;

/** Name and value of every scalar in `value`; nested names are joined by a full stop. */
export function flatten(value: unknown, prefix = ""): [string, string][] {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value)) return value.every((v) => typeof v !== "object") ? [[prefix, value.join(", ")]] : value.flatMap((v, i) => flatten(v, `${prefix}.${i}`));
  if (typeof value === "object") return Object.entries(value).flatMap(([k, v]) => flatten(v, prefix === "" ? k : `${prefix}.${k}`));
  return [[prefix, String(value)]];
}

async function readIfThere(file: string): Promise<Buffer | null> {
  try {
    return await readFile(file);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return null;
    throw cause;
  }
}

async function readImages(session: Session, file: string, dir: string): Promise<Image[]> {
  const images: Image[] = [];
  for (const shot of session.screenshots) {
    const path = resolve(dirname(file), shot.file);
    if (!path.startsWith(resolve(dir) + sep)) throw new Error(`${file}: screenshot ${shot.file} lies outside of ${dir}`);
    const bytes = await readIfThere(path);
    if (!bytes || bytes.length > SCREENSHOT_MAX_BYTES) continue;
    const type = path.endsWith(".png") ? "png" : "jpeg";
    images.push({ t: shot.t, dataUrl: `data:image/${type};base64,${bytes.toString("base64")}` });
  }
  return images;
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

/** Reads all of `dir`. */
export async function readResults(dir: string): Promise<Results> {
  const file = join(dir, "results.json");
  const text = await readFile(file, "utf8").catch((cause: unknown) => {
    throw new Error(`${file}: cannot be read: ${String(cause)}`);
  });
  const { title, variants, rest } = listVariants(text, file);
  return {
    title,
    facts: flatten(rest),
    variants: await Promise.all(
      variants.map(async ([name, figures]) => {
        const sessionFile = join(dir, name, "session.json");
        const bytes = await readIfThere(sessionFile);
        const session = bytes && parseJson(sessionSchema, bytes.toString("utf8"), sessionFile);
        return { name, label: figures.label ?? name, figures, session, images: session ? await readImages(session, sessionFile, dir) : [] };
      }),
    ),
  };
}
