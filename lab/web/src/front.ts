import type { Corner } from "./chart.ts";

export interface Place {
  readonly name: string;
  readonly x: number;
  readonly y: number;
}

/** The places than which no other is better in one direction and as good in the other, from left to right. */
export function front(places: readonly Place[], ideal: Corner): Place[] {
  const [across, upwards] = ideal.split("-");
  const sx = across === "low" ? 1 : -1;
  const sy = upwards === "low" ? 1 : -1;
  const better = (a: Place, b: Place): boolean => sx * a.x <= sx * b.x && sy * a.y <= sy * b.y && (a.x !== b.x || a.y !== b.y);
  return places.filter((p) => !places.some((q) => better(q, p))).sort((a, b) => a.x - b.x || a.y - b.y);
}
