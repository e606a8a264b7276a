/** Writes down what the player does. Derives nothing: the figures come from `src/qoe.ts`. */
import { MediaPlayer, type MediaPlayerClass, type Representation } from "dashjs";
import type { AnnouncedRung, Appended, Download, PlayerEvent, PlayerRecord, Sample } from "../src/schema.ts";
import type { Options } from "./options.ts";

const SAMPLE_MS = 100;
/** Two hours of samples; a longer session is cut and says so. */
const SAMPLES_MAX = 72_000;
const ENTRIES_MAX = 20_000;
/** Segments whose download was seen and whose append was not. */
const PENDING_MAX = 64;

type EventValue = string | number | boolean | null;

interface AppendedEvent {
  mediaType?: string;
  segmentType?: string;
  index?: number;
  startTime?: number;
  representationId?: string;
}

/** What dash.js hands over; its own types say less, and call the end's date differently. */
interface LoadedRequest {
  mediaType: string;
  representation?: Representation;
  duration?: number;
  index?: number;
  startDate?: Date | null;
  firstByteDate?: Date | null;
  endDate?: Date | null;
}

export class Collector {
  readonly #player: MediaPlayerClass;
  readonly #video: HTMLVideoElement;
  readonly #options: Options;
  readonly #events: PlayerEvent[] = [];
  readonly #samples: Sample[] = [];
  readonly #appended: Appended[] = [];
  readonly #downloads: Download[] = [];
  readonly #durations = new Map<string, number>();
  /** Of segments that come chunk by chunk, what is there already. */
  readonly #chunkBytes = new WeakMap<LoadedRequest, number>();
  #requested_ms: number | null = null;
  #frame: { media_s: number; height: number } | null = null;
  readonly #ladder = new Map<string, AnnouncedRung>();
  #truncated = false;
  #error: string | null = null;

  constructor(player: MediaPlayerClass, video: HTMLVideoElement, options: Options) {
    this.#player = player;
    this.#video = video;
    this.#options = options;
    this.#listen();
  }

