"""Origins x players x transports, directly and through the tunnel: run.py BINARIES WORK LIVE555 RESULTS PAGE

BINARIES has millrace-client and millrace-server; WORK is for temporary files; LIVE555 has live555MediaServer and
openRTSP (tests/scripts/live555.sh); RESULTS is the directory of the results, PAGE the document with the tables. Cells
that are in RESULTS are kept.
"""

import argparse
import concurrent.futures
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import origins
import players
from media import FRAMES, Media
from namespaces import PREFIX, WAYS, Site, exclusive
from results import Cell, Results, write_page

MAX_ATTEMPTS = 3
LOSS_PER_MILLE = 10
# Over the link with loss.
LOSS_PLAYERS = ["ffmpeg"]
LOSS_TRANSPORTS = ["UDP", "TCP"]
# Lines of players and origins that say why there is no stream.
REASONS = [
    r".*\b461\b.*", r".*No supported stream was found.*", r".*live555.*error:.*", r".*not supported by server.*",
    r".*[Uu]nsupported [Tt]ransport.*", r".*\b(?:40[0-9]|45[0-9]|501|505)\b [A-Z].*",
    r".*\((?:4|5)\d\d\)", r".*Connection refused.*", r".*[Ii]nvalid data found.*",
    r".*[Ff]ailed to .*", r".*[Cc]ould not .*", r".*[Cc]annot .*", r".*[Ee]rror.*",
]
MAX_REASON_CHARACTERS = 160


def main():
    options = parse()
    if os.geteuid() != 0:
        sys.exit("this needs root: it makes network namespaces")
    # As an exception, so that what runs is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    results = Results(options.results)
    options.work.mkdir(parents=True, exist_ok=True)
    with exclusive(options.work), \
            tempfile.TemporaryDirectory(prefix=PREFIX, dir=options.work) as directory:
        directory = pathlib.Path(directory)
        # VLC runs as another user.
        directory.chmod(0o755)
        run = Run(options, results, directory)
        run.all()
    if options.page:
        write_page(results, options.page)
    worse = [cell for cell in results.sorted() if cell.is_worse()]
    for cell in worse:
        print(f"worse through the tunnel: {' '.join(cell.key())}")
    print(f"rtsp-table: {len(results.cells)} cells, {len(worse)} worse through the tunnel")
    sys.exit(2 if worse else 0)


def parse():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["binaries", "work", "live555", "results"]:
        arguments.add_argument(name, type=lambda text: pathlib.Path(text).resolve())
    arguments.add_argument("page", type=pathlib.Path)
    arguments.add_argument("--again", action="store_true", help="measure cells that are done, too")
    arguments.add_argument("--only", default="", metavar="TEXT",
                           help="cells with TEXT in their names, as 'clean mediamtx ffmpeg UDP'")
    arguments.add_argument("--logs", type=pathlib.Path, metavar="DIR",
                           help="keep what the players said")
    return arguments.parse_args()


