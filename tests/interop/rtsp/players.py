"""The players: each plays a URL in a namespace and says which pictures it decoded."""

import dataclasses
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import time

import media
from programs import end_with_parent
from namespaces import inside

# A player has begun within this time, or it does not begin.
START_LIMIT_S = 5
# How long a player gets to end by itself when it is told to.
GRACE_S = 2
# The user of players that refuse to run as root.
USER = "nobody"


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a stream is, for every player."""

    host: str
    port: int
    path: str
    # The port of RTSP over HTTP.
    http_port: int
    user: str = ""
    password: str = ""

    def url(self, port=None, scheme="rtsp"):
        login = f"{self.user}:{self.password}@" if self.user else ""
        return f"{scheme}://{login}{self.host}:{port or self.port}/{self.path}"


@dataclasses.dataclass
class Played:
    """Result of a player."""

    frames: int
    seconds: float
    # What it said, for the reason of a failure.
    log: str


class Player:
    """One player program."""

    name = ""
    program = ""
    version_arguments = ["--version"]
    version_pattern = r"(\d+(?:\.\d+)+)"
    # Ahead of the player's command.
    prefix = []
    protocol = "rtsp"
    transports = ["UDP", "TCP", "HTTP"]
    # It shows every frame that comes, however late.
    is_exact = True

    def missing(self):
        """Why it can't be used here, or an empty text."""
        return "" if shutil.which(self.program) else f"{self.program} is not installed"

    def version(self):
        ended = subprocess.run([*self.prefix, self.program, *self.version_arguments],
                               capture_output=True, text=True, timeout=20, check=False,
                               stdin=subprocess.DEVNULL)
        found = re.search(self.version_pattern, ended.stdout + ended.stderr)
        return found.group(1) if found else "unknown"

    def command(self, address, transport, directory):
        """The command line."""
        raise NotImplementedError

    def pictures(self, directory):
        """The checksums of the decoded pictures."""
        raise NotImplementedError

    def play(self, role, address, transport, directory, video):
        """Plays until the stream ends, or until a stream of this length must have ended."""
        directory.mkdir(parents=True)
        command = inside(role, [*self.prefix, *self.command(address, transport, directory)])
        started = time.monotonic()
        with open(directory / "stdout", "wb") as out, open(directory / "log", "wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=directory, stdin=subprocess.DEVNULL,
                stdout=out, stderr=log, preexec_fn=end_with_parent)
            try:
                wait_for_end(process, media.SECONDS + START_LIMIT_S)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        seconds = time.monotonic() - started
        frames = video.shown(self.pictures(directory))
        return Played(frames, round(seconds, 1), self.said(directory))

    @staticmethod
    def said(directory):
        return (directory / "log").read_text(errors="replace")


def live555_version(directory):
    """The version that is in the library beside the programs, which have no option to say it."""
    for library in sorted((directory / "lib").glob("libliveMedia.so.*")):
        found = re.search(rb"\b(20\d\d\.\d\d\.\d\d)\b", library.read_bytes())
        if found:
            return found.group(1).decode()
    return "unknown"


def wait_for_end(process, limit_s):
    """Waits for a player, and ends it in its own way after a time."""
    for ends_by, wait_s in [(signal.SIGINT, limit_s), (signal.SIGTERM, GRACE_S),
                            (signal.SIGKILL, GRACE_S)]:
        try:
            process.wait(wait_s)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(ends_by)
    process.wait()


class Ffmpeg(Player):
    """ffmpeg's own RTSP client."""

    name = "ffmpeg"
    program = "ffmpeg"
    version_arguments = ["-version"]

    def command(self, address, transport, directory):
        port = address.http_port if transport == "HTTP" else address.port
        return ["ffmpeg", "-hide_banner", "-nostdin", "-nostats",
                "-rtsp_transport", transport.lower(), "-i", address.url(port),
                "-map", "0:v:0", "-fps_mode", "passthrough", "-flush_packets", "1",
                "-f", "framemd5", "-"]

    def pictures(self, directory):
        return media.frame_md5((directory / "stdout").read_text(errors="replace"))


