"""Plant the rows of a head that attends by label: prototypes of the contexts that the attention produces.

Each worker plants its rows from all workers' documents.

Suffixes: B documents (of all workers), S labels of a batch, C pairs of these, L labels of this worker, d head width.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import AttendsByLabel
from xmtc.planting.rows import RIDGE, Responses, set_rows
from xmtc.planting.sums import ReadFor, Sums
from xmtc.planting.whitening import ridged
from xmtc.training.label_shard import GatheredDocuments, LabelShard

SHRINKAGE = 0.2
"""Number of documents at which a row has half its length."""
_ROUNDING = 1e-6
"""Share of the mean square of contexts that sums in float32 may be wrong by."""


class PrototypeSums(Sums):
    """Sums the contexts o[b,l] of a label's documents and of other documents over one pass through train.

    Every document of a batch gives a negative context for each label of the batch's other documents. The negatives
    need no extra pass, and their number is of the same order for rare and common labels.

    Attributes:
        positive_Ld: Σ o over the label's documents.
        negative_Ld: Σ o over other documents of the same batches.
        products_dd: Σ ooᵀ over both, and over all labels.
        positives_L: number of contexts in `positive_Ld`.
        negatives_L: number of contexts in `negative_Ld`.
    """

    def __init__(self, labels: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.add_sum("positive_Ld", labels, width, device=device)
        self.add_sum("negative_Ld", labels, width, device=device)
        self.add_sum("products_dd", width, width, dtype=torch.float64, device=device)
        self.add_sum("positives_L", labels, device=device)
        self.add_sum("negatives_L", labels, device=device)

    def add(self, head: AttendsByLabel, documents: GatheredDocuments) -> None:
        """Add one batch."""
        targets = documents.targets
        labels_S = targets.columns_P.unique()
        contexts_BSd = head.contexts(
            documents.read[0], documents.mask_GT, labels_S
        ).float()
        is_positive_BS = torch.zeros(contexts_BSd.shape[:2], device=contexts_BSd.device)
        is_positive_BS[
            targets.rows_P, torch.searchsorted(labels_S, targets.columns_P)
        ] = 1
        weight_B1 = targets.weight_B.unsqueeze(1)
        _add(
            self.positive_Ld,
            self.positives_L,
            labels_S,
            is_positive_BS * weight_B1,
            contexts_BSd,
        )
        _add(
            self.negative_Ld,
            self.negatives_L,
            labels_S,
            (1 - is_positive_BS) * weight_B1,
            contexts_BSd,
        )
        weighted_Cd = (contexts_BSd * weight_B1.unsqueeze(2)).flatten(0, 1)
        self.products_dd.add_((weighted_Cd.T @ weighted_Cd).double())

    def rows(self, sum_of_all: Callable[[Tensor], Tensor]) -> Responses:
        """Compute classifier rows and their mean responses. Collective; the sums become means, so call it once.

        w[l] = n_l / (n_l + SHRINKAGE) · (Σ + λI)⁻¹ (μ⁺_l − μ⁻_l), the direction of linear discriminant analysis with
        a covariance Σ shared by all labels, shrunk towards zero by the label's count. Dimensions are not independent:
        where the encoder's states share a long direction, every dimension of a context has a part of it.

        Args:
            sum_of_all: sums a value over the labels of all workers.

        Returns:
            Rows, zero for labels without a training document, and their mean responses.
        """
        covariance_dd = ridged(self._covariance(sum_of_all), RIDGE)
        inverse_dd = torch.cholesky_inverse(torch.linalg.cholesky(covariance_dd))
        seen_L = (self.positives_L > 0) & (self.negatives_L > 0)
        shrink_L = seen_L * self.positives_L / (self.positives_L + SHRINKAGE)
        positive_Ld = self.positive_Ld.div_(self.positives_L.clamp(min=1).unsqueeze(1))
        negative_Ld = self.negative_Ld.div_(self.negatives_L.clamp(min=1).unsqueeze(1))
        rows_Ld = (positive_Ld - negative_Ld).mul_(shrink_L.unsqueeze(1))
        rows_Ld = rows_Ld @ inverse_dd.float()
        return Responses(
            rows_Ld,
            torch.einsum("ld,ld->l", rows_Ld, positive_Ld),
            torch.einsum("ld,ld->l", rows_Ld, negative_Ld),
        )

    def _covariance(self, sum_of_all: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute the covariance (d, d) of all contexts of all labels, positive and negative ones. Collective."""
        total = sum_of_all((self.positives_L + self.negatives_L).double().sum()).clamp(
            min=1
        )
        mean_d = (
            sum_of_all((self.positive_Ld.sum(0) + self.negative_Ld.sum(0)).double())
            / total
        )
        moment_dd = sum_of_all(self.products_dd) / total
        # Where all contexts are equal, rounding alone would decide whether the difference is positive definite.
        rounding = _ROUNDING * moment_dd.diagonal().mean()
        identity_dd = torch.eye(len(mean_d)).to(moment_dd)
        return moment_dd - torch.outer(mean_d, mean_d) + rounding * identity_dd


def _add(
    sums_Ld: Tensor,
    counts_L: Tensor,
    labels_S: Tensor,
    weight_BS: Tensor,
    contexts_BSd: Tensor,
) -> None:
    """Add weighted contexts of labels to sums and counts, in place."""
    sums_Ld.index_add_(0, labels_S, torch.einsum("bs,bsd->sd", weight_BS, contexts_BSd))
    counts_L.index_add_(0, labels_S, weight_BS.sum(0))


@torch.no_grad()
def plant_prototypes(
    classifier: Classifier, read: ReadFor, prior_L: Tensor, shard: LabelShard
) -> None:
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
        documents = shard.gather_tokens(classifier.encode(batch), batch)
        sums.add(head, documents)
    if shard.world == 1:
        sums.all_reduce(labels=True)
    set_rows(head, sums.rows(shard.sum_of_all), prior_L, shard)
