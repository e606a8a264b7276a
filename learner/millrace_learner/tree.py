"""Small decision trees for each class: features of a path to the algorithm that does best there."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sklearn.tree import DecisionTreeRegressor

from millrace_learner.features import NUMBERS, Columns, Feature, columns, features, matrix
from millrace_learner.utility import Utilities

# What falls so far behind the best of all on the mean path is no answer anywhere, nor is what a path looks like
# under it worth learning from, unless it gains on so many of the paths.
CANDIDATES_WITHIN = 0.2
CANDIDATES_GAIN_ON = 1 / 3
# A path on which less than this is to be gained is none on which an algorithm gains.
GAIN = 0.03
# Of what an algorithm gains or loses no more than this counts for the questions that a tree asks: how bad is what
# nobody would choose there is of no interest.
MOST_GAIN = 0.15
# What is within this of the answer stays if it drives.
MARGIN = 0.02


@dataclass(frozen=True)
class Size:
    """How far a tree may go."""

    # As many answers as a person reads through.
    most_leaves: int
    # An answer stands for so much of what there is to learn from, at least.
    least_share: float
    # Where less is to be gained the best of all on the mean path is the answer.
    gain: float


# A change costs something, part of a small gain is luck, and what a path looks like misleads (docs/mcc.md).
SETTLED = Size(most_leaves=40, least_share=0.01, gain=0.05)
# Nothing but the round trip is known, and what comes of it is nobody's loss.
BEGINNING = Size(most_leaves=4, least_share=0.05, gain=0.0)


@dataclass(frozen=True)
class Leaf:
    """An answer, with what speaks for it."""

    # Mean share of the best algorithm's utility here, of each algorithm, from the best one down.
    shares: dict[str, float]
    # How much of what was learnt from is here.
    weight: float
    # The best of all on the mean path.
    usual: str
    # By how much another one must be better to be the answer.
    gain: float

    @property
    def algorithm(self) -> str:
        """The best one, if it is clearly better than the usual one."""
        best = next(iter(self.shares))
        return best if self.shares[best] - self.shares[self.usual] >= self.gain else self.usual

    @property
    def as_good(self) -> tuple[str, ...]:
        """Others, better or nearly as good."""
        own = self.shares[self.algorithm]
        return tuple(name for name, share in self.shares.items() if own - MARGIN < share and name != self.algorithm)


@dataclass(frozen=True)
class Split:
    """A question: `feature` at most `threshold`?"""

    feature: Feature
    threshold: float
    low: "Node"
    high: "Node"


Node = Leaf | Split


@dataclass(frozen=True)
class Learnt:
    """Trees for each class."""

    # For a path that has settled.
    settled: dict[str, Node]
    # For the path with which a connection begins.
    beginning: dict[str, Node]
    # For one that it has moved to.
    moved: dict[str, Node]
    # What speaks for them.
    evidence: list[str]


def is_held_out(place: str, seed: int, share: float) -> bool:
    """Whether a path is kept away from learning; all that is known of it goes the same way."""
    digest = hashlib.sha256(f"{seed} {place}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64 < share


def learn(samples: pa.Table, utilities: Utilities, of_class: str, keep: Callable[[str], bool]) -> Node:
    """Grows a tree from the samples of the paths that `keep` wants; every path has the same weight.

    What a path looks like depends on who drives: the samples are of paths that each of the algorithms drove. What
    earlier rules had driven was learnt from as well (Ross, Gordon, Bagnell, AISTATS 2011: DAgger), and gained
    nothing (docs/mcc.md).

    Raises:
        ValueError: no sample is of a path whose utilities are known.
    """
    known = _Known.of(utilities, of_class, keep)
    source = _usable(columns(samples), known.rows, of_class, keep, known.candidates)
    weight = _weights(source["place"])
    if not len(weight):
        raise ValueError(f"nothing to learn from for {of_class}: no path with samples and outcomes")
    of_each = known.value[[known.rows[name] for name in source["place"]]]
    chosen = features(known.candidates)
    return known.grow(chosen, matrix(chosen, source), of_each, weight, SETTLED)


def beginning(
    utilities: Utilities, smallest_rtt_ms: Mapping[str, float], of_class: str, keep: Callable[[str], bool]
) -> Node:
    """Grows a tree that knows nothing of a path but its round trip, from how each algorithm began there.

    Raises:
        ValueError: of no path it is known how.
    """
    known = _Known.of(utilities, of_class, keep)
    places = [place for place in utilities.places if keep(place)]
    of_each = known.value[[known.rows[place] for place in places]]
    rtts = np.array([smallest_rtt_ms[place] for place in places])
    chosen = [feature for feature in NUMBERS if feature.name == "rtt_ms"]
    asked = matrix(chosen, {"before": np.array(places), "recent_min_rtt_ms": rtts})
    return known.grow(chosen, asked, of_each, np.ones(len(places)), BEGINNING)


@dataclass(frozen=True)
class _Known:
    """What came of each algorithm on each path, and which of them are candidates."""

    value: np.ndarray
    rows: dict[str, int]
    algorithms: list[str]
    # Places of the best of all on the mean path, and of all that may be an answer.
    usual: int
    tried: np.ndarray

    @classmethod
    def of(cls, utilities: Utilities, of_class: str, keep: Callable[[str], bool]) -> "_Known":
        # An algorithm that was not tried there is no answer.
        value = np.nan_to_num(utilities.value, nan=0.0)
        rows = utilities.row_of()
        kept = value[[row for name, row in rows.items() if keep(name)]]
        if not len(kept):
            raise ValueError(f"nothing to learn from for {of_class}: no path with outcomes")
        mean = kept.mean(axis=0)
        usual = int(mean.argmax())
        gains_on = (kept - kept[:, [usual]] >= GAIN).mean(axis=0)
        tried = np.flatnonzero((mean >= mean[usual] - CANDIDATES_WITHIN) | (gains_on >= CANDIDATES_GAIN_ON))
        return cls(value, rows, utilities.algorithms, usual, tried)

    @property
    def candidates(self) -> list[str]:
        return [self.algorithms[column] for column in self.tried]

    def grow(
        self,
        chosen: list[Feature],
        asked: np.ndarray,
        of_each: np.ndarray,
        weight: np.ndarray,
        size: Size,
    ) -> Node:
        """A tree of samples, each a row of `asked` and `of_each`."""
        # What there is to be gained, and not how hard a path is for all of them.
        gains = of_each[:, self.tried] - of_each[:, [self.usual]]
        model = DecisionTreeRegressor(
            max_leaf_nodes=size.most_leaves, min_weight_fraction_leaf=size.least_share, random_state=0
        )
        model.fit(asked, np.clip(gains, -MOST_GAIN, MOST_GAIN), sample_weight=weight / weight.sum())
        place = model.apply(asked)

        def leaf(index: int) -> Leaf:
            here = place == index
            shares = np.average(of_each[here][:, self.tried], axis=0, weights=weight[here])
            order = np.argsort(-shares, kind="stable")
            of_all = float(weight[here].sum() / weight.sum())
            names = self.candidates
            return Leaf({names[at]: float(shares[at]) for at in order}, of_all, self.algorithms[self.usual], size.gain)

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


def _together(low: Leaf, high: Leaf) -> Leaf:
    weight = low.weight + high.weight
    shares = {
        name: (share * low.weight + high.shares[name] * high.weight) / weight for name, share in low.shares.items()
    }
    return Leaf(dict(sorted(shares.items(), key=lambda item: -item[1])), weight, low.usual, low.gain)


def _simplified(node: Node) -> Node:
    """Without questions that both have the same answer."""
    if isinstance(node, Leaf):
        return node
    low, high = _simplified(node.low), _simplified(node.high)
    if isinstance(low, Leaf) and isinstance(high, Leaf) and low.algorithm == high.algorithm:
        return _together(low, high)
    return Split(node.feature, node.threshold, low, high)
