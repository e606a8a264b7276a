"""The results of a run: kept in a file, and shown as the tables of docs/research/rtsp-players.md.

`results.py DIRECTORY PAGE` writes the tables from the file again.
"""

import csv
import dataclasses
import json
import pathlib
import sys

import media

LINKS = {
    "clean": "Link without loss",
    "loss": "Link with 1 % loss, each direction",
}
# How many frames fewer through the tunnel count as worse.
EXACT_TOLERANCE = 2
# A player of a live stream may come up to a group of frames later, and VLC shows no late ones.
INEXACT_TOLERANCE = media.FRAMES_OF_GROUP + EXACT_TOLERANCE
# Which frames a lost packet damages is random, even in the mean of some attempts.
LOSS_TOLERANCE = media.FRAMES // 4
LOSS_ATTEMPTS = 3

# Rows and columns in this order, others behind.
ORDER = ["clean", "loss", "live555MediaServer", "gst-rtsp-server", "camera", "mediamtx", "go2rtc",
         "SAT>IP script", "ffmpeg", "GStreamer rtspsrc", "VLC", "openRTSP", "UDP", "TCP", "HTTP"]

BEGIN, END = "<!-- begin: make rtsp-table -->", "<!-- end: make rtsp-table -->"
COLUMNS = ["link", "origin", "player", "transport", "attempt", "direct_frames", "tunnel_frames",
           "direct_s", "tunnel_s", "tunnel_datagrams", "setups_refused", "reason"]


@dataclasses.dataclass
class Cell:
    """One origin, player and transport over one link."""

    link: str
    origin: str
    player: str
    transport: str
    # Why nothing was measured: a program is missing on the machine.
    missing: str = ""
    # Why there are no frames directly, in the words of the player.
    reason: str = ""
    # From a file of known length to a player that shows all of it.
    is_exact: bool = True
    versions: dict = dataclasses.field(default_factory=dict)
    # Each has the fields of COLUMNS from `direct_frames` on.
    attempts: list = dataclasses.field(default_factory=list)

    def key(self):
        return (self.link, self.origin, self.player, self.transport)

    def shown(self):
        """What counts: the attempt with the most frames, because what else the machine did disturbed it least; of a
        link with loss the mean, because losses are chance."""
        if self.link == "loss":
            return {name: round(sum(each[name] for each in self.attempts) / len(self.attempts))
                    for name in self.attempts[0]}
        return max(self.attempts, key=lambda it: it["direct_frames"] + it["tunnel_frames"])

    def tolerance(self):
        if self.link == "loss":
            return LOSS_TOLERANCE
        return EXACT_TOLERANCE if self.is_exact else INEXACT_TOLERANCE

    def is_worse(self):
        """Whether fewer frames come through the tunnel than directly."""
        if not self.attempts:
            return False
        attempt = self.shown()
        return attempt["direct_frames"] - attempt["tunnel_frames"] > self.tolerance()

    def is_offered(self):
        """Whether the player gets frames directly."""
        return bool(self.attempts) and self.shown()["direct_frames"] > 0

    def is_convincing(self):
        """Whether another attempt would show nothing new."""
        if not self.is_offered():
            return len(self.attempts) >= 2
        if self.link == "loss":
            return len(self.attempts) >= LOSS_ATTEMPTS
        enough = not self.is_exact or \
            self.shown()["direct_frames"] >= media.FRAMES - INEXACT_TOLERANCE
        return enough and not self.is_worse()

    def is_in_connection(self):
        """Whether the media of a player that asks for UDP came in the RTSP connection."""
        attempt = self.shown()
        return self.transport == "UDP" and attempt["tunnel_frames"] > 0 and \
            attempt["tunnel_datagrams"] < attempt["tunnel_frames"]


