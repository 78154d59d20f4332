"""Fitting the lexical branch: one linear SVM a label, on the CPU, before the backbone is needed.

Suffixes: N documents of a split, B of a block, T tokens, V token vocabulary, L labels.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch import Tensor

from xmtc.data.corpus import Split
from xmtc.data.progress import Progress, Silent
from xmtc.errors import DataError
from xmtc.models.lexical import Lexical, LexicalConfig, tfidf

_BLOCK = 128  # documents whose features are dense at once
_CHUNK = 64  # labels of one task
_CALIBRATION_DOCUMENTS = 5_000
_CALIBRATION_LABELS = 100  # of a document: its highest margins
Matrix = Any  # a scipy.sparse.csr_array; the stubs know neither its shape nor its rows


def fit_lexical(
    train: Split,
    dev: Split,
    config: LexicalConfig,
    *,
    vocabulary: int,
    special_token_ids: list[int],
    seed: int,
    progress: Progress | None = None,
) -> Lexical:
    """Fit a lexical branch on train, and its calibration on dev.

    Args:
        train: documents to learn from.
        dev: documents that tell how a margin turns into log-odds (Platt 1999), two numbers in all.
        config: see `LexicalConfig`.
        vocabulary: V.
        special_token_ids: tokens that never count.
        seed: of the solver's order.
        progress: told how many labels are fitted.

    Raises:
        DataError: dev holds no label that the branch could be calibrated on.
    """
    idf_V = inverse_document_frequency(train, vocabulary, special_token_ids)
    features = _stacked([_csr(block_BV) for block_BV in _features(train, idf_V)])
    rows, biases = _fit_labels(features, _documents_of_labels(train), config, seed, progress)
    weights = _stacked(rows)
    lexical = Lexical(
        idf_V,
        torch.from_numpy(weights.indptr.astype(np.int32)),
        torch.from_numpy(weights.indices.astype(np.int32)),
        torch.from_numpy(weights.data.astype(np.float32)),
        torch.from_numpy(np.concatenate(biases)),
        torch.tensor([1.0, 0.0]),
    )
    return _calibrated(lexical, dev)


def inverse_document_frequency(split: Split, vocabulary: int, special_token_ids: list[int]) -> Tensor:
    """ln((1 + N) / (1 + n_t)) + 1, float32 (V,), as scikit-learn smooths it; 0 where n_t is 0 or the token special."""
    documents_V = np.zeros(vocabulary, np.int64)
    for row in range(len(split)):
        documents_V[np.unique(split.tokens(row))] += 1
    idf_V = np.log((1 + len(split)) / (1 + documents_V)) + 1
    idf_V[documents_V == 0] = 0
    idf_V[special_token_ids] = 0
    return torch.from_numpy(idf_V.astype(np.float32))


def _features(split: Split, idf_V: Tensor, documents: int | None = None) -> Iterator[Tensor]:
    """TF-IDF (B, V) of one block of documents after the other."""
    total = len(split) if documents is None else min(documents, len(split))
    for start in range(0, total, _BLOCK):
        tokens = [
            torch.from_numpy(split.tokens(row).astype(np.int64)) for row in range(start, min(start + _BLOCK, total))
        ]
        ids_BT = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        mask_BT = torch.arange(ids_BT.shape[1])[None] < torch.tensor([len(one) for one in tokens])[:, None]
        yield tfidf(ids_BT, mask_BT, idf_V)


def _csr(block_BV: Tensor) -> Matrix:
    return sparse.csr_array(block_BV.numpy())


def _stacked(parts: list[Matrix]) -> Matrix:
    return sparse.csr_array(sparse.vstack(parts, format="csr"))


def _documents_of_labels(split: Split) -> list[NDArray[np.int32]]:
    """Rows of the documents of each label."""
    gold: Matrix = sparse.csc_array(split.label_matrix())
    return np.split(gold.indices, gold.indptr[1:-1])


def _fit_labels(
    features: Matrix,
    positives: list[NDArray[np.int32]],
    config: LexicalConfig,
    seed: int,
    progress: Progress | None,
) -> tuple[list[Matrix], list[NDArray[np.float32]]]:
    """Weights and biases, chunk by chunk of labels, on all cores."""
    labels = len(positives)
    tasks = (
        delayed(_fit_chunk)(features, positives[start : start + _CHUNK], config, seed)
        for start in range(0, labels, _CHUNK)
    )
    rows, biases = [], []
    workers = min(cpu_count(), -(-labels // _CHUNK))
    fitted: Any = Parallel(n_jobs=workers, return_as="generator", max_nbytes="1M")(tasks)
    with (progress or Silent()).task("lexical", total=labels, unit="labels") as task:
        for weights, bias in fitted:
            rows.append(weights)
            biases.append(bias)
            task.advance(len(bias))
    return rows, biases


def _fit_chunk(
    features: Matrix, positives: list[NDArray[np.int32]], config: LexicalConfig, seed: int
) -> tuple[Matrix, NDArray[np.float32]]:
    fitted = [_fit_label(features, rows, config, seed) for rows in positives]
    pruned = [np.where(np.abs(weights_V) >= config.prune, weights_V, 0) for weights_V, _ in fitted]
    return sparse.csr_array(np.stack(pruned)), np.array([bias for _, bias in fitted], np.float32)


def _fit_label(
    features: Matrix, positives: NDArray[np.int32], config: LexicalConfig, seed: int
) -> tuple[NDArray[np.float32], float]:
    """Weights (V,) and bias of one label; a margin of -1 for all where there is nothing to learn from, +1 if on all."""
    documents, vocabulary = features.shape
    if len(positives) in (0, documents):
        return np.zeros(vocabulary, np.float32), 1.0 if len(positives) else -1.0
    rows = _learned_from(features, positives, config.negatives)
    machine: Any = LinearSVC(C=config.c, tol=1e-2, random_state=seed)
    machine.fit(features[rows], np.isin(rows, positives))
    return machine.coef_[0].astype(np.float32), float(machine.intercept_[0])


def _learned_from(features: Matrix, positives: NDArray[np.int32], negatives: int) -> NDArray[np.int64]:
    """Rows of a label's documents and of the `negatives` others most like their mean."""
    documents = features.shape[0]
    if documents - len(positives) <= negatives:
        return np.arange(documents)
    similarity_N = features @ features[positives].mean(axis=0)
    similarity_N[positives] = np.inf
    kept = negatives + len(positives)
    return np.sort(np.argpartition(-similarity_N, kept - 1)[:kept])


