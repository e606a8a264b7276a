/** Videos as people have them: what is read of their streams, and that encoder and comparison see the same frames. Needs ffmpeg. */
import { mkdtemp, open, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { execute, inputOf } from "../src/media/ffmpeg.ts";
import { timingOf } from "../src/media/packets.ts";
import { probe } from "../src/media/probe.ts";
import { clipFrames, searchFrame, sourceInput, type Source } from "../src/media/source.ts";
import { mediaInfoSchema, parseJson, psnrTableSchema } from "../src/schema.ts";
import { DIST, exec } from "./site.ts";

let dir: string;
const at = (name: string): string => join(dir, name);
const H264 = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"];
const pattern = (duration_s: number, rate = 25, size = "320x180"): string[] => ["-f", "lavfi", "-i", `testsrc2=size=${size}:rate=${rate}:duration=${duration_s}`];
const tone = (duration_s: number): string[] => ["-f", "lavfi", "-i", `sine=duration=${duration_s}`];

/** Makes `name` in the test's directory. */
async function make(name: string, ...args: string[]): Promise<string> {
  await exec("ffmpeg", ["-nostdin", "-v", "error", "-y", ...args, inputOf(at(name))]);
  return at(name);
}

/** Checksums of the frames that come out of `filters`. */
async function checksums(input: readonly string[], filters: string, frames: number): Promise<string[]> {
  const out = await execute("ffmpeg", ["-nostdin", "-v", "error", ...input, "-filter_complex", `${filters},scale=64:36[o]`, "-map", "[o]", "-frames:v", String(frames), "-f", "framemd5", "-"]);
  return out.split("\n").filter((line) => line !== "" && !line.startsWith("#")).map((line) => line.split(",").at(-1)?.trim() ?? "");
}

const clipOf = (source: Source): Promise<string[]> => checksums(sourceInput(source), clipFrames(source, 0), 10_000);

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "millrace-source-"));
}, 10_000);
afterAll(() => rm(dir, { recursive: true, force: true }));

