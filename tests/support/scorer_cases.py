"""A small corpus of random words, for tests of scorers."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.config import WordsConfig
from xmtc.data.words import Vocabulary, choose_words, document_frequencies
from xmtc.scorers.base import Features, LabelNames, Training
from xmtc.scorers.label_text import label_words

LABELS, WIDTH = 7, 6


def texts_and_labels(documents: int, seed: int) -> tuple[list[str], sparse.csr_array]:
    """Documents in which label l is likely where the word `wl` occurs."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 30, size=(documents, 12))
    labels = np.stack([(words == label).any(axis=1) for label in range(LABELS)], axis=1)
    labels ^= rng.random(labels.shape) < 0.05
    texts = [" ".join(f"w{word}" for word in row) for row in words]
    return texts, sparse.csr_array(labels)


def states_of(documents: int, seed: int) -> NDArray[np.float32]:
    return (
        np.random.default_rng(seed).normal(size=(documents, WIDTH)).astype(np.float32)
    )


def training(documents: int = 60, seed: int = 0) -> tuple[Training, Vocabulary]:
    texts, labels = texts_and_labels(documents, seed)
    vocabulary = choose_words(document_frequencies(texts), documents, WordsConfig())
    features = Features(vocabulary.words(texts), states_of(documents, seed))
    names = [f"w{label} unseen" for label in range(LABELS)]
    return Training(features, labels, label_names(names, vocabulary)), vocabulary


def label_names(names: list[str], vocabulary: Vocabulary) -> LabelNames:
    """One name of each label, with random states."""
    return LabelNames(
        names,
        np.arange(len(names)),
        label_words(names, vocabulary),
        states_of(len(names), len(names)),
    )


def unseen(
    vocabulary: Vocabulary, documents: int = 9, seed: int = 5
) -> tuple[Features, sparse.csr_array]:
    texts, labels = texts_and_labels(documents, seed)
    return Features(vocabulary.words(texts), states_of(documents, seed)), labels
