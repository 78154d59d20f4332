"""Fitting the lexical branch: one linear SVM a label, on the CPU, before the backbone is needed.

Suffixes: N documents of a split, T tokens, V token vocabulary, F terms, L labels.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from xmtc.data.corpus import Split
from xmtc.data.progress import Progress, Silent
from xmtc.errors import DataError
from xmtc.models.config import LexicalConfig
from xmtc.models.lexical import Lexical
from xmtc.train.find_terms import Matrix, blocks, feature_matrix, find_terms

_CHUNK = 64  # labels of one task
_CALIBRATION_DOCUMENTS = 5_000
_CALIBRATION_LABELS = 100  # of a document: its highest margins


def fit_lexical(
    train: Split,
    dev: Split,
    config: LexicalConfig,
    *,
    vocabulary: int,
    special_token_ids: list[int],
    task: str,
    seed: int,
    progress: Progress | None = None,
) -> Lexical:
    """Fit a lexical branch on train, and its calibration on dev.

    Args:
        train: documents to learn from.
        dev: documents that tell how a margin turns into a logit, two numbers in all.
        config: see `LexicalConfig`.
        vocabulary: V.
        special_token_ids: tokens that never count.
        task: `single_label` where a document has exactly one label.
        seed: of the solver's order.
        progress: told how many labels are fitted.

    Raises:
        DataError: dev holds no label that the branch could be calibrated on.
    """
    terms = find_terms(
        train,
        vocabulary=vocabulary,
        special_token_ids=special_token_ids,
        longest=config.ngrams,
        min_documents=config.min_documents,
    )
    features = feature_matrix(train, terms)
    rows, biases = _fit_labels(features, _documents_of_labels(train), config, seed, progress)
    weights = sparse.csr_array(sparse.vstack(rows, format="csr"))
    lexical = Lexical(
        terms.idf_F,
        terms.ngrams,
        torch.from_numpy(weights.indptr.astype(np.int32)),
        torch.from_numpy(weights.indices.astype(np.int32)),
        torch.from_numpy(weights.data.astype(np.float32)),
        torch.from_numpy(np.concatenate(biases)),
        torch.tensor([1.0, 0.0]),
    )
    return _calibrated(lexical, dev, task)


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
    workers = min(cpu_count(), labels)
    chunk = min(_CHUNK, -(-labels // workers))
    tasks = (
        delayed(_fit_chunk)(features, positives[start : start + chunk], config, seed)
        for start in range(0, labels, chunk)
    )
    rows, biases = [], []
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
    documents_F = np.bincount(features.indices, minlength=features.shape[1])
    scaled = config.weighting == "log_odds"
    scales = (_log_odds(features, rows, documents_F) if scaled else None for rows in positives)
    pairs = zip(positives, scales, strict=True)
    fitted = [_fit_label(features, rows, scale_F, config, seed) for rows, scale_F in pairs]
    weights = sparse.vstack([weights_1F for weights_1F, _ in fitted], format="csr")
    return weights, np.array([bias for _, bias in fitted], np.float32)


def _log_odds(features: Matrix, positives: NDArray[np.int32], documents_F: NDArray[np.int64]) -> NDArray[np.float32]:
    """Log of how much likelier a term is in a label's documents than in others (F,), smoothed by one of each.

    Args:
        features: (N, F).
        positives: rows of the label's documents.
        documents_F: in how many documents each term is.
    """
    with_F = np.bincount(features[positives].indices, minlength=features.shape[1])
    others = features.shape[0] - len(positives)
    likelier_F = (with_F + 1) / (len(positives) + 1) / ((documents_F - with_F + 1) / (others + 1))
    return np.log(likelier_F).astype(np.float32)


def _fit_label(
    features: Matrix,
    positives: NDArray[np.int32],
    scale_F: NDArray[np.float32] | None,
    config: LexicalConfig,
    seed: int,
) -> tuple[Matrix, float]:
    """Weights (1, F) and bias of one label; a margin of -1 for all where there is nothing to learn from, +1 if on all.

    Args:
        features: (N, F).
        positives: rows of the label's documents.
        scale_F: of the features in the fit, and so how far the weights may move; all alike when None.
        config: see `LexicalConfig`.
        seed: of the solver's order.
    """
    documents, terms = features.shape
    if len(positives) in (0, documents):
        return sparse.csr_array((1, terms), dtype=np.float32), 1.0 if len(positives) else -1.0
    rows = _learned_from(features, positives, config.negatives)
    learned = features[rows]
    if scale_F is not None:
        learned.data *= scale_F[learned.indices]
    machine: Any = LinearSVC(C=config.c, tol=1e-2, random_state=seed)
    machine.fit(learned, np.isin(rows, positives))
    weights_F = machine.coef_[0] if scale_F is None else machine.coef_[0] * scale_F
    pruned_F = np.where(np.abs(weights_F) >= config.prune, weights_F, 0).astype(np.float32)
    return sparse.csr_array(pruned_F[None]), float(machine.intercept_[0])


def _learned_from(features: Matrix, positives: NDArray[np.int32], negatives: int) -> NDArray[np.int64]:
    """Rows of a label's documents and of the `negatives` others most like their mean."""
    documents = features.shape[0]
    if documents - len(positives) <= negatives:
        return np.arange(documents)
    similarity_N = features @ features[positives].mean(axis=0)
    similarity_N[positives] = np.inf
    kept = negatives + len(positives)
    return np.sort(np.argpartition(-similarity_N, kept - 1)[:kept])


