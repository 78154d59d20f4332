"""Score blocks of documents: tokenise, batch by length, keep the best labels, make a table.

A block's table depends only on its rows, the model and the settings. One thread computes each batch, whatever the
number of workers, so all engines write the same bytes.

Suffixes: N documents of a block, B of a batch, K kept labels, L labels, T tokens.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.export import ModelParts
from xmtc.artefact.info import ModelInfo
from xmtc.data.collate import Batch, Collator
from xmtc.data.readers import Rejected
from xmtc.data.sampler import evaluation_batches
from xmtc.data.tokenizer import special_tokens
from xmtc.errors import ConfigError
from xmtc.fusion.pairs import Pairs
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.models.classifier import Classifier
from xmtc.predict.evidence import Evidence, merge_words
from xmtc.predict.explainer import Explainer, Tokenised
from xmtc.predict.filters import LabelFilter
from xmtc.predict.fused import FusedScores
from xmtc.predict.predictor import EVIDENCE_WORDS
from xmtc.predict.scorer import BestLabels, Scoring, best_labels, score_split
from xmtc.predict.shortlist import Shortlist
from xmtc.score.block_evidence import ExplainedScores, KeepsHidden, Reasons, Words
from xmtc.score.inputs import RawBlock
from xmtc.score.job import Settings
from xmtc.scorers.base import Features

PREDICTIONS = pa.schema({"doc_id": pa.string(), "labels": pa.list_(pa.string()), "scores": pa.list_(pa.float32())})
_WORD = pa.struct({"text": pa.string(), "contribution": pa.float32()})
EVIDENCE = pa.field("evidence", pa.list_(pa.list_(_WORD)))


@dataclass(frozen=True)
class TokenBlock:
    """A block ready for the model; a `Documents` without labels.

    Attributes:
        name: name of the block.
        doc_ids: N identifiers.
        ids_N: content tokens of each document, int32.
        rejected: rows that are not documents, or have no tokens.
        texts: the documents, if evidence or scorers read them; otherwise empty.
        offsets_N: character spans of the tokens, if evidence or scorers read them.
    """

    name: str
    doc_ids: tuple[str, ...]
    ids_N: tuple[NDArray[np.int32], ...]
    rejected: tuple[Rejected, ...]
    texts: tuple[str, ...] = ()
    offsets_N: tuple[NDArray[np.int64], ...] = ()

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Content tokens (N,)."""
        return np.array([len(ids) for ids in self.ids_N], np.int32)

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Return the content tokens of a document."""
        return self.ids_N[document]

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """Return no labels, because none are known."""
        del document
        return np.empty(0, np.int32)


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
            self.shortlist = Shortlist(self.classifier, settings.shortlist, index)
        self.workers = workers if device.type == "cpu" else 1
        self.scoring = Scoring(
            len(self.labels),
            settings.top_k,
            settings.tokens_per_batch,
            parts.info.task,
            bfloat16=settings.bfloat16,
            only=None if self.only is None or self.ensemble is not None else self.only.allowed,
        )
        self._first = len(special_tokens(self.tokenizer)[0])

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
        with ThreadPoolExecutor(workers, "xmtc-score", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            shares = [batches[worker::workers] for worker in range(workers)]
            best = self._fused(block) or self.shortlist  # counts words once for all workers
            results = list(pool.map(lambda share: self._score_batches(block, share, best), shares))
        ids_NK = np.maximum.reduce([ids_NK for ids_NK, _, _ in results])
        scores_NK = np.maximum.reduce([scores_NK for _, scores_NK, _ in results])
        words = {row: words for _, _, found in results for row, words in found.items()}
        return self._table(block, ids_NK, scores_NK, words)

    def _score_batches(
        self, block: TokenBlock, batches: Sequence[NDArray[np.int64]], best: BestLabels | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], dict[int, Words]]:
        collate = Collator(
            block,
            self.tokenizer,
            window=self.classifier.encoder.window,
            overlap=self.info.model.overlap,
        )
        if isinstance(best, FusedScores) and self.settings.evidence:
            return self._explained_batches(block, batches, best, collate)
        words: dict[int, Words] = {}
        model = KeepsHidden(self.classifier) if self.settings.evidence else self.classifier

        def explain(rows_B: NDArray[np.int64], logits_BL: Tensor) -> None:
            top_k = min(self.settings.top_k, len(self.labels))
            ids_BK, _ = best_labels(logits_BL, top_k, self.info.task, self.scoring.only)
            assert isinstance(model, KeepsHidden)
            shares_BKT = model.contributions(ids_BK.clamp(min=0).long())
            for row, ids_K, shares_KT in zip(rows_B, ids_BK.tolist(), shares_BKT, strict=True):
                found = (self._words(block, int(row), shares_T) for shares_T in shares_KT)
                words[int(row)] = dict(zip(ids_K, found, strict=True))

        ids_NK, scores_NK = score_split(
            model,
            block,
            collate,
            self.scoring,
            batches=batches,
            on_logits=explain if self.settings.evidence else None,
            best=best,
        )
        return ids_NK, scores_NK, words

    def _explained_batches(
        self, block: TokenBlock, batches: Sequence[NDArray[np.int64]], fused: FusedScores, collate: Collator
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], dict[int, Words]]:
        """Compute fused scores of batches, and the words of every label that the table keeps."""
        explained = ExplainedScores(fused, self.settings.top_k, self._reasons(block))
        ids_NK, scores_NK = score_split(self.classifier, block, collate, self.scoring, batches=batches, best=explained)
        return ids_NK, scores_NK, explained.words

    def _reasons(self, block: TokenBlock) -> Reasons:
        """Make a function that finds the words of a document's best labels; labels below their threshold get none."""
        assert self.ensemble is not None
        explainer = Explainer(self.classifier, self.ensemble, self.labels.to_pylist(), self.tokenizer)

        def reasons(
            row: int,
            batch: Batch,
            scored: tuple[Features, Pairs],
            ids_K: NDArray[np.int64],
            scores_K: NDArray[np.float32],
        ) -> Words:
            kept_K = self._kept(ids_K, scores_K)
            document = Tokenised(block.texts[row], [(int(start), int(end)) for start, end in block.offsets_N[row]])
            found = explainer.explain(document, batch, ids_K[kept_K], scored, attention=False)
            best = ([_as_row(word) for word in one.top(EVIDENCE_WORDS)] for one in found)
            return dict(zip(ids_K[kept_K].tolist(), best, strict=True))

        return reasons

    def _kept(self, ids: NDArray[np.integer], scores: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Mark the best labels that reach their thresholds."""
        limits = np.maximum(self.thresholds_L[ids], np.float32(self.settings.min_score))
        return (scores >= limits) & (ids >= 0)

    def _fused(self, block: TokenBlock) -> FusedScores | None:
        """Make the fused scores of all scorers; None if only the head scores."""
        if self.ensemble is None:
            return None
        vocabulary = self.ensemble.vocabulary
        rows_NV = vocabulary.rows(vocabulary.count(block.texts))
        return FusedScores(
            self.classifier,
            self.ensemble,
            rows_NV.__getitem__,
            shortlist=self.shortlist,
            only=self.only,
            exclusive=self.info.task == "single_label",
        )

    def _words(self, block: TokenBlock, row: int, shares_T: NDArray[np.float32]) -> list[dict]:
        inner_T = shares_T[self._first : self._first + len(block.ids_N[row])]
        offsets = [(int(start), int(end)) for start, end in block.offsets_N[row]]
        words, _ = merge_words(block.texts[row], offsets, inner_T)
        best = sorted((word for word in words if word.contribution > 0), key=lambda word: -word.contribution)
        return [_as_row(word) for word in best[:EVIDENCE_WORDS]]

    def _table(
        self,
        block: TokenBlock,
        ids_NK: NDArray[np.int32],
        scores_NK: NDArray[np.float32],
        words: dict[int, Words],
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
        evidence = [[words[row][label] for label in ids_NK[row, kept_K].tolist()] for row, kept_K in enumerate(kept_NK)]
        return pa.table([*columns, pa.array(evidence, EVIDENCE.type)], schema=PREDICTIONS.append(EVIDENCE))


def _as_row(word: Evidence) -> dict:
    return {"text": word.text, "contribution": word.contribution}


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
