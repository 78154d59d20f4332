"""Make the profile of a run's texts, see `xmtc.artefact.profile`."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from xmtc.artefact.profile import MOST_LABELS, Profile
from xmtc.fusion.decision import Decision
from xmtc.fusion.ensemble import Ensemble
from xmtc.predict.statistics import (
    kinds_of,
    of_answers,
    of_tokens,
    of_words,
    token_bits,
)
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.worker import Worker

_DOCUMENTS = 1000


def profile(
    worker: Worker,
    decision: Decision,
    ensemble: Ensemble | None,
    dev: SparsePredictions,
) -> Profile:
    """Measure training tokens and a sample of dev documents.

    Args:
        worker: worker of the first rank.
        decision: which labels are predicted.
        ensemble: the model's scorers, if any.
        dev: predictions for all dev documents, by models that have not seen them.
    """
    bits_V = token_bits(_token_counts(worker))
    rows = _sampled_rows(worker)
    ids_N = [worker.dev.tokens(int(row)) for row in rows]
    sample = of_tokens(Profile(bits_V, {}, {}), ids_N)
    sample |= of_answers(decision, dev.label_ids_NK[rows], dev.scores_NK[rows])
    words = None
    if ensemble is not None:
        words = worker.dev.words(rows)
        sample |= of_words(ensemble, words, sample["tokens"])
    kinds: dict[str, dict[str, int]] = {**kinds_of(worker.tokenizer, ids_N, words)}
    kinds["labels"] = _predicted_labels(worker, decision, dev)
    kinds["languages"] = worker.corpus.manifest.dev_languages
    return Profile(
        bits_V,
        {name: values.astype(np.float32) for name, values in sample.items()},
        kinds,
    )


def _token_counts(worker: Worker) -> NDArray[np.int64]:
    """Count the occurrences of each token in train, (V,)."""
    counts_V = np.zeros(len(worker.tokenizer), np.int64)
    for ids, _ in worker.train.token_blocks():
        counts_V += np.bincount(ids, minlength=len(counts_V))
    return counts_V


def _sampled_rows(worker: Worker) -> NDArray[np.int64]:
    """Choose dev documents that have tokens, by the seed."""
    with_tokens = np.flatnonzero(worker.dev.lengths)
    shuffled = np.random.default_rng(worker.config.seed).permutation(with_tokens)
    return np.sort(shuffled[:_DOCUMENTS])


def _predicted_labels(
    worker: Worker, decision: Decision, dev: SparsePredictions
) -> dict[str, int]:
    """Count the documents that get each label; only the most frequent labels."""
    chosen_NK = decision.chosen(dev.label_ids_NK, dev.scores_NK)
    counts = Counter(dev.label_ids_NK[chosen_NK].tolist())
    labels = worker.corpus.labels.labels
    return {
        labels[label_id]: count for label_id, count in counts.most_common(MOST_LABELS)
    }