def _calibrated(lexical: Lexical, dev: Split, task: str) -> Lexical:
    """The branch with the log-odds that its margins stand for on dev, among each document's best labels."""
    gold = dev.label_matrix()
    kept = min(_CALIBRATION_LABELS, lexical.labels)
    margins, hits, first = [], [], 0
    for tokens_BT, mask_BT in blocks(dev, _CALIBRATION_DOCUMENTS):
        top = lexical.margins(tokens_BT, mask_BT).topk(kept, dim=1)
        rows = np.arange(first, first + len(tokens_BT))
        hits.append(np.take_along_axis(gold[rows].toarray(), top.indices.numpy(), axis=1))
        margins.append(top.values.numpy())
        first += len(tokens_BT)
    margin_NK, hit_NK = np.concatenate(margins), np.concatenate(hits)
    if hit_NK.all() or not hit_NK.any():
        raise DataError(
            f"{dev.name}: none, or all, of the labels that the lexical branch finds are right, so its scores cannot be "
            "calibrated: give a dev split that shares labels with train, or leave model.lexical out"
        )
    fit = _temperature if task == "single_label" else _platt
    return replace(lexical, calibration=torch.tensor(fit(margin_NK, hit_NK)).float())


def _platt(margin_NK: NDArray[np.float32], hit_NK: NDArray[np.bool_]) -> tuple[float, float]:
    """Scale and offset of independent labels' log-odds (Platt 1999)."""
    fitted = LogisticRegression(C=1e6).fit(margin_NK.reshape(-1, 1), hit_NK.ravel())
    return float(fitted.coef_[0, 0]), float(fitted.intercept_[0])


def _temperature(margin_NK: NDArray[np.float32], hit_NK: NDArray[np.bool_]) -> tuple[float, float]:
    """Scale of the logits of labels that exclude each other; an offset changes no softmax."""
    found_N = hit_NK.any(1)
    margin_NK, hit_NK = margin_NK[found_N], hit_NK[found_N]

    def loss(log_scale: float) -> float:
        logits_NK = margin_NK * np.exp(log_scale)
        return float((logsumexp(logits_NK, axis=1) - logits_NK[hit_NK]).mean())

    best: Any = minimize_scalar(loss, bounds=(-5, 5), method="bounded")
    return float(np.exp(best.x)), 0.0
