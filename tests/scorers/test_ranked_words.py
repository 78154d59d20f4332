"""Weights of the words with most information, against the plain formulas in float64."""

from unittest.mock import patch

import numpy as np
import pytest

from scorer_cases import training, unseen
from xmtc.errors import DataError
from xmtc.scorers import ranked_words
from xmtc.scorers.config import RankedWordsConfig
from xmtc.scorers.ranked_words import RankedWords


def information(has: np.ndarray, of: np.ndarray) -> float:
    """Mutual information of two events, in nats; 0 if they occur together less often than by chance."""
    total = 0.0
    for first in (has, ~has):
        for second in (of, ~of):
            both = (first & second).mean()
            total += (
                both * np.log(both / (first.mean() * second.mean())) if both else 0.0
            )
    return total if (has & of).mean() > has.mean() * of.mean() else 0.0


@pytest.mark.parametrize(("words", "documents_at_once"), [(4, 7), (1_000, 1_000)])
def test_weights_are_those_of_the_closed_form(
    words: int, documents_at_once: int
) -> None:
    cases, vocabulary = training(60)
    with patch.multiple(
        ranked_words, LABELS_AT_ONCE=3, _DOCUMENTS_AT_ONCE=documents_at_once
    ):
        scorer = RankedWords.fit(cases, RankedWordsConfig(words=words, penalty=0.2))
    rows, labels = (
        cases.features.words.together().toarray().astype(np.float64),
        cases.labels_NL.toarray(),
    )
    for label in range(labels.shape[1]):
        told = np.array(
            [information(column > 0, labels[:, label]) for column in rows.T]
        )
        found = scorer.weights_WL[:, [label]].toarray().ravel()
        chosen = np.flatnonzero(found)
        assert len(chosen) == min(words, np.count_nonzero(told > 1e-12))
        assert told[chosen].min() >= np.delete(told, chosen).max(initial=0) - 1e-12
        scale = np.sqrt(told[chosen] / told.max())
        columns = rows[:, chosen] * scale
        solved = np.linalg.solve(
            columns.T @ columns + 0.2 * np.eye(len(chosen)),
            columns.T @ labels[:, label],
        )
        np.testing.assert_allclose(found[chosen], scale * solved, atol=1e-3)
    features, _ = unseen(vocabulary)
    best = scorer.score(features).top(3)
    assert (best.scores_NK[:, 0] > 0).all()


def test_a_label_that_no_word_tells_anything_about_has_no_weights() -> None:
    cases, _ = training(60)
    labels = cases.labels_NL.tolil()
    labels[:, 1], labels[:, 2] = True, False
    scorer = RankedWords.fit(
        type(cases)(cases.features, labels.tocsr()), RankedWordsConfig()
    )
    weights = scorer.weights_WL.toarray()
    assert not weights[:, 1:3].any()
    assert weights[:, 0].any()


def test_too_small_a_penalty_is_refused() -> None:
    cases, _ = training(8)
    with pytest.raises(DataError, match="penalty 1e-30 is too small"):
        RankedWords.fit(cases, RankedWordsConfig(penalty=1e-30))
