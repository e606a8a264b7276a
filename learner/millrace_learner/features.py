"""Features of a path that rules may use: as columns of the episodes, and as Lua expressions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Feature:
    """A feature of a path."""

    name: str
    # Expression over the rules' `flow`.
    lua: str
    of: Callable[[Columns], np.ndarray]
    # Significant digits of a threshold.
    digits: int = 3


def _is(algorithm: str) -> Feature:
    return Feature(
        f"is {algorithm}",
        f'flow.algorithm == "{algorithm}"',
        lambda columns: (columns["before"] == algorithm).astype(float),
    )


# All over the last ten seconds: older state may belong to another path.
NUMBERS = (
    Feature("rtt_ms", "flow.recent_min_rtt_ms", lambda c: c["recent_min_rtt_ms"]),
    Feature("max_delivery_mbps", "flow.max_delivery_mbps", lambda c: c["max_delivery_mbps"]),
    # Megabits a second times milliseconds, in packets of 1,500 bytes.
    Feature(
        "bdp_packets",
        "flow.max_delivery_mbps * flow.recent_min_rtt_ms / 12",
        lambda c: c["max_delivery_mbps"] * c["recent_min_rtt_ms"] / 12,
    ),
    Feature("loss", "flow.loss", lambda c: c["loss"]),
    # Current and largest queueing delay, relative to the smallest round trip.
    Feature(
        "queue",
        "flow.smoothed_rtt_ms / flow.recent_min_rtt_ms",
        lambda c: c["smoothed_rtt_ms"] / c["recent_min_rtt_ms"],
    ),
    Feature(
        "depth",
        "flow.recent_max_rtt_ms / flow.recent_min_rtt_ms",
        lambda c: c["recent_max_rtt_ms"] / c["recent_min_rtt_ms"],
    ),
    Feature(
        "variation",
        "flow.rtt_variation_ms / flow.recent_min_rtt_ms",
        lambda c: c["rtt_variation_ms"] / c["recent_min_rtt_ms"],
    ),
    # 1 for a steady sender on a steady path.
    Feature(
        "steadiness",
        "flow.mean_delivery_mbps / flow.max_delivery_mbps",
        lambda c: c["mean_delivery_mbps"] / c["max_delivery_mbps"],
    ),
)


def features(algorithms: list[str]) -> list[Feature]:
    """The numeric features, and which algorithm was in use: it causes part of the losses and of the queue itself."""
    return [*NUMBERS, *(_is(algorithm) for algorithm in algorithms)]


def columns(samples: pa.Table) -> Columns:
    """Converts a table to arrays."""
    return {name: samples.column(name).to_numpy(zero_copy_only=False) for name in samples.column_names}


def matrix(chosen: list[Feature], of: Columns) -> np.ndarray:
    """A matrix with a row per sample and a column per feature."""
    return np.column_stack([feature.of(of) for feature in chosen]) if len(of["before"]) else np.empty((0, len(chosen)))
