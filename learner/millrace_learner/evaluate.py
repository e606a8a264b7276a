"""Evaluation of rules on held-out paths: against the best algorithm of each path (the oracle), and against each
algorithm on all paths."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millrace_learner import utility


@dataclass(frozen=True)
class Verdict:
    """Shares of the oracle's utility, means over the paths."""

    of_class: str
    paths: int
    selected: float
    # Share of each algorithm alone, in descending order.
    singles: dict[str, float]

    def lines(self) -> list[str]:
        """The verdict as text."""
        name, share = next(iter(self.singles.items()))
        first = (
            f"{self.of_class}: {self.paths} paths; selected {self.selected:.4f} of the oracle, "
            f"best single ({name}) {share:.4f}"
        )
        others = ", ".join(f"{name} {share:.3f}" for name, share in self.singles.items())
        return [first, f"  {others}"]


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Combines classes with equal weight. An algorithm alone is used for all of them."""
    shared = set.intersection(*(set(verdict.singles) for verdict in verdicts))
    means = {name: float(np.mean([verdict.singles[name] for verdict in verdicts])) for name in shared}
    selected = float(np.mean([verdict.selected for verdict in verdicts]))
    ordered = dict(sorted(means.items(), key=lambda item: -item[1]))
    return Verdict("all classes", max(verdict.paths for verdict in verdicts), selected, ordered)


def shortfalls(verdicts: Sequence[Verdict], at_least: float) -> list[str]:
    """Lists missed targets: `at_least` over all classes, and in each class more than any algorithm alone."""
    overall = together(verdicts)
    found = []
    if overall.selected < at_least:
        found.append(f"{overall.of_class}: {overall.selected:.4f} of the oracle, {at_least} required")
    for verdict in (*verdicts, overall):
        name, share = next(iter(verdict.singles.items()))
        if verdict.selected <= share:
            found.append(f"{verdict.of_class}: {verdict.selected:.4f} of the oracle, {name} alone {share:.4f}")
    return found


def is_recorded(place: str) -> bool:
    """Whether a path of the simulator runs over a recorded link."""
    return place.startswith("{") and json.loads(place).get("trace") is not None


def is_moving(place: str) -> bool:
    """Whether the round trip of a path of the simulator changes repeatedly."""
    return place.startswith("{") and json.loads(place).get("moves_every_s", 0) > 0


def closed_loop(
    singles: pa.Table,
    selected: pa.Table,
    of_class: str,
    wanted: Callable[[str], bool] = lambda _: True,
    settings: utility.UtilitySettings = utility.DEFAULT,
) -> Verdict:
    """Compares runs with rules with runs of each algorithm on the same paths, limited to the `wanted` paths.

    The outcome with rules on a path is that of the whole run, over all selected algorithms.

    Raises:
        ValueError: no such path has both kinds of runs.
    """
    smallest = utility.smallest_rtts(singles, selected)
    random = utility.random_losses(singles, selected)
    utilities = utility.absolute(singles, of_class, smallest, random, settings)
    with_rules = utility.absolute(_without_algorithm(selected), of_class, smallest, random, settings)
    places = sorted(filter(wanted, utilities.keys() & with_rules.keys()))
    if not places:
        raise ValueError(f"{of_class}: no path has both runs with rules and runs with each algorithm")
    best_of = {place: max(utilities[place].values()) for place in places}
    algorithms = sorted({name for place in places for name in utilities[place]})
    share = {
        name: float(np.mean([utilities[place].get(name, 0.0) / best for place, best in best_of.items()]))
        for name in algorithms
    }
    own = [with_rules[place][SELECTED] / best for place, best in best_of.items()]
    ordered = dict(sorted(share.items(), key=lambda item: -item[1]))
    return Verdict(of_class, len(places), float(np.mean(own)), ordered)


SELECTED = "selected"


def _without_algorithm(outcomes: pa.Table) -> pa.Table:
    """Outcomes per path and class over all algorithms, weighted with their time."""
    together: dict[tuple[str, str], list[dict]] = {}
    for row in outcomes.to_pylist():
        together.setdefault((row["place"], row["class"]), []).append(row)
    rows = []
    for (place, of_class), parts in together.items():
        seconds = sum(part["seconds"] for part in parts)
        mean = lambda name: sum(part[name] * part["seconds"] for part in parts) / seconds  # noqa: B023, E731
        rows.append(
            {
                "place": place,
                "class": of_class,
                "algorithm": SELECTED,
                "rate_mbps": mean("rate_mbps"),
                "mean_rtt_ms": mean("mean_rtt_ms"),
                "min_rtt_ms": min(part["min_rtt_ms"] for part in parts),
                "lost": mean("lost"),
                "starved": mean("starved"),
                "seconds": seconds,
            }
        )
    return pa.Table.from_pylist(rows)
