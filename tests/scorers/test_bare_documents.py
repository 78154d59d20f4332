"""Documents without a known word or feature, some or all of them, in every scorer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from scorer_cases import label_names, training, unseen
from xmtc.data.words import Vocabulary, Words
from xmtc.scorers.base import Features
from xmtc.scorers.config import (
    LabelEmbeddingsConfig,
    LabelTextConfig,
    LinearConfig,
    StateNeighboursConfig,
    TreeConfig,
    WordNeighboursConfig,
)

SETTINGS = [
    LinearConfig(),
    LinearConfig(weighting="log_odds"),
    WordNeighboursConfig(),
    StateNeighboursConfig(),
    LabelTextConfig(),
    LabelEmbeddingsConfig(),
]
SETTINGS += [TreeConfig(trees=1), TreeConfig(trees=1, shape="parabel")]


def bare(features: Features, rows: Any) -> Features:
    """The same documents, some of which have no word and a state of zeros."""
    kept = np.ones(len(features), np.float32)
    kept[rows] = 0
    counts = sparse.csr_array(sparse.diags_array(kept) @ features.words.counts_NC)
    counts.eliminate_zeros()
    return Features(
        Words(counts, features.words.vocabulary), features.states_ND * kept[:, None]
    )


@pytest.mark.parametrize(
    "rows", [[3], slice(0, 30), slice(None)], ids=["one", "half", "all"]
)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: type(one).__name__)
def test_documents_without_a_feature_are_documents(
    settings: Any, rows: Any, tmp_path: Path
) -> None:
    cases, vocabulary = training(60)
    scorer = settings.fit(replace(cases, features=bare(cases.features, rows)))
    features, _ = unseen(vocabulary)
    for some in (features, bare(features, [2]), bare(features, slice(None))):
        best = scorer.score(some).top(3)
        assert np.isfinite(best.scores_NK).all()
        for row in range(len(some)):
            scorer.contributions(some.take(slice(row, row + 1)), [0, 1])
    scorer.save(tmp_path)
    assert np.isfinite(
        settings.load(tmp_path).score(bare(features, [0])).top(2).scores_NK
    ).all()


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: type(one).__name__)
def test_a_vocabulary_may_be_empty(settings: Any) -> None:
    cases, _ = training(60)
    vocabulary = Vocabulary([], np.empty(0, np.int64), 60)
    features = Features(vocabulary.words(["?"] * 60), cases.features.states_ND)
    scorer = settings.fit(
        replace(cases, features=features, names=label_names(["a"] * 7, vocabulary))
    )
    assert np.isfinite(scorer.score(features).top(3).scores_NK).all()
    assert len(scorer.contributions(features.take(slice(0, 1)), [0, 1])) == 2
