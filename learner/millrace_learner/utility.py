"""Utility of an outcome.

rate · (smallest round trip / mean round trip)^d · (1 - share of time starved) · (1 - w · share lost beyond the path's
random loss): Kleinrock's power with an exponent for the delay sensitivity of the class, and a weight of losses.
Winstein and Balakrishnan (SIGCOMM 2013) use log rate - d log delay, which orders outcomes in the same way. The utility
is divided by that of the best algorithm on the path, so that all paths have the same weight, whatever their rate.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

# Delay sensitivity: low for downloads; a player's requests wait behind the queue; a live stream has no buffer.
DELAY_EXPONENT: Mapping[str, float] = {"bulk": 0.1, "dash": 0.3, "rtsp": 1.0}
# Weight of losses without a training file: none.
LOSS_WEIGHT = 0.0
# Class whose outcomes stand in for a class without outcomes: the simulator has no RTSP.
STANDS_FOR: Mapping[str, str] = {"rtsp": "bulk"}


@dataclass(frozen=True)
class UtilitySettings:
    """The constants of the utility."""

    delay_exponent: Mapping[str, float] = field(default_factory=lambda: DELAY_EXPONENT)
    # Decrease for each share of packets lost beyond the path's random loss; losses of 1 / weight leave nothing.
    loss_weight: float = LOSS_WEIGHT


DEFAULT = UtilitySettings()


@dataclass(frozen=True)
class Utilities:
    """`value[path, algorithm]`: the utility relative to the best algorithm; NaN without a run."""

    places: list[str]
    algorithms: list[str]
    value: np.ndarray

    def row_of(self) -> dict[str, int]:
        """Maps each path to its row."""
        return {place: row for row, place in enumerate(self.places)}


def fair_share(place: str) -> float:
    """The fair share of the rate of a path; infinite if the number of competing flows is unknown or zero."""
    if not place.startswith("{"):
        return float("inf")
    path = json.loads(place)
    return path["rate_mbps"] / (1 + path["rivals"]) if path["rivals"] > 0 else float("inf")


def smallest_rtts(*outcomes: pa.Table) -> dict[str, float]:
    """The smallest observed round trip of each path, in milliseconds."""
    found: dict[str, float] = {}
    for table in outcomes:
        for row in table.to_pylist():
            found[row["place"]] = min(found.get(row["place"], float("inf")), row["min_rtt_ms"])
    return found


def random_losses(*outcomes: pa.Table) -> dict[str, float]:
    """The share of packets that each path loses whatever the algorithm: known in the simulator, otherwise the smallest
    share that was observed."""
    found: dict[str, float] = {}
    for table in outcomes:
        for row in table.to_pylist():
            place = row["place"]
            known = json.loads(place).get("loss", 0.0) if place.startswith("{") else row["lost"]
            found[place] = min(found.get(place, 1.0), known)
    return found


def absolute(
    outcomes: pa.Table,
    of_class: str,
    smallest: Mapping[str, float],
    random: Mapping[str, float],
    settings: UtilitySettings,
) -> dict[str, dict[str, float]]:
    """The utility of each algorithm on each path, not normalised."""
    rows = outcomes.to_pylist()
    has_own = any(row["class"] == of_class for row in rows)
    source = of_class if has_own else STANDS_FOR.get(of_class, of_class)
    found: dict[str, dict[str, float]] = {}
    exponent = settings.delay_exponent[of_class]
    for row in rows:
        if row["class"] != source:
            continue
        place = row["place"]
        rate = min(row["rate_mbps"], fair_share(place))
        rtt_share = min(1.0, smallest[place] / row["mean_rtt_ms"]) if row["mean_rtt_ms"] > 0 else 0.0
        excess = max(0.0, row["lost"] - random[place])
        kept = max(0.0, 1.0 - settings.loss_weight * excess)
        value = rate * rtt_share**exponent * (1.0 - row["starved"]) * kept
        found.setdefault(place, {})[row["algorithm"]] = value
    return found


def normalised(outcomes: pa.Table, of_class: str, settings: UtilitySettings = DEFAULT) -> Utilities:
    """The normalised utilities of all paths with a positive utility."""
    found = absolute(outcomes, of_class, smallest_rtts(outcomes), random_losses(outcomes), settings)
    found = {place: values for place, values in found.items() if max(values.values()) > 0}
    places = sorted(found)
    algorithms = sorted({algorithm for values in found.values() for algorithm in values})
    value = np.full((len(places), len(algorithms)), np.nan)
    for row, place in enumerate(places):
        for column, algorithm in enumerate(algorithms):
            if algorithm in found[place]:
                value[row, column] = found[place][algorithm]
    if not places:
        return Utilities(places, algorithms, value)
    return Utilities(places, algorithms, value / np.nanmax(value, axis=1, keepdims=True))
