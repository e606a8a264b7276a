/** The video that is encoded, and the filters that make the frames of its clip: encoder and comparisons use the same. */
import { inputOf } from "./ffmpeg.ts";

/** What the ladder is made from. */
export interface Source {
  readonly file: string;
  /** Number of the video stream in the file. */
  readonly stream: number;
  /** A whole number of frames a second lets every segment start at a whole second. */
  readonly fps: number;
  /** Of the first frame, since the begin of the file. */
  readonly start_s: number;
  /** How much is encoded: whole seconds. */
  readonly clip_s: number;
  readonly isAnamorphic: boolean;
  /** Its container has an index: a time can be searched for. */
  readonly isIndexed: boolean;
  /** What is done to it that the file does not ask for. A plain file has none. */
  readonly notes: readonly string[];
}

/** Arguments of the input. A stream that changes its size goes on in the same filters. */
export const sourceInput = (source: Source): string[] => ["-reinit_filter", "0", "-i", inputOf(source.file)];

/** Filters from input number `input` to the clip: exactly its frames, whatever the source's timing is. */
export const clipFrames = (source: Source, input: number): string =>
  `[${input}:${source.stream}]${squarePixels(source)}setpts=PTS-STARTPTS,fps=${source.fps},${REPEAT_LAST},trim=end_frame=${source.clip_s * source.fps}`;

/** How to come to a frame of the clip: arguments of the input, filters, and the number of the frame in what comes out. */
export interface Search {
  readonly input: readonly string[];
  readonly filters: string;
  readonly number: number;
}

/** Frame number `frame` of the clip, from input number `input`. */
export function searchFrame(source: Source, input: number, frame: number): Search {
  if (!source.isIndexed) return { input: sourceInput(source), filters: clipFrames(source, input), number: frame };
  const second = Math.floor(frame / source.fps);
  // A frame that is on the screen at this second may begin before it.
  const seek = ["-noaccurate_seek", "-ss", String(source.start_s + second)];
  const filters = `[${input}:${source.stream}]${squarePixels(source)}fps=${source.fps}:start_time=0,${REPEAT_LAST}`;
  return { input: [...seek, ...sourceInput(source)], filters, number: frame - second * source.fps };
}

const REPEAT_LAST = "tpad=stop=-1:stop_mode=clone";
const squarePixels = (source: Source): string => (source.isAnamorphic ? "scale=trunc(iw*sar/2)*2:ih:flags=bicubic,setsar=1," : "");
