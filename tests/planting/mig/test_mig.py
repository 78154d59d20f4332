"""Counts, signals and rankings against brute force, scikit-learn and scipy."""

from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import numpy as np
import pytest
from mig_cases import RandomSplit, brute_force_counts, contingency
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score
from typing_extensions import override

from xmtc.errors import DataError
from xmtc.planting.mig import counts as counts_module
from xmtc.planting.mig import ranking as ranking_module
from xmtc.planting.mig.config import (
    ChiSquaredConfig,
    MigConfig,
    MutualInformationConfig,
    PointwiseConfig,
    TfIdfConfig,
)
from xmtc.planting.mig.counts import PairCounts, count_presence
from xmtc.planting.mig.measures import TfIdf
from xmtc.planting.mig.ranking import TokenRanking, rank_tokens
from xmtc.track.progress import ConsoleTask, Progress


def rank(split: RandomSplit, config: MigConfig, **kwargs) -> TokenRanking:
    return rank_tokens(
        split, config, special_token_ids=[0, 1], vocab_size=split.vocab_size, **kwargs
    )


def pair_of(documents: int, together: int, token: int, label: int) -> PairCounts:
    both, n_t, n_l = (np.array([value], np.int64) for value in (together, token, label))
    zero = np.zeros(1, np.int64)
    return PairCounts(zero, zero, both, n_t, n_l, documents, occurrences_P=both)


class Counter(Progress):
    """A progress that remembers its last task and the steps of it."""

    @override
    def task(
        self,
        description: str,
        total: int | None = None,
        unit: str = "documents",
        *,
        done: int = 0,
        lines: bool = True,
    ) -> ConsoleTask:
        self.total, self.unit, self.steps = total, unit, []
        task = super().task(description, total, unit, done=done, lines=lines)
        task.advance = self.steps.append
        return task


@pytest.fixture
def split() -> RandomSplit:
    return RandomSplit(documents=300, vocab_size=60, labels=25, seed=3)


def test_presence_counts_each_token_once_a_document(
    split: RandomSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        counts_module, "TOKENS_PER_CHUNK", 100
    )  # many chunks, and documents longer than one
    with ThreadPoolExecutor(2) as executor:
        presence = count_presence(
            split.token_blocks(), split.vocab_size, executor, occurrences=True
        )
    present, occurrences, _ = brute_force_counts(split)
    np.testing.assert_array_equal(presence.present_NV.toarray(), present)
    assert presence.occurrences_NV is not None
    np.testing.assert_array_equal(presence.occurrences_NV.toarray(), occurrences)
    np.testing.assert_array_equal(presence.token_documents_V, present.sum(axis=0))


def test_scores_agree_with_scikit_learn(split: RandomSplit) -> None:
    ranking = rank(split, MigConfig(signed=False, min_documents=1, top_k=60))
    present, _, labels = brute_force_counts(split)
    checked = 0
    for label in range(split.labels):
        for token in ranking.top(label, 60):
            expected = mutual_info_score(labels[:, label], present[:, token.token_id])
            assert token.score == pytest.approx(expected, abs=1e-7)  # stored in float32
            checked += 1
    assert checked > 1000


@pytest.mark.parametrize(
    "table", [(300, 0, 12, 40), (300, 5, 5, 5), (300, 300, 300, 300), (300, 7, 300, 7)]
)
def test_single_pairs_agree_to_1e_12(table: tuple[int, int, int, int]) -> None:
    pair = pair_of(*table)
    cells = contingency(*table)
    expected = mutual_info_score(None, None, contingency=cells)
    assert MutualInformationConfig().build().score(pair)[0] == pytest.approx(
        expected, abs=1e-12
    )


def test_precision_holds_at_ten_million_documents() -> None:
    """A label with two documents among ten million: the information is 1e-6, the error must not be."""
    expected = mutual_info_score(
        None, None, contingency=contingency(10_000_000, 1, 50, 2)
    )
    assert MutualInformationConfig().build().score(pair_of(10_000_000, 1, 50, 2))[
        0
    ] == pytest.approx(expected, abs=1e-14)


def test_other_signals_by_their_formula() -> None:
    documents, together, token, label = 200, 12, 30, 25
    pair = pair_of(documents, together, token, label)
    pmi = np.log(together / documents / (token / documents * label / documents))
    assert PointwiseConfig().build().score(pair)[0] == pytest.approx(pmi)
    chi2 = chi2_contingency(
        contingency(documents, together, token, label), correction=False
    ).statistic
    assert ChiSquaredConfig().build().score(pair)[0] == pytest.approx(chi2)
    assert (
        ChiSquaredConfig().build().score(pair_of(200, 30, 200, 30))[0] == 0
    )  # a token in every document says nothing


