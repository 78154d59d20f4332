"""The interface of heads: the contract of every head, and capabilities that a head has or has not.

Code outside this folder asks with `isinstance` for a capability, and never for a head.

Suffixes: B documents, T tokens, D encoder width, P width of document vectors, L labels, S shortlisted labels,
N texts, K fixed poolings, H heads, d width of an attended context.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.heads.config import HeadSettings
from xmtc.models.kernels.products import product_logits


class Head(nn.Module, ABC):
    """Turns a document's hidden states into one logit per label.

    A head sets `weights` and `bias`, and implements `read`, `score` and `vectors`. Whatever depends on the document
    alone belongs to `read`, and whatever needs label rows to `score`, because workers share the labels and exchange
    what was read.

    Attributes:
        settings: kind and limits.
        weights: (L, P), of any floating type: the label vectors in an index of labels, and the classifier's rows.
        bias: (L,) float32, the part of each logit that does not come from tokens.
        sparse_gradients: with a shortlist, give the label tables sparse gradients, so a step touches only shortlisted
            rows. Off until an optimizer that supports them turns it on.
    """

    weights: nn.Parameter
    bias: nn.Parameter
    sparse_gradients = False

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        self.settings = settings

    @abstractmethod
    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """Compute the inputs that label rows need of a document: tensors (B, …) or (B, T, …).

        Args:
            hidden_BTD: hidden states of whole documents.
            mask_BT: bool, False on padding.
        """

    @abstractmethod
    def score(
        self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None
    ) -> Tensor:
        """Compute logits (B, L) in float32, or (B, S) for the label ids in `shortlist`.

        Args:
            read: the result of `read`.
            mask_BT: bool, False on padding.
            shortlist: int64 label ids: (S,) for all documents, which costs least, or (B, S) per document, where -1 is
                padding with logit -10⁴.
        """

    @abstractmethod
    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        """Compute query vectors (B, P), float32, for an index of labels.

        ⟨weights[l], vector⟩ + bias[l] is the logit (see `ScoresByProduct`) or an approximation of it.
        """

    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute `vectors` (B, P) of documents; a head with dropout in `read` leaves it out here."""
        return self.vectors(self.read(hidden_BTD, mask_BT), mask_BT)

    def label_tables(self) -> Mapping[str, nn.Parameter]:
        """Return the parameters with one row per label, by their attributes' names."""
        return {"weights": self.weights, "bias": self.bias}

    @override
    def forward(
        self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None
    ) -> Tensor:
        """Compute logits; see `score`."""
        return self.score(self.read(hidden_BTD, mask_BT), mask_BT, shortlist)


class ScoresByProduct(Head):
    """A head that reads one vector (B, P) per document: logit[b,l] = ⟨weights[l], vector[b]⟩ + bias[l].

    Its index is exact, and its labels can be scored and trained chunk by chunk. It implements only `read`.

    Attributes:
        members: number of equal parts of a vector, each of which scores by itself; logits are the mean over them.
        dropped: share of the vector's numbers that `read` drops in training.
    """

    members = 1
    dropped = 0.0

    @override
    def score(
        self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None
    ) -> Tensor:
        return product_logits(
            read[0], self.weights, self.bias, shortlist, sparse=self.sparse_gradients
        )

    @override
    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        return read[0].float()


class GivesEvidence(ABC):
    """A head whose logits are sums over tokens."""

    @abstractmethod
    def attention(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        """Compute each label's attention to each token, (B, S, H, T) in float32: sums to 1, and is 0 on padding."""

    @abstractmethod
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor
    ) -> Tensor:
        """Compute each token's contribution to a logit, (B, S, T) in float32; with the bias, they sum to the logit."""


class AttendsByLabel(GivesEvidence):
    """A head in which every label has its attention, so that it can be planted; see `HeadSettings.attends_by_label`."""

    @abstractmethod
    def attention_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that `attention_scores` depends on, which stage 1 trains."""

    @abstractmethod
    def attention_scores(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        """Compute scaled scores (B, S, H, T) in float32 before the normaliser; the caller must mask padding."""

    @abstractmethod
    def contexts(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        """Compute the context of each label, (B, S, d) in float32: its logit is ⟨classifier row, context⟩ + bias."""


class CentredLinear(nn.Linear):
    """W (x − centre), without bias.

    The states of some encoders share a direction that is longer than what tells them apart. Uncentred, their normalised
    keys are nearly equal, and training has to undo what is common before it finds what differs.

    Attributes:
        centre: (in,), mean of the inputs, which planting sets; zeros before.
    """

    centre: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.register_buffer("centre", torch.zeros(inputs))

    @override
    def forward(self, input: Tensor) -> Tensor:
        """Project rows (…, in) to (…, out)."""
        return super().forward(input - self.centre.to(input.dtype))


class PlantsProjections(AttendsByLabel):
    """A head with linear keys and values, whose attention and values can be planted in closed form.

    Attributes:
        key_projection, value_projection: (d, D).
    """

    key_projection: CentredLinear
    value_projection: CentredLinear

    @abstractmethod
    def plant_queries(self, queries_Ld: Tensor) -> None:
        """Set the label queries to these directions, whose products with keys have variance 1 over tokens."""


class RowsFromNames(ABC):
    """A head that computes rows of some tables from label names alone.

    The rows of other tables are learned from those of trained labels (`xmtc.models.label_rows`).
    """

    @abstractmethod
    def rows_from_names(self, texts_ND: Tensor) -> dict[str, Tensor]:
        """Compute rows (N, …), by table, of labels whose names have these mean hidden states."""


class ReadsLabelTexts(RowsFromNames):
    """A head that computes its rows from label texts in training; see `HeadSettings.label_tokens`."""

    @abstractmethod
    def rows_of_texts(self, texts_ND: Tensor) -> Tensor:
        """Compute rows (N, P), float32, of labels whose texts have these mean hidden states; with gradient."""

    @abstractmethod
    def score_rows(
        self, read: tuple[Tensor, ...], rows_SP: Tensor, labels_S: Tensor
    ) -> Tensor:
        """Compute logits (B, S) in float32 of labels with rows from `rows_of_texts`, which receive gradients."""

    @abstractmethod
    def keep_rows(self, rows_SP: Tensor, labels_S: Tensor) -> None:
        """Store these rows of `rows_of_texts` for these labels, for scoring."""


class ReadsPooled(ABC):
    """A head that reads only a document's `FixedPoolings`; see `HeadSettings.reads_fixed`."""

    @abstractmethod
    def read_pooled(self, fixed_BKD: Tensor) -> tuple[Tensor, ...]:
        """Compute the result of `Head.read` from the documents' fixed poolings."""

    @abstractmethod
    def init_from_documents(self, fixed_NKD: Tensor) -> None:
        """Initialise parameters from the fixed poolings of a sample of N training documents."""
