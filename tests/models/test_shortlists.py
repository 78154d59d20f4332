import pytest
import torch

from xmtc.errors import DataError
from xmtc.models.classifier import check_shortlist


@pytest.mark.parametrize("rows", [[3, 0, 9], [[3, 0], [9, -1]], [[0, 1], [0, 1]]])
def test_good_shortlists_pass(rows):
    check_shortlist(torch.tensor(rows), documents=2, labels=10)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([3, 10], "row 0: label 10 is not in 0 … 9"),
        ([3, -1], "row 0: label -1 is not in"),
        ([[3, 1], [4, -2]], "row 1: label -2 is not in"),
        ([[3, 1], [4, 4]], "row 1: label 4 occurs twice"),
        ([5, 5], "label 5 occurs twice"),
        ([[3, 1], [-1, -1]], "row 1 has no label"),
        ([[3, 1]], "1 rows for 2 documents"),
        ([[[3]]], r"not torch.int64 \(1, 1, 1\)"),
        ([0.5], "not torch.float32"),
    ],
)
def test_others_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        check_shortlist(torch.tensor(rows), documents=2, labels=10)


def test_an_empty_shortlist_is_refused():
    with pytest.raises(DataError, match="row 0 has no label"):
        check_shortlist(torch.zeros(0, dtype=torch.int64), documents=2, labels=10)
