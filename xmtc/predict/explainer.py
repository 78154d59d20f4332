"""Explain the logits of a document's labels, for a single head and for fused scorers.

Suffixes: S labels, T tokens, B documents (one), V terms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from xmtc.data.collate import Batch
from xmtc.data.tokenizer import special_tokens
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.pairs import Pairs
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import GivesEvidence
from xmtc.predict.evidence import (
    Explanation,
    fused_explanations,
    merge_words,
    word_sums,
)
from xmtc.predict.fused_scores import FusedScores
from xmtc.predict.tokenised import Tokenised, TokenisedTexts
from xmtc.scorers.base import Features


@dataclass(frozen=True)
class Explainer:
    """Explains logits of one document at a time.

    Attributes:
        classifier: encoder and head.
        ensemble: scorers that are fused with the head, if any.
        labels: all labels, by id.
        tokenizer: tokenizer of the model.
        fields: names of the fields of documents.
    """

    classifier: Classifier
    ensemble: Ensemble | None
    labels: Sequence[str]
    tokenizer: PreTrainedTokenizerFast
    fields: Sequence[str]

    def explain(
        self,
        document: Tokenised,
        batch: Batch,
        label_ids: NDArray[np.integer],
        scored: tuple[Features, Pairs] | None = None,
        *,
        attention: bool = True,
    ) -> list[Explanation]:
        """Explain the logits of some labels.

        Args:
            document: text and offsets.
            batch: batch with only this document, on the model's device. Its hidden states are reused, if it has any.
            label_ids: S labels.
            scored: the document's features, and its candidates with every scorer's scores, if scorers are fused; the
                labels must be among the candidates.
            attention: whether to report the attention of head and encoder. If false, the batch's windows are not read.

        Raises:
            ConfigError: the head gives no evidence.
        """
        plain = self._of_head(document, batch, label_ids, attention=attention)
        if self.ensemble is None or scored is None or not len(label_ids):
            return plain
        features, pairs = scored
        return fused_explanations(
            plain, self.ensemble, features, pairs, label_ids.tolist(), document.text
        )

    def _of_head(
        self,
        document: Tokenised,
        batch: Batch,
        label_ids: NDArray[np.integer],
        *,
        attention: bool,
    ) -> list[Explanation]:
        labels_S = torch.from_numpy(label_ids).long().to(batch.mask_BT.device)
        with torch.inference_mode():
            shares_BST, constant_S = self.classifier.contributions(batch, labels_S)
        first = len(special_tokens(self.tokenizer)[0])
        inner = slice(first, first + len(document.offsets))
        shares_ST = shares_BST[0].cpu().numpy()
        explanations = []
        for label_id, shares_T, bias in zip(
            label_ids, shares_ST, constant_S.tolist(), strict=True
        ):
            words, outside = merge_words(
                document.text, document.offsets, shares_T[inner], self.fields
            )
            other = outside + float(shares_T.sum() - shares_T[inner].sum())
            logit = float(shares_T.sum() + bias)
            explanations.append(
                Explanation(self.labels[int(label_id)], logit, bias, other, words, ())
            )
        if attention:
            return self._with_attention(explanations, document, batch, labels_S, inner)
        return explanations

    def _with_attention(
        self,
        explanations: list[Explanation],
        document: Tokenised,
        batch: Batch,
        labels_S: Tensor,
        inner: slice,
    ) -> list[Explanation]:
        """Add each word's share of the attention to the explanations."""
        with torch.inference_mode():
            head = self.classifier.head
            assert isinstance(head, GivesEvidence)  # it gave contributions
            hidden_BTD = self.classifier.encode(batch)
            attention_SHT = head.attention(hidden_BTD, batch.mask_BT, labels_S)[0]
        attention_ST = attention_SHT.mean(1).cpu().numpy()[:, inner]
        with_attention = []
        for explanation, attention_T in zip(explanations, attention_ST, strict=True):
            attention = word_sums(document.text, document.offsets, attention_T)
            with_attention.append(replace(explanation, attention=attention))
        return with_attention


@dataclass(frozen=True)
class BatchExplainer:
    """Explains the labels that are kept of each document; `on_best` of `score_split`.

    Attributes:
        explainer: explains one document.
        documents: the documents that are scored.
        kept: chooses labels (S,) of a document, given its best labels and their probabilities (K,).
        fused: the fused scores that find the best labels, if scorers are fused.
        found: explanations by row.
    """

    explainer: Explainer
    documents: TokenisedTexts
    kept: Callable[[NDArray[np.int32], NDArray[np.float32]], NDArray[np.int32]]
    fused: FusedScores | None
    found: dict[int, list[Explanation]] = field(default_factory=dict)

    def __call__(self, batch: Batch, ids_BK: Tensor, scores_BK: Tensor) -> None:
        """Explain a batch with hidden states."""
        best = zip(
            batch.documents_B.tolist(),
            ids_BK.cpu().numpy(),
            scores_BK.cpu().numpy(),
            strict=True,
        )
        with torch.autocast(batch.mask_BT.device.type, enabled=False):
            for place, (row, ids_K, scores_K) in enumerate(best):
                scored = None if self.fused is None else self.fused.scored(place)
                self.found[row] = self.explainer.explain(
                    self.documents.one(row),
                    _one(batch, place),
                    self.kept(ids_K, scores_K),
                    scored,
                    attention=False,
                )


def _one(batch: Batch, place: int) -> Batch:
    """Select a document of a batch with hidden states. The batch's windows are not divided: nothing reads them."""
    assert batch.hidden_BTD is not None
    one = slice(place, place + 1)
    return replace(
        batch,
        token_ids_BT=batch.token_ids_BT[one],
        mask_BT=batch.mask_BT[one],
        hidden_BTD=batch.hidden_BTD[one],
    )