def test_tfidf_counts_repetitions(split: RandomSplit) -> None:
    ranking = rank(
        split, MigConfig(signal=TfIdfConfig(), signed=False, min_documents=1, top_k=60)
    )
    present, occurrences, labels = brute_force_counts(split)
    mean = (labels.T.astype(np.float64) @ occurrences) / np.maximum(
        labels.sum(axis=0), 1
    )[:, None]
    expected = mean * np.log(len(present) / np.maximum(present.sum(axis=0), 1))
    for label in range(split.labels):
        for token in ranking.top(label, 60):
            assert token.score == pytest.approx(
                expected[label, token.token_id], rel=1e-6
            )


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    "signal", [MutualInformationConfig(), ChiSquaredConfig(), PointwiseConfig()]
)
def test_ranking_is_the_brute_force_order(
    split: RandomSplit, signal, signed: bool, monkeypatch
) -> None:
    monkeypatch.setattr(ranking_module, "PAIRS_PER_BLOCK", 200)
    config = MigConfig(signal=signal, signed=signed, min_documents=4, top_k=15)
    found = rank(split, config)
    present, _, labels = brute_force_counts(split)
    for label in range(split.labels):
        assert [token.token_id for token in found.top(label, 15)] == _best_tokens(
            config, present, labels[:, label]
        )


def _best_tokens(
    config: MigConfig, present: np.ndarray, has_label: np.ndarray
) -> list[int]:
    n, scored = len(present), []
    for token in range(2, present.shape[1]):
        n_t, n_l, n11 = (
            int(present[:, token].sum()),
            int(has_label.sum()),
            int(present[has_label == 1, token].sum()),
        )
        associated = (
            n11 * n > n_t * n_l
            if config.signed
            else n11 > 0 or config.signal.build().scores_absence
        )
        if n_t >= config.min_documents and 0 < n_l < n and associated:
            scored.append(
                (-config.signal.build().score(pair_of(n, n11, n_t, n_l))[0], token)
            )
    return [token for _, token in sorted(scored)[: config.top_k]]


def test_absence_counts_only_when_unsigned() -> None:
    """Token 2 is missing exactly from the label's documents, token 3 is in exactly those."""
    documents = [[2, 4], [2, 4], [3, 4], [3, 4]]
    split = RandomSplit.of(documents, [[], [], [0], [0]], vocab_size=5, labels=1)
    signed = rank(split, MigConfig(min_documents=1, top_k=5))
    assert [token.token_id for token in signed.top(0, 5)] == [3]
    unsigned = rank(split, MigConfig(min_documents=1, top_k=5, signed=False))
    assert [token.token_id for token in unsigned.top(0, 2)] == [2, 3]
    assert unsigned.top(0, 1)[0].together == 0
    assert unsigned.top(0, 1)[0].score == pytest.approx(np.log(2))


def test_blocks_and_threads_do_not_matter(split: RandomSplit) -> None:
    config, counter = MigConfig(min_documents=1, top_k=20), Counter(enabled=False)
    with patch.multiple(ranking_module, cpu_count=lambda: 1, PAIRS_PER_BLOCK=10**9):
        whole = rank(split, config)
    with patch.multiple(ranking_module, cpu_count=lambda: 2, PAIRS_PER_BLOCK=1):
        cut = rank(split, config, progress=counter)
    np.testing.assert_array_equal(whole.token_ids_LK, cut.token_ids_LK)
    np.testing.assert_array_equal(whole.scores_LK, cut.scores_LK)
    np.testing.assert_array_equal(whole.together_LK, cut.together_LK)
    assert (counter.total, counter.unit, counter.steps) == (
        split.labels,
        "labels",
        [1] * split.labels,
    )


def test_tfidf_is_the_mean_weight_in_the_documents_of_a_label() -> None:
    pairs = PairCounts(
        label_P=np.array([0]),
        token_P=np.array([0]),
        documents=10,
        together_P=np.array([2]),
        token_documents_P=np.array([5]),
        label_documents_P=np.array([4]),
        occurrences_P=np.array([6]),
    )
    assert TfIdf().score(pairs)[0] == pytest.approx(6 / 4 * np.log(10 / 5))


@pytest.mark.parametrize(
    ("settings", "ranked"),
    [
        (MigConfig(min_documents=1, top_k=3), 2),
        (MigConfig(min_documents=1, top_k=3, signed=False), 3),
        (MigConfig(min_documents=1, top_k=3, signed=False, signal=TfIdfConfig()), 2),
    ],
)
def test_labels_without_evidence_have_no_ranking(
    settings: MigConfig, ranked: int
) -> None:
    """Label 1 is on no document, label 2 on all of them (nothing can be associated with it)."""
    split = RandomSplit.of(
        [[2, 3], [3, 4], []], [[0, 2], [2], [2]], vocab_size=5, labels=3
    )
    ranking = rank(split, settings)
    np.testing.assert_array_equal(ranking.counts, [ranked, 0, 0])
    assert ranking.unranked == 2
    np.testing.assert_array_equal(ranking.token_ids_LK[1], [-1, -1, -1])
    assert ranking.documents == 3  # a document without tokens or labels is a document


def test_an_empty_split_ranks_nothing() -> None:
    split = RandomSplit.of([], [], vocab_size=5, labels=2)
    assert rank(split, MigConfig()).unranked == 2


@pytest.mark.parametrize("token", [-1, 5])
def test_foreign_token_ids_are_refused(token: int) -> None:
    split = RandomSplit.of([[2, token]], [[0]], vocab_size=5, labels=1)
    with pytest.raises(DataError, match=f"token id {token}.*another tokenizer"):
        rank(split, MigConfig())


def test_rows_of_labels_must_match_the_documents() -> None:
    split = RandomSplit.of([[2], [3]], [[0]], vocab_size=5, labels=1)
    with pytest.raises(DataError, match=r"1 rows .*2 documents"):
        rank(split, MigConfig())
