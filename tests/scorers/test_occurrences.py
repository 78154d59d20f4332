"""Labels that occur together, and the score that follows from them."""

import numpy as np
import pytest
from scipy import sparse

from xmtc.fusion.occurrences import Occurrences
from xmtc.scorers.regrouping import Regrouping

LABELS_NL = sparse.csr_array(
    np.array(
        [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]],
        dtype=np.bool_,
    )
)


def test_documents_of_labels_and_of_pairs_are_counted() -> None:
    found = Occurrences.of(LABELS_NL)
    assert found.counts_L.tolist() == [4, 3, 2, 0]
    assert found.together_LL.toarray().tolist() == [
        [0, 2, 2, 0],
        [2, 0, 1, 0],
        [2, 1, 0, 0],
        [0, 0, 0, 0],
    ]
    assert found.any_together
    assert not Occurrences.of(sparse.csr_array(np.eye(4, dtype=np.bool_))).any_together
    assert not Occurrences.without_pairs(found.counts_L).any_together


def test_candidates_given_one_another_by_hand() -> None:
    given = (
        Occurrences.of(LABELS_NL)
        .between(np.array([[0, 1, 3], [-1, -1, -1], [0, 2, -1]], np.int32))
        .toarray()
    )
    wanted = np.zeros((5, 5))
    wanted[0, 1], wanted[1, 0] = 2 / 6, 2 / 5  # 3 occurs with none
    wanted[3, 4], wanted[4, 3] = 2 / 6, 2 / 4
    np.testing.assert_allclose(given, wanted, rtol=1e-6)


def test_more_labels_occur_with_none() -> None:
    found = Occurrences.of(LABELS_NL).extended(2)
    assert found.counts_L.tolist() == [4, 3, 2, 0, 0, 0]
    assert found.together_LL.shape == (6, 6)
    np.testing.assert_array_equal(
        found.together_LL.toarray()[:4, :4],
        Occurrences.of(LABELS_NL).together_LL.toarray(),
    )


@pytest.mark.parametrize(
    ("regrouping", "counts", "together"),
    [
        (Regrouping.without(4, [1]), [4, 2, 0], [[0, 2, 0], [2, 0, 0], [0, 0, 0]]),
        (Regrouping.merging(4, [[1, 2]]), [4, 4, 0], [[0, 4, 0], [4, 0, 0], [0, 0, 0]]),
        (Regrouping.merging(4, [[1, 2]]), [4, 3, 0], [[0, 4, 0], [3, 0, 0], [0, 0, 0]]),
    ],
    ids=["removed", "merged", "merged, documents counted once"],
)
def test_fewer_labels(
    regrouping: Regrouping, counts: list[int], together: list[list[int]]
) -> None:
    found = Occurrences.of(LABELS_NL).regrouped(regrouping, np.array(counts))
    assert found.counts_L.tolist() == counts
    assert found.together_LL.toarray().tolist() == together
    assert found.given_LL.toarray().max() < 1
