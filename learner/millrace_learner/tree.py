"""A small decision tree for each class: features of a path to the algorithm that does best there."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sklearn.tree import DecisionTreeRegressor

from millrace_learner.features import Columns, Feature, columns, features, matrix
from millrace_learner.utility import Utilities

# As many answers as a person reads through.
MOST_LEAVES = 12
# An answer stands for so much of what there is to learn from, at least.
LEAST_SHARE = 0.01


# Less than this is not worth a change of the algorithm, which has to find its rate anew.
MARGIN = 0.02


@dataclass(frozen=True)
class Leaf:
    """An answer, with what speaks for it."""

    # Mean share of the best algorithm's utility here, of each algorithm, from the best one down.
    shares: dict[str, float]
    # How much of what was learnt from is here.
    weight: float

    @property
    def algorithm(self) -> str:
        """The best one."""
        return next(iter(self.shares))

    @property
    def as_good(self) -> tuple[str, ...]:
        """Others, nearly as good."""
        best = self.shares[self.algorithm]
        return tuple(name for name, share in self.shares.items() if best - MARGIN < share and name != self.algorithm)


@dataclass(frozen=True)
class Split:
    """A question: `feature` at most `threshold`?"""

    feature: Feature
    threshold: float
    low: "Node"
    high: "Node"


Node = Leaf | Split


def is_held_out(place: str, seed: int, share: float) -> bool:
    """Whether a path is kept away from learning; all that is known of it goes the same way."""
    digest = hashlib.sha256(f"{seed} {place}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < share


def learn(samples: Sequence[pa.Table], utilities: Utilities, of_class: str, keep: Callable[[str], bool]) -> Node:
    """Grows a tree from the samples of the paths that `keep` wants. Of each table every path has the same weight.

    Raises:
        ValueError: no sample is of a path whose utilities are known.
    """
    parts = [_usable(columns(table), utilities, of_class, keep) for table in samples]
    source = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    weight = np.concatenate([_weights(part["place"]) for part in parts])
    if not len(weight):
        raise ValueError(f"nothing to learn from for {of_class}: no path with samples and outcomes")
    rows = utilities.row_of()
    # An algorithm that was not tried there is no answer.
    value = np.nan_to_num(utilities.value, nan=0.0)[[rows[name] for name in source["place"]]]
    chosen = features(utilities.algorithms)
    model = DecisionTreeRegressor(max_leaf_nodes=MOST_LEAVES, min_weight_fraction_leaf=LEAST_SHARE, random_state=0).fit(
        matrix(chosen, source), value, sample_weight=weight / weight.sum()
    )
    return _simplified(_node(model.tree_, 0, chosen, utilities.algorithms))


def _usable(source: Columns, utilities: Utilities, of_class: str, keep: Callable[[str], bool]) -> Columns:
    rows = utilities.row_of()
    usable = np.array([name in rows and keep(name) for name in source["place"]], dtype=bool)
    usable &= source["class"] == of_class
    return {name: column[usable] for name, column in source.items()}


def _weights(place: np.ndarray) -> np.ndarray:
    _, path, count = np.unique(place, return_inverse=True, return_counts=True)
    return 1.0 / count[path]


def _node(tree, index: int, chosen: list[Feature], algorithms: list[str]) -> Node:
    if tree.children_left[index] == -1:
        shares = tree.value[index].reshape(-1)
        weight = tree.weighted_n_node_samples[index] / tree.weighted_n_node_samples[0]
        order = np.argsort(-shares, kind="stable")
        return Leaf({algorithms[column]: float(shares[column]) for column in order}, float(weight))
    low = _node(tree, tree.children_left[index], chosen, algorithms)
    high = _node(tree, tree.children_right[index], chosen, algorithms)
    return Split(chosen[tree.feature[index]], float(tree.threshold[index]), low, high)


def overall(node: Node) -> Leaf:
    """What would be the answer if nothing could be asked."""
    if isinstance(node, Leaf):
        return node
    return _together(overall(node.low), overall(node.high))


def _together(low: Leaf, high: Leaf) -> Leaf:
    weight = low.weight + high.weight
    shares = {
        name: (share * low.weight + high.shares[name] * high.weight) / weight for name, share in low.shares.items()
    }
    return Leaf(dict(sorted(shares.items(), key=lambda item: -item[1])), weight)


def _simplified(node: Node) -> Node:
    """Without questions that both have the same answer."""
    if isinstance(node, Leaf):
        return node
    low, high = _simplified(node.low), _simplified(node.high)
    if isinstance(low, Leaf) and isinstance(high, Leaf) and low.algorithm == high.algorithm:
        return _together(low, high)
    return Split(node.feature, node.threshold, low, high)
