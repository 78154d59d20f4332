"""Fusion by gradient-boosted trees: scikit-learn fits them, and xmtc evaluates them.

Suffixes: N documents, K candidates, P pairs, X inputs (the last is 1), T trees, V nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from typing_extensions import override

from xmtc.errors import ConfigError
from xmtc.fusion.combination import Combination, Floats
from xmtc.fusion.config import CombinationKind

MAX_PAIRS = 500_000
"""Number of pairs that trees are fitted on at most; more take longer and help little."""
TREES = 250
_DEPTH = 6  # scoring walks every tree to this depth
_BOOSTING: dict[str, Any] = {
    "max_iter": TREES,
    "learning_rate": 0.05,
    "max_leaf_nodes": 15,
    "max_depth": _DEPTH,
    "min_samples_leaf": 200,
    "max_features": 0.4,  # share of the inputs, drawn at random, that a split chooses from
    "l2_regularization": 5.0,
    "early_stopping": False,
    "random_state": 0,
}
_COMPARED = 1_000  # pairs whose logits are compared with scikit-learn's
_PAIRS_AT_ONCE = 512  # pairs × trees × 4 bytes fit into a core's cache


@dataclass(frozen=True)
class BoostedTrees(Combination):
    """Trees over the inputs, all in one table of nodes.

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
    def fit(cls, inputs_PX: Floats, right_P: NDArray[np.bool_]) -> Self:
        """Boost trees that minimise the log loss, on `MAX_PAIRS` evenly spaced pairs at most.

        Args:
            inputs_PX: inputs of pairs; the last is 1 and is not used.
            right_P: whether the label is the document's.

        Raises:
            ConfigError: the installed scikit-learn stores its trees in another form.
        """
        step = -(-len(right_P) // MAX_PAIRS)
        booster = HistGradientBoostingClassifier(**_BOOSTING).fit(inputs_PX[::step, :-1], right_P[::step])
        trees, some_PX = cls._of(booster), inputs_PX[:_COMPARED]
        found_P = trees.logits(some_PX.T[:, None], np.zeros((1, len(some_PX)), np.int32))[0]
        if not np.allclose(found_P, booster.decision_function(some_PX[:, :-1])):
            raise ConfigError(
                "xmtc cannot read the trees of the installed scikit-learn: install the version in constraints.txt, or "
                "set model.fusion.kind to linear"
            )
        return trees

    @classmethod
    def _of(cls, booster: HistGradientBoostingClassifier) -> Self:
        """Read the nodes, of which scikit-learn has no public view; `fit` compares the result with its predictions."""
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
        for _ in range(_DEPTH):
            right_PT = inputs.take(first_P1 + self.input_V.take(node_PT)) > self.threshold_V.take(node_PT)
            node_PT = children.take(2 * node_PT + right_PT)
            yield node_PT
