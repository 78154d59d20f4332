"""Labels left out or merged: what each scorer makes of it, against the same done to dense tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from scorer_cases import LABELS, label_names, training, unseen
from xmtc.errors import ConfigError
from xmtc.scorers.config import (
    LabelTextConfig,
    LinearConfig,
    TreeConfig,
    WordNeighboursConfig,
)
from xmtc.scorers.label_text import LabelText
from xmtc.scorers.linear import Linear
from xmtc.scorers.regrouping import Regrouping
from xmtc.scorers.tree import Tree
from xmtc.scorers.word_neighbours import WordNeighbours

KEPT = np.array([0, 2, 3, 6])
ALL = np.arange(LABELS)


@pytest.fixture(scope="module")
def cases():
    data, vocabulary = training(120)
    return data, unseen(vocabulary)[0]


def scores(scorer, features, ids) -> np.ndarray:
    return scorer.score(features).at(
        np.broadcast_to(ids.astype(np.int32), (len(features), len(ids)))
    )


@given(st.data())
def test_columns_are_combined_as_those_of_a_dense_table(data) -> None:
    labels = data.draw(st.integers(2, 9))
    order = data.draw(st.permutations(range(labels)))
    groups = [order[:2], order[2:5]] if labels >= 5 else [order[:2]]
    table = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(0, 3), min_size=labels, max_size=labels),
                max_size=4,
            )
        )
    )
    table = table.reshape(-1, labels)
    regrouping = Regrouping.merging(labels, groups)
    first = {group[0]: group for group in groups}
    gone = {label for group in groups for label in group[1:]}
    members = [
        first.get(label, [label]) for label in range(labels) if label not in gone
    ]
    for combine in (np.add, np.maximum):
        expected = np.stack(
            [combine.reduce(table[:, own], axis=1) for own in members], axis=1
        )
        np.testing.assert_array_equal(
            regrouping.columns(sparse.csr_array(table), combine).toarray(), expected
        )
    np.testing.assert_array_equal(
        regrouping.summed(ALL[:labels] if labels <= LABELS else np.arange(labels)),
        [sum(own) for own in members],
    )


def test_scores_of_labels_that_remain_are_the_same(cases, tmp_path) -> None:
    data, features = cases
    regrouping = Regrouping.without(LABELS, [1, 4, 5])
    fitted = (
        Linear.fit(data, LinearConfig(penalty=0.3)),
        WordNeighbours.fit(data, WordNeighboursConfig(neighbours=5)),
        LabelText.fit(data, LabelTextConfig()),
        Tree.fit(data, TreeConfig(trees=1)),
    )
    for scorer in fitted:
        less = scorer.regrouped(regrouping)
        assert less.labels == len(KEPT)
        np.testing.assert_array_equal(
            scores(less, features, ALL[: len(KEPT)]), scores(scorer, features, KEPT)
        )
    less.save(tmp_path)
    again = Tree.load(tmp_path).regrouped(Regrouping.without(len(KEPT), [0]))
    longer = again.extended(label_names(["d", "e"], training()[1]))
    assert longer.labels == len(KEPT) + 1
    np.testing.assert_allclose(
        scores(longer, features, ALL[:3]), scores(scorer, features, KEPT[1:]), atol=1e-6
    )
    assert not scores(longer, features, ALL[3:5]).any()


def test_linear_weights_add_up_to_those_of_the_union_of_disjoint_labels(cases) -> None:
    data, features = cases
    labels = data.labels_NL.toarray()
    labels[:, 4] &= ~labels[:, 1]
    config = LinearConfig(penalty=0.3, prune=0.0)
    disjoint = Linear.fit(type(data)(data.features, sparse.csr_array(labels)), config)
    merged = disjoint.regrouped(Regrouping.merging(LABELS, [[1, 4]]))
    union = np.delete(labels, 4, axis=1)
    union[:, 1] |= labels[:, 4]
    expected = Linear.fit(type(data)(data.features, sparse.csr_array(union)), config)
    np.testing.assert_allclose(
        scores(merged, features, ALL[:-1]),
        scores(expected, features, ALL[:-1]),
        atol=1e-5,
    )


def test_votes_and_words_of_merged_labels_are_united_and_trees_refuse(cases) -> None:
    data, features = cases
    regrouping = Regrouping.merging(LABELS, [[4, 1]])
    labels = data.labels_NL.toarray()
    votes = WordNeighbours.fit(data, WordNeighboursConfig(neighbours=5)).regrouped(
        regrouping
    )
    at = int(np.flatnonzero(regrouping.kept_M == 4)[0])
    assert votes.train_counts[at] == (labels[:, 4] | labels[:, 1]).sum()
    texts = LabelText.fit(data, LabelTextConfig())
    parts = scores(texts, features, np.array([4, 1]))
    np.testing.assert_allclose(
        scores(texts.regrouped(regrouping), features, np.array([at]))[:, 0],
        parts.max(axis=1),
    )
    with pytest.raises(ConfigError, match="`tree`"):
        Tree.fit(data, TreeConfig(trees=1)).regrouped(regrouping)
