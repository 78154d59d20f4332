"""How a fusion turns the inputs of a (document, label) pair into one logit that is a sum over the inputs.

Two forms share one protocol: logistic regression with coefficients per frequency bin, and boosted trees.

Suffixes: N documents, K candidates, L labels, M labels after regrouping, P pairs, X inputs (the last is 1),
G bins, T trees, V nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from typing_extensions import override

from xmtc.errors import CheckpointError
from xmtc.fusion.logistic import fit_logistic
from xmtc.scorers.bins import bins_of_labels
from xmtc.scorers.config import MAX_PAIRS, CombinationKind, FusionConfig
from xmtc.scorers.regrouping import Regrouping

Floats = NDArray[np.float64]
_MIN_RIGHT = 50  # a bin with fewer right pairs uses the common coefficients
_DEPTH = 6  # scoring walks every tree as far as the deepest
_PAIRS_OF_A_LEAF = 200
_INPUTS_OF_A_SPLIT = 0.4  # share of the inputs, drawn at random, that a split chooses from
_L2 = 5.0  # penalty of a leaf's squared value
_PAIRS_AT_ONCE = 512  # pairs × trees × 4 bytes fit into a core's cache


class Combination(Protocol):
    """A fitted function of the inputs of pairs.

    Attributes:
        kind: its name in settings and files.
        TENSORS: names of the arrays that it is saved as.
    """

    kind: ClassVar[CombinationKind]
    TENSORS: ClassVar[tuple[str, ...]]

    def logits(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        """Compute logits (N, K)."""
        ...

    def terms(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        """Compute what each input adds to the logit, (X, N, K); the terms sum to the logit."""
        ...

    def extended(self, labels: int, like: int) -> Self:
        """Return the combination with this many more labels, which are treated like an existing one."""
        ...

    def regrouped(self, regrouping: Regrouping, counts_L: NDArray[np.int64]) -> Self:
        """Return the combination with fewer labels; a merged label is treated like its most frequent part."""
        ...

    def tensors(self) -> dict[str, NDArray]:
        """Return the arrays that `from_tensors` restores the combination from, by name."""
        return {name: getattr(self, name) for name in self.TENSORS}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray]) -> Self:
        """Restore a combination.

        Raises:
            CheckpointError: the arrays contradict each other.
        """
        return cls(**{name: tensors[name] for name in cls.TENSORS})


@dataclass(frozen=True)
class Linear(Combination):
    """Logistic regression, with coefficients per frequency bin of the label.

    Attributes:
        coefficients_GX: float64.
        bin_L: int64, bin of each label.
    """

    coefficients_GX: Floats
    bin_L: NDArray[np.int64]

    kind: ClassVar[CombinationKind] = "linear"
    TENSORS: ClassVar[tuple[str, ...]] = ("coefficients_GX", "bin_L")

    @classmethod
    def fit(
        cls,
        inputs_PX: Floats,
        right_P: NDArray[np.bool_],
        label_P: NDArray[np.int32],
        counts_L: NDArray[np.int64],
        config: FusionConfig,
    ) -> Self:
        """Fit coefficients for all labels, then for each bin with shrinkage towards them.

        Args:
            inputs_PX: inputs of pairs.
            right_P: whether the label is the document's.
            label_P: label of each pair.
            counts_L: number of training documents of each label.
            config: `bins`, `penalty`, `bin_penalty`.
        """
        common_X = fit_logistic(inputs_PX, right_P, config.penalty)
        coefficients, bin_L = [common_X], np.zeros(len(counts_L), np.int64)
        for mask_L in bins_of_labels(config.bins, counts_L):
            inside_P = mask_L[label_P]
            if min(right_P[inside_P].sum(), (~right_P[inside_P]).sum()) >= _MIN_RIGHT:
                bin_L[mask_L] = len(coefficients)
                inside = inputs_PX[inside_P], right_P[inside_P]
                coefficients.append(fit_logistic(*inside, config.bin_penalty, common_X))
        return cls(np.stack(coefficients), bin_L)

    @override
    def logits(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        return self.terms(inputs_XNK, label_ids_NK).sum(axis=0)

    @override
    def terms(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        bin_NK = self.bin_L[label_ids_NK]
        return np.stack([self.coefficients_GX[:, x][bin_NK] * row for x, row in enumerate(inputs_XNK)])

    @override
    def extended(self, labels: int, like: int) -> Self:
        return replace(self, bin_L=np.concatenate([self.bin_L, np.full(labels, self.bin_L[like])]))

    @override
    def regrouped(self, regrouping: Regrouping, counts_L: NDArray[np.int64]) -> Self:
        bin_M = self.bin_L[regrouping.kept_M]
        for label, members_K in regrouping.merged.items():
            bin_M[label] = self.bin_L[members_K[np.argmax(counts_L[members_K])]]
        return replace(self, bin_L=bin_M)


@dataclass(frozen=True)
class Trees(Combination):
    """Gradient-boosted trees over the inputs, all in one table of nodes.

    A term of an input is the sum, over all its splits on a pair's paths, of the change of the node's value. A node's
    value is the mean of the leaves below it, so the terms and the roots' values sum to the logit (Saabas 2014,
    "Interpreting random forests").

    Attributes:
        roots_T: int32, root of each tree.
        input_V: int32, input that a node divides by; 0 for leaves.
        threshold_V: float64; a pair goes right if its input is larger. Infinite for leaves.
        children_V2: int32, left and right child; leaves are their own children.
        value_V: float64, mean value of the leaves below, by training pairs.
        start_1: float64, logit before the first tree.
    """

    roots_T: NDArray[np.int32]
    input_V: NDArray[np.int32]
    threshold_V: Floats
    children_V2: NDArray[np.int32]
    value_V: Floats
    start_1: Floats

    kind: ClassVar[CombinationKind] = "trees"
    TENSORS: ClassVar[tuple[str, ...]] = ("roots_T", "input_V", "threshold_V", "children_V2", "value_V", "start_1")

    @classmethod
    def fit(cls, inputs_PX: Floats, right_P: NDArray[np.bool_], config: FusionConfig) -> Self:
        """Boost trees that minimise the log loss, on `MAX_PAIRS` evenly spaced pairs at most.

        Args:
            inputs_PX: inputs of pairs; the last is 1 and is not used.
            right_P: whether the label is the document's.
            config: `trees`, `leaves`, `learning_rate`.
        """
        step = -(-len(right_P) // MAX_PAIRS)
        settings: dict[str, Any] = {
            "max_iter": config.trees,
            "learning_rate": config.learning_rate,
            "max_leaf_nodes": config.leaves,
            "max_depth": _DEPTH,
            "min_samples_leaf": _PAIRS_OF_A_LEAF,
            "max_features": _INPUTS_OF_A_SPLIT,
            "l2_regularization": _L2,
            "early_stopping": False,
            "random_state": 0,
        }
        booster = HistGradientBoostingClassifier(**settings).fit(inputs_PX[::step, :-1], right_P[::step])
        # scikit-learn publishes no view of these trees; test_trees_are_those_of_scikit_learn holds the two together.
        tables = [one.nodes for (one,) in booster._predictors]
        sizes_T = [len(table) for table in tables]
        roots_T = np.cumsum([0, *sizes_T[:-1]]).astype(np.int32)
        nodes = np.concatenate(tables)
        leaf_V = nodes["is_leaf"].astype(np.bool_)
        children_V2 = np.stack([nodes["left"], nodes["right"]], axis=1).astype(np.int32)
        children_V2 += np.repeat(roots_T, sizes_T)[:, None]
        children_V2[leaf_V] = np.flatnonzero(leaf_V)[:, None]
        value_V = nodes["value"].astype(np.float64)
        for node in np.flatnonzero(~leaf_V)[::-1]:  # children come after their parent
            value_V[node] = np.average(value_V[children_V2[node]], weights=nodes["count"][children_V2[node]])
        return cls(
            roots_T,
            np.where(leaf_V, 0, nodes["feature_idx"]).astype(np.int32),
            np.where(leaf_V, np.inf, nodes["num_threshold"]),
            children_V2,
            value_V,
            np.asarray(booster._baseline_prediction, np.float64).reshape(1),
        )

    def __post_init__(self) -> None:
        """Verify that every path ends.

        Raises:
            CheckpointError: a child comes before its parent, or does not exist.
        """
        own_V1 = np.arange(len(self.children_V2))[:, None]
        if ((self.children_V2 < own_V1) | (self.children_V2 >= len(own_V1))).any():
            raise CheckpointError("the trees of the fusion are damaged: copy or export the model again")

    @cached_property
    def depth(self) -> int:
        """Number of splits on the longest path."""
        nodes, depth = self.roots_T, 0
        while len(nodes := nodes[self.children_V2[nodes, 0] != nodes]):
            nodes, depth = self.children_V2[nodes].ravel(), depth + 1
        return depth

    @override
    def logits(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        used_NK = label_ids_NK >= 0
        inputs_PX = np.ascontiguousarray(inputs_XNK[:, used_NK].T)
        logits_P = np.full(len(inputs_PX), self.start_1[0])
        for first in range(0, len(inputs_PX), _PAIRS_AT_ONCE):
            *_, leaf_PT = self._paths(inputs_PX[first : first + _PAIRS_AT_ONCE])
            logits_P[first : first + _PAIRS_AT_ONCE] += self.value_V.take(leaf_PT).sum(axis=1)
        logits_NK = np.zeros(used_NK.shape)
        logits_NK[used_NK] = logits_P
        return logits_NK

    @override
    def terms(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        """The last input, which is 1, gets the values of the roots."""
        inputs_PX = np.ascontiguousarray(inputs_XNK.reshape(len(inputs_XNK), -1).T)
        terms_PX = np.zeros(inputs_PX.shape)
        terms_PX[:, -1] = self.start_1 + self.value_V[self.roots_T].sum()
        pairs_P1 = np.arange(len(inputs_PX))[:, None]
        for above_PT, below_PT in pairwise(self._paths(inputs_PX)):
            change_PT = self.value_V[below_PT] - self.value_V[above_PT]
            np.add.at(terms_PX, (pairs_P1, self.input_V[above_PT]), change_PT)
        return terms_PX.T.reshape(inputs_XNK.shape)

    def _paths(self, inputs_PX: Floats) -> Iterator[NDArray[np.int32]]:
        """Yield the node (P, T) of each pair in each tree, level by level, from the roots to the leaves."""
        inputs, children = inputs_PX.ravel(), self.children_V2.ravel()
        first_P1 = np.arange(0, inputs.size, inputs_PX.shape[1], dtype=np.int32)[:, None]
        node_PT = np.repeat(self.roots_T[None], len(inputs_PX), axis=0)
        yield node_PT
        for _ in range(self.depth):
            right_PT = inputs.take(first_P1 + self.input_V.take(node_PT)) > self.threshold_V.take(node_PT)
            node_PT = children.take(2 * node_PT + right_PT)
            yield node_PT

    @override
    def extended(self, labels: int, like: int) -> Self:
        """Trees read a label's count alone."""
        return self

    @override
    def regrouped(self, regrouping: Regrouping, counts_L: NDArray[np.int64]) -> Self:
        """Trees read a label's count alone."""
        return self


def combination_of(kind: str) -> type[Combination]:
    """Return the class of a combination.

    Raises:
        CheckpointError: there is no such kind.
    """
    kinds: dict[str, type[Combination]] = {one.kind: one for one in (Linear, Trees)}
    if kind not in kinds:
        raise CheckpointError(f"fusion.json: 'kind' is {kind!r}, not linear or trees: copy or export the model again")
    return kinds[kind]
