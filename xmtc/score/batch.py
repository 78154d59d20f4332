"""Score blocks of documents: tokenise, batch by length, keep the best labels, make a table.

A block's table depends only on its rows, the model and the settings. One thread computes each batch, whatever the
number of workers, so all engines write the same bytes.

Suffixes: N documents of a block, B of a batch, K kept labels, L labels, T tokens.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.export import ModelParts
from xmtc.artefact.info import ModelInfo
from xmtc.data.arrays import Matrix
from xmtc.data.collate import Collator
from xmtc.data.readers import Rejected
from xmtc.data.sampler import evaluation_batches
from xmtc.errors import ConfigError
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.models.classifier import Classifier
from xmtc.predict.evidence import Explanation
from xmtc.predict.explainer import BatchExplainer, Explainer
from xmtc.predict.filters import LabelFilter
from xmtc.predict.fused_scores import FusedScores
from xmtc.predict.predictor import EVIDENCE_WORDS
from xmtc.predict.ranking import Scoring, score_split
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.predict.tokenised import TokenisedTexts
from xmtc.score.inputs import RawBlock
from xmtc.score.job import Settings

PREDICTIONS = pa.schema({"doc_id": pa.string(), "labels": pa.list_(pa.string()), "scores": pa.list_(pa.float32())})
_WORD = pa.struct({"text": pa.string(), "contribution": pa.float32()})
EVIDENCE = pa.field("evidence", pa.list_(pa.list_(_WORD)))
Reasons = dict[int, list[Explanation]]
"""Explanations of the labels that the table keeps, by row."""


class TokenBlock(TokenisedTexts):
    """A block ready for the model.

    Attributes:
        name: name of the block.
        doc_ids: N identifiers.
        rejected: rows that are not documents, or have no tokens.
    """

    def __init__(
        self,
        name: str,
        doc_ids: Sequence[str],
        ids_N: Sequence[NDArray[np.int32]],
        rejected: Sequence[Rejected],
        texts: Sequence[str] = (),
        offsets_N: Sequence[NDArray[np.int64]] = (),
    ) -> None:
        super().__init__(ids_N, texts, offsets_N)
        self.name, self.doc_ids, self.rejected = name, doc_ids, rejected


def tokenise(raw: RawBlock, tokenizer: PreTrainedTokenizerFast, info: ModelInfo, *, evidence: bool) -> TokenBlock:
    """Encode a block's texts on all cores; reject texts without tokens.

    Args:
        raw: block of documents.
        tokenizer: tokenizer of the model.
        info: information on the model: its maximum length, and whether its scorers read whole texts.
        evidence: whether to keep texts and offsets.
    """
    backend = tokenizer.backend_tokenizer
    encode = backend.encode_batch if evidence else backend.encode_batch_fast  # the fast one computes no offsets
    encodings = encode(list(raw.texts), add_special_tokens=False)
    ids = [np.array(one.ids[: info.max_length], np.int32) for one in encodings]
    kept = [row for row, one in enumerate(ids) if len(one)]
    empty = [
        Rejected(raw.doc_ids[row], "the text has no tokens: leave it out")
        for row, one in enumerate(ids)
        if not len(one)
    ]
    return TokenBlock(
        raw.name,
        tuple(raw.doc_ids[row] for row in kept),
        tuple(ids[row] for row in kept),
        (*raw.rejected, *empty),
        tuple(raw.texts[row] for row in kept) if evidence or info.model.scorers else (),
        tuple(np.array(encodings[row].offsets[: info.max_length]) for row in kept) if evidence else (),
    )


class BlockScorer:
    """Scores blocks with a model and makes tables.

    Args:
        parts: the loaded model; it is moved to `device`, and filtered labels are removed from it.
        settings: see `Settings`.
        device: device to compute on.
        workers: number of batches computed at the same time on the CPU, each by one thread.

    Raises:
        DataError: a label that the model does not know.
    """

    def __init__(self, parts: ModelParts, settings: Settings, device: torch.device, workers: int) -> None:
        if settings.threshold == "tuned" and parts.limits() is None:  # labels exclude each other: keep the best one
            settings = replace(settings, top_k=1, threshold=None)
        self.settings, self.tokenizer, self.info = settings, parts.tokenizer, parts.info
        self.labels = pa.array(parts.labels.labels, pa.string())
        self.thresholds_L = _thresholds(parts, settings)
        self.classifier = parts.classifier.to(device).eval()
        self.ensemble, self.only = parts.ensemble, LabelFilter.of(parts.labels, settings.include, settings.exclude)
        index = parts.index
        if self.only is not None and self._can_restrict():
            _restrict(self.classifier, self.only.allowed)
            if index is not None and settings.shortlist:  # the model's index also contains filtered labels
                vectors = LabelVectors.of(self.classifier.head, self.classifier.calibration)
                index = LabelIndex(vectors, index.config)
            self.labels = self.labels.take(pa.array(self.only.allowed))
            self.thresholds_L = self.thresholds_L[self.only.allowed]
            self.only = None
        if settings.shortlist and settings.evidence:
            raise ConfigError("--shortlist and --evidence exclude each other: evidence needs all logits")
        self.shortlist = None
        if settings.shortlist:
            if index is not None:
                index.warn_of_misses()
            self.shortlist = ShortlistScores(self.classifier, settings.shortlist, index)
        self.workers = workers if device.type == "cpu" else 1
        self.scoring = Scoring(
            len(self.labels),
            settings.top_k,
            settings.tokens_per_batch,
            parts.info.task,
            bfloat16=settings.bfloat16,
            only=None if self.only is None or self.ensemble is not None else self.only.allowed,
        )

    def _can_restrict(self) -> bool:
        """Whether rows of labels can be removed without changing the scores of other labels."""
        return self.ensemble is None and self.info.task == "multi_label"

    def tokenise(self, raw: RawBlock) -> TokenBlock:
        """Read and tokenise a block's texts."""
        return tokenise(raw, self.tokenizer, self.info, evidence=self.settings.evidence)

    def score(self, block: TokenBlock) -> pa.Table:
        """Predict the labels of a block's documents, in order: doc_id, labels, scores and, if requested, evidence."""
        if not block.doc_ids:
            return self._table(block, np.empty((0, 0), np.int32), np.empty((0, 0), np.float32), {})
        batches = evaluation_batches(block.lengths, self.settings.tokens_per_batch)
        workers = max(1, min(self.workers, len(batches)))
        words_NV = None
        if self.ensemble is not None:
            words_NV = self.ensemble.vocabulary.rows(self.ensemble.vocabulary.count(block.texts))
        with ThreadPoolExecutor(workers, "xmtc-score", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            shares = [batches[worker::workers] for worker in range(workers)]
            results = list(pool.map(lambda share: self._score_batches(block, share, words_NV), shares))
        ids_NK = np.maximum.reduce([ids_NK for ids_NK, _, _ in results])
        scores_NK = np.maximum.reduce([scores_NK for _, scores_NK, _ in results])
        reasons = {row: reasons for _, _, found in results for row, reasons in found.items()}
        return self._table(block, ids_NK, scores_NK, reasons)

    def _score_batches(
        self, block: TokenBlock, batches: Sequence[NDArray[np.int64]], words_NV: Matrix | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], Reasons]:
        window, overlap = self.classifier.encoder.window, self.info.model.overlap
        collate, fused, explain = Collator(block, self.tokenizer, window=window, overlap=overlap), None, None
        if self.ensemble is not None and words_NV is not None:
            fused = FusedScores(
                self.classifier,
                self.ensemble,
                words_NV.__getitem__,
                shortlist=self.shortlist,
                only=self.only,
                exclusive=self.info.task == "single_label",
            )
        if self.settings.evidence:
            explainer = Explainer(self.classifier, self.ensemble, self.labels.to_pylist(), self.tokenizer)
            explain = BatchExplainer(explainer, block, lambda *best: best[0][self._kept(*best)], fused)
        ids_NK, scores_NK = score_split(
            self.classifier,
            block,
            collate,
            self.scoring,
            batches=batches,
            best=fused or self.shortlist,
            on_best=explain,
        )
        return ids_NK, scores_NK, {} if explain is None else explain.found

    def _kept(self, ids: NDArray[np.integer], scores: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Mark the best labels that reach their thresholds."""
        limits = np.maximum(self.thresholds_L[ids], np.float32(self.settings.min_score))
        return (scores >= limits) & (ids >= 0)

    def _table(
        self,
        block: TokenBlock,
        ids_NK: NDArray[np.int32],
        scores_NK: NDArray[np.float32],
        reasons: Reasons,
    ) -> pa.Table:
        kept_NK = self._kept(ids_NK, scores_NK)
        offsets = np.concatenate([[0], np.cumsum(kept_NK.sum(1))]).astype(np.int32)
        columns = [
            pa.array(block.doc_ids, pa.string()),
            pa.ListArray.from_arrays(offsets, self.labels.take(pa.array(ids_NK[kept_NK]))),
            pa.ListArray.from_arrays(offsets, pa.array(scores_NK[kept_NK], pa.float32())),
        ]
        if not self.settings.evidence:
            return pa.table(columns, schema=PREDICTIONS)
        evidence = [[_words(one) for one in reasons[row]] for row in range(len(kept_NK))]
        return pa.table([*columns, pa.array(evidence, EVIDENCE.type)], schema=PREDICTIONS.append(EVIDENCE))


def _words(reason: Explanation) -> list[dict]:
    """Make the rows of a label in the column `evidence`."""
    return [{"text": word.text, "contribution": word.contribution} for word in reason.top(EVIDENCE_WORDS)]


def _thresholds(parts: ModelParts, settings: Settings) -> NDArray[np.float32]:
    """Return the minimum probability at which each label is kept, (L,)."""
    limits_L = parts.limits()
    if settings.threshold == "tuned" and limits_L is not None:
        return limits_L
    return np.full(len(parts.labels), settings.threshold or 0.0, np.float32)


def _restrict(classifier: Classifier, label_ids: NDArray[np.int64]) -> None:
    """Reduce everything that has one row per label to these labels."""
    rows = torch.from_numpy(label_ids).to(classifier.head.bias.device)
    for name, table in classifier.head.label_tables().items():
        setattr(classifier.head, name, nn.Parameter(table.detach()[rows].clone(), requires_grad=False))
    classifier.labels = len(rows)
    if classifier.calibration is not None:
        classifier.calibration = classifier.calibration.of(rows.cpu())
