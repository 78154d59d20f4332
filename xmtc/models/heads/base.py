"""What a head is. Nothing outside this folder asks which one it has: each says itself what it cannot do.

Suffixes: B documents, T tokens, D encoder width, P width of document vectors, L labels, S shortlisted labels,
N texts, H heads, d width of an attended context.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from xmtc.errors import ConfigError
from xmtc.models.heads.config import HeadSettings


class Head(nn.Module, ABC):
    """From a document's hidden states to one logit per label.

    The abstract methods are what every head does. The others are for heads that can: unless overridden they raise a
    `ConfigError` that says what this head lacks.

    Attributes:
        settings: kind and capabilities.
        bias: (L,) float32, the part of each logit that no token has. Set by the subclass, and one of the label tables.
        sparse_gradients: with a shortlist, give the label tables sparse gradients, so that a step touches the
            shortlisted rows only; off until an optimizer that takes them asks for it.
        index_is_exact: whether ⟨label vector, document vector⟩ + bias is the logit, or else a guess at it.
    """

    bias: nn.Parameter
    sparse_gradients = False
    index_is_exact = False

    def __init__(self, settings: HeadSettings) -> None:
        super().__init__()
        self.settings = settings

    @abstractmethod
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Logits (B, L) in float32, or (B, S) for the label ids in `shortlist`.

        Args:
            hidden_BTD: hidden states of whole documents.
            mask_BT: bool, False on padding.
            shortlist: int64 label ids, (S,) the same for all documents, which costs least, or (B, S) of each document
                (-1 is padding, logit -10⁴).
        """

    @abstractmethod
    def label_tables(self) -> Mapping[str, nn.Parameter]:
        """The parameters that have one row per label, by their names in `named_parameters`; `bias` is one of them."""

    @abstractmethod
    def set_classifier(self, weights_LP: Tensor | None = None, bias_L: Tensor | None = None) -> None:
        """Start the classifier at given rows (L, P), or at biases (L,) such as label priors."""

    @abstractmethod
    def label_vectors(self) -> Tensor:
        """Vectors (L, P), float32, for a nearest-neighbour index of labels; see `index_is_exact`."""

    @abstractmethod
    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Query vectors (B, P) for that index, float32."""

    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """What the label rows need of a document, tensors (B, …) or (B, T, …): workers exchange these alone.

        Whatever it computes, dropout included, belongs to the document and happens on its worker.
        """
        del mask_BT
        return (hidden_BTD,)

    def score(self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Logits as `forward` gives them, from what `read` returned: the label rows' part of the work."""
        return self(read[0], mask_BT, shortlist)

    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        """`document_vectors` (B, P) from what `read` returned."""
        return self.document_vectors(read[0], mask_BT)

    def product_rows(self) -> nn.Parameter | None:
        """The table (L, P) whose products with the one tensor of `read`, plus the bias, are the logits.

        Labels of a head that has one can be scored and trained a chunk at a time.
        """
        return None

    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """How much each token counts for each label, (B, S, H, T) in float32: sums to 1, and is 0 on padding."""
        raise self.cannot("does not say which tokens it looks at")

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        """What each token adds to a logit, (B, S, T) in float32; with the bias they sum to the logit, exactly."""
        raise self.cannot("gives no evidence, because its logit is no sum over tokens")

    def attention_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that `attention_scores` depends on: what stage 1 trains. None for heads without it."""
        yield from ()

    def attention_scores(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Scaled scores (B, S, H, T) in float32 before the normaliser; padding is not masked, which the caller does."""
        raise self.cannot("has no attention by label")

    def contexts(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """What each label sees of a document, (B, S, d) in float32: its logit is ⟨classifier row, context⟩ + bias."""
        raise self.cannot("has no attention by label")

    def rows_of_texts(self, texts_ND: Tensor) -> Tensor:
        """Rows (N, P), float32, of labels whose texts have these mean hidden states; with gradient."""
        raise self.cannot("makes no rows of label texts")

    def score_rows(self, read: tuple[Tensor, ...], rows_SP: Tensor, labels_S: Tensor) -> Tensor:
        """Logits (B, S) in float32 of labels with rows of `rows_of_texts`, through which the gradient flows."""
        raise self.cannot("makes no rows of label texts")

    def keep_rows(self, rows_SP: Tensor, labels_S: Tensor) -> None:
        """Score these labels by these rows of `rows_of_texts` from now on."""
        raise self.cannot("makes no rows of label texts")

    def read_fixed(self, fixed_BKD: Tensor) -> tuple[Tensor, ...]:
        """What `read` returns, from the documents' `FixedPoolings`, for heads with `settings.reads_fixed`."""
        raise self.cannot("reads the hidden states of tokens")

    def start(self, fixed_NKD: Tensor) -> None:
        """Start parameters at the `FixedPoolings` of a sample of N training documents."""
        raise self.cannot("reads the hidden states of tokens")

    def rows_from_names(self, texts_ND: Tensor) -> dict[str, Tensor]:
        """Rows (N, …), by table, that follow from the mean hidden states of label names alone.

        The rows of the other tables are learned from those of trained labels (`xmtc.models.label_text`).
        """
        del texts_ND
        return {}

    def simulated(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Logits (B, L) of any value that hold as much memory for the backward pass as those of `forward`.

        Runs on fake tensors, which kernels written for a device do not take.
        """
        return self(hidden_BTD, mask_BT)

    def for_export(self) -> AbstractContextManager[None]:
        """Within it, `forward` consists of operators that the ONNX exporter knows."""
        return nullcontext()

    def set_table(self, name: str, table: nn.Parameter) -> None:
        """Replace a label table, for example by some of its rows."""
        path, _, last = name.rpartition(".")
        setattr(self.get_submodule(path), last, table)

    def cannot(self, what: str) -> ConfigError:
        """The error of a head that `what`, to be raised."""
        return ConfigError(f"model.head.kind: {self.settings.kind}: this head {what}; use another head for that")
