"""A small decision tree for each class: features of a path to the algorithm that does best there."""

import hashlib
from dataclasses import dataclass

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from millrace_learner.features import Feature, columns, features, matrix
from millrace_learner.utility import Utilities

# As many answers as a person reads through.
MOST_LEAVES = 12
# An answer stands for so much of what there is to learn from, at least.
LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Leaf:
    """An answer, with what speaks for it."""

    algorithm: str
    # Mean share of the best algorithm's utility here, of this one and of the next best.
    share: float
    runner_up: str
    runner_up_share: float
    # How much of what was learnt from is here.
    weight: float


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


def learn(samples, utilities: Utilities, of_class: str, keep) -> Node:
    """Grows a tree from the samples of the paths that `keep` wants, every path with the same weight."""
    source = columns(samples)
    rows = utilities.row_of()
    place = source["place"]
    usable = np.array([name in rows and keep(name) for name in place], dtype=bool)
    usable &= source["class"] == of_class
    if not usable.any():
        raise ValueError(f"nothing to learn from for {of_class}: no path with samples and outcomes")
    source = {name: column[usable] for name, column in source.items()}
    place = place[usable]
    # An algorithm that was not tried there is no answer.
    value = np.nan_to_num(utilities.value, nan=0.0)[[rows[name] for name in place]]
    names, counts = np.unique(place, return_counts=True)
    of_name = dict(zip(names, counts, strict=True))
    weight = np.array([1.0 / of_name[name] for name in place])
    weight /= weight.sum()

    chosen = features(utilities.algorithms)
    x = matrix(chosen, source)
    model = DecisionTreeRegressor(max_leaf_nodes=MOST_LEAVES, min_weight_fraction_leaf=LEAST_SHARE, random_state=0).fit(
        x, value, sample_weight=weight
    )
    return _simplified(_node(model.tree_, 0, chosen, utilities.algorithms))


def _node(tree, index: int, chosen: list[Feature], algorithms: list[str]) -> Node:
    if tree.children_left[index] == -1:
        shares = tree.value[index].reshape(-1)
        order = np.argsort(-shares, kind="stable")
        best, second = order[0], order[min(1, len(order) - 1)]
        return Leaf(
            algorithms[best],
            float(shares[best]),
            algorithms[second],
            float(shares[second]),
            float(tree.weighted_n_node_samples[index] / tree.weighted_n_node_samples[0]),
        )
    low = _node(tree, tree.children_left[index], chosen, algorithms)
    high = _node(tree, tree.children_right[index], chosen, algorithms)
    return Split(chosen[tree.feature[index]], float(tree.threshold[index]), low, high)


def _simplified(node: Node) -> Node:
    """Without questions that both have the same answer."""
    if isinstance(node, Leaf):
        return node
    low, high = _simplified(node.low), _simplified(node.high)
    if isinstance(low, Leaf) and isinstance(high, Leaf) and low.algorithm == high.algorithm:
        weight = low.weight + high.weight
        mean = lambda a, b: (a * low.weight + b * high.weight) / weight  # noqa: E731
        rival = low if low.weight >= high.weight else high
        return Leaf(low.algorithm, mean(low.share, high.share), rival.runner_up, rival.runner_up_share, weight)
    return Split(node.feature, node.threshold, low, high)


def decide(node: Node, values: dict[str, float]) -> str:
    """The answer for one path, by the names of features."""
    while isinstance(node, Split):
        node = node.low if values[node.feature.name] <= node.threshold else node.high
    return node.algorithm
