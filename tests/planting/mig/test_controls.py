"""The controls of the planting study."""

import numpy as np
import pytest
from mig_cases import RandomSplit
from scipy import sparse

from tools_plugins import signal_controls
from xmtc.planting.mig.config import MigConfig, MutualInformationConfig, SignalSettings
from xmtc.planting.mig.ranking import TokenRanking, rank_tokens


@pytest.fixture
def split() -> RandomSplit:
    return RandomSplit(documents=300, vocab_size=60, labels=25, seed=3)


def rank(split: RandomSplit, signal: SignalSettings) -> TokenRanking:
    config = MigConfig(signal=signal, min_documents=1, top_k=20)
    return rank_tokens(
        split, config, special_token_ids=[0, 1], vocab_size=split.vocab_size
    )


def test_exchanged_labels_have_the_ranking_of_another_label_of_their_frequency() -> (
    None
):
    rng = np.random.default_rng(0)
    labels_NL = sparse.csr_array(rng.random((60, 12)) < np.repeat([0.1, 0.3, 0.5], 4))
    counts_L = labels_NL.sum(0)
    found = signal_controls.Exchanged(3).permute(labels_NL).toarray()
    own_L = [
        next(
            other
            for other in range(12)
            if (found[:, label] == labels_NL.toarray()[:, other]).all()
        )
        for label in range(12)
    ]
    assert sorted(own_L) == list(range(12))
    assert all(other != label for label, other in enumerate(own_L))
    ranks_L = np.argsort(np.argsort(counts_L, kind="stable"))
    steps = [abs(ranks_L[other] - ranks_L[label]) for label, other in enumerate(own_L)]
    assert sorted(steps)[-2] <= max(np.bincount(counts_L)), (
        "only the last label in order goes far"
    )


def test_shuffled_control_keeps_frequencies_and_loses_the_signal(
    split: RandomSplit,
) -> None:
    """Label 0 is marked by token 5 in the data; after shuffling it is not."""
    plain = rank(split, MutualInformationConfig())
    shuffled = [
        rank(split, signal_controls.ShuffledConfig(seed=seed)) for seed in (0, 0, 1)
    ]
    assert plain.top(0, 1)[0].token_id == 5
    assert plain.scores_LK[0, 0] > 5 * shuffled[0].scores_LK[0, 0]
    np.testing.assert_array_equal(
        plain.label_documents_L, shuffled[0].label_documents_L
    )
    np.testing.assert_array_equal(shuffled[0].token_ids_LK, shuffled[1].token_ids_LK)
    assert (shuffled[0].token_ids_LK != shuffled[2].token_ids_LK).any()