describe("an ordinary video", () => {
  const cases: { name: string; make: () => Promise<string>; is: Partial<Source>; note?: string }[] = [
    { name: "is taken as it is", make: () => make("plain.mp4", ...pattern(3), ...H264), is: { fps: 25, clip_s: 3, notes: [] } },
    { name: "may lack a frame of its last second", make: () => make("99.mp4", ...pattern(3.96), ...H264), is: { fps: 25, clip_s: 4 }, note: "3.96 s of video: its last frame is repeated until 4 s" },
    { name: "may end within a second", make: () => make("3.5.mp4", ...pattern(3.52), ...H264), is: { fps: 25, clip_s: 3 }, note: "3.52 s of video: the first 3 s are used" },
    { name: "may be shorter than its sound", make: () => make("short.mp4", ...pattern(3), ...tone(8), ...H264, "-c:a", "aac"), is: { fps: 25, clip_s: 3, notes: [] } },
    { name: "may be shorter than its sound, in Matroska", make: () => make("short.mkv", ...pattern(3), ...tone(8), ...H264, "-c:a", "aac"), is: { fps: 25, clip_s: 3 } },
    {
      name: "may have a variable frame rate, as of a phone",
      make: () => make("variable.mp4", ...pattern(6, 60), "-vf", "select='if(lt(t,3),not(mod(n,2)),not(mod(n,3)))'", "-vsync", "vfr", ...H264),
      is: { fps: 30, clip_s: 6 },
      note: "variable frame rate: 30 frames/s are made of it",
    },
    {
      name: "may stand still for seconds, as a recorded screen",
      make: () => make("screen.mkv", ...pattern(6, 60), "-vf", "select='lt(t,1)+gte(t,4.3)'", "-vsync", "vfr", ...H264),
      is: { fps: 60, clip_s: 6 },
      note: "variable frame rate",
    },
    { name: "may have a rate that is not whole", make: () => make("ntsc.mp4", ...pattern(3, 30_000 / 1001), ...H264), is: { fps: 30, clip_s: 3 } },
    {
      name: "may have cover art before it",
      make: async () => {
        await make("cover.png", ...pattern(1, 1, "64x64"), "-frames:v", "1");
        return make("cover.mkv", ...pattern(3), ...H264, "-attach", at("cover.png"), "-metadata:s:t", "mimetype=image/png");
      },
      is: { fps: 25, clip_s: 3, stream: 0 },
      note: "several video streams: number 0 is used",
    },
    {
      name: "may be the second of two streams",
      make: () => make("two.mp4", ...pattern(3), ...pattern(4, 50), "-map", "0", "-map", "1", ...H264, "-disposition:v:0", "0", "-disposition:v:1", "default"),
      is: { fps: 50, clip_s: 4, stream: 1 },
      note: "several video streams: number 1 is used",
    },
    {
      name: "may begin after its sound",
      make: () => make("late.mp4", ...tone(6), ...pattern(3), "-filter_complex", "[1:v]setpts=PTS+1.52/TB[v]", "-map", "0:a", "-map", "[v]", "-vsync", "passthrough", ...H264, "-c:a", "aac"),
      is: { fps: 25, clip_s: 3, stream: 1, start_s: expect.closeTo(1.5, 1) as number },
      note: "its first frame comes after 1.5",
    },
    {
      name: "may have been cut without encoding it",
      make: async () => {
        await make("long.mp4", ...pattern(6), ...H264, "-g", "100");
        return make("cut.mp4", "-ss", "1.3", "-i", at("long.mp4"), "-c", "copy");
      },
      is: { fps: 25, clip_s: 4 },
    },
    { name: "may lie on its side", make: async () => make("turned.mp4", "-i", await make("upright.mp4", ...pattern(3), ...H264), "-c", "copy", "-metadata:s:v:0", "rotate=90"), is: { fps: 25, clip_s: 3, notes: [] } },
    {
      name: "may be HDR",
      make: () => make("hdr.mp4", ...pattern(3), "-vf", "format=yuv420p10le,setparams=color_trc=arib-std-b67:color_primaries=bt2020:colorspace=bt2020nc", "-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error"),
      is: { fps: 25, clip_s: 3 },
      note: "HDR (HLG): no tone mapping",
    },
    { name: "may have pixels that are not square", make: () => make("wide.mp4", ...pattern(3), "-vf", "setsar=16/11", ...H264), is: { fps: 25, clip_s: 3, isAnamorphic: true }, note: "its pixels are not square" },
    { name: "may be a stream of bytes without times", make: () => make("bytes.264", ...pattern(3), ...H264), is: { fps: 25, clip_s: 3, notes: [] } },
    { name: "may have decode times only", make: () => make("old.avi", ...pattern(3), ...H264), is: { fps: 25, clip_s: 3, notes: [] } },
    { name: "may be an animated picture", make: () => make("moving.gif", ...pattern(3)), is: { fps: 25, clip_s: 3, notes: [] } },
    {
      name: "may change its size",
      make: async () => {
        const parts = [await make("a.ts", ...pattern(2), ...H264), await make("b.ts", ...pattern(2, 25, "180x320"), ...H264, "-output_ts_offset", "2")];
        await writeFile(at("change.ts"), Buffer.concat(await Promise.all(parts.map((part) => readFile(part)))));
        return at("change.ts");
      },
      is: { fps: 25, clip_s: 4 },
    },
  ];
  it.each(cases)("$name", async ({ make: makeFile, is, note }) => {
    const source = await probe(await makeFile());
    expect(source).toMatchObject(is);
    if (note !== undefined) expect(source.notes.join("\n")).toContain(note);
    const frames = await clipOf(source);
    expect(frames.length).toBe(source.clip_s * source.fps);
    // What pictures search for is what was encoded.
    for (const frame of [0, Math.round(1.9 * source.fps), frames.length - 1]) {
      const search = searchFrame(source, 0, frame);
      const found = await checksums(search.input, `${search.filters},select='eq(n,${search.number})'`, 1);
      expect(found, `frame ${frame}`).toEqual([frames[frame]]);
    }
  }, 60_000);

  it("lies as it was filmed", async () => {
    const source = await probe(at("turned.mp4"));
    const size = await execute("ffmpeg", ["-nostdin", "-v", "error", ...sourceInput(source), "-filter_complex", `${clipFrames(source, 0)}[o]`, "-map", "[o]", "-frames:v", "1", "-f", "framemd5", "-"]);
    expect(size).toContain("#dimensions 0: 180x320");
  });
});