def _calibrated(lexical: Lexical, dev: Split) -> Lexical:
    """The branch with the log-odds that its margins stand for on dev, among each document's best labels."""
    gold = dev.label_matrix()
    kept = min(_CALIBRATION_LABELS, lexical.labels)
    margins, hits, first = [], [], 0
    for block_BV in _features(dev, lexical.idf_V, _CALIBRATION_DOCUMENTS):
        top = lexical.margins(block_BV).topk(kept, dim=1)
        rows = np.arange(first, first + len(block_BV))
        hits.append(np.take_along_axis(gold[rows].toarray(), top.indices.numpy(), axis=1).ravel())
        margins.append(top.values.numpy().ravel())
        first += len(block_BV)
    margin_P, hit_P = np.concatenate(margins), np.concatenate(hits)
    if hit_P.all() or not hit_P.any():
        raise DataError(
            f"{dev.name}: none, or all, of the labels that the lexical branch finds are right, so its scores cannot be "
            "calibrated: give a dev split that shares labels with train, or leave model.lexical out"
        )
    platt = LogisticRegression(C=1e6).fit(margin_P[:, None], hit_P)
    return Lexical(**(vars(lexical) | {"calibration": torch.tensor([platt.coef_[0, 0], platt.intercept_[0]]).float()}))
