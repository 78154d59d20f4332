"""What the linear scorer costs where labels are many: time and memory, measured at some sizes, extrapolated to others.

    python tools/bench/linear.py
    python tools/bench/linear.py --labels 20000 --documents 20000 --terms 4000 --target-labels 670091

The corpus is made up: words and labels follow a power law, and a label's documents share some words. Seconds are CPU
seconds of this process, so that other work on the machine counts little. A fit has three parts: the Gram matrix grows
with the documents, the factorisation with the cube of the terms, and solving with the labels, which ranks share. Prints
JSON lines; the last one compares seconds per label at the largest size with those at the smallest.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy import sparse

from xmtc.data.arrays import Matrix
from xmtc.data.words import Vocabulary, Words
from xmtc.scorers.base import Features
from xmtc.scorers.gram import gram
from xmtc.scorers.linear import Linear, factorise, solve_labels

T = TypeVar("T")
WORDS_OF_DOCUMENT, LABELS_OF_DOCUMENT, WORDS_OF_LABEL = 120, 5, 8
PENALTY = 0.1


def corpus(documents: int, terms: int, labels: int) -> tuple[Words, Matrix]:
    """Words of N documents, and labels (N, L): each label adds its own words to its documents."""
    rng = np.random.default_rng(0)
    shape = (documents, LABELS_OF_DOCUMENT)
    label_ids = power_law(rng, labels, shape)
    own_words = power_law(rng, terms, (labels, WORDS_OF_LABEL))
    from_labels = own_words[label_ids].reshape(documents, -1)
    words = np.concatenate(
        [from_labels, power_law(rng, terms, (documents, WORDS_OF_DOCUMENT))], axis=1
    )
    rows = np.repeat(np.arange(documents), words.shape[1])
    counts = sparse.csr_array(
        (np.ones(words.size, np.float32), (rows, words.ravel())),
        shape=(documents, terms),
    )
    vocabulary = Vocabulary(
        [str(term) for term in range(terms)], np.full(terms, documents), documents
    )
    of = (np.repeat(np.arange(documents), LABELS_OF_DOCUMENT), label_ids.ravel())
    return Words(counts, vocabulary), sparse.csr_array(
        (np.ones(label_ids.size, np.bool_), of), shape=(documents, labels)
    )


def power_law(
    rng: np.random.Generator, size: int, shape: tuple[int, int]
) -> np.ndarray:
    """Numbers under `size`, number i about 1/(i + 1) as likely."""
    return np.minimum(
        np.exp(rng.random(shape) * np.log(size + 1)).astype(np.int64) - 1, size - 1
    )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result, and the CPU seconds that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def main() -> None:
    arguments = parse()
    words, labels_NL = corpus(arguments.documents, arguments.terms, arguments.labels)
    words_NV = words.together()
    _, gram_s = timed(lambda: gram(words_NV))
    factor, both_s = timed(lambda: factorise(words_NV, PENALTY))
    say(
        {
            "part": "gram",
            "documents": arguments.documents,
            "terms": arguments.terms,
            "cpu_s": gram_s,
        }
    )
    say({"part": "factorise", "terms": arguments.terms, "cpu_s": both_s - gram_s})
    per_label = []
    for share in (4, 2, 1):
        count = arguments.labels // share
        some = labels_NL[:, :count]
        chunks, seconds = timed(
            lambda some=some: list(solve_labels(some, factor, arguments.prune))
        )
        weights = sparse.csr_array(
            sparse.vstack([rows for _, rows in chunks], format="csr").T.tocsr()
        )
        per_label.append(seconds / count)
        scorer = Linear(weights, np.ones(1, np.float32))
        block = Features(words.take(slice(arguments.scored)))
        _, score_s = timed(
            lambda scorer=scorer, block=block: scorer.score(block).top(50)
        )
        stored = 8 * weights.nnz
        say(
            {
                "part": "solve",
                "labels": count,
                "cpu_s": seconds,
                "weights_mib": stored / 2**20,
                "bytes_per_label": stored / count,
            }
            | {
                "score_ms_per_document": 1e3 * score_s / len(block),
                "peak_gib": peak_gib(),
            }
        )
    target = arguments.target_labels
    gram_s *= arguments.target_documents / arguments.documents
    say(
        {
            "part": "extrapolated",
            "labels": target,
            "documents": arguments.target_documents,
            "terms": arguments.terms,
        }
        | {"gram_cpu_h": gram_s / 3600, "solve_cpu_h": per_label[-1] * target / 3600}
        | {"weights_gib": stored / arguments.labels * target / 2**30}
    )
    ratio = per_label[-1] / per_label[0]
    say(
        {
            "name": "linear_seconds_per_label",
            "ratio": ratio,
            "bar": 1.2,
            "holds": ratio <= 1.2,
        }
    )


def peak_gib() -> float:
    """Greatest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def say(record: dict) -> None:
    print(
        json.dumps(
            {
                key: round(v, 4) if isinstance(v, float) else v
                for key, v in record.items()
            }
        ),
        flush=True,
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--terms", type=int, default=8_000)
    parser.add_argument("--labels", type=int, default=32_768)
    parser.add_argument("--prune", type=float, default=0.3)
    parser.add_argument(
        "--scored", type=int, default=512, help="documents that are scored"
    )
    parser.add_argument("--target-labels", type=int, default=670_091)
    parser.add_argument("--target-documents", type=int, default=500_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
