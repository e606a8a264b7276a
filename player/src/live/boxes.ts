/** Boxes of the ISO base media file format (ISO/IEC 14496-12, Section 4.2), as far as ffmpeg writes them. */

export interface Box {
  readonly type: string;
  /** Where the box begins, where what it holds begins, and where it ends. */
  readonly start: number;
  readonly content: number;
  readonly end: number;
}

/** The boxes of `data` from `from` to `to`, one after the other. Sizes of 64 bits and "to the end" are refused: no segment needs them. */
export function boxes(data: Buffer, from = 0, to = data.length): Box[] {
  const found: Box[] = [];
  for (let start = from; start < to; ) {
    const size = start + 8 <= to ? data.readUInt32BE(start) : 0;
    const end = start + size;
    if (size < 8 || end > to) throw new Error(`box at byte ${start}: ${size} bytes, allowed are 8 to ${to - start}`);
    found.push({ type: data.toString("latin1", start + 4, start + 8), start, content: start + 8, end });
    start = end;
  }
  return found;
}

/** The first box at the end of `path`, which names a box in a box and so on. */
export function findBox(data: Buffer, path: readonly string[], from = 0, to = data.length): Box | null {
  const [type, ...rest] = path;
  const box = boxes(data, from, to).find((b) => b.type === type);
  if (!box || rest.length === 0) return box ?? null;
  return findBox(data, rest, box.content, box.end);
}

/** The same, where its lack is an error. */
export function needBox(data: Buffer, path: readonly string[], from = 0, to = data.length): Box {
  const box = findBox(data, path, from, to);
  if (!box) throw new Error(`no box ${path.join("/")}`);
  return box;
}