class Run:
    """Measures the cells that are to be measured."""

    def __init__(self, options, results, directory):
        self._options = options
        self._results = results
        self._directory = directory
        self._video = Media(options.work)
        self._origins = [
            origins.Live555(self._video, directory, options.live555),
            origins.GstRtspServer(self._video, directory),
            origins.Camera(self._video, directory),
            origins.Mediamtx(self._video, directory),
            origins.Go2rtc(self._video, directory),
            origins.SatipScript(self._video, directory),
        ]
        self._players = [players.Ffmpeg(), players.Gstreamer(), players.Vlc(),
                         players.OpenRtsp(options.live555), players.VlcSatip()]
        self._missing = {each.name: each.missing() for each in self._players + self._origins}
        self._versions = {each.name: each.version() for each in self._players + self._origins
                          if not self._missing[each.name]}
        self._about = {
            "Millrace": millrace_version(options.binaries),
            "kernel": platform.release(),
            "processors": str(os.cpu_count()),
        }
        self._played = 0

    def all(self):
        for origin in self._origins:
            cells = [cell for cell in self._cells(origin) if self._is_wanted(cell)]
            for cell in cells:
                cell.missing = self._missing[origin.name] or self._missing[cell.player]
                if cell.missing:
                    self._results.put(cell)
                    print(f"{' '.join(cell.key())}: not available: {cell.missing}", flush=True)
            self._measure(origin, [cell for cell in cells if not cell.missing])

    def _cells(self, origin):
        fitting = [each for each in self._players if each.protocol == origin.protocol]
        for player in fitting:
            for transport in player.transports:
                yield self._cell("clean", origin, player, transport)
        for player in fitting:
            for transport in LOSS_TRANSPORTS:
                if player.name in LOSS_PLAYERS:
                    yield self._cell("loss", origin, player, transport)

    def _cell(self, link, origin, player, transport):
        versions = {each.name: self._versions[each.name] for each in [origin, player]
                    if each.name in self._versions}
        versions |= self._about
        return Cell(link, origin.name, player.name, transport,
                    is_exact=player.is_exact and not origin.is_live, versions=versions)

    def _is_wanted(self, cell):
        return self._options.only in " ".join(cell.key()) and \
            (self._options.again or not self._results.is_done(cell.key()))

    def _measure(self, origin, cells):
        """Of one origin: it listens where others do too."""
        if not cells:
            return
        with Site(self._options.binaries, self._directory) as site:
            origin.start(site)
            link = "clean"
            for cell in cells:
                if cell.link != link:
                    link = cell.link
                    site.lose(LOSS_PER_MILLE if link == "loss" else 0)
                while len(cell.attempts) < MAX_ATTEMPTS and not \
                        (cell.attempts and cell.is_convincing()):
                    self._attempt(site, origin, cell)
                self._results.put(cell)

    def _attempt(self, site, origin, cell):
        """Both ways at the same time, so that whatever else the machine does is the same for both."""
        player = next(each for each in self._players if each.name == cell.player)
        self._played += 1
        places = {way: self._directory / f"{self._played}-{way}" for way in WAYS}
        before = site.metrics()
        with concurrent.futures.ThreadPoolExecutor(len(WAYS)) as both:
            playing = {
                way: both.submit(player.play, way, origin.address(way), cell.transport,
                                 places[way], self._video)
                for way in WAYS}
            played = {way: playing[way].result() for way in WAYS}
        after = site.metrics()
        flows = risen(before, after, "millrace_flows_opened_total")
        assert flows > 0 or played["tunnel"].frames == 0, "frames came, and not through the tunnel"
        attempt = {f"{way}_frames": played[way].frames for way in WAYS}
        attempt |= {f"{way}_s": played[way].seconds for way in WAYS}
        attempt["tunnel_datagrams"] = risen(
            before, after, 'millrace_flow_datagrams_total{direction="down"}')
        attempt["setups_refused"] = risen(before, after, "millrace_rtsp_setups_refused_total")
        cell.attempts.append(attempt)
        if not cell.is_offered():
            cell.reason = reason_of(played["direct"].log)
        print(f"{' '.join(cell.key())}: {played['direct'].frames} / {played['tunnel'].frames} of "
              f"{FRAMES} frames, {played['direct'].seconds} / {played['tunnel'].seconds} s"
              f"{', ' + cell.reason if cell.reason else ''}", flush=True)
        self._put_away(cell, places)

    def _put_away(self, cell, places):
        for way, place in places.items():
            if self._options.logs:
                words = [*cell.key(), str(len(cell.attempts)), way]
                kept = self._options.logs / "-".join(words).replace(" ", "-")
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copy(place / "log", kept / "log")
                shutil.copy(place / "stdout", kept / "stdout")
            shutil.rmtree(place)


def risen(before, after, name):
    """By how much the counters with this name, or this beginning of name and labels, have risen."""
    def total(metrics):
        return sum(value for key, value in metrics.items() if key.startswith(name))
    return int(total(after) - total(before))


def reason_of(log):
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern in REASONS:
        for line in lines:
            if re.fullmatch(pattern, line):
                return shortened(line)
    return shortened(lines[-1]) if lines else "no message"


def shortened(line):
    # Addresses in memory and times differ between runs.
    line = re.sub(r"0x[0-9a-f]{6,}|\[[0-9a-f]{8,}\]", "", line)
    return re.sub(r"\s+", " ", line)[:MAX_REASON_CHARACTERS].strip()


def millrace_version(binaries):
    said = subprocess.run([binaries / "millrace-client", "--version"], capture_output=True,
                          text=True, timeout=20, check=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True,
                            text=True, timeout=20, check=False,
                            cwd=pathlib.Path(__file__).parent).stdout.strip()
    # "millrace-client 0.1.0", and the commit in brackets where the build knew it.
    return f"{said.split()[1]} (commit {commit})" if commit else said


if __name__ == "__main__":
    main()
