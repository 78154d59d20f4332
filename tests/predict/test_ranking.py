"""The best labels of a document, from logits."""

import pytest
import torch

from xmtc.predict.ranking import best_labels


@pytest.mark.parametrize("logit", [-3.702958106994629, 0.1, 2.3])
@pytest.mark.parametrize("labels", [33, 47, 100])
def test_equal_logits_have_equal_probabilities(logit, labels):
    """Vectorised code and the rest of a tensor round the sigmoid differently."""
    _, scores_BK = best_labels(torch.full((3, labels), logit), labels, "multi_label")
    assert (scores_BK.diff(dim=1) <= 0).all()