class Results:
    """All cells, and the file that they are in."""

    def __init__(self, directory):
        self._path = directory / "cells.json"
        self._csv = directory / "cells.csv"
        self.cells = {}
        if self._path.exists():
            kept = json.loads(self._path.read_text())
            self.cells = {(cell := Cell(**each)).key(): cell for each in kept["cells"]}

    def is_done(self, key):
        return key in self.cells and not self.cells[key].missing

    def put(self, cell):
        """Keeps a cell, and writes the file."""
        # What another machine has measured says more than that this one can't.
        if cell.missing and self.is_done(cell.key()):
            return
        self.cells[cell.key()] = cell
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"cells": [dataclasses.asdict(each) for each in self.sorted()]}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(kept, indent=1) + "\n")
        part.rename(self._path)
        self._write_csv()

    def sorted(self):
        def place(key):
            return [(ORDER.index(each) if each in ORDER else len(ORDER), each) for each in key]
        return [self.cells[key] for key in sorted(self.cells, key=place)]

    def _write_csv(self):
        with open(self._csv, "w", newline="", encoding="utf-8") as file:
            rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            rows.writeheader()
            for cell in self.sorted():
                for number, attempt in enumerate(cell.attempts, 1):
                    rows.writerow({
                        "link": cell.link, "origin": cell.origin, "player": cell.player,
                        "transport": cell.transport, "attempt": number, "reason": cell.reason,
                        **attempt})


def tables(results):
    """The generated part of the page."""
    parts = []
    for link, title in LINKS.items():
        cells = [cell for cell in results.sorted() if cell.link == link]
        if cells:
            parts.append(table(title, cells))
    worse = [cell for cell in results.sorted() if cell.is_worse()]
    parts.append("### Worse through the tunnel\n\n" + (
        "".join(f"- {LINKS[cell.link]}: {cell.origin}, {cell.player}, {cell.transport}: "
                f"{shown(cell)} frames\n" for cell in worse)
        or "No cell.\n"))
    parts.append(reasons(results))
    parts.append(programs(results))
    return "\n".join(parts)


def table(title, cells):
    transports = [each for each in ["UDP", "TCP", "HTTP"]
                  if any(cell.transport == each for cell in cells)]
    by_key = {(cell.origin, cell.player, cell.transport): cell for cell in cells}
    lines = [
        f"### {title}", "",
        "| origin | player | " + " | ".join(transports) + " |",
        "|---|---|" + "---|" * len(transports),
    ]
    for origin, player in dict.fromkeys((cell.origin, cell.player) for cell in cells):
        found = [by_key.get((origin, player, each)) for each in transports]
        shown_cells = [shown(cell) if cell else "" for cell in found]
        lines.append(f"| {origin} | {player} | " + " | ".join(shown_cells) + " |")
    return "\n".join(lines) + "\n"


def shown(cell):
    if cell.missing:
        return "not available"
    attempt = cell.shown()
    direct, tunnel = attempt["direct_frames"], attempt["tunnel_frames"]
    if direct == 0 and tunnel == 0:
        return "not offered directly"
    text = f"{direct} / {tunnel}"
    if cell.is_in_connection():
        text += ", changed to TCP"
    return f"**{text}, worse**" if cell.is_worse() else text


def reasons(results):
    """Why cells have no frames directly, one line for each reason."""
    by_reason = {}
    for cell in results.sorted():
        if cell.missing:
            by_reason.setdefault((cell.missing, "not available"), []).append(cell)
        elif not cell.is_offered():
            by_reason.setdefault((cell.reason, "not offered directly"), []).append(cell)
    lines = ["### Cells without frames", "", "| cells | | reason, in the program's words |",
             "|---|---|---|"]
    for (reason, what), cells in by_reason.items():
        # The same over every link.
        names = dict.fromkeys(
            f"{cell.origin}, {cell.player}, {cell.transport}" for cell in cells)
        escaped = reason.replace("|", "\\|")
        lines.append(f"| {'; '.join(names)} | {what} | `{escaped}` |")
    return "\n".join(lines) + "\n"


def programs(results):
    versions = {}
    for cell in results.sorted():
        for program, version in cell.versions.items():
            versions.setdefault(program, {})[version] = None
    lines = ["### Versions", "", "| program | version |", "|---|---|"]
    lines += [f"| {program} | {', '.join(found)} |" for program, found in sorted(versions.items())]
    return "\n".join(lines) + "\n"


def write_page(results, page):
    """Replaces the generated part of the page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{page} lacks the lines {BEGIN} and {END}"
    page.write_text(f"{before}{BEGIN}\n\n{tables(results)}\n{END}{after}")


if __name__ == "__main__":
    write_page(Results(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]))
