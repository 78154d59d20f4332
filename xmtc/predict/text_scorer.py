"""Score texts with the parts of a model: a typed request, and its typed answer.

`Model`, `xmtc score` and the server all score through `TextScorer`.

Suffixes: N texts, K labels of each, L labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.artefact.decide import tuned_decision
from xmtc.artefact.export import ModelParts
from xmtc.data.collate import Collator
from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.data.sampler import MicroBatch
from xmtc.data.words import Words
from xmtc.errors import ConfigError, DataError
from xmtc.fusion.decision import CONSIDERED, Decision
from xmtc.mining.index import LabelIndex
from xmtc.models.half_linear import keep_bfloat16
from xmtc.predict.arguments import as_count, as_texts
from xmtc.predict.evidence import Explanation
from xmtc.predict.explainer import BatchExplainer, Explainer
from xmtc.predict.filters import LabelFilter, Threshold
from xmtc.predict.fused_scores import FusedScores
from xmtc.predict.predictions import Expected, Prediction, Predictions
from xmtc.predict.ranking import Scoring, score_split
from xmtc.predict.request import Answer, Request
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.predict.tokenised import TokenisedTexts, tokenised

Documents = Iterable[str | Mapping[str, Any]]
"""Texts, or mappings from the names of fields and categories to their values."""
EVIDENCE_REASONS = 5
_TOP_K = 10
_MOST = 100
"""Most labels of a text that `tuned` or a rule gives, unless a request or the rule asks for more."""
_CPU_TOKENS = 4096
_GPU_TOKENS = 16384
_RULES = 16  # rules whose decisions are kept: a client may ask for any number of them
_FILTERS = 4  # filters that are kept; each holds up to L ids


class NoTokensError(DataError):
    """A text has no tokens.

    Attributes:
        row: its place among the texts.
    """

    def __init__(self, row: int) -> None:
        super().__init__(f"text {row} has no tokens: leave it out")
        self.row = row


class TextScorer:
    """Scores texts with the parts of a model on one device. Threads may share it.

    Attributes:
        info: the model's configuration and sizes.
        labels: its labels.
        tokenizer: its tokenizer.
        classifier: encoder and head, on the device.
        ensemble: scorers and their fusion with the head; None if only the head scores.
        decision: which labels are predicted.
        outcomes: outcomes of dev, on which other decisions are tuned; None for a single-label model.
        device: device to compute on.
        longest_document: most characters of a document in `texts`.

    Args:
        parts: the loaded model; its classifier is moved to `device`.
        device: see above.
        tokens_per_batch: content tokens per batch, including padding. None: 4,096 on a CPU, where larger batches are
            slower, and 16,384 on a GPU.
        bfloat16: compute under bfloat16 autocast; None: on GPUs.
    """

    def __init__(
        self,
        parts: ModelParts,
        device: torch.device,
        *,
        tokens_per_batch: int | None = None,
        bfloat16: bool | None = None,
    ) -> None:
        self.info = parts.info
        self.labels = parts.labels
        self.tokenizer = parts.tokenizer
        self.classifier = parts.classifier.to(device)
        self.ensemble = parts.ensemble
        self.decision = parts.decision
        self.outcomes = parts.outcomes
        self.device = device
        if tokens_per_batch is None:
            tokens_per_batch = _CPU_TOKENS if device.type == "cpu" else _GPU_TOKENS
        self._tokens_per_batch = as_count(tokens_per_batch, "tokens_per_batch")
        self._bfloat16 = device.type == "cuda" if bfloat16 is None else bfloat16
        if self._bfloat16 and device.type == "cpu":
            keep_bfloat16(self.classifier.encoder)
        self.longest_document = LONGEST_DOCUMENT
        self._label_index = parts.index
        self._make_caches()

    def _make_caches(self) -> None:
        self._tuned_by_rule = lru_cache(_RULES)(self._tuned)
        self._filter = lru_cache(_FILTERS)(self._new_filter)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the caches, which cannot be pickled; a copy begins with empty ones."""
        caches = {"_tuned_by_rule", "_filter"}
        return {key: value for key, value in vars(self).items() if key not in caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_caches()

    def texts(self, documents: Documents) -> list[str]:
        """Join the fields of documents to texts that still know them.

        Raises:
            DataError: a document is empty, is neither text nor mapping, or lacks a field.
        """
        return as_texts(
            documents, self.info.fields, self.info.categories, self.longest_document
        )

    def tokenise(self, texts: Sequence[str]) -> TokenisedTexts:
        """Tokenise texts, and keep where their tokens stand.

        Raises:
            NoTokensError: a text has no tokens.
        """
        documents = tokenised(texts, self.tokenizer, self.info.max_length)
        if not documents.lengths.all():
            raise NoTokensError(int(documents.lengths.argmin()))
        return documents

    def words(self, documents: TokenisedTexts) -> Words | None:
        """Count the words that the scorers know; None if only the head scores."""
        return (
            None
            if self.ensemble is None
            else self.ensemble.vocabulary.words(documents.texts)
        )

    def check(self, request: Request) -> None:
        """Refuse what the model cannot answer, before hours of scoring.

        Raises:
            DataError: the model has no such label, or no label is left.
            ConfigError: a shortlist together with included labels or without an index, or a rule without outcomes.
        """
        if request.shortlist and request.include is not None:
            raise ConfigError(
                "include already limits the labels to score, so shortlist has no effect: leave it out"
            )
        self._filter(request.include, request.exclude, request.candidates)
        self._shortlist(request.shortlist)
        self.decision_of(request.threshold)

    def score(
        self,
        documents: TokenisedTexts,
        request: Request,
        *,
        words: Words | None = None,
        batches: Sequence[NDArray[np.int64]] | None = None,
    ) -> Answer:
        """Find the best labels of each text, and explain those that the request keeps if it asks for evidence.

        Args:
            documents: tokenised texts.
            request: which labels are wanted.
            words: `words` of the texts, where they are counted already.
            batches: rows of each batch; rows in none of them are padding in the answer. Default: all, by length.

        Raises:
            DataError: see `check`.
            ConfigError: see `check`.
        """
        self.check(request)
        only = self._filter(request.include, request.exclude, request.candidates)
        shortlist = self._shortlist(request.shortlist)
        if words is None:
            words = self.words(documents)
        fused = self._fused(words, shortlist, only)
        explain = None
        if request.evidence:
            explain = BatchExplainer(
                self._explainer, documents, partial(self._kept_ids, request), fused
            )
        scoring = Scoring(
            len(self.labels),
            max(request.top_k, CONSIDERED),
            self._tokens_per_batch,
            self.info.task,
            bfloat16=self._bfloat16,
            only=None if only is None or fused is not None else only.allowed,
        )
        label_ids_NK, scores_NK = score_split(
            self.classifier,
            documents,
            self.collator(documents),
            scoring,
            batches=batches,
            best=fused or shortlist,
            on_best=explain,
        )
        return Answer(label_ids_NK, scores_NK, {} if explain is None else explain.found)

    def kept(self, answer: Answer, request: Request) -> NDArray[np.bool_]:
        """Mark the labels of an answer that a request keeps, (N, K)."""
        return self._kept(request, answer.label_ids_NK, answer.scores_NK)

    def predictions(self, answer: Answer, request: Request) -> list[Predictions]:
        """Convert an answer to what users read: the labels of each text that the request keeps, and its evidence."""
        decision = self.decision_of(request.threshold)
        kept_NK = self.kept(answer, request)
        predicted_NK = decision.chosen(answer.label_ids_NK, answer.scores_NK)
        expected_N3 = decision.expected(answer.label_ids_NK, answer.scores_NK)
        texts = []
        for row, kept_K in enumerate(kept_NK):
            label_ids = answer.label_ids_NK[row, kept_K].tolist()
            scores = answer.scores_NK[row, kept_K].tolist()
            predicted = predicted_NK[row, kept_K].tolist()
            explanations = answer.explanations.get(row)
            if explanations is None:
                reasons = [()] * len(label_ids)
            else:
                reasons = [
                    explanation.top(EVIDENCE_REASONS) for explanation in explanations
                ]
            labels = map(self._prediction, label_ids, scores, reasons, predicted)
            precision, recall, f1 = expected_N3[row].tolist()
            has_labels = bool(predicted_NK[row].any())
            expected = Expected(precision if has_labels else None, recall, f1)
            texts.append(Predictions(labels, expected))
        return texts

    def explain(self, text: str, label_ids: NDArray[np.integer]) -> list[Explanation]:
        """Explain the logits of some labels by the contribution of each word of a text.

        Raises:
            NoTokensError: the text has no tokens.
            ConfigError: the head gives no evidence.
        """
        document = self.tokenise([text])
        rows = MicroBatch(np.zeros(1, np.int64), np.ones(1, np.float32))
        batch = self.collator(document)(rows).to(self.device)
        with torch.inference_mode():
            batch = replace(batch, hidden_BTD=self.classifier.encode(batch))
            fused = self._fused(self.words(document))
            scored = None if fused is None else fused.pairs(batch, label_ids)
        return self._explainer.explain(document.one(0), batch, label_ids, scored)

    def decision_of(self, threshold: Threshold) -> Decision:
        """Return the decision of a rule, tuned on first use; for its own rule or any other threshold, the model's.

        Raises:
            ConfigError: a rule for a single-label model, or for a model without outcomes of dev.
        """
        in_use = not isinstance(threshold, str) or threshold in (
            "tuned",
            self.decision.rule,
        )
        return self.decision if in_use else self._tuned_by_rule(threshold)

    def default_top_k(self, threshold: Threshold = None) -> int:
        """Return the default maximum number of labels per text, see `Model.predict`."""
        if not isinstance(threshold, str):
            return 1 if self.info.task == "single_label" else _TOP_K
        rule = self.decision.rule if threshold == "tuned" else threshold
        asked = rule.partition("top_k=")[2]
        return max(_MOST, int(asked)) if asked else _MOST

    def batches_at_once(self, workers: int) -> int:
        """Return how many batches to compute at the same time, each by one thread: on a CPU, `workers`.

        A GPU computes one, or four if scorers read words on the CPU meanwhile.
        """
        if self.device.type == "cpu":
            return workers
        return min(workers, 1 if self.ensemble is None else 4)

    def collator(self, documents: TokenisedTexts) -> Collator:
        """Make what puts documents into batches, in windows as wide as the encoder reads."""
        window = self.classifier.encoder.window
        return Collator(
            documents, self.tokenizer, window=window, overlap=self.info.model.overlap
        )

    def _prediction(
        self, label_id: int, score: float, evidence: tuple, predicted: bool
    ) -> Prediction:
        label = self.labels.labels[label_id]
        return Prediction(
            label, score, self.labels.names[label_id] or label, evidence, predicted
        )

    def _kept(
        self,
        request: Request,
        label_ids_NK: NDArray[np.int32],
        scores_NK: NDArray[np.float32],
    ) -> NDArray[np.bool_]:
        if isinstance(request.threshold, str):
            reaches_NK = self.decision_of(request.threshold).chosen(
                label_ids_NK, scores_NK
            )
        else:
            reaches_NK = scores_NK >= (request.threshold or 0.0)
        rank_K = np.arange(label_ids_NK.shape[-1])
        return (
            (reaches_NK | (rank_K < request.least))
            & (rank_K < request.top_k)
            & (label_ids_NK >= 0)
        )

    def _kept_ids(
        self,
        request: Request,
        label_ids_K: NDArray[np.int32],
        scores_K: NDArray[np.float32],
    ) -> NDArray[np.int32]:
        return label_ids_K[self._kept(request, label_ids_K, scores_K)]

    def _tuned(self, rule: str) -> Decision:
        return tuned_decision(self.outcomes, rule, self.labels, self.info.name)

    def _new_filter(
        self,
        include: tuple[str, ...] | None,
        exclude: tuple[str, ...],
        candidates: tuple[str, ...],
    ) -> LabelFilter | None:
        return LabelFilter.of(self.labels, include, exclude, candidates)

    @cached_property
    def _index(self) -> LabelIndex | None:
        """The model's index; its first use warns if shortlists from it miss many labels."""
        if self._label_index is None:
            return None
        self._label_index.warn_of_misses()
        return self._label_index

    def _shortlist(self, size: int | None) -> ShortlistScores | None:
        return (
            None
            if size is None
            else ShortlistScores(
                self.classifier, as_count(size, "shortlist"), self._index
            )
        )

    @property
    def _explainer(self) -> Explainer:
        return Explainer(
            self.classifier,
            self.ensemble,
            self.labels.labels,
            self.tokenizer,
            self.info.fields,
        )

    def _fused(
        self,
        words: Words | None,
        shortlist: ShortlistScores | None = None,
        only: LabelFilter | None = None,
    ) -> FusedScores | None:
        """Make the fused scores of all scorers; None if only the head scores."""
        if self.ensemble is None or words is None:
            return None
        exclusive = self.info.task == "single_label"
        return FusedScores(
            self.classifier,
            self.ensemble,
            words.take,
            shortlist=shortlist,
            only=only,
            exclusive=exclusive,
        )


def choose_device(name: str) -> torch.device:
    """Find the device called `name`; for `auto`, a GPU if there is one.

    Raises:
        ConfigError: there is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device).tolist()  # the device "meta" computes nothing
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(
            f"there is no device {name!r} ({str(error).splitlines()[0]}): use cpu or auto"
        ) from error
    return device
