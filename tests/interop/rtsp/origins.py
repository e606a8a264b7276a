"""The origins: each serves the video until it is stopped."""

import pathlib
import re
import shutil
import subprocess
import sys

from media import SECONDS
from players import Address, live555_version
from programs import wait_until
from namespaces import ORIGIN, WAYS

HERE = pathlib.Path(__file__).resolve().parent
# Debian's, which has its bindings of GStreamer.
DEBIAN_PYTHON = "/usr/bin/python3"

CAMERA_USER, CAMERA_PASSWORD = "admin", "camera-1"

MEDIAMTX = """
logLevel: info
rtmp: no
hls: no
webrtc: no
srt: no
moq: no
rtspAddress: :8554
paths:
  "~^cell-":
    runOnDemand: >-
      ffmpeg -v error -nostdin -re -i {video} -c copy -f rtsp -rtsp_transport tcp
      rtsp://127.0.0.1:$RTSP_PORT/$MTX_PATH
    runOnDemandCloseAfter: 1s
"""

GO2RTC = """
api:
  listen: ""
webrtc:
  listen: ""
rtsp:
  listen: ":8554"
streams:
"""
# The name in the command, too: go2rtc takes two streams of the same command for one.
GO2RTC_STREAM = """\
  {name}: exec:ffmpeg -v error -nostdin -re -i {video} -c copy -metadata title={name} \
-rtsp_transport tcp -f rtsp {{output}}
"""


class Origin:
    """One server program, with a stream for each way."""

    name = ""
    program = ""
    version_arguments = ["--version"]
    port = 8554
    http_port = 8554
    user = password = ""
    protocol = "rtsp"
    # It sends what its source sends after the player has come, and not a file from its begin.
    is_live = False

    def __init__(self, video, directory):
        self.video = video
        self.directory = directory

    def missing(self):
        """Why it can't be used here, or an empty text."""
        return "" if shutil.which(self.program) else f"{self.program} is not installed"

    def version(self):
        ended = subprocess.run([self.program, *self.version_arguments], capture_output=True,
                               text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
        found = re.search(r"(\d+(?:\.\d+)+[-+\w]*)", ended.stdout + ended.stderr)
        return found.group(1) if found else "unknown"

    def command(self):
        raise NotImplementedError

    def path(self, way):
        """The stream's name in the URL."""
        raise NotImplementedError

    def start(self, site):
        program = site.start(self.name, "origin", self.command())
        wait_until(f"{self.name} listens", lambda: site.listens(self.port))
        assert program.is_running(), program.said()
        return program

    def address(self, way):
        return Address(ORIGIN, self.port, self.path(way), self.http_port, self.user,
                       self.password)


class Live555(Origin):
    """live555MediaServer, which serves the files of its directory."""

    name = "live555MediaServer"
    port = 554
    http_port = 80

    def __init__(self, video, directory, tools):
        super().__init__(video, directory)
        self.program = str(tools / "live555MediaServer")

    def version(self):
        return live555_version(pathlib.Path(self.program).parent)

    def command(self):
        return ["sh", "-c", 'cd "$1" && exec "$2"', "sh", self.video.annex_b.parent, self.program]

    def path(self, way):
        return self.video.annex_b.name


class GstRtspServer(Origin):
    """gst-rtsp-server; the packages have its library, a program of ours calls it."""

    name = "gst-rtsp-server"
    program = DEBIAN_PYTHON
    options = []

    def missing(self):
        tried = subprocess.run([DEBIAN_PYTHON, HERE / "gst_server.py", "--version"],
                               capture_output=True, text=True, timeout=20, check=False)
        return "" if tried.returncode == 0 else \
            "Python's bindings of gst-rtsp-server are not installed"

    def version(self):
        tried = subprocess.run([DEBIAN_PYTHON, HERE / "gst_server.py", "--version"],
                               capture_output=True, text=True, timeout=20, check=True)
        return tried.stdout.strip()

    def command(self):
        return [DEBIAN_PYTHON, HERE / "gst_server.py", "--video", self.video.matroska,
                "--port", self.port, *self.options]

    def path(self, way):
        return "video"


class Camera(GstRtspServer):
    """The nearest to an IP camera that the packages have: Digest, port 554, sound beside the video."""

    name = "camera"
    port = 554
    http_port = 554
    user, password = CAMERA_USER, CAMERA_PASSWORD
    options = ["--user", CAMERA_USER, "--password", CAMERA_PASSWORD, "--sound"]

    def path(self, way):
        return "Streaming/Channels/101"


class Mediamtx(Origin):
    """mediamtx; a stream begins when the first player comes."""

    name = "mediamtx"
    program = "mediamtx"
    is_live = True

    def command(self):
        config = self.directory / "mediamtx.yml"
        config.write_text(MEDIAMTX.format(video=self.video.matroska))
        return [self.program, config]

    def path(self, way):
        return f"cell-{way}"


class Go2rtc(Origin):
    """go2rtc; a stream begins when the first player comes."""

    name = "go2rtc"
    program = "go2rtc"
    is_live = True

    def command(self):
        config = self.directory / "go2rtc.yaml"
        streams = [GO2RTC_STREAM.format(name=way, video=self.video.matroska) for way in WAYS]
        config.write_text(GO2RTC + "".join(streams))
        return [self.program, "-config", config]

    def path(self, way):
        return way




class SatipScript(Origin):
    """The forms of SAT>IP by a script, because no server was available."""

    name = "SAT>IP script"
    program = sys.executable
    protocol = "satip"
    port = 554

    def version(self):
        return f"Python {super().version()}"

    def command(self):
        return [self.program, HERE / "satip_script.py", "--video", self.video.transport_stream,
                "--port", self.port, "--seconds", SECONDS]

    def path(self, way):
        # A transponder of Astra 19.2; the PIDs are those of ffmpeg's muxer.
        return "?src=1&freq=11954&pol=h&ro=0.35&msys=dvbs&mtype=qpsk&plts=off&sr=27500&fec=34" \
            "&pids=0,17,256,4096"