describe("the rate", () => {
  const shown = (starts: number[]): { start_s: number; end_s: number }[] => starts.map((start_s) => ({ start_s, end_s: start_s }));
  it("is that of most frames, in whatever unit their times are", () => {
    const ms = Array.from({ length: 120 }, (_, i) => Math.round((i * 1000) / 60) / 1000);
    expect(timingOf(shown(ms), 1000)).toMatchObject({ frames: 120, fps: expect.closeTo(60, 0) as number, isVariable: false });
    const pause = [...ms, ...ms.map((s) => s + 10)];
    expect(timingOf(shown(pause), 1000)).toMatchObject({ fps: expect.closeTo(60, 0) as number, isVariable: true, length_s: expect.closeTo(12, 1) as number });
  });

  it("is the announced one for a single frame", () => {
    expect(timingOf([{ start_s: 1, end_s: 1.04 }], 25)).toEqual({ frames: 1, fps: 25, isVariable: false, start_s: 1, length_s: expect.closeTo(0.04) as number });
  });
});

describe("a file that can't be used is refused", () => {
  const half = async (from: string, to: string): Promise<string> => {
    const bytes = await readFile(from);
    await writeFile(at(to), bytes.subarray(0, bytes.length / 2));
    return at(to);
  };
  const cases: { name: string; make: () => Promise<string>; reason: string }[] = [
    { name: "sound alone", make: () => make("sound.m4a", ...tone(3), "-c:a", "aac"), reason: "it has no video stream (its streams: audio)" },
    {
      name: "sound with cover art",
      make: async () => {
        const cover = await make("front.png", ...pattern(1, 1, "64x64"), "-frames:v", "1");
        return make("song.m4a", ...tone(3), "-i", cover, "-map", "0", "-map", "1", "-c:a", "aac", "-c:v", "png", "-disposition:v:0", "attached_pic");
      },
      reason: "its only pictures are cover art; a file with a video is needed",
    },
    { name: "a picture", make: () => make("picture.png", ...pattern(1, 1), "-frames:v", "1"), reason: "of video (1 frame); at least 2 s are needed" },
    { name: "a short video with long sound", make: () => make("brief.mp4", ...pattern(1.2), ...tone(9), ...H264, "-c:a", "aac"), reason: "1.2 s of video (30 frames); at least 2 s are needed" },
    { name: "half a file", make: async () => half(await make("fast.mp4", ...pattern(8), ...H264, "-movflags", "+faststart"), "half.mp4"), reason: "is truncated: it holds " },
    { name: "half a file without its index", make: async () => half(await make("slow.mp4", ...pattern(8), ...H264), "end.mp4"), reason: "moov atom not found" },
    { name: "half a Matroska file", make: async () => half(await make("whole.mkv", ...pattern(8), ...H264), "half.mkv"), reason: "is truncated: it holds " },
    {
      name: "something else",
      make: async () => {
        await writeFile(at("text.mp4"), "not a video\n".repeat(100));
        return at("text.mp4");
      },
      reason: "is no video that ffprobe reads",
    },
  ];
  it.each(cases)("$name", async ({ make: makeFile, reason }) => {
    const file = await makeFile();
    await expect(probe(file)).rejects.toThrow(reason);
    await expect(probe(file)).rejects.toThrow(file);
  }, 60_000);

  it("at once, and nothing is left of it", async () => {
    const failed = async (...args: string[]): Promise<{ code: number; stderr: string }> => exec("node", [join(DIST, "media.js"), "--out", at("none"), ...args]).then(() => expect.fail("it ran"), (error: unknown) => error as { code: number; stderr: string });
    await (await open(at("empty.mp4"), "w")).close();
    for (const [file, code, reason] of [["sound.m4a", 70, "no video stream"], ["empty.mp4", 64, "the file is empty"], ["missing.mp4", 64, "no such file"], ["\uFFFD.mp4", 64, "not to be UTF-8"], [".", 64, "not a regular file"]] as const) {
      const error = await failed(`--media=${at(file)}`);
      expect(error.code, file).toBe(code);
      expect(error.stderr, file).toContain(reason);
    }
    expect((await readdir(dir)).filter((name) => name.includes("none"))).toEqual([]);
  }, 60_000);
});

