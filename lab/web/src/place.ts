/** Labels of marks, placed so that none lies on another, on a mark or outside of the plot. */

export interface Box {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

export type Segment = readonly [Point, Point];

export interface Mark extends Point {
  readonly radius: number;
  /** Of its label. */
  readonly width: number;
}

export interface Placed {
  readonly box: Box;
  /** From the mark to a label that is not beside it. */
  readonly leader: Segment | null;
}

const GAP_PX = 3;
const DIRECTIONS = 16;
/** Beside a mark: right, left, above, below, then across; in sixteenths of a turn, clockwise. */
const BESIDE = [0, 8, 12, 4, 14, 2, 10, 6];
/** Between a mark and a label with a leader. */
const LEADER_GAPS_PX = [14, 22, 32, 44, 58, 74, 92];

const overlap = (a: Box, b: Box): boolean => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

const within = (a: Box, b: Box): boolean => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;

const apart = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y);

const inside = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));

const covers = (box: Box, m: Mark): boolean => apart(m, { x: inside(m.x, box.left, box.right), y: inside(m.y, box.top, box.bottom) }) < m.radius;

/** On which side of a line a point lies. */
const side = ([a, b]: Segment, p: Point): number => (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x);

const cross = (s: Segment, t: Segment): boolean => side(s, t[0]) * side(s, t[1]) < 0 && side(t, s[0]) * side(t, s[1]) < 0;

function through([a, b]: Segment, box: Box): boolean {
  if (Math.max(a.x, b.x) <= box.left || Math.min(a.x, b.x) >= box.right || Math.max(a.y, b.y) <= box.top || Math.min(a.y, b.y) >= box.bottom) return false;
  const corners = [box.left, box.right].flatMap((x) => [box.top, box.bottom].map((y) => side([a, b], { x, y })));
  return corners.some((s) => s >= 0) && corners.some((s) => s <= 0);
}

function distance(p: Point, [a, b]: Segment): number {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const share = inside(((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy || 1), 0, 1);
  return apart(p, { x: a.x + share * dx, y: a.y + share * dy });
}

/** The label with its nearest side or corner at this distance from the mark's edge. */
function at(mark: Mark, direction: number, gap: number, height: number): Placed {
  const [cos, sin] = [Math.cos((direction * 2 * Math.PI) / DIRECTIONS), Math.sin((direction * 2 * Math.PI) / DIRECTIONS)];
  const from = (size: number, towards: number): number => (towards > 0.3 ? 0 : towards < -0.3 ? -size : -size / 2);
  const tip = { x: mark.x + (mark.radius + gap) * cos, y: mark.y + (mark.radius + gap) * sin };
  const left = tip.x + from(mark.width, cos);
  const top = tip.y + from(height, sin);
  const edge = { x: mark.x + mark.radius * cos, y: mark.y + mark.radius * sin };
  return { box: { left, top, right: left + mark.width, bottom: top + height }, leader: gap > GAP_PX ? [edge, tip] : null };
}

/**
 * A place for the label of each mark, or none where there is no room. Labels stand beside their mark
 * where they can, those first that have the fewest such places; the others further off, with a
 * leader. `lines` are kept clear while there is room elsewhere.
 */
export function place(marks: readonly Mark[], height: number, plot: Box, lines: readonly Segment[] = []): (Placed | null)[] {
  const placed: (Placed | null)[] = marks.map(() => null);
  const taken = (): Placed[] => placed.filter((p) => p !== null);

  const standsFree = ({ box }: Placed): boolean => within(box, plot) && !marks.some((m) => covers(box, m));
  const isClear = ({ box }: Placed): boolean => !lines.some((line) => through(line, box));
  const isApart = ({ box }: Placed): boolean => !taken().some((p) => overlap(box, p.box) || (p.leader !== null && through(p.leader, box)));
  const leadsFree = ({ leader }: Placed, own: Mark): boolean => {
    if (leader === null) return true;
    // What lies on the mark itself can't be led around.
    const meets = (m: Mark): boolean => apart(m, own) > own.radius && distance(m, leader) < m.radius;
    return !marks.some(meets) && !taken().some((p) => through(leader, p.box) || (p.leader !== null && cross(leader, p.leader)));
  };

  const beside = marks.map((mark) => BESIDE.map((direction) => at(mark, direction, GAP_PX, height)).filter(standsFree));
  const withLeader = (mark: Mark): Placed[] => LEADER_GAPS_PX.flatMap((gap) => Array.from({ length: DIRECTIONS }, (_, direction) => at(mark, direction, gap, height))).filter(standsFree);
  const room = (index: number): number => beside[index]?.filter(isClear).length ?? 0;
  const order = marks.map((_, index) => index).sort((a, b) => room(a) - room(b) || a - b);

  const passes: ((index: number, mark: Mark) => readonly Placed[])[] = [
    (index) => (beside[index] ?? []).filter(isClear),
    (_, mark) => withLeader(mark).filter((p) => isClear(p) && leadsFree(p, mark)),
    (index) => beside[index] ?? [],
  ];
  for (const candidates of passes) {
    for (const index of order) {
      const mark = marks[index];
      if (mark === undefined || placed[index] !== null) continue;
      placed[index] = candidates(index, mark).find(isApart) ?? null;
    }
  }
  return placed;
}