class Gstreamer(Player):
    """GStreamer's rtspsrc."""

    name = "GStreamer rtspsrc"
    program = "gst-launch-1.0"
    version_pattern = r"version (\d+(?:\.\d+)+)"

    def missing(self):
        missing = super().missing()
        for element in [] if missing else ["rtspsrc", "avdec_h264", "checksumsink"]:
            found = subprocess.run(["gst-inspect-1.0", "--exists", element], check=False,
                                   stdin=subprocess.DEVNULL, timeout=20)
            if found.returncode != 0:
                return f"GStreamer has no element {element}"
        return missing

    def command(self, address, transport, directory):
        port = address.http_port if transport == "HTTP" else address.port
        # The scheme selects RTSP over HTTP; the media are those of the RTSP connection then.
        scheme, protocols = ("rtsph", "tcp") if transport == "HTTP" else ("rtsp", transport.lower())
        return ["gst-launch-1.0", "rtspsrc", f"location={address.url(port, scheme)}",
                f"protocols={protocols}", "!", "application/x-rtp,media=video", "!",
                "rtph264depay", "!", "h264parse", "!", "avdec_h264", "!", "videoconvert", "!",
                "video/x-raw,format=I420", "!",
                "checksumsink", "hash=md5", "sync=false"]

    def pictures(self, directory):
        text = (directory / "stdout").read_text(errors="replace")
        return re.findall(r"^\d+:\d\d:\d\d\.\d+ ([0-9a-f]{32})$", text, re.MULTILINE)


class OpenRtsp(Player):
    """live555's openRTSP, which writes the stream to a file."""

    name = "openRTSP"
    program = "openRTSP"

    def __init__(self, directory):
        self.program = str(directory / "openRTSP")

    def version(self):
        return live555_version(pathlib.Path(self.program).parent)

    def command(self, address, transport, directory):
        how = {"UDP": [], "TCP": ["-t"], "HTTP": ["-T", address.http_port]}[transport]
        login = ["-u", address.user, address.password] if address.user else []
        port = address.http_port if transport == "HTTP" else address.port
        plain = dataclasses.replace(address, user="", password="")
        # A larger buffer than its 100,000 bytes, which no frame here needs.
        return [self.program, "-V", "-b", "1000000", *how, *login, plain.url(port)]

    def pictures(self, directory):
        written = directory / "video-H264-1"
        # It makes the file when the stream is set up.
        if not written.exists() or written.stat().st_size == 0:
            return []
        try:
            return media.checksums_of(written)
        except AssertionError:
            return []


class Vlc(Player):
    """VLC, with a window that writes what it shows to a file: not the frames of its first second, nor late ones."""

    name = "VLC"
    is_exact = False
    program = "cvlc"
    # It refuses to run as root.
    module = "live555"
    prefix = ["setpriv", f"--reuid={USER}", f"--regid={pwd.getpwnam(USER).pw_gid}",
              "--clear-groups", "env", "HOME=/tmp"]

    def missing(self):
        missing = super().missing()
        if missing:
            return missing
        listed = subprocess.run([*self.prefix, self.program, "--list"], capture_output=True,
                                text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
        if not re.search(rf"^\s*{self.module}\s", listed.stdout + listed.stderr, re.MULTILINE):
            return f"this VLC has no {self.module} module"
        return ""

    def command(self, address, transport, directory):
        how = {
            "UDP": ["--no-rtsp-tcp"],
            "TCP": ["--rtsp-tcp"],
            "HTTP": ["--rtsp-http", f"--rtsp-http-port={address.http_port}"],
        }[transport]
        return self.command_for([*how, address.url()], directory)

    def command_for(self, arguments, directory):
        """With the option that lets it write what it shows."""
        directory.chmod(0o755)
        pictures = directory / "pictures"
        pictures.touch()
        os.chown(pictures, pwd.getpwnam(USER).pw_uid, -1)
        return [self.program, "-I", "dummy", "--no-audio", "--no-spu", "--no-osd", "--no-interact", "-v",
                "--avcodec-hw=none", "--vout=yuv", f"--yuv-file={pictures}",
                "--play-and-exit", *arguments, "vlc://quit"]

    def pictures(self, directory):
        pictures = directory / "pictures"
        checksums = list(media.checksums_of_pictures(pictures))
        # 52 MB and more of each cell.
        pictures.unlink()
        return checksums


class VlcSatip(Vlc):
    """VLC's SAT>IP client, which Debian's VLC has."""

    name = "VLC satip"
    module = "satip"
    protocol = "satip"
    transports = ["UDP"]

    def command(self, address, transport, directory):
        return self.command_for([address.url(scheme="satip")], directory)
