/** One rung of the ladder: what the manifest announces and the encoder aims for. */
export interface Rung {
  readonly kbps: number;
  readonly width: number;
  readonly height: number;
}

/**
 * The Iris paper's bit rates. Every rung has its own size, so that the size of a presented frame
 * tells which rung it is: an independent check of what the player says.
 */
export const LADDER: readonly Rung[] = [
  { kbps: 350, width: 640, height: 360 },
  { kbps: 620, width: 768, height: 432 },
  { kbps: 1570, width: 1280, height: 720 },
  { kbps: 2540, width: 1600, height: 900 },
  { kbps: 3600, width: 1920, height: 1080 },
];

export const SEGMENT_S = 1;
/** The presentation is longer than any measurement, so that no run meets the end. */
export const PRESENTATION_MIN_S = 90;
/** A longer source is cut: encoding and comparing cost time on each machine. */
export const CLIP_MAX_S = 60;
/** Cap of the VBV over the bit rate, and its size in seconds: each second is near the announced rate. */
export const MAX_RATE_FACTOR = 1.25;
export const VBV_S = 1;
/** How far a rung's mean may be from the announced rate. */
export const RATE_TOLERANCE = 0.05;

/** How many seconds after its own a frozen frame is compared with the source. */
export const FREEZE_LAGS = 10;
/** Source frames per second compared with a frozen frame. */
export const FREEZE_SAMPLES_PER_S = 4;
/** Identical frames (black) have infinite PSNR; capped as in the literature. */
export const PSNR_CAP_DB = 60;

/** Changed whenever the commands below change what they write. */
export const RECIPE_VERSION = 1;
