"""`xmtc.Model`: an exported model that labels texts in this process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.artefact.decide import tuned_decision
from xmtc.artefact.export import ModelParts, load_model
from xmtc.artefact.hub import locate_model
from xmtc.data.collate import Collator
from xmtc.data.sampler import MicroBatch
from xmtc.data.words import Words
from xmtc.errors import ConfigError, DataError
from xmtc.fusion.decision import CONSIDERED, Decision
from xmtc.mining.index import LabelIndex
from xmtc.models.half_linear import keep_bfloat16
from xmtc.predict.arguments import as_count, as_labels, as_text, as_texts, as_threshold
from xmtc.predict.evidence import Evidence, Explanation
from xmtc.predict.explainer import BatchExplainer, Explainer
from xmtc.predict.filters import LabelFilter, Threshold
from xmtc.predict.fused_scores import FusedScores
from xmtc.predict.ranking import Scoring, score_split
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.predict.tokenised import TokenisedTexts, tokenised

EVIDENCE_WORDS = 5
Documents = Iterable[str | Mapping[str, Any]]
_TOP_K, _MOST = 10, 100
_CPU_TOKENS, _GPU_TOKENS = 4096, 16384
_RULES = 16  # rules whose decisions are kept: a client may ask for any number of them


class NoTokensError(DataError):
    """A text has no tokens.

    Attributes:
        row: its place among the texts.
    """

    def __init__(self, row: int) -> None:
        super().__init__(f"text {row} has no tokens: leave it out")
        self.row = row


class Prediction(NamedTuple):
    """A label of a text.

    Attributes:
        label: label, as in the training data.
        score: probability.
        name: readable name of the label; the label itself if it has none.
        evidence: words with the greatest contributions to the label's logit, greatest first; empty unless requested.
        predicted: whether the model's decision gives it to the text.
    """

    label: str
    score: float
    name: str
    evidence: tuple[Evidence, ...] = ()
    predicted: bool = False


class Expected(NamedTuple):
    """What to expect of the labels that a text gets; 0 if it gets none.

    Attributes:
        precision: share of them that are right.
        recall: share of the right labels that are among them.
        f1: harmonic mean of both.
    """

    precision: float
    recall: float
    f1: float


class Predictions(list[Prediction]):
    """The labels of a text, best first.

    Attributes:
        expected: what to expect of those that the model's decision, or the requested one, gives to the text.
    """

    def __init__(self, found: Iterable[Prediction], expected: Expected) -> None:
        super().__init__(found)
        self.expected = expected


class Model:
    """An exported model, ready to label texts.

    Attributes:
        decision: which labels are predicted.
        outcomes: outcomes of dev, on which other decisions are tuned; None for a single-label model.
        profile: what is known of the texts of training and dev, or None.

    Example:
        >>> model = xmtc.Model.from_pretrained("runs/quickstart/model")
        >>> model.predict(["The text."], top_k=3)
    """

    def __init__(
        self,
        parts: ModelParts,
        device: torch.device,
        *,
        tokens_per_batch: int | None = None,
        bfloat16: bool | None = None,
    ) -> None:
        self.info, self.labels, self.tokenizer = parts.info, parts.labels, parts.tokenizer
        self.decision, self.outcomes, self.profile = parts.decision, parts.outcomes, parts.profile
        self._decide_by = lru_cache(_RULES)(self._tuned)
        self.classifier, self.ensemble = parts.classifier.to(device), parts.ensemble
        if tokens_per_batch is None:
            tokens_per_batch = _CPU_TOKENS if device.type == "cpu" else _GPU_TOKENS
        self.device, self._tokens_per_batch = device, as_count(tokens_per_batch, "tokens_per_batch")
        self._bfloat16 = device.type == "cuda" if bfloat16 is None else bfloat16
        if self._bfloat16 and device.type == "cpu":
            keep_bfloat16(self.classifier.encoder)
        self._label_index = parts.index

    @classmethod
    def from_pretrained(
        cls,
        directory: str | Path,
        *,
        device: str = "auto",
        tokens_per_batch: int | None = None,
        bfloat16: bool | None = None,
    ) -> "Model":
        """Load a model that `xmtc train` exported.

        Args:
            directory: the `model` folder of a run, or `owner/name` on the Hugging Face Hub.
            device: `auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1` …
            tokens_per_batch: content tokens per batch, including padding; lower it if memory runs out. None: 4,096 on a
                CPU, where larger batches are slower, and 16,384 on a GPU.
            bfloat16: compute under bfloat16 autocast; None: on GPUs.

        Raises:
            CheckpointError: a file is missing or damaged.
            ConfigError: `directory` names no model, or there is no such device.
            StorageError: the Hub does not answer.
        """
        parts = load_model(locate_model(directory))
        return cls(parts, choose_device(device), tokens_per_batch=tokens_per_batch, bfloat16=bfloat16)

    def predict(
        self,
        texts: Documents,
        top_k: int | None = None,
        *,
        evidence: bool = False,
        threshold: Threshold = None,
        least: int = 0,
        shortlist: int | None = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        language: str | None = None,
    ) -> list[Predictions]:
        """Predict the best labels of each text, best first.

        Args:
            texts: documents in a list, tuple, Series, Arrow or NumPy array, or iterator. A document is a text, or a
                mapping from the names of its fields (`info.fields`) to their texts, and from those of its categories
                (`info.categories`), which it may lack, to their values; in a table, it is a row. A plain text is the
                last field. The model reads each up to the maximum length in training.
            top_k: maximum number of labels per text; None is 10, or 1 for a single-label model. With `tuned` or a rule,
                None keeps all that it gives, up to 100; all K of `top_k=K`.
            evidence: also find the words that support each label most.
            threshold: leave out labels below this probability. `tuned` leaves out labels that the model's decision does
                not give, and a rule (`macro`, `precision=0.9` …) those that this rule does not give; None keeps the
                `top_k` whatever their probability.
            least: keep this many labels per text whatever the threshold.
            shortlist: score this many labels per text, found by the model's index of labels; None scores all.
            include: the only labels to predict; `branch:LABEL` is a label with all its descendants; None: all.
            exclude: labels and branches not to predict.
            language: language of the names, such as `de`, of those in the label file; None: the usual names.

        Returns:
            A list of predictions for each text.

        Raises:
            DataError: a text is empty or not a string, it lacks a field, or the model has no such label or language.
            ConfigError: a shortlist together with included labels, or a rule without outcomes of dev.
        """
        self.labels.names_in(language)
        limit, least, texts = as_threshold(threshold), as_count(least, "least", 0), self.texts(texts)
        only, found = self.limits_of(include, exclude, shortlist)
        self.decision_of(limit)  # refuses a rule before hours of scoring
        documents = self.documents(texts)
        top_k = self.default_top_k(limit) if top_k is None else as_count(top_k, "top_k")
        options: Any = {"top_k": top_k, "threshold": limit, "least": least}
        # One by one, so that the figures are those of `explain`, whatever other texts there are.
        alone = [np.array([row]) for row in range(len(documents))]
        explain: Any = {"kept": partial(self.kept, **options), "batches": alone} if evidence else {}
        ids_NK, scores_NK, reasons = self.scored(documents, top_k, only, found, **explain)
        rows = zip(ids_NK, scores_NK, map(reasons.get, range(len(documents))), strict=True)
        return self.translated([self.predictions(*one, **options) for one in rows], language)

    def translated(self, predictions: list[Predictions], language: str | None) -> list[Predictions]:
        """Replace names by those in a language, where there are any; see `predict`."""
        names = self.labels.names_in(language)
        for labels in predictions if language is not None else ():
            labels[:] = [one._replace(name=names[self.labels.index(one.label)] or one.name) for one in labels]
        return predictions

    def texts(self, documents: Documents) -> list[str]:
        """Join the fields of documents to texts that still know them, as `predict` does.

        Raises:
            DataError: a document is empty, is neither text nor mapping, or lacks a field.
        """
        return as_texts(documents, self.info.fields, self.info.categories)

    def batches_at_once(self, workers: int) -> int:
        """Number of batches to compute at the same time, each by one thread: on a CPU, `workers`.

        A GPU computes one, or four if scorers read words on the CPU meanwhile.
        """
        return workers if self.device.type == "cpu" else min(workers, 1 if self.ensemble is None else 4)

    def default_top_k(self, threshold: Threshold = None) -> int:
        """Return the default maximum number of labels per text, see `predict`."""
        if not isinstance(threshold, str):
            return 1 if self.info.task == "single_label" else _TOP_K
        rule = self.decision.rule if threshold == "tuned" else threshold
        return max(_MOST, int(rule.partition("top_k=")[2] or 0))

    def best(
        self, texts: Sequence[str], top_k: int, only: LabelFilter | None = None, shortlist: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Find the ids of each text's best labels, (N, K), best first, padded with -1, and their probabilities, (N, K).

        Args:
            texts: documents.
            top_k: K, if it is more than the labels from which `predictions` says what to expect.
            only: labels that may be predicted. Default: all.
            shortlist: see `predict`.

        Raises:
            DataError: a text is empty or not a string.
            ConfigError: the model has no index for a shortlist.
        """
        return self.scored(self.documents(texts), top_k, only, self._shortlist(shortlist))[:2]

    def predictions(
        self,
        ids_K: NDArray[np.int32],
        scores_K: NDArray[np.float32],
        reasons: Sequence[Explanation] | None = None,
        *,
        top_k: int | None = None,
        threshold: Threshold = None,
        least: int = 0,
    ) -> Predictions:
        """Convert one text's results of `scored` to predictions, see `predict`; None keeps as many as there are."""
        kept_K = self.kept(ids_K, scores_K, threshold, least, top_k)
        decision = self.decision_of(threshold)
        words = [()] * int(kept_K.sum()) if reasons is None else [one.top(EVIDENCE_WORDS) for one in reasons]
        best = zip(ids_K[kept_K], scores_K[kept_K], words, decision.chosen(ids_K, scores_K)[kept_K], strict=True)
        labels, names = self.labels.labels, self.labels.names
        found = (
            Prediction(labels[at], float(score), names[at] or labels[at], evidence, bool(predicted))
            for at, score, evidence, predicted in best
        )
        return Predictions(found, Expected(*decision.expected(ids_K, scores_K).tolist()))

    def decision_of(self, threshold: Threshold) -> Decision:
        """Return the decision of a rule, tuned on first use; for its own rule or any other threshold, the model's.

        Raises:
            ConfigError: a rule for a single-label model, or for a model without outcomes of dev.
        """
        in_use = not isinstance(threshold, str) or threshold in ("tuned", self.decision.rule)
        return self.decision if in_use else self._decide_by(threshold)

    def _tuned(self, rule: str) -> Decision:
        return tuned_decision(self.outcomes, rule, self.labels, self.info.name)

    def kept(
        self,
        ids_K: NDArray[np.int32],
        scores_K: NDArray[np.float32],
        threshold: Threshold = None,
        least: int = 0,
        top_k: int | None = None,
    ) -> NDArray[np.bool_]:
        """Mark the labels that a text's predictions contain; ids and scores may also be of several texts."""
        if isinstance(threshold, str):
            reach_K = self.decision_of(threshold).chosen(ids_K, scores_K)
        else:
            reach_K = scores_K >= (threshold or 0.0)
        rank_K = np.arange(ids_K.shape[-1])
        return (reach_K | (rank_K < least)) & (rank_K < (top_k or len(self.labels))) & (ids_K >= 0)

    def limits_of(
        self, include: Iterable[str] | None, exclude: Iterable[str], shortlist: int | None
    ) -> tuple[LabelFilter | None, ShortlistScores | None]:
        """Make the filter and the shortlist that `scored` takes; see `predict`."""
        if shortlist and include is not None:
            raise ConfigError("include already limits the labels to score, so shortlist has no effect: leave it out")
        return LabelFilter.of(self.labels, include, exclude), self._shortlist(shortlist)

    def scored(
        self,
        documents: TokenisedTexts,
        top_k: int,
        only: LabelFilter | None = None,
        shortlist: ShortlistScores | None = None,
        *,
        kept: Callable[[NDArray[np.int32], NDArray[np.float32]], NDArray[np.bool_]] | None = None,
        batches: Sequence[NDArray[np.int64]] | None = None,
        words: Words | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], dict[int, list[Explanation]]]:
        """Find ids and probabilities of each text's best labels, like `best`, and explain some of them.

        Args:
            documents: tokenised texts.
            top_k: K, see `best`.
            only: labels that may be predicted. Default: all.
            shortlist: labels to score. Default: all.
            kept: marks the labels of a text, (K,), that are explained. Default: none.
            batches: rows of each batch. Default: all texts, by length.
            words: `words` of the texts, where they are counted already.

        Returns:
            Ids and probabilities, and by row the explanations of the labels that `kept` marks.
        """
        fused = self._fused(documents, self.words(documents) if words is None else words, shortlist, only)
        explain = None
        if kept is not None:
            explain = BatchExplainer(self._explainer, documents, lambda *best: best[0][kept(*best)], fused)
        scoring = Scoring(
            len(self.labels),
            max(top_k, CONSIDERED),
            self._tokens_per_batch,
            self.info.task,
            bfloat16=self._bfloat16,
            only=None if only is None or self.ensemble is not None else only.allowed,
        )
        ids_NK, scores_NK = score_split(
            self.classifier,
            documents,
            self._collator(documents),
            scoring,
            batches=batches,
            best=fused or shortlist,
            on_best=explain,
        )
        return ids_NK, scores_NK, {} if explain is None else explain.found

    def words(self, documents: TokenisedTexts) -> Words | None:
        """Count the words that the scorers know; None if only the head scores."""
        return None if self.ensemble is None else self.ensemble.vocabulary.words(documents.texts)

    @cached_property
    def _index(self) -> LabelIndex | None:
        """The model's index; its first use warns if shortlists from it miss many labels."""
        if self._label_index is None:
            return None
        self._label_index.warn_of_misses()
        return self._label_index

    def _shortlist(self, size: int | None) -> ShortlistScores | None:
        return None if size is None else ShortlistScores(self.classifier, as_count(size, "shortlist"), self._index)

    def explain(self, text: str | Mapping[str, Any], labels: Iterable[str] | str) -> list[Explanation]:
        """Explain the logits of one or several labels by the contribution of each word of the text.

        Args:
            text: a document: a text, or a mapping from the names of its fields to their texts.
            labels: a label, or several.

        Returns:
            An explanation per label, in their order.

        Raises:
            DataError: the text is empty or not a string, or the model has no such label.
            ConfigError: the head gives no evidence.
        """
        document = self.documents([as_text(text, self.info.fields, categories=self.info.categories)])
        label_ids = self.labels.indices(as_labels(labels))
        batch = self._collator(document)(MicroBatch(np.zeros(1, np.int64), np.ones(1, np.float32))).to(self.device)
        with torch.inference_mode():
            batch = replace(batch, hidden_BTD=self.classifier.encode(batch))
            fused = self._fused(document, self.words(document))
            scored = None if fused is None else fused.pairs(batch, label_ids)
        return self._explainer.explain(document.one(0), batch, label_ids, scored)

    @property
    def _explainer(self) -> Explainer:
        return Explainer(self.classifier, self.ensemble, self.labels.labels, self.tokenizer, self.info.fields)

    def _fused(
        self,
        documents: TokenisedTexts,
        words: Words | None,
        shortlist: ShortlistScores | None = None,
        only: LabelFilter | None = None,
    ) -> FusedScores | None:
        """Make the fused scores of all scorers; None if only the head scores."""
        if self.ensemble is None or words is None:
            return None
        limits: Any = {"shortlist": shortlist, "only": only, "exclusive": self.info.task == "single_label"}
        return FusedScores(self.classifier, self.ensemble, words.take, **limits)

    def documents(self, texts: Sequence[str]) -> TokenisedTexts:
        """Tokenise texts.

        Raises:
            NoTokensError: a text has no tokens.
        """
        documents = tokenised(texts, self.tokenizer, self.info.max_length)
        if not documents.lengths.all():
            raise NoTokensError(int(documents.lengths.argmin()))
        return documents

    def _collator(self, documents: TokenisedTexts) -> Collator:
        window, overlap = self.classifier.encoder.window, self.info.model.overlap
        return Collator(documents, self.tokenizer, window=window, overlap=overlap)


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
        raise ConfigError(f"there is no device {name!r} ({str(error).splitlines()[0]}): use cpu or auto") from error
    return device
