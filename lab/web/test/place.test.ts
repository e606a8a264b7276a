import { describe, expect, it } from "vitest";
import { place, type Box, type Mark, type Placed, type Segment } from "../src/place.ts";

const PLOT: Box = { left: 40, top: 10, right: 340, bottom: 260 };
const HEIGHT = 14;
const mark = (x: number, y: number, width = 60): Mark => ({ x, y, radius: 6, width });
const overlap = (a: Box, b: Box): boolean => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** Points along a line, a pixel or so apart. */
function along([a, b]: Segment): { x: number; y: number }[] {
  const steps = Math.ceil(Math.hypot(b.x - a.x, b.y - a.y)) + 1;
  return Array.from({ length: steps + 1 }, (_, i) => ({ x: a.x + ((b.x - a.x) * i) / steps, y: a.y + ((b.y - a.y) * i) / steps }));
}

const has = (box: Box, p: { x: number; y: number }): boolean => p.x > box.left && p.x < box.right && p.y > box.top && p.y < box.bottom;

function problems(marks: readonly Mark[], all: readonly (Placed | null)[]): string[] {
  const found: string[] = [];
  all.forEach((p, i) => {
    if (p === null) return;
    if (p.box.left < PLOT.left || p.box.right > PLOT.right || p.box.top < PLOT.top || p.box.bottom > PLOT.bottom) found.push(`${i} runs out of the plot`);
    marks.forEach((m, k) => overlap(p.box, { left: m.x - 4, right: m.x + 4, top: m.y - 4, bottom: m.y + 4 }) && found.push(`${i} lies on mark ${k}`));
    all.forEach((q, k) => {
      if (q === null || k === i) return;
      if (overlap(p.box, q.box)) found.push(`${i} lies on ${k}`);
      if (p.leader !== null && along(p.leader).some((at) => has(q.box, at))) found.push(`the leader of ${i} goes through ${k}`);
    });
  });
  return found;
}

/** Repeatable, and even enough. */
function* numbers(seed: number): Generator<number, never> {
  for (let state = seed; ; ) yield (state = (state * 16807) % 2147483647) / 2147483647;
}

describe("labels of marks", () => {
  it("stand at the right, and at the left where the plot ends", () => {
    const [inner, outer] = place([mark(100, 100), mark(330, 100)], HEIGHT, PLOT);
    expect(inner).toEqual({ box: { left: 109, top: 93, right: 169, bottom: 107 }, leader: null });
    expect(outer?.box.right).toBeCloseTo(321);
    expect(outer?.leader).toBeNull();
  });

  it("have a leader where marks stand close", () => {
    const marks = Array.from({ length: 12 }, (_, i) => mark(100 + (i % 4) * 22, 100 + Math.floor(i / 4) * 22));
    const all = place(marks, HEIGHT, PLOT);
    expect(problems(marks, all)).toEqual([]);
    expect(all.filter((p) => p !== null).length).toBeGreaterThanOrEqual(9);
    expect(all.filter((p) => p !== null && p.leader !== null).length).toBeGreaterThan(0);
  });

  it("keep clear of whiskers while there is room", () => {
    const whisker: Segment = [{ x: 60, y: 100 }, { x: 300, y: 100 }];
    const [placed] = place([mark(150, 100)], HEIGHT, PLOT, [whisker]);
    expect((placed?.box.bottom ?? 0) <= 100 || (placed?.box.top ?? 0) >= 100).toBe(true);
    const everywhere = Array.from({ length: 60 }, (_, i): Segment => [{ x: 40, y: 5 * i }, { x: 340, y: 5 * i }]);
    expect(place([mark(150, 100)], HEIGHT, PLOT, everywhere)[0]?.leader).toBeNull();
  });

  it("are omitted where there is no room", () => {
    expect(place([mark(100, 100, 400)], HEIGHT, PLOT)).toEqual([null]);
    const marks = Array.from({ length: 200 }, (_, i) => mark(45 + (i % 20) * 15, 15 + Math.floor(i / 20) * 25));
    expect(place(marks, HEIGHT, PLOT).filter((p) => p !== null).length).toBeLessThan(200);
  });

  it("never collide, wherever the marks are", () => {
    for (let seed = 1; seed <= 60; seed++) {
      const random = numbers(seed);
      const next = (low: number, high: number): number => low + random.next().value * (high - low);
      const [x, y] = [next(60, 320), next(30, 240)];
      const marks = Array.from({ length: 12 }, (_, i) => (i < 7 ? mark(x + next(-20, 20), y + next(-15, 15), next(30, 100)) : mark(next(40, 340), next(10, 260), next(30, 100))));
      expect(problems(marks, place(marks, HEIGHT, PLOT)), `seed ${seed}`).toEqual([]);
    }
  });
});
