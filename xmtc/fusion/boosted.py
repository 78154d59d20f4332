"""Fusion by gradient-boosted trees: scikit-learn fits them, and xmtc evaluates them.

Suffixes: N documents, K candidates, P pairs, X inputs (the last is 1), T trees, V nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays
from xmtc.errors import ConfigError
from xmtc.fusion.combination import Combination, Floats
from xmtc.fusion.config import CombinationKind

MAX_PAIRS = 60_000
"""Number of pairs that trees are fitted on, besides the right ones; more take longer and help little."""
TREES = 250
_EVENLY = 0.2
"""Share of `MAX_PAIRS` that is drawn whatever their chance."""
_MOST_LEAVES = 16
"""Leaves of a tree: each has a bit of 16."""
_VALUES = 255
"""Different values of an input: as many as scikit-learn tells apart."""
_BOOSTING: dict[str, Any] = {
    "max_iter": TREES,
    "learning_rate": 0.05,
    "max_leaf_nodes": 15,
    "max_depth": 6,
    "min_samples_leaf": 200,
    "max_features": 0.4,  # share of the inputs, drawn at random, that a split chooses from
    "l2_regularization": 5.0,
    "early_stopping": False,
    "random_state": 0,
}
_COMPARED = 1_000
"""Pairs whose logits are compared with scikit-learn's."""
_PAIRS_AT_ONCE = 512
"""So few that pairs × trees × 4 bytes fit into a core's cache."""


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
    ARRAYS: ClassVar[Arrays] = {
        "input_V": Array("I32", "V", least=0, below="X"),
        "threshold_V": Array("F64", "V", infinite=True),
        "children_V2": Array("I32", "V2", least=0, below="V"),
        "value_V": Array("F64", "V"),
        "roots_T": Array("I32", "T", least=0, below="V", ascending=True),
        "start_1": Array("F64", "1"),
    }

    @classmethod
    def fit(
        cls, inputs_PX: Floats, right_P: NDArray[np.bool_], chance_P: Floats
    ) -> Self:
        """Boost trees that minimise the log loss, on all pairs or on a sample of them.

        Most pairs are wrong without a doubt, and teach little. A sample has all right pairs, and others by the standard
        deviation of their outcome; weights undo the choice (Fithian and Hastie 2014, "Local case-control sampling").

        Args:
            inputs_PX: inputs of pairs; the last is 1 and is not used.
            right_P: whether the label is the document's.
            chance_P: probability of that by a simpler model.

        Raises:
            ConfigError: the installed scikit-learn stores its trees in another form.
        """
        from sklearn.ensemble import (
            HistGradientBoostingClassifier,
        )  # takes a second, which prediction need not wait

        share_P = _sampling_shares(right_P, chance_P)
        drawn_P = np.random.default_rng(0).random(len(right_P)) < share_P
        booster = HistGradientBoostingClassifier(**_BOOSTING)
        booster.fit(
            _rounded(inputs_PX[drawn_P, :-1]),
            right_P[drawn_P],
            sample_weight=1 / share_P[drawn_P],
        )
        trees = cls._of(booster)
        compared_PX = inputs_PX[:_COMPARED]
        any_labels_1P = np.zeros((1, len(compared_PX)), np.int32)
        own_logits_P = trees.logits(compared_PX.T[:, None], any_labels_1P)[0]
        if not np.allclose(
            own_logits_P, booster.decision_function(compared_PX[:, :-1])
        ):
            raise ConfigError(
                "xmtc cannot read the trees of the installed scikit-learn: install the version in constraints.txt, or "
                "set model.fusion.kind to linear"
            )
        return trees

    @classmethod
    def _of(cls, booster: Any) -> Self:
        """Read the nodes, of which scikit-learn has no public view; `fit` compares the result with its predictions."""
        tables = [predictor.nodes for (predictor,) in booster._predictors]
        sizes_T = [len(table) for table in tables]
        roots_T = np.cumsum([0, *sizes_T[:-1]]).astype(np.int32)
        nodes = np.concatenate(tables)
        leaf_V = nodes["is_leaf"].astype(np.bool_)
        children_V2 = np.stack([nodes["left"], nodes["right"]], axis=1).astype(np.int32)
        children_V2 += np.repeat(roots_T, sizes_T)[:, None]
        children_V2[leaf_V] = np.flatnonzero(leaf_V)[:, None]
        value_V = nodes["value"].astype(np.float64)
        for node in np.flatnonzero(~leaf_V)[::-1]:  # children come after their parent
            children = children_V2[node]
            value_V[node] = np.average(
                value_V[children], weights=nodes["count"][children]
            )
        return cls(
            roots_T,
            np.where(leaf_V, 0, nodes["feature_idx"]).astype(np.int32),
            np.where(leaf_V, np.inf, nodes["num_threshold"]),
            children_V2,
            value_V,
            np.asarray(booster._baseline_prediction, np.float64).reshape(1),
        )

    @classmethod
    @override
    def from_tensors(cls, tensors: Mapping[str, NDArray]) -> Self:
        trees = super().from_tensors(tensors)
        trees._check_shape()
        return trees

    def _check_shape(self) -> None:
        """Raise ValueError unless the nodes are trees: children come after their parent, in the same tree."""
        nodes = len(self.value_V)
        if not nodes or not len(self.roots_T) or self.roots_T[0] != 0:
            raise ValueError("the first tree does not begin with the first node")
        is_leaf_V = self.children_V2[:, 0] == np.arange(nodes)
        if (is_leaf_V != (self.children_V2[:, 1] == np.arange(nodes))).any():
            raise ValueError("a node has one child")
        tree_V = np.searchsorted(self.roots_T, np.arange(nodes), side="right") - 1
        splits = np.flatnonzero(~is_leaf_V)
        children = self.children_V2[splits]
        parents = np.bincount(children.ravel(), minlength=nodes)
        if (children <= splits[:, None]).any() or (
            tree_V[children] != tree_V[splits][:, None]
        ).any():
            raise ValueError("a node's child is before it, or in another tree")
        if (parents[self.roots_T] != 0).any() or (
            np.delete(parents, self.roots_T) != 1
        ).any():
            raise ValueError("a node has no parent, or several")
        if np.bincount(tree_V[is_leaf_V]).max() > _MOST_LEAVES:
            raise ValueError(f"a tree has more than {_MOST_LEAVES} leaves")

    @override
    def logits(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        used_NK = label_ids_NK >= 0
        sums = [np.empty(0)]
        for leaf_PT in self._leaves(inputs_XNK[:, used_NK]):
            sums.append(self.value_V.take(leaf_PT).sum(axis=1))
        logits_NK = np.zeros(used_NK.shape)
        logits_NK[used_NK] = self.start_1 + np.concatenate(sums)
        return logits_NK

    @override
    def terms(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        """The last input, which is 1, gets the values of the roots."""
        input_count = len(inputs_XNK)
        terms_VX = self._terms_of_nodes(input_count)
        parts = [np.empty((0, input_count))]
        for leaf_PT in self._leaves(inputs_XNK.reshape(input_count, -1)):
            pairs, trees = leaf_PT.shape
            row_starts = np.arange(0, leaf_PT.size + 1, trees)
            content = (np.ones(leaf_PT.size), leaf_PT.ravel(), row_starts)
            leaves_PV = sparse.csr_array(content, shape=(pairs, len(terms_VX)))
            parts.append(leaves_PV @ terms_VX)
        terms_PX = np.concatenate(parts)
        terms_PX[:, -1] = self.start_1 + self.value_V[self.roots_T].sum()
        return terms_PX.T.reshape(inputs_XNK.shape)

    def _terms_of_nodes(self, input_count: int) -> Floats:
        """Sum, for each node, the changes of value on the way from its root, by the input that is divided by."""
        terms_VX = np.zeros((len(self.value_V), input_count))
        for node in self._splits:
            for child in self.children_V2[node]:
                terms_VX[child] = terms_VX[node]
                terms_VX[child, self.input_V[node]] += (
                    self.value_V[child] - self.value_V[node]
                )
        return terms_VX

    @property
    def _splits(self) -> NDArray[np.intp]:
        """Nodes that divide; parents come before their children."""
        return np.flatnonzero(self.children_V2[:, 0] != np.arange(len(self.value_V)))

    @cached_property
    def _bits(
        self,
    ) -> tuple[NDArray[np.int32], dict[int, tuple[Floats, NDArray[np.uint16]]]]:
        """Return the node of each tree's leaf by the code of its bit, and each input's thresholds and masks.

        Row i of the masks (E + 1, T) has the leaves that are left to a pair whose input exceeds i of E thresholds. A
        pair's leaf is the lowest bit that its inputs leave (Lucchese et al. 2015, "QuickScorer").
        """
        splits = self._splits
        trees = len(self.roots_T)
        tree_V = (
            np.searchsorted(self.roots_T, np.arange(len(self.value_V)), side="right")
            - 1
        )
        is_leaf_V = np.ones(len(self.value_V), np.bool_)
        is_leaf_V[splits] = False
        leaves = np.flatnonzero(is_leaf_V)  # of a tree from left to right
        first_leaf_T = np.searchsorted(leaves, self.roots_T)
        rank = np.arange(len(leaves)) - first_leaf_T[tree_V[leaves]]
        bits_V = np.zeros(len(self.value_V), np.uint16)
        bits_V[leaves] = 1 << rank
        for node in splits[::-1]:
            bits_V[node] = np.bitwise_or.reduce(bits_V[self.children_V2[node]])
        node_TB = np.zeros((trees, _MOST_LEAVES), np.int32)
        node_TB[tree_V[leaves], _code(bits_V[leaves])] = leaves
        tests = {}
        for input_number in np.unique(self.input_V[splits]):
            splits_of_input = splits[self.input_V[splits] == input_number]
            edges, edge_of_split = np.unique(
                self.threshold_V[splits_of_input], return_inverse=True
            )
            masks = np.full((len(edges) + 1, trees), 0xFFFF, np.uint16)
            for node, edge in zip(splits_of_input, edge_of_split, strict=True):
                left_child = self.children_V2[node, 0]
                masks[edge + 1 :, tree_V[node]] &= ~bits_V[left_child]
            tests[int(input_number)] = edges, masks
        return node_TB.ravel(), tests

    def _leaves(self, inputs_XP: Floats) -> Iterator[NDArray[np.int32]]:
        """Yield the leaf (P, T) of some pairs after others in each tree."""
        nodes, tests = self._bits
        first_T = np.arange(0, len(nodes), _MOST_LEAVES)
        for first in range(0, inputs_XP.shape[1], _PAIRS_AT_ONCE):
            chunk_XP = inputs_XP[:, first : first + _PAIRS_AT_ONCE]
            left_PT = np.full((chunk_XP.shape[1], len(self.roots_T)), 0xFFFF, np.uint16)
            for input_number, (edges, masks) in tests.items():
                exceeded_P = np.searchsorted(edges, chunk_XP[input_number])
                left_PT &= masks.take(exceeded_P, axis=0)
            lowest_bit_PT = left_PT & -left_PT
            yield nodes.take(first_T + _code(lowest_bit_PT))


def _sampling_shares(right_P: NDArray[np.bool_], chance_P: Floats) -> Floats:
    """Compute with which probability each pair is drawn: all of few pairs, and all right ones of many."""
    pairs = len(right_P)
    if pairs <= MAX_PAIRS:
        return np.ones(pairs)
    spread_P = np.sqrt(chance_P * (1 - chance_P))
    evenly = _EVENLY / pairs
    by_spread_P = (1 - _EVENLY) * spread_P / spread_P.sum()
    share_P = MAX_PAIRS * (evenly + by_spread_P)
    return np.where(right_P, 1, np.minimum(share_P, 1))


def _rounded(inputs_PX: Floats) -> Floats:
    """Round each input to the nearest of its quantiles; scikit-learn takes longer to find weighted ones than to fit."""
    columns = []
    for input_P in inputs_PX.T:
        values = np.unique(np.quantile(input_P, np.linspace(0, 1, _VALUES)))
        middles = (values[1:] + values[:-1]) / 2
        columns.append(values[np.searchsorted(middles, input_P)])
    return np.stack(columns, axis=1)


def _code(bits: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Number powers of two from 0 to 15, by a de Bruijn sequence."""
    return (bits * np.uint16(0x09AF)) >> np.uint16(12)
