"""Small decision trees per class that map features of a path to its best algorithm."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sklearn.tree import DecisionTreeRegressor

from millrace_learner.features import NUMBERS, Columns, Feature, columns, features, matrix
from millrace_learner.utility import Utilities

# Maximum loss of utility against the default algorithm on the mean path for a candidate.
CANDIDATE_MAX_LOSS = 0.2
# Share of the paths on which an algorithm must gain to be a candidate despite a larger loss.
CANDIDATE_MIN_GAIN_SHARE = 1 / 3
# Minimum gain of utility that counts as a gain on a path.
MIN_GAIN = 0.03
# Limit of the gains and losses from which a tree is grown: how bad an unsuitable algorithm is does not matter.
MAX_ABS_GAIN = 0.15
# Maximum loss of utility against the chosen algorithm for a near tie, which stays if it is in use.
NEAR_TIE_MARGIN = 0.02


@dataclass(frozen=True)
class Size:
    """Limits of a tree."""

    # Maximum number of leaves, so that a person can read the rules.
    max_leaves: int
    # Minimum share of the samples in a leaf.
    min_share: float
    # Gain of utility that another algorithm needs to replace the default algorithm.
    min_gain: float


# Requires a gain: a switch has a cost, and part of a small gain is chance (docs/research/mcc.md).
MATURE = Size(max_leaves=40, min_share=0.01, min_gain=0.05)
# Requires no gain: the first choice of a connection needs no switch.
STARTUP = Size(max_leaves=4, min_share=0.05, min_gain=0.0)


@dataclass(frozen=True)
class Leaf:
    """An answer with its evidence."""

    # Mean utility of each candidate relative to the best algorithm of the path, in descending order.
    shares: dict[str, float]
    # Share of the samples.
    weight: float
    # The best algorithm on the mean path.
    default_algorithm: str
    # Gain of utility that another algorithm needs to be the answer.
    min_gain: float

    @property
    def algorithm(self) -> str:
        """The best algorithm if its gain suffices, otherwise the default algorithm."""
        best = next(iter(self.shares))
        gain = self.shares[best] - self.shares[self.default_algorithm]
        return best if gain >= self.min_gain else self.default_algorithm

    @property
    def near_ties(self) -> tuple[str, ...]:
        """Other algorithms that are better or nearly as good."""
        own = self.shares[self.algorithm]
        ties = [name for name, share in self.shares.items() if own - NEAR_TIE_MARGIN < share]
        return tuple(name for name in ties if name != self.algorithm)


@dataclass(frozen=True)
class Split:
    """A node that tests whether `feature` is at most `threshold`."""

    feature: Feature
    threshold: float
    low: "Node"
    high: "Node"


Node = Leaf | Split


@dataclass(frozen=True)
class LearnedTrees:
    """The trees of each class."""

    # For mature paths.
    mature: dict[str, Node]
    # For the first path of a connection, until it is mature.
    startup: dict[str, Node]
    # For later paths of a connection, until they are mature.
    moved: dict[str, Node]
    # Summary of the training set, for the head of the rules file.
    evidence: list[str]


def is_held_out(place: str, seed: int, share: float) -> bool:
    """Whether all episodes of a path are held out from learning."""
    digest = hashlib.sha256(f"{seed} {place}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < share


def learn(samples: pa.Table, utilities: Utilities, of_class: str, keep: Callable[[str], bool]) -> Node:
    """Grows a tree from the samples of the paths that `keep` selects. Every path has the same weight.

    The state of a path depends on the algorithm in use, so that the samples come from runs of all candidates.

    Raises:
        ValueError: no sample belongs to a path with known utilities.
    """
    known = _Known.of(utilities, of_class, keep)
    source = _usable(columns(samples), known.rows, of_class, keep, known.candidate_names)
    weight = _weights(source["place"])
    if not len(weight):
        raise ValueError(f"nothing to learn from for {of_class}: no path with samples and outcomes")
    of_samples = known.value[[known.rows[name] for name in source["place"]]]
    chosen = features(known.candidate_names)
    return known.grow(chosen, matrix(chosen, source), of_samples, weight, MATURE)


def learn_startup(
    utilities: Utilities, smallest_rtt_ms: Mapping[str, float], of_class: str, keep: Callable[[str], bool]
) -> Node:
    """Grows a tree over the round trip of a path, from the outcomes of its first seconds.

    Raises:
        ValueError: no path has such outcomes.
    """
    known = _Known.of(utilities, of_class, keep)
    places = [place for place in utilities.places if keep(place)]
    of_paths = known.value[[known.rows[place] for place in places]]
    rtts = np.array([smallest_rtt_ms[place] for place in places])
    chosen = [feature for feature in NUMBERS if feature.name == "rtt_ms"]
    values = matrix(chosen, {"before": np.array(places), "recent_min_rtt_ms": rtts})
    return known.grow(chosen, values, of_paths, np.ones(len(places)), STARTUP)


@dataclass(frozen=True)
class _Known:
    """The utilities of each algorithm on each path, and the candidates."""

    value: np.ndarray
    rows: dict[str, int]
    algorithms: list[str]
    # Columns of the best algorithm on the mean path, and of all algorithms that may be an answer.
    default_algorithm: int
    candidates: np.ndarray

    @classmethod
    def of(cls, utilities: Utilities, of_class: str, keep: Callable[[str], bool]) -> "_Known":
        # An algorithm without a run on a path has no utility there.
        value = np.nan_to_num(utilities.value, nan=0.0)
        rows = utilities.row_of()
        kept = value[[row for name, row in rows.items() if keep(name)]]
        if not len(kept):
            raise ValueError(f"nothing to learn from for {of_class}: no path with outcomes")
        mean = kept.mean(axis=0)
        default = int(mean.argmax())
        gain_share = (kept - kept[:, [default]] >= MIN_GAIN).mean(axis=0)
        is_close = mean >= mean[default] - CANDIDATE_MAX_LOSS
        candidates = np.flatnonzero(is_close | (gain_share >= CANDIDATE_MIN_GAIN_SHARE))
        return cls(value, rows, utilities.algorithms, default, candidates)

    @property
    def candidate_names(self) -> list[str]:
        return [self.algorithms[column] for column in self.candidates]

    def grow(
        self,
        chosen: list[Feature],
        values: np.ndarray,
        utilities: np.ndarray,
        weight: np.ndarray,
        size: Size,
    ) -> Node:
        """Grows a tree from samples, each a row of `values` (of the features) and of `utilities`."""
        # Differences, so that the tree ignores how difficult a path is for all algorithms.
        gains = utilities[:, self.candidates] - utilities[:, [self.default_algorithm]]
        model = DecisionTreeRegressor(
            max_leaf_nodes=size.max_leaves, min_weight_fraction_leaf=size.min_share, random_state=0
        )
        gains = np.clip(gains, -MAX_ABS_GAIN, MAX_ABS_GAIN)
        model.fit(values, gains, sample_weight=weight / weight.sum())
        leaf_of = model.apply(values)

        def leaf(index: int) -> Leaf:
            here = leaf_of == index
            shares = np.average(utilities[here][:, self.candidates], axis=0, weights=weight[here])
            order = np.argsort(-shares, kind="stable")
            of_all = float(weight[here].sum() / weight.sum())
            names = self.candidate_names
            default = self.algorithms[self.default_algorithm]
            return Leaf({names[at]: float(shares[at]) for at in order}, of_all, default, size.min_gain)

        return _simplified(_node(model.tree_, 0, chosen, leaf))


def _usable(
    source: Columns, rows: dict[str, int], of_class: str, keep: Callable[[str], bool], candidates: list[str]
) -> Columns:
    usable = np.array([name in rows and keep(name) for name in source["place"]], dtype=bool)
    usable &= (source["class"] == of_class) & np.isin(source["before"], candidates)
    return {name: column[usable] for name, column in source.items()}


def _weights(place: np.ndarray) -> np.ndarray:
    _, path, count = np.unique(place, return_inverse=True, return_counts=True)
    return 1.0 / count[path]


def _node(tree, index: int, chosen: list[Feature], leaf: Callable[[int], Leaf]) -> Node:
    if tree.children_left[index] == -1:
        return leaf(index)
    low = _node(tree, tree.children_left[index], chosen, leaf)
    high = _node(tree, tree.children_right[index], chosen, leaf)
    return Split(chosen[tree.feature[index]], float(tree.threshold[index]), low, high)


def _merged(low: Leaf, high: Leaf) -> Leaf:
    weight = low.weight + high.weight
    shares = {
        name: (share * low.weight + high.shares[name] * high.weight) / weight for name, share in low.shares.items()
    }
    return Leaf(dict(sorted(shares.items(), key=lambda item: -item[1])), weight, low.default_algorithm, low.min_gain)


def _simplified(node: Node) -> Node:
    """Removes splits whose two sides have the same answer."""
    if isinstance(node, Leaf):
        return node
    low, high = _simplified(node.low), _simplified(node.high)
    if isinstance(low, Leaf) and isinstance(high, Leaf) and low.algorithm == high.algorithm:
        return _merged(low, high)
    return Split(node.feature, node.threshold, low, high)
