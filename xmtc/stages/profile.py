"""Make the profile of a run's texts, see `xmtc.artefact.profile`."""

from collections import Counter

import numpy as np

from xmtc.artefact.profile import MOST_LABELS, Profile
from xmtc.fusion.decision import Decision
from xmtc.fusion.ensemble import Ensemble
from xmtc.predict.statistics import kinds_of, of_answers, of_tokens, of_words, token_bits
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.worker import Worker

_DOCUMENTS = 1000


def profile(worker: Worker, decision: Decision, ensemble: Ensemble | None, dev: SparsePredictions) -> Profile:
    """Measure training tokens and a sample of dev documents.

    Args:
        worker: worker of the first rank.
        decision: which labels are predicted.
        ensemble: the model's scorers, if any.
        dev: predictions for all dev documents, by models that have not seen them.
    """
    counts_V = np.zeros(len(worker.tokenizer), np.int64)
    for ids, _ in worker.train.token_blocks():
        counts_V += np.bincount(ids, minlength=len(counts_V))
    there = np.flatnonzero(worker.dev.lengths)
    rows = np.sort(np.random.default_rng(worker.config.seed).permutation(there)[:_DOCUMENTS])
    bits_V, ids_N = token_bits(counts_V), [worker.dev.tokens(int(row)) for row in rows]
    sample = of_tokens(Profile(bits_V, {}, {}), ids_N) | of_answers(
        decision, dev.label_ids_NK[rows], dev.scores_NK[rows]
    )
    words = None if ensemble is None else worker.dev.words(rows)
    if ensemble is not None and words is not None:
        sample |= of_words(ensemble, words, sample["tokens"])
    chosen = dev.label_ids_NK[decision.chosen(dev.label_ids_NK, dev.scores_NK)]
    most = Counter(chosen.tolist()).most_common(MOST_LABELS)
    labels = {worker.corpus.labels.labels[label]: count for label, count in most}
    kinds = kinds_of(worker.tokenizer, ids_N, words)
    kinds |= {"labels": labels, "languages": worker.corpus.manifest.dev_languages}
    return Profile(bits_V, {name: values.astype(np.float32) for name, values in sample.items()}, kinds)
