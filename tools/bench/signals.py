"""Which signal's tokens recognise a label in documents that it was not computed from? On EURLEX57K.

    PYTHONPATH=tools/plugins .venv/bin/python tools/bench/signals.py [--data DIR]

Every signal ranks tokens on the training documents. A dev document is then scored for a label by how many of the
label's top 20 tokens it holds. Reported by train frequency of the label, over (document, label) pairs: the area under
the ROC curve (how often a document with the label scores above one without it, ties half), and the mean share of the
20 tokens found in documents with the label and without it. One JSON line a signal and bin.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import rankdata

from mig import (
    TokenisedSplit,
    find_parquet,
    load_tokenizer,
    parse_arguments,
    special_ids,
    tokenise,
    write,
)
from signal_controls import ShuffledConfig
from xmtc.planting.mig.config import (
    ChiSquaredConfig,
    MigConfig,
    PointwiseConfig,
)
from xmtc.planting.mig.counts import row_count
from xmtc.planting.mig.ranking import TokenRanking, rank_tokens

TOP = 20
BINS = {
    "1-2": (1, 2),
    "3-5": (3, 5),
    "6-10": (6, 10),
    "11-50": (11, 50),
    ">50": (51, sys.maxsize),
}
CONFIGS = {
    "mig": MigConfig(top_k=TOP),
    "mig, min_documents 1": MigConfig(top_k=TOP, min_documents=1),
    "mig, min_documents 20": MigConfig(top_k=TOP, min_documents=20),
    "mig, unsigned": MigConfig(top_k=TOP, signed=False),
    "chi2": MigConfig(top_k=TOP, signal=ChiSquaredConfig()),
    "pmi": MigConfig(top_k=TOP, signal=PointwiseConfig()),
    "shuffled": MigConfig(top_k=TOP, signal=ShuffledConfig()),
}


def main() -> int:
    arguments, tokenizer = parse_arguments(), load_tokenizer()
    train, dev = (
        tokenise(find_parquet(arguments.data, split), tokenizer)
        for split in ("train", "dev")
    )
    vocab_size, special = tokenizer.get_vocab_size(), special_ids(tokenizer)
    present_VN = presence(dev, vocab_size)
    labels_NL = dev_labels(dev, np.load(train / "label_names.npy"))
    for name, config in CONFIGS.items():
        ranking = rank_tokens(
            TokenisedSplit(train),
            config,
            special_token_ids=special,
            vocab_size=vocab_size,
        )
        compare(name, ranking, present_VN, labels_NL)
    return 0


def presence(cache: Path, vocab_size: int) -> NDArray[np.bool_]:
    split = TokenisedSplit(cache)
    document = np.repeat(np.arange(len(split.offsets) - 1), np.diff(split.offsets))
    present_VN = np.zeros((vocab_size, len(split.offsets) - 1), bool)
    present_VN[split.tokens, document] = True
    return present_VN


def dev_labels(cache: Path, train_names: NDArray[np.str_]) -> sparse.csc_array:
    """The dev documents' labels under the training labels' ids; labels that training lacks are left out."""
    labels_NL, names = (
        TokenisedSplit(cache).label_matrix(),
        np.load(cache / "label_names.npy"),
    )
    ids = np.searchsorted(train_names, names).clip(max=len(train_names) - 1)
    known = np.flatnonzero(train_names[ids] == names)
    coordinates = sparse.csc_array(labels_NL)[:, known].tocoo()
    shape = (row_count(labels_NL), len(train_names))
    return sparse.csc_array(
        (coordinates.data, (coordinates.row, ids[known][coordinates.col])), shape=shape
    )


def compare(
    name: str,
    ranking: TokenRanking,
    present_VN: NDArray[np.bool_],
    labels_NL: sparse.csc_array,
) -> None:
    frequency_L, counts_L = ranking.label_documents_L, ranking.counts
    for bin_name, (low, high) in BINS.items():
        labels = np.flatnonzero(
            (frequency_L >= low)
            & (frequency_L <= high)
            & (np.diff(labels_NL.indptr) > 0)
        )
        figures = [
            label_figures(
                ranking.token_ids_LK[label, : counts_L[label]],
                present_VN,
                labels_NL,
                int(label),
            )
            for label in labels
        ]
        auc, found, background, weight = np.array(figures).T
        write(
            name=name,
            train_documents=bin_name,
            pairs=int(weight.sum()),
            auc=np.average(auc, weights=weight),
            share_with_label=np.average(found, weights=weight),
            share_without=np.average(background, weights=weight),
        )


def label_figures(
    tokens: NDArray[np.int32],
    present_VN: NDArray[np.bool_],
    labels_NL: sparse.csc_array,
    label: int,
) -> tuple[float, float, float, int]:
    """AUC, share of the top tokens in documents with and without the label, documents with the label."""
    share_N = present_VN[tokens].sum(axis=0) / TOP
    has_label_N = np.zeros(share_N.size, bool)
    has_label_N[
        labels_NL.indices[labels_NL.indptr[label] : labels_NL.indptr[label + 1]]
    ] = True
    positives, negatives = int(has_label_N.sum()), int((~has_label_N).sum())
    above = rankdata(share_N)[has_label_N].sum() - positives * (positives + 1) / 2
    return (
        above / (positives * negatives),
        share_N[has_label_N].mean(),
        share_N[~has_label_N].mean(),
        positives,
    )


if __name__ == "__main__":
    sys.exit(main())
