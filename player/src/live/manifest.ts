/** The manifest of the live stream: DASH-IF Interoperability Points, Part 6 (low latency), and ISO/IEC 23009-1. */
import { SEGMENT_S } from "../media/ladder.ts";
import type { Clip } from "./clip.ts";

/** How far back a player may go. */
export const WINDOW_S = 30;
/** Within which a player may change its rate to come to the target: hard to see. */
const RATE = { min: 0.96, max: 1.04 };
/** A player that is later than this jumps. */
const LATENCY_MAX_S = 6;

export interface LiveOptions {
  /** Zero of media time, in milliseconds since 1970: an encoder would have begun then. */
  readonly zero_ms: number;
  readonly latency_s: number;
}

/** How long before its end a segment can be asked for: from its first chunk on. */
export function availabilityTimeOffset(clip: Clip): number {
  const first = Math.max(...clip.rungs.flatMap((rung) => rung.segments.map(([chunk]) => chunk?.due_s ?? SEGMENT_S)));
  return Math.max(0, Math.floor((SEGMENT_S - first) * 1000) / 1000);
}

export function liveManifest(clip: Clip, { zero_ms, latency_s }: LiveOptions): string {
  const zero = new Date(zero_ms).toISOString();
  const { width, height } = clip.rungs.reduce((a, b) => (b.width > a.width ? b : a));
  const representations = clip.rungs.map((r) => `      <Representation id="${r.kbps}" codecs="${r.codecs}" bandwidth="${r.kbps * 1000}" width="${r.width}" height="${r.height}" sar="1:1"/>`);
  return `<?xml version="1.0" encoding="utf-8"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,http://www.dashif.org/guidelines/low-latency-live-v5" type="dynamic"
  availabilityStartTime="${zero}" publishTime="${zero}" minimumUpdatePeriod="PT${WINDOW_S}S" timeShiftBufferDepth="PT${WINDOW_S}S" maxSegmentDuration="PT${SEGMENT_S}S" minBufferTime="PT1S">
  <ServiceDescription id="0">
    <Latency target="${latency_s * 1000}" max="${(latency_s + LATENCY_MAX_S) * 1000}" referenceId="0"/>
    <PlaybackRate min="${RATE.min}" max="${RATE.max}"/>
  </ServiceDescription>
  <Period id="0" start="PT0S">
    <AdaptationSet id="0" contentType="video" mimeType="video/mp4" segmentAlignment="true" startWithSAP="1" frameRate="${clip.fps}" maxWidth="${width}" maxHeight="${height}" par="16:9">
      <ProducerReferenceTime id="0" type="encoder" wallClockTime="${zero}" presentationTime="0">
        <UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-xsdate:2014" value="time"/>
      </ProducerReferenceTime>
      <SegmentTemplate timescale="1000" duration="${SEGMENT_S * 1000}" startNumber="0" initialization="init-$RepresentationID$.mp4" media="seg-$RepresentationID$-$Number$.m4s"
        availabilityTimeOffset="${availabilityTimeOffset(clip)}" availabilityTimeComplete="false"/>
${representations.join("\n")}
    </AdaptationSet>
  </Period>
  <UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-xsdate:2014" value="time"/>
</MPD>
`;
}
