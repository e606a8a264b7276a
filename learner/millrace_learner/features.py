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


NUMBERS = (
    Feature("min_rtt_ms", "flow.min_rtt_ms", lambda c: c["min_rtt_ms"]),
    Feature("max_delivery_mbps", "flow.max_delivery_mbps", lambda c: c["max_delivery_mbps"]),
    # Megabits a second times milliseconds, in packets of 1,500 bytes.
    Feature(
        "bdp_packets",
        "flow.max_delivery_mbps * flow.min_rtt_ms / 12",
        lambda c: c["max_delivery_mbps"] * c["min_rtt_ms"] / 12,
    ),
    Feature("loss", "flow.loss", lambda c: c["loss"]),
    Feature("inflation", "flow.smoothed_rtt_ms / flow.min_rtt_ms", lambda c: c["smoothed_rtt_ms"] / c["min_rtt_ms"]),
    Feature("variation", "flow.rtt_variation_ms / flow.min_rtt_ms", lambda c: c["rtt_variation_ms"] / c["min_rtt_ms"]),
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
