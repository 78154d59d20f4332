"""Plant the classifier: initialise its rows from the contexts that the attention produces, trained or random.

Each worker initialises its rows from all workers' documents.

Suffixes: B documents (of all workers), T tokens, S labels of a batch, L labels of this worker, d head width.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import AttendsByLabel, Head
from xmtc.planting.sums import ReadFor, Sums
from xmtc.training.label_shard import GatheredDocuments, LabelShard

SHRINKAGE = 0.2
"""Number of documents at which a row has half its length."""
GAP = 5.0
"""Difference between the mean logits of positive and negative documents for the median label."""


class Responses(NamedTuple):
    """Rows of labels, and what they score on average.

    Attributes:
        rows_Ld: w.
        positive_L, negative_L: w[l]·μ⁺[l] and w[l]·μ⁻[l], means over the label's documents and over others.
    """

    rows_Ld: Tensor
    positive_L: Tensor
    negative_L: Tensor


def set_rows(head: Head, found: Responses, prior_L: Tensor, shard: LabelShard, most: float = math.inf) -> None:
    """Set rows times a factor, and biases such that a negative scores the label's prior. Collective.

    The factor makes the median gap `GAP`, but is at most `most`.
    """
    gap_L = shard.of_all(found.positive_L - found.negative_L)
    scale = min(GAP / float(gap_L[gap_L > 0].median()), most) if bool((gap_L > 0).any()) else 0.0
    head.weights.copy_(found.rows_Ld * scale)
    head.bias.copy_(prior_L - found.negative_L * scale)


class PrototypeSums(Sums):
    """Sums the contexts o[b,l] of a label's documents and of other documents over one pass through train.

    Every document of a batch gives a negative context for each label of the batch's other documents. The negatives
    need no extra pass, and their number is of the same order for rare and common labels.
    """

    def __init__(self, labels: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.add_sum("positive_Ld", labels, width, device=device)
        self.add_sum("negative_Ld", labels, width, device=device)
        self.add_sum("square_d", width, dtype=torch.float64, device=device)
        self.add_sum("positives_L", labels, device=device)
        self.add_sum("negatives_L", labels, device=device)

    def add(self, head: AttendsByLabel, documents: GatheredDocuments) -> None:
        """Add one batch."""
        targets = documents.targets
        labels_S = targets.columns_P.unique()
        contexts_BSd = head.contexts(documents.read[0], documents.mask_GT, labels_S).float()
        is_positive_BS = torch.zeros(contexts_BSd.shape[:2], device=contexts_BSd.device)
        is_positive_BS[targets.rows_P, torch.searchsorted(labels_S, targets.columns_P)] = 1
        weight_B1 = targets.weight_B.unsqueeze(1)
        for wanted_BS, sums_Ld, counts_L in (
            (is_positive_BS * weight_B1, self.positive_Ld, self.positives_L),
            ((1 - is_positive_BS) * weight_B1, self.negative_Ld, self.negatives_L),
        ):
            sums_Ld.index_add_(0, labels_S, torch.einsum("bs,bsd->sd", wanted_BS, contexts_BSd))
            counts_L.index_add_(0, labels_S, wanted_BS.sum(0))
        self.square_d.add_(contexts_BSd.square().mul(weight_B1.unsqueeze(2)).sum((0, 1)).double())

    def rows(self, sum_of_all: Callable[[Tensor], Tensor]) -> Responses:
        """Compute classifier rows and their mean responses. Collective; the sums become means, so call it once.

        w[l] = n_l / (n_l + SHRINKAGE) · (μ⁺_l − μ⁻_l) / σ², the direction of linear discriminant analysis with a
        diagonal covariance shared by all labels, shrunk towards zero by the label's count.

        Args:
            sum_of_all: sums a value over the labels of all workers.

        Returns:
            Rows, zero for labels without a training document, and their mean responses.
        """
        total = sum_of_all((self.positives_L + self.negatives_L).double().sum()).clamp(min=1)
        mean_d = sum_of_all((self.positive_Ld.sum(0) + self.negative_Ld.sum(0)).double()) / total
        variance_d = (sum_of_all(self.square_d) / total - mean_d.square()).clamp(min=1e-8).float()
        seen_L = (self.positives_L > 0) & (self.negatives_L > 0)
        shrink_L1 = (seen_L * self.positives_L / (self.positives_L + SHRINKAGE)).unsqueeze(1)
        positive_Ld = self.positive_Ld.div_(self.positives_L.clamp(min=1).unsqueeze(1))
        negative_Ld = self.negative_Ld.div_(self.negatives_L.clamp(min=1).unsqueeze(1))
        rows_Ld = (positive_Ld - negative_Ld).mul_(shrink_L1).div_(variance_d)
        positive_L, negative_L = (torch.einsum("ld,ld->l", rows_Ld, mean_Ld) for mean_Ld in (positive_Ld, negative_Ld))
        return Responses(rows_Ld, positive_L, negative_L)


@torch.no_grad()
def plant_prototypes(classifier: Classifier, read: ReadFor, prior_L: Tensor, shard: LabelShard) -> None:
    """Set the head's rows w to class prototypes, and its bias so that a negative scores the label's prior. Collective.

    Args:
        classifier: classifier whose head attends by label; its rows and biases are changed in place.
        read: see `ReadFor`.
        prior_L: log-odds in train of this worker's labels.
        shard: this worker's label rows.
    """
    head = classifier.eval().head
    assert isinstance(head, AttendsByLabel)
    sums = PrototypeSums(len(prior_L), head.weights.shape[1], prior_L.device)
    for batch in read(sums):
        sums.add(head, shard.gather_tokens(classifier.encode(batch), batch))
    if shard.world == 1:
        sums.all_reduce(labels=True)
    set_rows(head, sums.rows(shard.sum_of_all), prior_L, shard)