  /** The play request: the zero of all times. */
  start(): void {
    this.#requested_ms = performance.now();
    this.#event("play_request", { mpd: this.#options.mpd });
    this.#watchFrames();
    setInterval(() => this.#sample(), SAMPLE_MS);
  }

  fail(reason: string): void {
    // The addresses in dash.js's messages carry all of CMCD.
    const message = reason.replace(/\?\S*/g, "");
    this.#error ??= message;
    this.#event("error", { message });
  }

  /** The proxy says that this algorithm carries the session from now on. */
  algorithm(name: string): void {
    this.#event("algorithm", { algorithm: name });
  }

  /** The viewer holds the player to this rung; null: lets the strategy choose again. */
  rungSelected(rung_kbps: number | null): void {
    this.#event("rung_selected", { rung_kbps });
  }

  get error(): string | null {
    return this.#error;
  }

  /** A copy of everything so far, the present instant included. */
  record(): PlayerRecord {
    if (this.#requested_ms !== null) this.#sample();
    return {
      version: 1,
      now_s: this.#requested_ms === null ? null : this.#now(),
      abr: this.#options.abr,
      buffer_target_s: this.#options.buffer_s,
      cmcd: this.#options.cmcd,
      live_target_s: this.#options.live ? (positive(this.#player.isReady() ? this.#player.getTargetLiveDelay() : null) ?? this.#options.latency_s) : null,
      ladder: [...this.#ladder.values()].sort((a, b) => a.kbps - b.kbps),
      events: [...this.#events],
      samples: [...this.#samples],
      appended: [...this.#appended],
      downloads: [...this.#downloads],
      truncated: this.#truncated,
      error: this.#error,
    };
  }

  #now(): number {
    return Math.round(performance.now() - (this.#requested_ms ?? performance.now())) / 1000;
  }

  #event(type: string, values: Record<string, EventValue> = {}): void {
    if (this.#events.length >= ENTRIES_MAX) this.#truncated = true;
    else this.#events.push({ t: this.#now(), type, ...values });
  }

  #listen(): void {
    const { events } = MediaPlayer;
    const on = <T>(type: string, handler: (event: T) => void): void => this.#player.on(type as never, handler as never, undefined, {});
    on(events.PLAYBACK_PLAYING, () => this.#event("playing", { media_s: this.#video.currentTime }));
    on(events.PLAYBACK_WAITING, () => this.#event("waiting", { media_s: this.#video.currentTime }));
    on(events.PLAYBACK_ENDED, () => this.#event("ended"));
    on<{ error?: { code?: number; message?: string } }>(events.ERROR, (e) => this.fail(`dash.js ${e.error?.code ?? ""}: ${e.error?.message ?? "unknown"}`));
    on(events.PLAYBACK_PAUSED, () => this.#event("paused", { media_s: this.#video.currentTime }));
    on(events.PLAYBACK_SEEKING, () => this.#event("seeking", { media_s: this.#video.currentTime }));
    on<{ error?: string }>(events.PLAYBACK_NOT_ALLOWED, () => this.fail("the browser does not allow autoplay"));
    on(events.STREAM_INITIALIZED, () => {
      for (const r of this.#player.getRepresentationsByType("video")) this.#ladder.set(r.id, announced(r));
    });
    on<{ mediaType: string; newRepresentation: Representation }>(events.QUALITY_CHANGE_REQUESTED, (e) => {
      if (e.mediaType === "video") this.#event("quality_requested", { rung_kbps: kbps(e.newRepresentation) });
    });
    on<{ request: LoadedRequest; response?: ArrayBuffer | null }>(events.FRAGMENT_LOADING_PROGRESS, ({ request, response }) => {
      this.#chunkBytes.set(request, (this.#chunkBytes.get(request) ?? 0) + (response?.byteLength ?? 0));
    });
    on<{ request: LoadedRequest; response?: ArrayBuffer | null }>(events.FRAGMENT_LOADING_COMPLETED, ({ request, response }) => {
      const { representation, duration, index } = request;
      if (request.mediaType !== "video" || !representation) return;
      this.#onDownload(request, representation, response ? response.byteLength + (this.#chunkBytes.get(request) ?? 0) : undefined);
      if (typeof duration !== "number" || typeof index !== "number") return;
      this.#ladder.set(representation.id, announced(representation));
      this.#durations.set(`${representation.id}/${index}`, duration);
      const oldest = this.#durations.keys().next();
      if (this.#durations.size > PENDING_MAX && !oldest.done) this.#durations.delete(oldest.value);
    });
    on<{ request?: { representation?: Representation } }>(events.FRAGMENT_LOADING_ABANDONED, () => this.#event("request_abandoned"));
    // Not in the public list of events; the only one that tells what reached the source buffer.
    on<AppendedEvent>("bytesAppendedEndFragment", (e) => this.#onAppended(e));
  }

  #onDownload(request: LoadedRequest, representation: Representation, bytes: number | undefined): void {
    const { startDate, firstByteDate, endDate } = request;
    // Nothing of these is there for what came from nowhere.
    if (!startDate || !firstByteDate || !endDate || bytes === undefined) return;
    const t = (date: Date): number => Math.round(date.getTime() - performance.timeOrigin - (this.#requested_ms ?? 0)) / 1000;
    if (this.#downloads.length >= ENTRIES_MAX) this.#truncated = true;
    else this.#downloads.push({ start_s: t(startDate), first_byte_s: t(firstByteDate), end_s: t(endDate), bytes, rung_kbps: kbps(representation) });
  }

  #onAppended(e: AppendedEvent): void {
    if (e.mediaType !== "video" || e.segmentType !== "MediaSegment" || e.representationId === undefined || e.startTime === undefined) return;
    const rung_kbps = this.#ladder.get(e.representationId)?.kbps;
    const duration_s = this.#durations.get(`${e.representationId}/${e.index ?? ""}`);
    if (rung_kbps === undefined || duration_s === undefined) {
      this.fail(`segment ${e.representationId}/${e.index ?? "?"} was appended but its download was not seen`);
      return;
    }
    if (this.#appended.length >= ENTRIES_MAX) this.#truncated = true;
    else this.#appended.push({ t: this.#now(), start_s: e.startTime, duration_s, rung_kbps });
  }

  /** Every presented frame: what is on the screen, rather than what the media clock says. */
  #watchFrames(): void {
    const onFrame: VideoFrameRequestCallback = (_, frame) => {
      if (this.#frame === null) this.#event("first_frame", { media_s: frame.mediaTime, height: frame.height });
      this.#frame = { media_s: frame.mediaTime, height: frame.height };
      this.#video.requestVideoFrameCallback(onFrame);
    };
    this.#video.requestVideoFrameCallback(onFrame);
  }

  #sample(): void {
    if (this.#samples.length >= SAMPLES_MAX) {
      this.#truncated = true;
      return;
    }
    const throughput = this.#player.getAverageThroughput("video");
    const { buffered, currentTime } = this.#video;
    let buffer_s = 0;
    for (let i = 0; i < buffered.length; i++) {
      if (buffered.start(i) <= currentTime + 0.1 && currentTime <= buffered.end(i)) buffer_s = buffered.end(i) - currentTime;
    }
    this.#samples.push({
      t: this.#now(),
      frame_media_s: this.#frame?.media_s ?? null,
      frame_height: this.#frame?.height ?? null,
      buffer_s,
      throughput_kbps: Number.isFinite(throughput) && throughput > 0 ? throughput : null,
      dropped_frames: this.#video.getVideoPlaybackQuality().droppedVideoFrames,
      // Nothing is behind the live edge before the first frame.
      latency_s: this.#options.live && this.#frame ? positive(this.#player.getCurrentLiveLatency()) : null,
      playback_rate: this.#video.playbackRate,
    });
  }
}

const positive = (x: number | null): number | null => (x !== null && Number.isFinite(x) && x > 0 ? x : null);
const kbps = (r: Representation): number => Math.round(r.bandwidth / 1000);
const announced = (r: Representation): AnnouncedRung => ({ kbps: kbps(r), height: r.height });
