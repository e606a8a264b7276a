"""The video that all origins serve, and how frames are recognised in what players decoded."""

import hashlib
import subprocess

FRAMES_PER_S = 25
SECONDS = 6
FRAMES = FRAMES_PER_S * SECONDS
WIDTH, HEIGHT = 640, 360
# A picture in I420.
FRAME_BYTES = WIDTH * HEIGHT * 3 // 2
# A player that joins a live stream waits for the next of these.
FRAMES_OF_GROUP = 12
ENCODING_LIMIT_S = 120


class Media:
    """A test pattern as H.264, in the containers that origins want, and the checksum of each frame."""

    def __init__(self, directory):
        self.annex_b = directory / "video.264"
        self.matroska = directory / "video.mkv"
        self.transport_stream = directory / "video.ts"
        if not self.transport_stream.exists():
            encode(self.annex_b, self.matroska)
            # With null packets to a constant rate, as from a receiver.
            part = directory / "part.ts"
            run(["-i", self.matroska, "-c", "copy", "-muxrate", "3M", part])
            part.rename(self.transport_stream)
        decoded = checksums_of(self.matroska)
        self._numbers = {checksum: number for number, checksum in enumerate(decoded)}
        assert len(self._numbers) == FRAMES, f"{len(self._numbers)} different frames of {FRAMES}"

    def shown(self, checksums):
        """How many frames of the video are among these pictures, each counted once, without errors."""
        return len({self._numbers[each] for each in checksums if each in self._numbers})


def encode(annex_b, matroska):
    """About 2 Mbit/s, without B frames, as cameras do: a frame takes several packets."""
    source = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FRAMES_PER_S}:duration={SECONDS}"
    run(["-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p", "-c:v", "libx264",
         "-preset", "veryfast", "-profile:v", "main", "-bf", "0", "-g", FRAMES_OF_GROUP,
         "-keyint_min", FRAMES_OF_GROUP, "-sc_threshold", "0", "-b:v", "2M", "-maxrate", "2M",
         "-bufsize", "1M", annex_b])
    run(["-framerate", FRAMES_PER_S, "-i", annex_b, "-c", "copy", matroska])


def run(arguments):
    command = ["ffmpeg", "-v", "error", "-nostdin", "-y", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=ENCODING_LIMIT_S,
                           check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def checksums_of(video):
    """The MD5 of each decoded frame of a file."""
    return frame_md5(run(["-i", video, "-map", "0:v:0", "-fps_mode", "passthrough",
                          "-f", "framemd5", "-"]))


def frame_md5(text):
    """The checksums in ffmpeg's output format `framemd5`; the last line may be incomplete."""
    fields = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    return [each[5].strip() for each in fields if len(each) == 6]


def checksums_of_pictures(path):
    """The MD5 of each picture in a file as VLC writes it: a line with the format, and a line ahead of each picture."""
    with open(path, "rb") as pictures:
        pictures.readline()
        while pictures.readline() and len(picture := pictures.read(FRAME_BYTES)) == FRAME_BYTES:
            yield hashlib.md5(picture, usedforsecurity=False).hexdigest()
