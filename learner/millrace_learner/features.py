"""What rules may ask about a path: of an episode's beginning, and the same in Lua."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Feature:
    """One of them."""

    name: str
    # As the rules' `flow` has it.
    lua: str
    of: Callable[[Columns], np.ndarray]
    # In a comparison, digits that mean something.
    digits: int = 3


def _is(algorithm: str) -> Feature:
    return Feature(
        f"is {algorithm}",
        f'flow.algorithm == "{algorithm}"',
        lambda columns: (columns["before"] == algorithm).astype(float),
    )


# All of the last ten seconds: what a path was before it became another one is no guide.
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
    # The queue, and how deep it has been.
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
    # Of a steady sender on a steady path it is one.
    Feature(
        "steadiness",
        "flow.mean_delivery_mbps / flow.max_delivery_mbps",
        lambda c: c["mean_delivery_mbps"] / c["max_delivery_mbps"],
    ),
)


def features(algorithms: list[str]) -> list[Feature]:
    """Numbers, and which algorithm drove while they were what they are: its own losses and queue are among
    them."""
    return [*NUMBERS, *(_is(algorithm) for algorithm in algorithms)]


def columns(samples: pa.Table) -> Columns:
    """As arrays."""
    return {name: samples.column(name).to_numpy(zero_copy_only=False) for name in samples.column_names}


def matrix(chosen: list[Feature], of: Columns) -> np.ndarray:
    """A row for each sample, a column for each feature."""
    return np.column_stack([feature.of(of) for feature in chosen]) if len(of["before"]) else np.empty((0, len(chosen)))
