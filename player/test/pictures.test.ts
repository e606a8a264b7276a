/** Which frame was on the screen: from made-up sessions. */
import { describe, expect, it } from "vitest";
import { atInstant, atStreamInstant } from "../src/pictures.ts";
import type { StreamSession } from "../src/schema.ts";
import { makeRecord } from "./helpers.ts";

const FPS = 24;

/** Plays from 0.5 s, stands from 3 s to 5 s, and plays on at the top rung. */
const record = makeRecord(
  [{ t: 0.5, type: "playing" }, { t: 3, type: "waiting" }, { t: 5, type: "playing" }],
  [
    { from: 0.5, to: 3, media_s: 0, height: 360 },
    { from: 3, to: 5, media_s: 2.5, height: 360, still: true },
    { from: 5, to: 10, media_s: 2.5, height: 1080 },
  ],
  10,
);

describe("with DASH", () => {
  it("the frame is the one that was presented last, and its rung the one of its height", () => {
    expect(atInstant(record, 10, FPS, 2)).toEqual({ t: 2, buffer_s: 5, shown: { frame: 36, due: 36, media_s: 1.5, frozen_s: 0, rung_kbps: 350 } });
    expect(atInstant(record, 10, FPS, 7)?.shown).toMatchObject({ frame: 108, due: 108, rung_kbps: 3600 });
  });

  it("a frozen picture is held against what was due", () => {
    const shown = atInstant(record, 10, FPS, 4)?.shown;
    expect(shown).toMatchObject({ frame: 60, due: 60 + FPS, frozen_s: 1, rung_kbps: 350 });
  });

  it("between two samples it is the earlier one's", () => {
    expect(atInstant(record, 10, FPS, 2.09)?.shown?.frame).toBe(36);
  });

  it("before the first frame there is nothing, after the end not even that", () => {
    expect(atInstant(record, 10, FPS, 0.3)).toEqual({ t: 0.3, buffer_s: 5, shown: null });
    expect(atInstant(record, 10, FPS, 10.5)).toBeNull();
    expect(atInstant(makeRecord([], [], 4), 4, FPS, 2)?.shown).toBeNull();
  });
});

describe("with a stream", () => {
  /** Two frames a second, shown from 1 s on; the third is lost, after the fourth nothing comes for 2 s. */
  const session: StreamSession = {
    session_s: 6,
    seconds: [0, 1, 1, 0, 0, 1].map((buffer_s) => ({ buffer_s })),
    frames: [1, 1.5, null, 2.5, 5, 5.5].map((shown_s) => ({ shown_s })),
  };

  it("a lost frame leaves the one before it, and the source goes on", () => {
    expect(atStreamInstant(session, 2, 1.6)?.shown).toMatchObject({ frame: 1, due: 1, frozen_s: 0 });
    expect(atStreamInstant(session, 2, 2.1)?.shown).toMatchObject({ frame: 1, due: 2, frozen_s: expect.closeTo(0.6) as number });
  });

  it("a stall freezes its picture", () => {
    expect(atStreamInstant(session, 2, 4)).toEqual({ t: 4, buffer_s: 0, shown: { frame: 3, due: 6, media_s: 1.5, frozen_s: 1.5, rung_kbps: null } });
  });

  it("before the first frame there is nothing, after the end not even that", () => {
    expect(atStreamInstant(session, 2, 0.5)).toEqual({ t: 0.5, buffer_s: 0, shown: null });
    expect(atStreamInstant(session, 2, 7)).toBeNull();
  });
});
