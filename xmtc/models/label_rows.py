"""Compute rows of the head's tables for labels without training documents, from names embedded by the encoder.

A query is the key of the name, so the label attends to tokens like those of its name. Ridge regression, fitted on the
names of trained labels, predicts classifier row and bias (figures in docs/benchmarks/label_text.md).

Suffixes: N texts, S texts of a batch, T tokens, L labels, D encoder width, P width of document vectors, R elements of a
label's row in any table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from xmtc.data.collate import Collator
from xmtc.data.documents import UnlabelledDocuments
from xmtc.data.labels import LabelTable
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.data.tokenizer import special_tokens
from xmtc.errors import ConfigError
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import Head, ReadsLabelTexts, RowsFromNames

TOKENS_PER_BATCH = 4096
MAX_LABELS = (
    50_000  # labels to learn from; a map of a few hundred dimensions needs far fewer
)
LEAST_LABELS = 20  # trained labels needed to learn rows from names
_RIDGES = torch.logspace(-3, 3, 25)


class TextVectors:
    """Computes the mean hidden states of texts, without special tokens.

    Args:
        classifier: classifier whose encoder is used, on its device.
        tokenizer: tokenizer of the model.
        texts: N nonempty texts.
        max_length: maximum number of content tokens; longer texts are truncated.
        overlap: number of tokens that neighbouring windows of a long text share.
    """

    def __init__(
        self,
        classifier: Classifier,
        tokenizer: PreTrainedTokenizerFast,
        texts: Sequence[str],
        *,
        max_length: int,
        overlap: int,
    ) -> None:
        encodings = tokenizer.backend_tokenizer.encode_batch_fast(
            list(texts), add_special_tokens=False
        )
        token_ids = [
            np.array(encoding.ids[:max_length], np.int32) for encoding in encodings
        ]
        documents = UnlabelledDocuments(token_ids)
        special_before, _ = special_tokens(tokenizer)
        self._classifier = classifier
        self._first = len(special_before)
        self._collate = Collator(
            documents, tokenizer, window=classifier.encoder.window, overlap=overlap
        )
        self.lengths_N = documents.lengths

    def __call__(self, rows_S: NDArray[np.int64]) -> Tensor:
        """Compute vectors (S, D) of these texts in one batch, on the classifier's device; with gradient, if enabled."""
        batch = self._collate(MicroBatch(rows_S, np.ones(len(rows_S), np.float32)))
        batch = batch.to(self._classifier.head.bias.device)
        hidden_STD = self._classifier.encode(batch)[:, self._first :].float()
        length_S1 = torch.from_numpy(self.lengths_N[rows_S])[:, None].to(
            hidden_STD.device
        )
        positions_T = torch.arange(hidden_STD.shape[1], device=hidden_STD.device)
        is_content_ST = positions_T < length_S1
        sum_SD = (hidden_STD * is_content_ST[..., None]).sum(1)
        return sum_SD / length_S1.clamp(min=1)

    @torch.no_grad()
    def all(self) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Yield indices and vectors of all texts, batch by batch, in evaluation mode."""
        training = self._classifier.training
        self._classifier.eval()
        for rows_S in evaluation_batches(self.lengths_N, TOKENS_PER_BATCH):
            yield rows_S, self(rows_S)
        self._classifier.train(training)


def embed_texts(
    classifier: Classifier,
    tokenizer: PreTrainedTokenizerFast,
    texts: Sequence[str],
    *,
    max_length: int,
    overlap: int,
    advance: Callable[[int], None] | None = None,
) -> Tensor:
    """Compute vectors (N, D) of texts, float32 on the CPU, see `TextVectors`; `advance` is told how many are done."""
    text_vectors = TextVectors(
        classifier, tokenizer, texts, max_length=max_length, overlap=overlap
    )
    vectors_ND = torch.empty(len(texts), classifier.encoder.width, dtype=torch.float32)
    for rows, vectors_SD in text_vectors.all():
        vectors_ND[rows] = vectors_SD.cpu()
        if advance is not None:
            advance(len(rows))
    return vectors_ND


def label_texts(labels: LabelTable) -> list[str]:
    """Return the text of each label: its name, or the label itself if it has none."""
    return [
        name or label for name, label in zip(labels.names, labels.labels, strict=True)
    ]


def refresh(head: Head, texts: TextVectors) -> None:
    """Embed all label texts again, and let the head, which reads label texts, score with the new vectors."""
    assert isinstance(head, ReadsLabelTexts)
    for rows, vectors_SD in texts.all():
        labels_S = torch.from_numpy(rows).to(vectors_SD.device)
        with torch.no_grad():
            rows_SP = head.rows_of_texts(vectors_SD)
            head.keep_rows(rows_SP, labels_S)


@dataclass(frozen=True)
class RowsFromText:
    """A linear map from a text's vector to a label's row.

    Attributes:
        centre_D, mean_R: means over the labels that it was learned from.
        slope_DR: coefficients of the map.
        explained: share of the variance that the map explains for rows left out of the fit; at least 0.
    """

    centre_D: Tensor
    mean_R: Tensor
    slope_DR: Tensor
    explained: float

    def __call__(self, vectors_ND: Tensor) -> Tensor:
        """Compute the rows (N, R) of texts."""
        return self.mean_R + (vectors_ND - self.centre_D) @ self.slope_DR


def learn_rows(vectors_LD: Tensor, rows_LR: Tensor) -> RowsFromText:
    """Learn a ridge regression of trained rows on their labels' texts.

    The ridge penalty has the least leave-one-out error, which has a closed form (Allen 1974, PRESS). If texts are not
    informative, every new label gets the mean row.

    Args:
        vectors_LD: float32 vectors of texts.
        rows_LR: float32 rows of the same labels; at least two.
    """
    centre_D = vectors_LD.mean(0)
    mean_R = rows_LR.mean(0)
    x_LD = vectors_LD - centre_D
    y_LR = rows_LR - mean_R
    values_D, basis_DD = torch.linalg.eigh(x_LD.T @ x_LD)
    values_D = values_D.clamp(min=0)
    rotated_LD = x_LD @ basis_DD
    projected_DR = basis_DD.T @ (x_LD.T @ y_LR)
    errors = []
    ridges = _RIDGES * values_D.mean()
    for ridge in ridges:
        penalised_D = values_D + ridge
        residual_LR = y_LR - rotated_LD @ (projected_DR / penalised_D[:, None])
        leverage_L = (rotated_LD.square() / penalised_D).sum(1) + 1 / len(x_LD)
        left_out_LR = residual_LR / (1 - leverage_L).clamp(min=1e-3)[:, None]
        errors.append(float(left_out_LR.square().mean()))
    best = int(np.argmin(errors))
    best_penalised_D = values_D + ridges[best]
    slope_DR = basis_DD @ (projected_DR / best_penalised_D[:, None])
    variance = float(y_LR.square().mean())
    explained = max(0.0, 1 - errors[best] / variance) if variance > 0 else 0.0
    return RowsFromText(centre_D, mean_R, slope_DR, explained)


@dataclass(frozen=True)
class RowsOfNames:
    """Rows for labels that were not trained.

    Attributes:
        rows: float32 (N, R), by table.
        explained: `RowsFromText.explained`, by table, for tables that use regression.
    """

    rows: Mapping[str, Tensor]
    explained: Mapping[str, float]


@torch.no_grad()
def rows_of_names(
    classifier: Classifier,
    labels: LabelTable,
    texts: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
) -> RowsOfNames:
    """Compute rows of the head's label tables for labels with the names `texts`.

    Args:
        classifier: trained classifier.
        labels: labels of the classifier. Those with training documents are learned from; if there are very many, only
            the most frequent ones.
        texts: names of N other labels.
        embed: see `embed_texts`.

    Raises:
        ConfigError: too few labels were trained to learn from.
    """
    check_enough_trained(labels)
    trained_ids = _most_frequent(labels)
    texts_of_labels = label_texts(labels)
    vectors_ND = embed(texts)
    vectors_LD = embed([texts_of_labels[label_id] for label_id in trained_ids])
    head = classifier.head
    rows = {
        name: table_rows.cpu()
        for name, table_rows in _from_names(head, vectors_ND).items()
    }
    explained = {}
    for name, table in head.label_tables().items():
        if name in rows:
            continue
        trained_rows = table[torch.from_numpy(trained_ids)].detach().float().cpu()
        rows_from_text = learn_rows(vectors_LD, trained_rows.view(len(trained_ids), -1))
        rows[name] = rows_from_text(vectors_ND)
        explained[name] = rows_from_text.explained
    return RowsOfNames(rows, explained)


def _most_frequent(labels: LabelTable) -> NDArray[np.int64]:
    """Find the labels to learn from, ascending: those with training documents, at most `MAX_LABELS` of them."""
    counts_L = labels.train_counts
    count = min(MAX_LABELS, int((counts_L > 0).sum()))
    by_frequency = np.argsort(-counts_L, kind="stable")
    return np.sort(by_frequency[:count])


def _from_names(head: Head, vectors_ND: Tensor) -> Mapping[str, Tensor]:
    """Compute the rows that names alone give, by table."""
    if not isinstance(head, RowsFromNames):
        return {}
    return head.rows_from_names(vectors_ND.to(head.bias.device))


def check_enough_trained(labels: LabelTable) -> None:
    """Refuse label sets with too few trained labels to learn rows from names.

    Raises:
        ConfigError: fewer than `LEAST_LABELS` have a training document.
    """
    if not may_name(labels):
        trained = int((labels.train_counts > 0).sum())
        raise ConfigError(
            f"{trained} trained labels are too few to learn rows from names; at least {LEAST_LABELS} are needed"
        )


def may_name(labels: LabelTable) -> bool:
    """Whether enough labels have training documents to learn rows from names."""
    return int((labels.train_counts > 0).sum()) >= LEAST_LABELS


@torch.no_grad()
def init_rows_from_names(
    classifier: Classifier,
    labels: LabelTable,
    own: slice,
    embed: Callable[[Sequence[str]], Tensor],
    mean_of_all: Callable[[Tensor], Tensor],
) -> None:
    """Initialise an untrained head from its labels' names, in place.

    A classifier row is the name's document vector minus the mean over all names, scaled to the length of random rows.
    Documents then score labels by the similarity of their names. The head decides about other tables: with attention by
    label, the query is the key of the name.

    Args:
        classifier: classifier with the rows of some labels.
        labels: all labels.
        own: labels whose rows the classifier has.
        embed: see `embed_texts`.
        mean_of_all: computes the mean over all labels of a value (R, …) per own label.

    Raises:
        ConfigError: some labels have no training documents, and too few have any for `name_unseen_labels`.
    """
    if (labels.train_counts == 0).any():
        check_enough_trained(labels)  # fail now, not after training
    head = classifier.head
    vectors_LD = embed(label_texts(labels)[own]).to(head.bias.device)
    # A name is read as a document of one token, whose hidden state is the name's vector.
    one_token_L1 = torch.ones(
        len(vectors_LD), 1, dtype=torch.bool, device=vectors_LD.device
    )
    rows_LP = head.document_vectors(vectors_LD[:, None], one_token_L1)
    centred_LP = rows_LP - mean_of_all(rows_LP)
    length_of_random_rows = mean_of_all(head.weights.float().norm(dim=1))
    head.weights.copy_(
        torch.nn.functional.normalize(centred_LP, dim=1) * length_of_random_rows
    )
    tables = head.label_tables()
    for name, rows_LR in _from_names(head, vectors_LD).items():
        tables[name].copy_(rows_LR)


@torch.no_grad()
def name_unseen_labels(
    classifier: Classifier, labels: LabelTable, embed: Callable[[Sequence[str]], Tensor]
) -> None:
    """Give labels without training documents rows predicted from their names, in place; see `rows_of_names`.

    From training, the head only knows that they never occur.
    """
    unseen_ids = np.flatnonzero(labels.train_counts == 0)
    if len(unseen_ids) == 0:
        return
    texts = label_texts(labels)
    named = rows_of_names(
        classifier, labels, [texts[label_id] for label_id in unseen_ids], embed
    )
    tables = classifier.head.label_tables()
    for name, rows_NR in named.rows.items():
        table = tables[name]
        places_N = torch.from_numpy(unseen_ids).to(table.device)
        table[places_N] = rows_NR.view(-1, *table.shape[1:]).to(table)
