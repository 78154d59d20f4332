"""The interface of heads. Code outside this folder never asks which head it has; each head declares its limits.

Suffixes: B documents, T tokens, D encoder width, P width of document vectors, L labels, S shortlisted labels,
N texts, H heads, d width of an attended context.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from xmtc.errors import ConfigError
from xmtc.models.heads.config import HeadSettings


class Head(nn.Module, ABC):
    """Turns a document's hidden states into one logit per label.

    Every head implements the abstract methods. The others are optional: unless overridden, they raise a `ConfigError`
    that says what this head lacks.

    Attributes:
        settings: kind and capabilities.
        bias: (L,) float32, the part of each logit that does not come from tokens. The subclass sets it; it is one of
            the label tables.
        sparse_gradients: with a shortlist, give the label tables sparse gradients, so a step touches only shortlisted
            rows. Off until an optimizer that supports them turns it on.
        index_is_exact: whether ⟨label vector, document vector⟩ + bias is the logit; otherwise it is an approximation.
    """

    bias: nn.Parameter
    sparse_gradients = False
    index_is_exact = False

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        self.settings = settings

    @abstractmethod
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Compute logits (B, L) in float32, or (B, S) for the label ids in `shortlist`.

        Args:
            hidden_BTD: hidden states of whole documents.
            mask_BT: bool, False on padding.
            shortlist: int64 label ids: (S,) for all documents, which costs least, or (B, S) per document, where -1 is
                padding with logit -10⁴.
        """

    @abstractmethod
    def label_tables(self) -> Mapping[str, nn.Parameter]:
        """Return the parameters with one row per label, by their names in `named_parameters`; `bias` is one of them."""

    @abstractmethod
    def set_classifier(self, weights_LP: Tensor | None = None, bias_L: Tensor | None = None) -> None:
        """Set the classifier's rows (L, P), or its biases (L,), for example to label priors."""

    @abstractmethod
    def label_vectors(self) -> Tensor:
        """Return vectors (L, P), of any floating type, for a nearest-neighbour index of labels; see `index_is_exact`.

        Rows that are stored need no copy: the index copies some labels at a time.
        """

    @abstractmethod
    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Query vectors (B, P) for that index, float32."""

    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """Compute the inputs that label rows need of a document: tensors (B, …) or (B, T, …), which workers exchange.

        This includes all computation per document, such as dropout, which happens on the document's worker.
        """
        del mask_BT
        return (hidden_BTD,)

    def score(self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Compute the same logits as `forward` from the result of `read`: the label rows' part of the work."""
        return self(read[0], mask_BT, shortlist)

    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        """Compute `document_vectors` (B, P) from the result of `read`."""
        return self.document_vectors(read[0], mask_BT)

    def product_rows(self) -> nn.Parameter | None:
        """Return the table (L, P) whose products with the only tensor of `read`, plus bias, are the logits; or None.

        If a head has one, its labels can be scored and trained chunk by chunk.
        """
        return None

    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Compute each label's attention to each token, (B, S, H, T) in float32: sums to 1, and is 0 on padding."""
        raise self.cannot("does not say which tokens it looks at")

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        """Compute each token's contribution to a logit, (B, S, T) in float32; with the bias, they sum to the logit."""
        raise self.cannot("gives no evidence, because its logit is not a sum over tokens")

    def attention_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the parameters that `attention_scores` depends on, which stage 1 trains; none for heads without it."""
        yield from ()

    def attention_scores(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Compute scaled scores (B, S, H, T) in float32 before the normaliser; the caller must mask padding."""
        raise self.cannot("has no attention by label")

    def contexts(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Compute the context of each label, (B, S, d) in float32: its logit is ⟨classifier row, context⟩ + bias."""
        raise self.cannot("has no attention by label")

    def rows_of_texts(self, texts_ND: Tensor) -> Tensor:
        """Compute rows (N, P), float32, of labels whose texts have these mean hidden states; with gradient."""
        raise self.cannot("makes no rows of label texts")

    def score_rows(self, read: tuple[Tensor, ...], rows_SP: Tensor, labels_S: Tensor) -> Tensor:
        """Compute logits (B, S) in float32 of labels with rows from `rows_of_texts`, which receive gradients."""
        raise self.cannot("makes no rows of label texts")

    def keep_rows(self, rows_SP: Tensor, labels_S: Tensor) -> None:
        """Store these rows of `rows_of_texts` for these labels, for scoring."""
        raise self.cannot("makes no rows of label texts")

    def read_fixed(self, fixed_BKD: Tensor) -> tuple[Tensor, ...]:
        """Compute the result of `read` from the documents' `FixedPoolings`, for heads with `settings.reads_fixed`."""
        raise self.cannot("reads the hidden states of tokens")

    def init_from_documents(self, fixed_NKD: Tensor) -> None:
        """Initialise parameters from the `FixedPoolings` of a sample of N training documents."""
        raise self.cannot("reads the hidden states of tokens")

    def rows_from_names(self, texts_ND: Tensor) -> dict[str, Tensor]:
        """Compute rows (N, …), by table, for which the mean hidden states of label names suffice.

        The rows of other tables are learned from those of trained labels (`xmtc.models.label_text`).
        """
        del texts_ND
        return {}

    def simulated(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute arbitrary logits (B, L) that need as much memory for the backward pass as those of `forward`.

        It runs on fake tensors, which device kernels do not support.
        """
        return self(hidden_BTD, mask_BT)

    def set_table(self, name: str, table: nn.Parameter) -> None:
        """Replace a label table, for example by some of its rows."""
        path, _, last = name.rpartition(".")
        setattr(self.get_submodule(path), last, table)

    def cannot(self, what: str) -> ConfigError:
        """Make the error of a head that lacks a feature; `what` is the predicate of the sentence."""
        return ConfigError(f"model.head.kind: {self.settings.kind}: this head {what}; use another head for that")