describe("file names", () => {
  const NAMES = ["a:b %03d [x].mp4", "-dash.mp4", "it's \"so\", #1? 100%;\n{}\\=.mp4", "Köln $Number$ *.mp4"];

  it("may be any", async () => {
    const plain = await make("name.mp4", ...pattern(2), ...H264);
    for (const name of NAMES) {
      await writeFile(at(name), await readFile(plain));
      const source = await probe(at(name));
      expect((await clipOf(source)).length, name).toBe(50);
    }
  }, 60_000);

  it("may be any of sources, directories and sessions, with all that is awkward in one video", async () => {
    const [name, other] = NAMES as [string, string];
    const odd = at("what's [x], %d;a:b");
    const out = join(odd, "-out:%05d,'$Number$'");
    await exec("mkdir", ["-p", odd]);
    const cover = await make("art.png", ...pattern(1, 1, "64x64"), "-frames:v", "1");
    const filter = "[1:v]select='not(eq(mod(n,7),3))',setpts=PTS+0.4/TB[v]";
    await make("odd.mp4", "-i", cover, ...pattern(3.3, 30), ...tone(7), "-filter_complex", filter, "-map", "0", "-map", "[v]", "-map", "2", "-vsync", "passthrough", "-c:v:0", "png", "-c:v:1", "libx264", "-preset:v:1", "ultrafast", "-c:a", "aac", "-disposition:v:0", "attached_pic");
    await rename(at("odd.mp4"), join(odd, other));
    const { stdout } = await exec("node", [join(DIST, "media.js"), `--out=${out}`, `--media=${other}`, "--length-s", "5"], { cwd: odd });
    expect(JSON.parse(stdout)).toMatchObject({ dir: out, cached: false });
    const info = parseJson(mediaInfoSchema, await readFile(join(out, "media.json"), "utf8"), "media.json");
    expect(info.source).toMatchObject({ name: other, fps: 30, clip_s: 3 });
    expect(info.presentation_s).toBe(6);
    const table = parseJson(psnrTableSchema, await readFile(join(out, "psnr.json"), "utf8"), "psnr.json");
    for (const rung of table.rungs) for (const db of rung.psnr_db) expect(db, `${rung.kbps} kbit/s`).toBeGreaterThan(20);
    expect((await stat(join(out, "seg-4-00006.m4s"))).size).toBeGreaterThan(0);
    expect((await readdir(odd)).sort()).toEqual([other, "-out:%05d,'$Number$'"].sort());

    await exec("node", [join(DIST, "streams.js"), `--out=${odd}`, `--media=${join(odd, other)}`, "--mbps", "15"], { cwd: odd });
    const session = join(odd, name);
    await exec("mkdir", ["-p", session]);
    const frames = Array.from({ length: 90 }, (_, i) => ({ shown_s: i / 30 }));
    await writeFile(join(session, "session.json"), JSON.stringify({ session_s: 3, seconds: [0, 1, 2].map(() => ({ buffer_s: 1 })), frames }));
    await exec("node", [join(DIST, "pictures.js"), `--stream=${join(odd, "stream-15.json")}`, `--media=${join(odd, other)}`, "--at", "2.5", "--", session], { cwd: odd });
    const { pictures } = JSON.parse(await readFile(join(session, "pictures.json"), "utf8")) as { pictures: { psnr_db: number }[] };
    expect(pictures[0]?.psnr_db).toBeGreaterThan(20);
  }, 300_000);
});
