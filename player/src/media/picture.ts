/** A frame that a viewer saw, decoded again from what was sent, beside the source's frame that was due. */
import { psnrDb } from "./compare.ts";
import { fit } from "./encode.ts";
import { execute, inputOf } from "./ffmpeg.ts";
import { searchFrame, type Source } from "./source.ts";

/** The screen: what is smaller or larger is scaled to it, as for PSNR. */
const SCREEN = { width: 1920, height: 1080 } as const;
/** Of both pictures: the whole screen made small, and a part of its middle at full size. */
export const PICTURE = { width: 480, height: 270 } as const;
/** libwebp's: the part must show the encoder's doing, not its own. */
const WHOLE_QUALITY = 70;
const PART_QUALITY = 88;

/** An encoded clip; a byte stream can't be searched for a time. */
export interface Clip {
  readonly file: string;
  readonly isByteStream: boolean;
}

/** Where the four files go. */
export interface Files {
  readonly whole: string;
  readonly part: string;
  readonly source: string;
  readonly source_part: string;
}

/** A second before the frame, and the number that the frame then has. */
function from(frame: number, fps: number): { readonly second: number; readonly number: number } {
  const second = Math.max(0, Math.floor(frame / fps) - 1);
  return { second, number: frame - second * fps };
}

/** Writes the pictures; returns the luma PSNR of the frame. Frames are those of the clip. */
export async function drawPicture(clip: Clip, frame: number, source: Source, due: number, files: Files): Promise<number> {
  const { fps } = source;
  const sought = from(frame, fps);
  const shown = clip.isByteStream ? { input: ["-framerate", String(fps)], number: frame } : { input: ["-ss", String(sought.second)], number: sought.number };
  const wanted = searchFrame(source, 1, due);
  // What is not marked is taken for BT.709, as a browser does at this size.
  const rgb = "in_color_matrix=bt709,format=bgra";
  const small = `scale=${PICTURE.width}:${PICTURE.height}:flags=area:${rgb}`;
  const middle = `crop=${PICTURE.width}:${PICTURE.height},scale=${rgb}`;
  const graph = [
    `[0:v]select='eq(n,${shown.number})',${fit(SCREEN.width, SCREEN.height)},format=yuv420p,settb=AVTB,setpts=0,split=3[a0][a1][a2]`,
    // Frames are counted from the second searched for, also where the source's rate is variable or not quite whole.
    `${wanted.filters},select='eq(n,${wanted.number})',${fit(SCREEN.width, SCREEN.height)},format=yuv420p,settb=AVTB,setpts=0,split=3[b0][b1][b2]`,
    "[a0][b0]psnr,metadata=print:key=lavfi.psnr.mse.y:file=-[psnr]",
    `[a1]${small}[whole]`, `[a2]${middle}[part]`, `[b1]${small}[source]`, `[b2]${middle}[source_part]`,
  ].join(";");
  const image = (name: keyof Files, quality: number): string[] => ["-map", `[${name}]`, "-frames:v", "1", "-c:v", "libwebp", "-quality", String(quality), "-f", "webp", inputOf(files[name])];
  const said = await execute("ffmpeg", [
    "-nostdin", "-v", "error", "-y", ...shown.input, "-i", inputOf(clip.file), ...wanted.input, "-filter_complex", graph,
    "-map", "[psnr]", "-frames:v", "1", "-f", "null", "/dev/null",
    ...image("whole", WHOLE_QUALITY), ...image("part", PART_QUALITY), ...image("source", WHOLE_QUALITY), ...image("source_part", PART_QUALITY),
  ]);
  const mse = /lavfi\.psnr\.mse\.y=([\d.]+|inf)/.exec(said)?.[1];
  if (mse === undefined) throw new Error(`${clip.file} has no frame ${frame}, or ${source.file} no frame ${due}`);
  return psnrDb(Number(mse));
}
