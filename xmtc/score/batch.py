"""Score blocks of documents: tokenise, batch by length, keep the best labels, make a table.

A block's table depends only on its rows, the model and the settings. One thread computes each batch, whatever the
number of workers, so all engines write the same bytes.

Suffixes: N documents of a block, B of a batch, K kept labels, L labels, T tokens.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.export import ModelParts
from xmtc.artefact.info import ModelInfo
from xmtc.data.loader import in_threads
from xmtc.data.readers import Rejected
from xmtc.data.sampler import evaluation_batches
from xmtc.distributed.memory import keep_freed_memory
from xmtc.errors import ConfigError
from xmtc.fusion.decision import EXPECTED, expected_labels, released
from xmtc.predict.evidence import Explanation
from xmtc.predict.request import Answer
from xmtc.predict.text_scorer import EVIDENCE_REASONS, TextScorer
from xmtc.predict.tokenised import TokenisedTexts, tokenised
from xmtc.score.inputs import RawBlock
from xmtc.score.job import Settings

logger = logging.getLogger(__name__)

PREDICTIONS = pa.schema(
    {
        "doc_id": pa.string(),
        "labels": pa.list_(pa.string()),
        "scores": pa.list_(pa.float32()),
        "predicted": pa.list_(pa.bool_()),
    }
    | dict.fromkeys(
        (f"expected_{name}" for name in (*EXPECTED, "labels")), pa.float32()
    )
)
"""`predicted` says of each label whether the model's decision, or that of `Settings.threshold`, gives it, and
`EXPECTED` what to expect of those; `expected_labels` is the number of right labels to expect, which a document without
labels has, too."""
RELEASE = pa.field("release", pa.bool_())
_REASON = pa.struct(
    {
        "text": pa.string(),
        "kind": pa.string(),
        "field": pa.string(),
        "contribution": pa.float32(),
    }
)
EVIDENCE = pa.field("evidence", pa.list_(pa.list_(_REASON)))


@dataclass(frozen=True)
class TokenBlock:
    """A block ready for the model.

    Attributes:
        name: name of the block.
        doc_ids: N identifiers.
        documents: the N texts.
        rejected: rows that are not documents, or have no tokens.
    """

    name: str
    doc_ids: Sequence[str]
    documents: TokenisedTexts
    rejected: Sequence[Rejected]


def tokenise(
    raw: RawBlock,
    tokenizer: PreTrainedTokenizerFast,
    info: ModelInfo,
    *,
    evidence: bool,
) -> TokenBlock:
    """Encode a block's texts on all cores; reject texts without tokens.

    Args:
        raw: block of documents.
        tokenizer: tokenizer of the model.
        info: information on the model: its maximum length, and whether its scorers read whole texts.
        evidence: whether to keep texts and offsets.
    """
    found = tokenised(raw.texts, tokenizer, info.max_length, offsets=evidence)
    kept = [row for row, length in enumerate(found.lengths) if length]
    documents = TokenisedTexts(
        [found.tokens(row) for row in kept],
        [raw.texts[row] for row in kept] if evidence or info.model.scorers else (),
        [found.offsets_N[row] for row in kept] if evidence else (),
    )
    empty = (
        doc_id
        for doc_id, length in zip(raw.doc_ids, found.lengths, strict=True)
        if not length
    )
    rejected = (
        Rejected(doc_id, "the text has no tokens: leave it out") for doc_id in empty
    )
    return TokenBlock(
        raw.name,
        [raw.doc_ids[row] for row in kept],
        documents,
        (*raw.rejected, *rejected),
    )


class BlockScorer:
    """Scores blocks with a model and makes tables.

    Args:
        parts: the loaded model; it is moved to `device`.
        settings: see `Settings`.
        device: device to compute on.
        workers: number of threads, see `TextScorer.batches_at_once`.

    Raises:
        DataError: a label that the model does not know.
        ConfigError: a shortlist together with evidence or included labels, or a rule that the model cannot have.
    """

    def __init__(
        self, parts: ModelParts, settings: Settings, device: torch.device, workers: int
    ) -> None:
        if settings.shortlist and settings.evidence:
            raise ConfigError(
                "--shortlist and --evidence exclude each other: evidence needs all logits"
            )
        if device.type == "cpu":
            keep_freed_memory()
        self.settings = settings
        self.scorer = TextScorer(
            parts,
            device,
            tokens_per_batch=settings.tokens_per_batch,
            bfloat16=settings.bfloat16,
        )
        self.request = settings.request()
        self.scorer.check(self.request)
        self.workers = self.scorer.batches_at_once(workers)
        self._labels = pa.array(parts.labels.labels, pa.string())
        self._warned = False  # whether a document had more predicted labels than its part of the table holds

    def tokenise(self, raw: RawBlock) -> TokenBlock:
        """Read and tokenise a block's texts."""
        return tokenise(
            raw,
            self.scorer.tokenizer,
            self.scorer.info,
            evidence=self.settings.evidence,
        )

    def score(self, block: TokenBlock) -> pa.Table:
        """Predict the labels of a block's documents, in order: columns `PREDICTIONS` and, if requested, evidence."""
        if not block.doc_ids:
            return self._table(
                block, Answer(np.empty((0, 1), np.int32), np.empty((0, 1), np.float32))
            )
        batches = evaluation_batches(
            block.documents.lengths, self.settings.tokens_per_batch
        )
        workers = max(1, min(self.workers, len(batches)))
        score = partial(
            self.scorer.score,
            block.documents,
            self.request,
            words=self.scorer.words(block.documents),
        )
        shares = (
            partial(score, batches=batches[worker::workers])
            for worker in range(workers)
        )
        return self._table(block, Answer.united(list(in_threads(shares, workers))))

    def _table(self, block: TokenBlock, answer: Answer) -> pa.Table:
        label_ids_NK = answer.label_ids_NK
        scores_NK = answer.scores_NK
        kept_NK = self.scorer.kept(answer, self.request)
        decision = self.scorer.decision_of(self.request.threshold)
        predicted_NK = decision.chosen(label_ids_NK, scores_NK)
        self._warn_of_cut(predicted_NK)
        expected_N3 = decision.expected(label_ids_NK, scores_NK)
        offsets = np.concatenate([[0], np.cumsum(kept_NK.sum(1))]).astype(np.int32)
        expectations = [*expected_N3.T, expected_labels(label_ids_NK, scores_NK)]
        columns = [
            pa.array(block.doc_ids, pa.string()),
            pa.ListArray.from_arrays(
                offsets, self._labels.take(pa.array(label_ids_NK[kept_NK]))
            ),
            pa.ListArray.from_arrays(
                offsets, pa.array(scores_NK[kept_NK], pa.float32())
            ),
            pa.ListArray.from_arrays(offsets, pa.array(predicted_NK[kept_NK])),
            *(pa.array(values_N, pa.float32()) for values_N in expectations),
        ]
        table = pa.table(columns, schema=PREDICTIONS)
        if self.settings.release is not None:
            table = table.append_column(
                RELEASE, pa.array(released(expected_N3, self.settings.release))
            )
        if self.settings.evidence:
            rows = [
                [_reasons(explanation) for explanation in answer.explanations[row]]
                for row in range(len(answer))
            ]
            table = table.append_column(EVIDENCE, pa.array(rows, EVIDENCE.type))
        return table

    def _warn_of_cut(self, predicted_NK: NDArray[np.bool_]) -> None:
        """Warn once if a document has more predicted labels than the table keeps of it."""
        top_k = self.settings.top_k
        if (
            isinstance(self.settings.threshold, str)
            and not self._warned
            and predicted_NK[:, top_k:].any()
        ):
            self._warned = True
            logger.warning(
                "--top-k %d: some documents have more predicted labels, and lose them",
                top_k,
            )


def _reasons(explanation: Explanation) -> list[dict]:
    """Make the rows of a label in the column `evidence`."""
    return [
        {field.name: getattr(reason, field.name) for field in _REASON}
        for reason in explanation.top(EVIDENCE_REASONS)
    ]
